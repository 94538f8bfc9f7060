"""Images that a network has seen, and tested data sets that are among them."""

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from usvit.records.base import (
    FROZEN,
    Name,
    Record,
    Sha256,
    Text,
    key,
    optional,
)

SeenSplit = Literal["train", "val", "upstream"]
_FILE = r"^seen-[0-9a-f]{16}\."


class SeenFileRecord(Record):
    """File beside model.json that describes images which the network has seen."""

    file: Name
    part: SeenSplit
    count: Annotated[int, Field(ge=1, le=10**12)] = key("Number of images with different pixels.")
    sha256: Sha256 = key("SHA-256 of the file.")


class SeenGap(Record):
    """Images that the network has seen and that are not fully on record."""

    model_config = FROZEN
    part: SeenSplit
    known: Literal["hashes", "nothing"] = key(
        "hashes: pixel hashes are on record, but no descriptions. nothing: it is unknown which images these were."
    )
    what: Text = key("Description of the images, or of the weights that were trained on them.")


class SeenHashes(Record):
    """Pixel hashes of the images that the network has seen, by the split that the images were in."""

    model_config = ConfigDict(json_schema_extra={"x-open": {"type": "array", "items": {"type": "string"}}})
    __pydantic_extra__: dict[str, list[str]] = Field(init=False)
    train: list[str]
    val: list[str]
    upstream: list[str]
    files: list[SeenFileRecord] | None = optional(
        "Files of lists that are too long for JSON: sorted hashes of 32 bytes each. Absent if there are none.",
        minItems=1,
        allOf=[{"items": {"properties": {"file": {"pattern": _FILE + "sha256$"}}}}],
    )
    unhashed: list[Text] | None = optional("Sources whose images were seen and are not on record.")


class SeenCopies(Record):
    """Near-duplicate descriptions of the images that the network has seen."""

    files: list[SeenFileRecord] = key(
        "Files of descriptions of the images of seen_sha256, about 1 kB each, by which near-duplicates of these images "
        "are recognised.",
        allOf=[{"items": {"properties": {"file": {"pattern": _FILE + "copies$"}, "count": {"maximum": 200_000}}}}],
    )
    gaps: list[SeenGap]


class SeenRecord(Record):
    """The entries of ``model.json`` on the images that the network has seen."""

    seen_sha256: SeenHashes
    seen_copies: SeenCopies
    seen_collections: list["SeenCollectionRecord"] | None = optional()


class ListedSet(Record):
    """Public data set in the published list of a foundation model."""

    name: Text = key("Name in the list.")
    cards: list[Name] = key("Data cards with these images; empty if there is none.")


class SeenCollectionRecord(Record):
    """What is published about the data sets that a foundation model was pre-trained on."""

    model_config = FROZEN
    network: Text = key("The foundation model.")
    known: Literal["listed", "unknown"] = key("unknown: there is no confirmed list of its data sets.")
    collection: Text | None = key("Name of the collection of these data sets.")
    source: Text = key("Where the list was read.")
    note: Text
    sets: Annotated[list[ListedSet], Field(max_length=10_000)]

    @property
    def cards(self) -> list[str]:
        """Names of the data cards whose images are listed, sorted."""
        return sorted({card for one in self.sets for card in one.cards})


class ContaminationRecord(Record):
    """A tested data set that a foundation model behind the network was pre-trained on, by a published list."""

    model_config = FROZEN
    dataset: Text = key("The tested data set.")
    listed_as: Text = key("Its name in the list.")
    network: Text = key("The foundation model.")
    collection: Text | None = key("Name of the collection that the list describes.")
    source: Text = key("Where the list was read.")
