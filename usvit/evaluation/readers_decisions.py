"""A model's decisions beside those of one or several readers: by image, at each cut, and at matched thresholds."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
import pandas as pd

from usvit.errors import LeakageError
from usvit.evaluation.decisions import KEY, Decided, decided_of
from usvit.evaluation.prediction_arrays import Rows, rows_of
from usvit.evaluation.predictions import repeats_of
from usvit.evaluation.thresholds import refuse_leak
from usvit.metrics.threshold_choice import Choice, Rule, choose_threshold, why_no_threshold

Matched = Literal["specificity", "sensitivity"]
INNER = "inner validation images of the same fold, with the categories of the readers"
OTHERS = "test images of the other folds, because not every fold has inner validation images with categories"
ITSELF = (
    "the test images themselves, because there is one fold without inner validation images with categories: the model "
    "looks better at these points than it is"
)


@dataclass(frozen=True)
class ReadRepeat:
    """One repeat of a cross-validation: the model's decisions, and the categories of R readers.

    Attributes:
        decided: all tested images, sorted as in ``decisions.decided_of``.
        level: (R, n) place of the category on the scale; -1 without one.
        inner: the inner validation images.
        inner_level: (R, m).
    """

    decided: Decided
    level: np.ndarray
    inner: Rows
    inner_level: np.ndarray

    @classmethod
    def all_of(
        cls, table: pd.DataFrame, level: np.ndarray, positive: str, classes: Sequence[str]
    ) -> list["ReadRepeat"]:
        """Return every repeat of a predictions table.

        Args:
            table: one row for each image or unit, of splits test and val.
            level: (R, rows of the table).
            positive, classes: of the run.
        """
        repeats, found = repeats_of(table), []
        for one in np.unique(repeats):
            of_repeat = np.flatnonzero(repeats == one)
            own = table.iloc[of_repeat].reset_index(drop=True).sort_values(KEY, kind="stable")
            at, part = of_repeat[own.index.to_numpy()], own["part"].to_numpy(object)
            inner = rows_of(own, "val", tuple(classes))
            decided = decided_of(own, positive, classes)
            found.append(cls(decided, level[:, at[part == "test"]], inner, level[:, at[part == "val"]]))
        return found

    def of_readers(self, readers: Sequence[int]) -> "ReadImages":
        """Return the tested images that all of these readers have read."""
        at = np.flatnonzero((self.level[list(readers)] >= 0).all(axis=0))
        return ReadImages(self, tuple(readers), at)


@dataclass(frozen=True)
class ReadImages:
    """The tested images that some readers have read, once for each reader: the readers' mean is that of all rows."""

    repeat: ReadRepeat
    readers: tuple[int, ...]
    at: np.ndarray
    """(n,) places among the tested images of the repeat."""

    @cached_property
    def once(self) -> Rows:
        """The n images."""
        return self.repeat.decided.rows[self.at]

    @cached_property
    def rows(self) -> Rows:
        """R times n readings."""
        return self.repeat.decided.rows[np.tile(self.at, len(self.readers))]

    @property
    def scores(self) -> list[np.ndarray]:
        """R times (n,) categories as scores."""
        return [self.repeat.level[reader, self.at].astype(np.float64) for reader in self.readers]

    @cached_property
    def level(self) -> np.ndarray:
        """(R n,) categories."""
        return self.repeat.level[list(self.readers)][:, self.at].ravel()

    @property
    def cancer(self) -> np.ndarray:
        """(R n,) bool."""
        return self.rows.label == self.rows.index(self.repeat.decided.positive)

    def called(self, rule: str) -> np.ndarray:
        """Return whether the model calls each of the (R n,) readings positive by one of its own rules."""
        return np.tile(self.repeat.decided.called[rule][self.at], len(self.readers))

    def decided(self, called: np.ndarray, rule: str) -> Decided:
        """Return (R n,) decisions as ``decision_difference`` compares them."""
        return Decided(self.rows, self.repeat.decided.positive, {rule: called}, {})

    def matched(self, cut: int, kind: Matched, source: str) -> np.ndarray | str:
        """Decide by thresholds at which the model has the specificity or sensitivity of each reader.

        Args:
            cut: the lowest category that the reader calls positive.
            kind: which figure is matched.
            source: where thresholds are chosen: ``INNER``, ``OTHERS`` or ``ITSELF``.

        Returns:
            (R n,) bool, or the reason why a fold has no threshold.
        """
        called = [self._matched_to(reader, cut, kind, source) for reader in self.readers]
        return next((one for one in called if isinstance(one, str)), None) or np.concatenate(called)

    def _matched_to(self, reader: int, cut: int, kind: Matched, source: str) -> np.ndarray | str:
        repeat, test = self.repeat, self.once
        k = test.index(repeat.decided.positive)
        inner = source == INNER
        every = repeat.inner if inner else repeat.decided.rows
        level = (repeat.inner_level if inner else repeat.level)[reader]
        called = np.zeros(len(test), dtype=bool)
        for fold in np.unique(test.fold):
            there = level >= 0
            if source != ITSELF:
                there &= (every.fold == fold) == inner
            own, at = every[there], test.fold == fold
            if source != ITSELF:
                try:
                    refuse_leak(own, test[at], int(fold))
                except LeakageError as error:
                    return str(error)
            choice = _threshold_like(own.label == k, own.prob[:, k], level[there] >= cut, kind)
            if choice.threshold is None:
                return f"fold {fold}: {choice.reason}"
            called[at] = test.prob[at, k] >= choice.threshold
        return called


def source_of(repeats: Sequence[ReadRepeat]) -> str:
    """Return where the thresholds of matched points are chosen: the same for all readers, folds and repeats."""
    if all(
        set(np.unique(one.decided.rows.fold).tolist()) <= set(one.inner.fold[level >= 0].tolist())
        for one in repeats
        for level in one.inner_level
    ):
        return INNER
    return OTHERS if all(len(np.unique(one.decided.rows.fold)) > 1 for one in repeats) else ITSELF


def _threshold_like(positive: np.ndarray, score: np.ndarray, reader: np.ndarray, kind: Matched) -> Choice:
    """Choose the threshold whose specificity or sensitivity is at least the reader's on the same images."""
    if reason := why_no_threshold(positive):
        return Choice(None, reason)
    looked_at = positive if kind == "sensitivity" else ~positive
    hits = reader[looked_at] if kind == "sensitivity" else ~reader[looked_at]
    if not hits.any():
        return Choice(None, f"the reader's {kind} is 0 on the images that choose the threshold")
    return choose_threshold(positive, score, Rule(kind, float(hits.sum() / len(hits))))
