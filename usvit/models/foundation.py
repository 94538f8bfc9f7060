"""Foundation models of the hub: licences, addresses, and what no tensor shows (``foundation.yaml``).

A file of weights does not say how many heads the network has, how its tokens are pooled and normalised, what the
statistics of its images are, or which public data sets it was pre-trained on. Each entry states these facts with their
sources. It imports neither torch nor timm.
"""

import functools
from collections.abc import Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from usvit.config import Pool
from usvit.plain_yaml import parse_yaml

if TYPE_CHECKING:
    from usvit.records import SeenCollectionRecord

Statistics = tuple[float, float, float]
_Text = Annotated[str, Field(min_length=1)]
_Web = Annotated[str, Field(pattern=r"^https://[^/]+/")]


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PlainShape(_Entry):
    """Shape of a plain ViT, as far as it differs from the usual one of its size."""

    size: Literal["ti", "s", "b", "l"]
    """Letter of ``usvit.models.zoo.common.SIZES``."""
    heads: Annotated[int, Field(ge=1)] | None = None
    pool: Pool = "token"


class FoundationNetwork(_Entry):
    """Network that the weights belong to."""

    architecture: _Text
    """Name that ``timm.create_model`` builds."""
    options: dict[str, str | int]
    """Keyword arguments of ``timm.create_model``: what differs from timm's own network of this name."""
    shape: PlainShape | None = None
    """Shape if this is a plain ViT, whose parts can be exchanged (``model.vit``)."""


class ListedDataset(_Entry):
    """Public data set in a published list of pre-training images."""

    name: _Text
    """Name in the list."""
    card: str | None = None
    """Data card of usvit for the same data set; None if there is none."""


class PublishedPretraining(_Entry):
    """What is published about the images that a foundation model was pre-trained on."""

    known: Literal["listed", "unknown"]
    """``unknown`` if the data sets are private, or if no list of them has been confirmed."""
    collection: str | None = None
    """Name of the collection of these data sets."""
    source: _Text
    """Where the list, or the statement without a list, was read."""
    note: _Text
    sets: tuple[ListedDataset, ...] = ()

    @field_validator("sets", mode="before")
    @classmethod
    def _names_alone(cls, value: object) -> object:
        return [{"name": one} if isinstance(one, str) else one for one in value] if isinstance(value, list) else value

    @model_validator(mode="after")
    def _listed_means_sets(self) -> "PublishedPretraining":
        if (self.known == "listed") != bool(self.sets):
            raise ValueError("'sets' has entries exactly if the data sets are known to be 'listed'")
        return self


class FoundationModel(_Entry):
    """One entry of ``foundation.yaml``."""

    name: _Text
    """Name of the network, and of its weights after ``hub:``."""
    title: _Text
    by: _Text
    """Authors of the weights, and the images they were pre-trained on."""
    source: _Text
    """Short name of the paper, a key of ``usvit.models.zoo.common.SOURCES``."""
    license: _Text
    """SPDX identifier, or the authors' own name of the licence."""
    repository: _Web
    """The authors' code."""
    address: _Web
    """Where the weights are."""
    file: str | None
    """The authors' name of the file; None if it is not stated."""
    timm: str | None = None
    """timm's ``architecture.tag`` if timm hosts the weights; then ``--weights hub`` can download them."""
    network: FoundationNetwork | None
    no_network: str | None = None
    """Reason why usvit does not have the network."""
    keys: _Text
    """Names of the tensors in the file."""
    heads: int | None
    pooling: _Text
    norm: _Text
    positions: _Text
    image_size: int | None
    mean: Statistics | None
    std: Statistics | None
    evidence: dict[str, _Text]
    """Key of the entry -> where it was read."""
    unconfirmed: dict[str, _Text] = {}
    """Key of the entry -> what is not confirmed about it, and why."""
    pretraining: PublishedPretraining

    @field_validator("mean", "std", mode="before")
    @classmethod
    def _as_tuple(cls, value: object) -> object:
        return tuple(value) if isinstance(value, list) else value

    @model_validator(mode="after")
    def _fits_together(self) -> "FoundationModel":
        if (self.network is None) != (self.no_network is not None):
            raise ValueError("an entry without a network says why in no_network, and no other does")
        if self.network is not None and None in (self.heads, self.image_size, self.mean, self.std):
            raise ValueError("an entry with a network needs heads, image_size, mean and std")
        if stray := {*self.evidence, *self.unconfirmed} - set(type(self).model_fields):
            raise ValueError(f"'{min(stray)}' in evidence or unconfirmed is no key of an entry")
        return self

    def seen_collection(self) -> "SeenCollectionRecord":
        """Return its pre-training data sets as the record of seen images holds them.

        A data set of a card stands for all data sets with the same images: BUSI's are also in BreastMNIST.
        """
        from usvit.data.datasets import load_card  # pandas takes long to import, and 'usvit models list' needs none
        from usvit.records import ListedSet, SeenCollectionRecord

        sets = []
        for one in self.pretraining.sets:
            cards = [] if one.card is None else [one.card, *load_card(one.card).same_images_as]
            sets.append(ListedSet(name=one.name, cards=cards))
        known = self.pretraining
        return SeenCollectionRecord(
            network=self.title,
            known=known.known,
            collection=known.collection,
            source=known.source,
            note=known.note,
            sets=sets,
        )

    def facts(self) -> list[tuple[str, str]]:
        """Return the entry as pairs of heading and text, as terminal and documentation show it."""
        known, network = self.pretraining, self.network
        options = ", ".join(f"{key}={value}" for key, value in network.options.items()) if network else ""
        own = f"{network.architecture}{f' ({options})' if options else ''}" if network else str(self.no_network)
        sets = ", ".join(f"{one.name} ({one.card})" if one.card else one.name for one in known.sets)
        return [
            ("Model", f"{self.title} ({self.source})"),
            ("Weights", self.by),
            ("Licence", self.license),
            ("Address", self.address + (f" ({self.file})" if self.file else "")),
            ("Code", self.repository),
            ("Network", own),
            ("Names in the file", self.keys),
            ("Heads", str(self.heads or "not examined")),
            ("Pooling", self.pooling),
            ("Normalisation", self.norm),
            ("Positions", self.positions),
            ("Image", f"{self.image_size} pixels, mean {self.mean}, sd {self.std}" if self.mean else "not examined"),
            ("Pre-trained on", f"{known.collection or 'not known'}: {sets}" if sets else "not known"),
            ("Note", f"{known.note} (source: {known.source})"),
            *((f"Unconfirmed: {key}", why) for key, why in self.unconfirmed.items()),
            *((f"Source of {key}", where) for key, where in self.evidence.items()),
        ]


@functools.cache
def foundation_models() -> Mapping[str, FoundationModel]:
    """Return the entries by name, in the order of the file."""
    text = (files("usvit.models") / "foundation.yaml").read_text(encoding="utf-8")
    entries = parse_yaml(text, "foundation.yaml")
    return {name: FoundationModel.model_validate({"name": name, **entry}) for name, entry in entries.items()}
