"""Public data sets that a foundation model was pre-trained on, which must not be its test sets.

Nobody has the pixel hashes of a foundation model's images, so ``leakage`` cannot recognise them one by one. Many models
have a published list of their data sets instead. The list is part of the record of seen images (``SeenImages``): every
network that starts from the model inherits it, and a test on a listed data set is refused as contamination.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from usvit.errors import LeakageError
from usvit.records import ContaminationRecord, SeenCollectionRecord

ALLOW = "--allow-contaminated"
"""Option that goes on in spite of contamination."""


@dataclass(frozen=True)
class SeenCollection:
    """What is published about the data sets that one foundation model was pre-trained on."""

    network: str
    """The foundation model."""
    known: Literal["listed", "unknown"]
    """``unknown`` if there is no list."""
    collection: str | None
    """Name of the collection of these data sets."""
    source: str
    """Where the list was read."""
    note: str
    sets: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """(name in the list, data cards with these images)."""

    @classmethod
    def of_record(cls, record: SeenCollectionRecord) -> "SeenCollection":
        """Return the collection that an entry of ``model.json`` describes."""
        sets = tuple((one.name, tuple(one.cards)) for one in record.sets)
        return cls(record.network, record.known, record.collection, record.source, record.note, sets)

    def entry(self) -> dict[str, Any]:
        """Return the entry for ``model.json``."""
        sets = [{"name": name, "cards": list(cards)} for name, cards in self.sets]
        own = {"network": self.network, "known": self.known, "collection": self.collection}
        return {**own, "source": self.source, "note": self.note, "sets": sets}

    @property
    def cards(self) -> list[str]:
        """Names of the data cards whose images are listed, sorted."""
        return sorted({card for _, cards in self.sets for card in cards})


@dataclass(frozen=True)
class Contamination:
    """A tested data set that is in the published list of a foundation model behind the tested network."""

    dataset: str
    listed_as: str
    network: str
    """The foundation model."""
    collection: str | None
    source: str

    @classmethod
    def of_record(cls, record: ContaminationRecord) -> "Contamination":
        """Return what an entry of ``run.json`` or of a result describes."""
        return cls(record.dataset, record.listed_as, record.network, record.collection, record.source)

    def describe(self) -> dict[str, Any]:
        """Return the entry of ``run.json``, ``metrics.json``, ``transfer.json`` and ``test.json``."""
        return asdict(self)

    def phrase(self) -> str:
        """Return ``bus_bra ('BUS-BRA' in OpenUS-46, which USF-MAE was pre-trained on; list: ...)``."""
        where = (
            f"in {self.collection}, which {self.network}" if self.collection else f"on the list of what {self.network}"
        )
        return f"{self.dataset} ('{self.listed_as}' {where} was pre-trained on; list: {self.source})"


def names_with_same_images(
    datasets: Iterable[str], same: Mapping[str, Sequence[str]] | None = None
) -> dict[str, tuple[str, ...]]:
    """Return each tested data set -> all names of data sets with its images, itself first.

    Args:
        datasets: Names in the column ``dataset``; repetitions are allowed.
        same: Data set -> others with the same images, by its own card.
    """
    return {name: (name, *(same or {}).get(name, ())) for name in dict.fromkeys(map(str, datasets))}


def contamination_of(
    tested: Mapping[str, Sequence[str]], collections: Iterable[SeenCollection]
) -> tuple[Contamination, ...]:
    """Find tested data sets that are listed, by name, in the order of the tested ones.

    Args:
        tested: Result of ``names_with_same_images``.
        collections: ``SeenImages.collections`` of the tested networks.
    """
    found: dict[Contamination, None] = {}
    for dataset, names in tested.items():
        for one in collections:
            for listed, cards in one.sets:
                if {name.casefold() for name in names} & {listed.casefold(), *cards}:
                    found[Contamination(dataset, listed, one.network, one.collection, one.source)] = None
    return tuple(found)


def refuse_contaminated(
    tested: Mapping[str, Sequence[str]],
    collections: Mapping[str, Iterable[SeenCollection]],
    *,
    allow: bool,
    option: str = ALLOW,
) -> tuple[Contamination, ...]:
    """Refuse to test networks on data sets that a foundation model behind them was pre-trained on.

    Args:
        tested: Result of ``names_with_same_images``.
        collections: Name of each network in the error -> ``SeenImages.collections``.
        allow: Return the contamination instead of refusing it.
        option: What the user passes to allow it.

    Returns:
        All contamination; empty if there is none.

    Raises:
        LeakageError: There is contamination, and it is not allowed.
    """
    found: dict[Contamination, None] = {}
    for who, own in collections.items():
        contaminated = contamination_of(tested, own)
        if contaminated and not allow:
            raise LeakageError(
                f"Contamination: {who} was pre-trained on data that it would be tested on: "
                f"{'; '.join(one.phrase() for one in contaminated)}. The result would be too good, because the network "
                f"was trained on these images. Test on another data set, or start from other weights. To measure it "
                f"all the same, pass {option}: every page then says so."
            )
        found |= dict.fromkeys(contaminated)
    return tuple(found)


def contamination_warning(contaminations: Iterable[Contamination]) -> str | None:
    """Return the sentence that pages and records show for allowed contamination; None if there is none."""
    phrases = [one.phrase() for one in contaminations]
    if not phrases:
        return None
    return (
        f"CONTAMINATED. The network was pre-trained on images of its test data: {'; '.join(phrases)}. The figures are "
        f"inflated and do not apply to new images ({ALLOW})."
    )


def unlisted(collections: Iterable[SeenCollection]) -> str | None:
    """Return a sentence about foundation models whose data sets are not known; None if all are listed."""
    unknown = [f"{one.network}: {one.note}" for one in collections if one.known == "unknown"]
    if not unknown:
        return None
    return f"There is no confirmed list of the data sets that were used in pre-training. {'; '.join(unknown)}."
