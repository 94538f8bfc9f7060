"""Production of the optional files after scoring; each item is read once more in a worker process."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from usvit.errors import UsvitError
from usvit.progress import Progress, task
from usvit.pseudonyms import Pseudonyms
from usvit.scoring.dicom_out.findings import ScoringModel, shown_frames
from usvit.scoring.dicom_out.overlay import Saliency, saliency_of
from usvit.scoring.dicom_out.products import Order, Product, products_or_trouble
from usvit.scoring.engines import Reading
from usvit.scoring.ensemble import Ensemble
from usvit.scoring.items import Facts, Frame, ScoringItem
from usvit.scoring.journal import SCORED, Journal, batched
from usvit.scoring.reading.workers import End, Readers, WorkerFailure

PAGE = 32
"""Number of items whose products are made and recorded together."""
DRAWN = frozenset({"sc", "overlay"})
"""Products that show where the networks look."""


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

    The saliency of an image is the mean over the networks of the ensemble.

    Args:
        journal: lists the scored items, and records the products.
        ensemble: the networks.
        reading: settings with which the items were read, and are read again.
        out: folder of the job.
        wanted: products to write, of ``products.KINDS``.
        keep_ids, pictures, pseudonyms, started: see ``products.Order``.
        progress: shows how many items are done.
    """
    names = {member.trained.spec.name for member in ensemble.members}
    scorer = ScoringModel(
        name=names.pop() if len(names) == 1 else "ensemble",
        sha256=ensemble.sha256,
        classes=ensemble.classes,
        positive=ensemble.positive,
        n_members=ensemble.n_members,
        resize=ensemble.preprocessing.resize,
    )
    local = started.astimezone().replace(tzinfo=None)
    order = Order(out, scorer, wanted, keep_ids, pictures, pseudonyms, local, reading.settings)

    def sources(readers: Readers) -> Iterator[_Source]:
        if wanted & DRAWN:
            yield from _with_saliency(journal, readers, ensemble, scorer)
        else:
            yield from (_Source(seq, item, journal.rows_of(seq), {}) for seq, item in journal.waiting(SCORED))

    with (
        reading.open() as readers,
        reading.open() as writers,
        task(progress, "writing DICOM and pictures", journal.counts()["items"], "files") as advance,
    ):
        done = 0
        for page in batched(sources(readers), PAGE):
            scored = [one for one in page if one.rows]
            calls = [
                (order, one.item, one.rows, one.saliency, len(journal.frames_done(one.seq)) - len(one.rows))
                for one in scored
            ]
            made = dict(zip((one.seq for one in scored), writers.map_calls(products_or_trouble, calls), strict=True))
            if stop := next((one for one in made.values() if isinstance(one, str)), None):
                raise UsvitError(stop)
            for one in page:
                journal.add_products(one.seq, _entries(made.get(one.seq, []), wanted))
            advance(done := done + len(page))


@dataclass(frozen=True)
class _Source:
    seq: int
    item: ScoringItem
    rows: list[dict[str, Any]]
    saliency: dict[int, Saliency]


def _with_saliency(journal: Journal, readers: Readers, ensemble: Ensemble, scorer: ScoringModel) -> Iterator[_Source]:
    """Yield items with the saliency maps of the frames that are drawn."""
    rows: list[dict[str, Any]] = []
    saliency: dict[int, Saliency] = {}
    shown: set[int] = set()
    fresh, changed = True, False
    for seq, item, message in readers.read(journal.waiting(SCORED)):
        if fresh:
            rows, saliency, fresh, changed = journal.rows_of(seq), {}, False, False
            shown = set(shown_frames(rows, scorer))
        if isinstance(message, Facts) and rows and message.file_sha256 != rows[0]["file_sha256"]:
            shown, changed = set(), True  # do not draw the map of another image
        if isinstance(message, Frame) and message.number in shown:
            maps = [saliency_of(member.trained, message.pixels) for member in ensemble.members]
            equal = len(set(ensemble.shares)) == 1
            saliency[message.number] = np.average(maps, axis=0, weights=None if equal else ensemble.shares)
        elif isinstance(message, End):
            # Refuse the products even if the scored file is back when the item is read again.
            source = replace(item, problem="changed_since_scoring") if changed else item
            yield _Source(seq, source, rows, saliency)
            fresh = True


def _entries(made: list[Product] | WorkerFailure, wanted: frozenset[str]) -> list[tuple[str, str | None, str | None]]:
    if isinstance(made, WorkerFailure):
        return [(kind, None, made.code) for kind in sorted(wanted)]
    return [(one.kind, one.path, one.error_code) for one in made]
