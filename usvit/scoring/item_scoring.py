"""Scoring of lists of items with networks that stay loaded, as a service needs it.

It uses the engine of ``usvit score``, so that the same files in the same order give the same numbers.
"""

import contextlib
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from usvit.pseudonyms import Pseudonyms
from usvit.scoring.dicom_out.production import ProductEntry, produced, scoring_model
from usvit.scoring.dicom_out.products import Order
from usvit.scoring.engines import ModelChoice, Reading
from usvit.scoring.ensemble import Ensemble
from usvit.scoring.items import DESCRIPTION, VIEWS, Done, Row, ScoringItem
from usvit.scoring.leakage import marked
from usvit.scoring.pipeline import Describer, scored
from usvit.scoring.reading.workers import Readers


@dataclass
class ItemScores:
    """The scores of a list of items, by their index in it."""

    rows: dict[int, list[Row]] = field(default_factory=dict)
    """Rows of ``scores.csv`` of each item that has some, in the order of its frames."""
    failures: dict[int, list[tuple[int | None, str]]] = field(default_factory=dict)
    """(frame, code of ``items.FAILURES``) of each item with failures; the frame is None for the whole file."""


class ItemScorer:
    """Networks and reader processes that stay ready; a context manager.

    Args:
        choice: the networks and their settings.
        pseudonyms: make the ids of the rows.

    Raises:
        UsvitError: the networks cannot be loaded (``Ensemble.load``).
    """

    def __init__(self, choice: ModelChoice, pseudonyms: Pseudonyms):
        self.ensemble: Ensemble = choice.load()
        self._settings, self._pseudonyms = choice.settings, pseudonyms
        self._describer = Describer(self.ensemble, pseudonyms, keep_ids=False, abstain=choice.settings.abstain)
        self._readers: dict[str, Readers] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for readers in self._readers.values():
            readers.close()

    def score(self, items: Sequence[ScoringItem], frames: str, alive: Callable[[], None] = lambda: None) -> ItemScores:
        """Score items.

        Args:
            items: files; a bad one costs only itself.
            frames: frames of a multi-frame file to score: ``all``, ``middle``, ``every:K`` or ``top:K``.
            alive: called after each batch; it may raise to stop the work.

        Raises:
            UsvitError: the output of a network is not finite, or reader processes do not start.
        """
        found = ItemScores()
        messages = self._reading(frames).read(list(enumerate(items)))
        batches = scored(messages, self._describer, batch_size=self._settings.batch_size, known=lambda seq: Done())
        with contextlib.closing(messages), closing(batches):  # type: ignore[type-var]
            for batch in batches:
                for seq, _, row, _ in batch.rows:
                    found.rows.setdefault(seq, []).append(row)
                for seq, failure, _ in batch.failures:
                    found.failures.setdefault(seq, []).append((failure.frame, failure.code))
                alive()
        if pooling := self.ensemble.view_pooling(abstain=self._settings.abstain):
            pooling.pool_all(row for rows in found.rows.values() for row in rows)
        for seq, rows in found.rows.items():
            (known,) = marked([rows], self.ensemble.copies_of_seen)
            hidden = (DESCRIPTION, VIEWS)
            found.rows[seq] = [{key: value for key, value in row.items() if key not in hidden} for row in known]
        return found

    def products(
        self,
        items: Sequence[ScoringItem],
        scores: ItemScores,
        *,
        out: Path,
        wanted: frozenset[str],
        frames: str,
        keep_ids: bool,
        pictures: bool,
        started: datetime,
        revision: int = 0,
    ) -> dict[int, list[ProductEntry]]:
        """Write the products of scored items; files that exist are kept.

        Args:
            items: the items, as they were scored.
            scores: result of ``score``.
            out: folder for the products.
            wanted: products to write, of ``products.KINDS``.
            frames: the frame policy of ``score``.
            keep_ids: keep the patient's identity.
            pictures: also draw frames whose tissue region is not known.
            started: local time that the objects bear, without time zone; the same time gives the same bytes.
            revision: number of the revision of the results, for the UIDs of the objects.

        Returns:
            Products by the index of the item.

        Raises:
            UsvitError: the disk is full or cannot be written.
        """
        readers = self._reading(frames)
        done = {seq: len(rows) + len(scores.failures.get(seq, ())) for seq, rows in scores.rows.items()}
        return dict(
            produced(
                [(seq, item) for seq, item in enumerate(items) if seq in scores.rows],
                self.order(out, wanted, frames, keep_ids, pictures, started, revision),
                self.ensemble,
                readers,
                readers,
                rows_of=lambda seq: scores.rows[seq],
                n_frames_done=lambda seq: done[seq],
            )
        )

    def order(
        self,
        out: Path,
        wanted: frozenset[str],
        frames: str,
        keep_ids: bool,
        pictures: bool,
        started: datetime,
        revision: int,
    ) -> Order:
        """Return the order of products with these settings; see ``products``."""
        return Order(
            out,
            scoring_model(self.ensemble),
            wanted,
            keep_ids,
            pictures,
            self._pseudonyms,
            started,
            self.ensemble.read_settings(frames),
            revision=revision,
        )

    def call(self, function: Callable[..., Any], *arguments: Any, frames: str) -> Any:
        """Call a function of a module in a reader process, with its limits; see ``Readers.map_calls``."""
        (result,) = self._reading(frames).map_calls(function, [arguments])
        return result

    def _reading(self, frames: str) -> Readers:
        if frames not in self._readers:
            self._readers[frames] = Reading(self.ensemble.read_settings(frames), self._settings).open()
        return self._readers[frames]
