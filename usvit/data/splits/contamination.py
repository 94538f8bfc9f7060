"""Public data sets that a foundation model was pre-trained on, which must not be its test sets.

Nobody has the pixel hashes of a foundation model's images, so ``leakage`` cannot recognise them one by one. Many models
have a published list of their data sets instead. The list is part of the record of seen images (``SeenImages``): every
network that starts from the model inherits it, and a test on a listed data set is refused as contamination.
"""

from collections.abc import Iterable, Mapping, Sequence

from usvit.errors import LeakageError
from usvit.records import ContaminationRecord, SeenCollectionRecord

_ALLOW = "--allow-contaminated"
"""Option that goes on in spite of contamination."""


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
    tested: Mapping[str, Sequence[str]], collections: Iterable[SeenCollectionRecord]
) -> tuple[ContaminationRecord, ...]:
    """Find tested data sets that are listed, by name, in the order of the tested ones.

    Args:
        tested: Result of ``names_with_same_images``.
        collections: ``SeenImages.collections`` of the tested networks.
    """
    found: dict[ContaminationRecord, None] = {}
    for dataset, names in tested.items():
        for one in collections:
            for listed in one.sets:
                if {name.casefold() for name in names} & {listed.name.casefold(), *listed.cards}:
                    found[_contamination(dataset, listed.name, one)] = None
    return tuple(found)


def _contamination(dataset: str, listed_as: str, by: SeenCollectionRecord) -> ContaminationRecord:
    return ContaminationRecord(
        dataset=dataset, listed_as=listed_as, network=by.network, collection=by.collection, source=by.source
    )


def refuse_contaminated(
    tested: Mapping[str, Sequence[str]],
    collections: Mapping[str, Iterable[SeenCollectionRecord]],
    *,
    allow: bool,
    option: str = _ALLOW,
) -> tuple[ContaminationRecord, ...]:
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
    found: dict[ContaminationRecord, None] = {}
    for who, own in collections.items():
        contaminated = contamination_of(tested, own)
        if contaminated and not allow:
            phrases = "; ".join(map(contamination_phrase, contaminated))
            raise LeakageError(
                f"Contamination: {who} was pre-trained on data that it would be tested on: {phrases}. The "
                "result would be too good, because the network was trained on these images. Test on another data set, "
                f"or start from other weights. To measure it all the same, pass {option}: every page then says so."
            )
        found |= dict.fromkeys(contaminated)
    return tuple(found)


def contamination_warning(contaminations: Iterable[ContaminationRecord]) -> str | None:
    """Return the sentence that pages and records show for allowed contamination; None if there is none."""
    phrases = [contamination_phrase(one) for one in contaminations]
    if not phrases:
        return None
    return (
        f"CONTAMINATED. The network was pre-trained on images of its test data: {'; '.join(phrases)}. The figures are "
        f"inflated and do not apply to new images ({_ALLOW})."
    )


def unlisted(collections: Iterable[SeenCollectionRecord]) -> str | None:
    """Return a sentence about foundation models whose data sets are not known; None if all are listed."""
    unknown = [f"{one.network}: {one.note}" for one in collections if one.known == "unknown"]
    if not unknown:
        return None
    return f"There is no confirmed list of the data sets that were used in pre-training. {'; '.join(unknown)}."


def contamination_phrase(one: ContaminationRecord) -> str:
    """Return ``bus_bra ('BUS-BRA' in OpenUS-46, which USF-MAE was pre-trained on; list: ...)``."""
    where = f"in {one.collection}, which {one.network}" if one.collection else f"on the list of what {one.network}"
    return f"{one.dataset} ('{one.listed_as}' {where} was pre-trained on; list: {one.source})"
