"""The predictions table as arrays, in one order of the classes."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.special import logsumexp

from usvit.errors import UsvitError, unknown
from usvit.metrics.checks import check_prob
from usvit.metrics.predictions import check_predictions, classes_of, first_repeat, repeats_of
from usvit.metrics.proportions import count_groups

LOWEST_PROB = float(np.finfo(np.float64).eps)
"""What a probability of 0 is read as where a logarithm is taken; the bound that the log loss has too."""


@dataclass(frozen=True)
class Rows:
    """Images of one or more parts and folds: n rows, K classes."""

    classes: tuple[str, ...]
    label: np.ndarray
    """(n,) int, index of the reference class."""
    prob: np.ndarray
    """(n, K) float64, rows sum to one."""
    scores: np.ndarray
    """(n, K) float64 with prob = softmax(scores): the logits, or log-probabilities where the table has none."""
    group: np.ndarray
    """(n,) object, the patient (or duplicate cluster) of each image."""
    fold: np.ndarray
    """(n,) int; of a repeated cross-validation numbered through all repeats, so that it names the model."""
    repeat: np.ndarray
    """(n,) int, the complete cross-validation that the fold belongs to; all 0 where there is only one."""

    def __len__(self) -> int:
        return len(self.label)

    def __getitem__(self, which: np.ndarray) -> "Rows":
        """The rows of a (n,) bool mask or of indices."""
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
        """The column of a class. UsvitError with the nearest name where there is none."""
        if name not in self.classes:
            raise unknown("class", name, self.classes)
        return self.classes.index(name)


def rows_of(
    table: pd.DataFrame, part: str, classes: Sequence[str] | None = None, *, every_repeat: bool = False
) -> Rows:
    """The rows of one part of a predictions table; none is fine for ``val``, not for ``test``.

    Each tested image is there once: of a repeated cross-validation only the first repeat is read
    (``predictions.first_repeat``), unless ``every_repeat`` asks for all of them.

    Args:
        table: a predictions table of any parts and folds.
        part: "train", "val" or "test".
        classes: the K names in the order wanted; the table's own order by default.
        every_repeat: the rows of all repeats, for the headline and for comparisons.

    Raises:
        UsvitError: the table fails ``check_predictions``, holds other classes, or has no test row where
            those are asked for.
    """
    check_predictions(table, "The predictions table")
    names = tuple(classes_of(table) if classes is None else classes)
    if sorted(names) != sorted(classes_of(table)):
        raise UsvitError(
            f"The predictions table holds the classes {', '.join(classes_of(table))}; expected {', '.join(names)}."
        )
    if not every_repeat:
        table = first_repeat(table)
    chosen = table[table["part"] == part]
    if part == "test" and chosen.empty:
        raise UsvitError("The predictions table has no row of part test: there is nothing to measure.")
    prob = chosen[[f"prob_{name}" for name in names]].to_numpy(np.float64)
    if f"logit_{names[0]}" in table:
        scores = chosen[[f"logit_{name}" for name in names]].to_numpy(np.float64)
    else:
        scores = np.log(np.maximum(prob, LOWEST_PROB))
    index = {name: k for k, name in enumerate(names)}
    return Rows(
        classes=names,
        label=chosen["label"].map(index).to_numpy(np.int64),
        prob=prob,
        scores=scores,
        group=chosen["group_id"].to_numpy(object),
        fold=chosen["fold"].to_numpy(np.int64),
        repeat=repeats_of(chosen).astype(np.int64),
    )


def log_odds(scores: np.ndarray, k: int) -> np.ndarray:
    """log(p / (1 - p)) of class ``k`` with p = softmax(scores): (n, K) -> (n,) float64.

    Taken from the scores, since 1 - p of a sure network is 0 in float64.
    """
    others = np.delete(np.asarray(scores, dtype=np.float64), k, axis=1)
    return scores[:, k] - logsumexp(others, axis=1)


def check_scores(label: ArrayLike, scores: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Labels (n,) int and scores (n, K) -> the same as int64 and float64; n >= 1, K >= 2.

    Raises:
        ValueError: shapes that do not fit; a label that is no whole number in 0 ... K - 1; a score that is
            not finite. The index of the row is named.
    """
    values = np.asarray(scores, dtype=np.float64)
    bad = ~np.isfinite(values)
    if values.ndim == 2 and bad.any():
        index = int(bad.any(axis=1).argmax())
        raise ValueError(f"the scores at index {index} are {values[index]}, expected finite numbers")
    codes, _ = check_prob(label, np.full(values.shape, 0.5))
    return codes, values
