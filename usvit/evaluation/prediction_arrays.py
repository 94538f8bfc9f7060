"""The predictions table as arrays, in a given order of the classes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from usvit.errors import UsvitError, unknown
from usvit.evaluation.predictions import check_predictions, classes_of, first_repeat, repeats_of
from usvit.metrics.calibration_statistics import LOWEST_PROB
from usvit.metrics.proportions import count_groups


@dataclass(frozen=True)
class Rows:
    """Images of one or more splits and folds: n rows, K classes."""

    classes: tuple[str, ...]
    label: np.ndarray
    """(n,) int, index of the reference class."""
    prob: np.ndarray
    """(n, K) float64, rows sum to one."""
    scores: np.ndarray
    """(n, K) float64 with prob = softmax(scores): the logits, or log-probabilities if the table has none."""
    group: np.ndarray
    """(n,) object, the patient (or duplicate cluster) of each image."""
    fold: np.ndarray
    """(n,) int; numbered through all repeats of a cross-validation, so it identifies the model."""
    repeat: np.ndarray
    """(n,) int, the complete cross-validation that the fold belongs to; all 0 if there is only one."""

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, which: np.ndarray) -> "Rows":
        """Select rows by an (n,) bool mask or by indices."""
        return Rows(
            self.classes,
            self.label[which],
            self.prob[which],
            self.scores[which],
            self.group[which],
            self.fold[which],
            self.repeat[which],
        )

    @property
    def n_groups(self) -> int:
        return count_groups(self.group, len(self))

    def index(self, name: str) -> int:
        """Return the column of a class; raise UsvitError with the nearest name if it is unknown."""
        if name not in self.classes:
            raise unknown("class", name, self.classes)
        return self.classes.index(name)


def rows_of(
    table: pd.DataFrame, part: str, classes: Sequence[str] | None = None, *, every_repeat: bool = False
) -> Rows:
    """Return the rows of one split of a predictions table; ``val`` may be empty, ``test`` may not.

    Each tested image occurs once: only the first repeat of a cross-validation is used (``predictions.first_repeat``),
    unless ``every_repeat`` is set.

    Args:
        table: a predictions table of any splits and folds.
        part: the split "train", "val" or "test".
        classes: the K names in the requested order; by default the order of the table.
        every_repeat: whether to return the rows of all repeats, for the headline and comparisons.

    Raises:
        UsvitError: the table fails ``check_predictions``, holds other classes, or has no test row although
            ``part`` is "test".
    """
    check_predictions(table, "The predictions table")
    names = tuple(classes_of(table) if classes is None else classes)
    if sorted(names) != sorted(classes_of(table)):
        raise UsvitError(
            f"The predictions table holds the classes {', '.join(classes_of(table))}; expected {', '.join(names)}."
        )
    if not every_repeat:
        table = first_repeat(table)
    chosen = table["part"].to_numpy(object) == part
    if part == "test" and not chosen.any():
        raise UsvitError("The predictions table has no row of part test: there is nothing to measure.")

    def columns(kind: str) -> np.ndarray:
        return np.stack([table[f"{kind}_{name}"].to_numpy(np.float64)[chosen] for name in names]).T

    prob = columns("prob")
    return Rows(
        classes=names,
        label=pd.Index(names).get_indexer_for(table["label"].to_numpy(object)[chosen]).astype(np.int64),
        prob=prob,
        scores=columns("logit") if f"logit_{names[0]}" in table else np.log(np.maximum(prob, LOWEST_PROB)),
        group=table["group_id"].to_numpy(object)[chosen],
        fold=table["fold"].to_numpy(np.int64)[chosen],
        repeat=repeats_of(table)[chosen].astype(np.int64),
    )
