"""Production of the optional files after scoring; each item is read once more in a worker process."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from usvit.errors import UsvitError
from usvit.progress import Progress, task
from usvit.pseudonyms import Pseudonyms
from usvit.scoring.dicom_out.findings import ScoringModel, shown_frames
from usvit.scoring.dicom_out.network_maps import NetworkMaps, saliency_of
from usvit.scoring.dicom_out.products import Order, Product, products_or_trouble
from usvit.scoring.engines import Reading
from usvit.scoring.ensemble import Ensemble
from usvit.scoring.items import Frame, ItemFacts, Row, ScoringItem
from usvit.scoring.journal import SCORED, Journal, batched
from usvit.scoring.reading.workers import End, Readers, WorkerFailure

PAGE = 32
"""Number of items whose products are made and recorded together."""
ProductEntry = tuple[str, str | None, str | None]
"""Kind, path below the folder of the products, and the code of the reason why the product is missing."""
_DRAWN = frozenset({"sc", "overlay"})
"""Products that show where the networks look."""


def scoring_model(ensemble: Ensemble) -> ScoringModel:
    """Return the description of an ensemble for the products."""
    names = {member.trained.spec.name for member in ensemble.members}
    segmenter = ensemble.segmenter
    return ScoringModel(
        name=names.pop() if len(names) == 1 else "ensemble",
        sha256=ensemble.sha256,
        classes=ensemble.classes,
        positive=ensemble.positive,
        n_members=ensemble.n_members,
        resize=ensemble.preprocessing.resize,
        segmenter=None if segmenter is None else (segmenter.name, segmenter.sha256),
    )


def make_products(
    journal: Journal,
    ensemble: Ensemble,
    reading: Reading,
    *,
    out: Path,
    wanted: frozenset[str],
    keep_ids: bool,
    pictures: bool,
    pseudonyms: Pseudonyms,
    started: datetime,
    progress: Progress,
) -> None:
    """Write the products of all scored items; can be resumed.

    Saliency and lesion mask of an image are means over the networks of the ensemble; with a segmenter, the mask is its.

    Args:
        journal: lists the scored items, and records the products.
        ensemble: the networks.
        reading: settings with which the items were read, and are read again.
        out: folder of the job.
        wanted: products to write, of ``products.KINDS``.
        keep_ids, pictures, pseudonyms, started: see ``products.Order``.
        progress: shows how many items are done.
    """
    local = started.astimezone().replace(tzinfo=None)
    order = Order(out, scoring_model(ensemble), wanted, keep_ids, pictures, pseudonyms, local, reading.settings)
    with (
        reading.open() as readers,
        reading.open() as writers,
        task(progress, "writing DICOM and pictures", journal.counts()["items"], "files") as advance,
    ):
        made = produced(
            journal.waiting(SCORED),
            order,
            ensemble,
            readers,
            writers,
            rows_of=journal.rows_of,
            n_frames_done=lambda seq: len(journal.frames_done(seq)),
        )
        for done, (seq, entries) in enumerate(made, 1):
            journal.add_products(seq, entries)
            advance(done)


def produced(
    items: Iterable[tuple[int, ScoringItem]],
    order: Order,
    ensemble: Ensemble,
    readers: Readers,
    writers: Readers,
    *,
    rows_of: Callable[[int], list[Row]],
    n_frames_done: Callable[[int], int],
) -> Iterator[tuple[int, list[ProductEntry]]]:
    """Write the products of items that have been scored.

    Args:
        items: (number chosen by the caller, item).
        order: the products to write.
        ensemble: the networks that scored the items.
        readers: read the items once more, if the networks are asked where they look.
        writers: processes that write the products.
        rows_of: returns the rows of ``scores.csv`` of an item, by its number.
        n_frames_done: returns the number of frames of an item that were scored or failed.

    Yields:
        The number of each item in their order, and (kind, path below ``order.out``, code of the reason why it is
        missing) of each product; none for an item without rows.

    Raises:
        UsvitError: the disk is full or cannot be written.
    """
    sources = (
        _with_maps(items, rows_of, readers, ensemble, order)
        if order.wanted & _DRAWN or ensemble.draws_lesions(order.wanted)
        else (_Source(seq, item, rows_of(seq), NetworkMaps()) for seq, item in items)
    )
    for page in batched(sources, PAGE):
        scored = [one for one in page if one.rows]
        calls = [(order, one.item, one.rows, one.maps, n_frames_done(one.seq) - len(one.rows)) for one in scored]
        made = dict(zip((one.seq for one in scored), writers.map_calls(products_or_trouble, calls), strict=True))
        if stop := next((one for one in made.values() if isinstance(one, str)), None):
            raise UsvitError(stop)
        for one in page:
            yield one.seq, _entries(made.get(one.seq, []), order.wanted)


@dataclass(frozen=True)
class _Source:
    seq: int
    item: ScoringItem
    rows: list[Row]
    maps: NetworkMaps


def _with_maps(
    items: Iterable[tuple[int, ScoringItem]],
    rows_of: Callable[[int], list[Row]],
    readers: Readers,
    ensemble: Ensemble,
    order: Order,
) -> Iterator[_Source]:
    """Yield items with the maps of the frames that are drawn or get a mask."""
    rows: list[Row] = []
    maps = NetworkMaps()
    shown: set[int] = set()
    fresh, changed = True, False
    for seq, item, message in readers.read(items):
        if fresh:
            rows, maps, fresh, changed = rows_of(seq), NetworkMaps(), False, False
            shown = set(shown_frames(rows, order.scorer))
        if isinstance(message, ItemFacts) and rows and message.file_sha256 != rows[0]["file_sha256"]:
            shown, changed = set(), True  # do not draw the map of another image
        if isinstance(message, Frame) and message.number in shown:
            if order.wanted & _DRAWN:
                each = [saliency_of(member.trained, message.pixels) for member in ensemble.members]
                maps.saliency[message.number] = ensemble.mean_of(each)
            if ensemble.draws_lesions(order.wanted):
                (maps.lesion[message.number],) = ensemble.lesion_maps([message.for_mask])
        elif isinstance(message, End):
            # Refuse the products even if the scored file is back when the item is read again.
            source = replace(item, problem="changed_since_scoring") if changed else item
            yield _Source(seq, source, rows, maps)
            fresh = True


def _entries(made: list[Product] | WorkerFailure, wanted: frozenset[str]) -> list[ProductEntry]:
    if isinstance(made, WorkerFailure):
        return [(kind, None, made.code) for kind in sorted(wanted)]
    return [(one.kind, one.path, one.error_code) for one in made]
