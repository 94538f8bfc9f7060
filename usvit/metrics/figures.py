"""All figures except the AUC, vectorised over thousands of resamples.

A resample says how often each group was drawn. Figures made of counts or sums need only the sums of each group;
average precision needs the ranking, which is sorted once.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from usvit.figure_table import BY_KEY, FIGURES
from usvit.metrics.basic import decide
from usvit.metrics.checks import check_prob, group_codes
from usvit.plugins import load

FigureFunction = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]
"""A figure of ``usvit.figure_table`` as a function of the (n,) labels, the (n, K) probabilities and (B, n) weights of
the images, such as how often each of B resamples draws an image. It returns (B,), or (B, K) for a figure of each class;
NaN if undefined. Multiplying all weights of a row by a number does not change its figure."""


class Key(NamedTuple):
    """Name of a figure and the index of its class; None for a figure over all classes."""

    name: str
    of_class: int | None = None


PROPORTIONS = ("accuracy", "sensitivity", "specificity", "ppv", "npv")
"""Figures that are shares of correct images among those in their denominator (``Figures.trials``)."""


def function_of(name: str) -> FigureFunction:
    """Return the function that the table names for a figure."""
    function: FigureFunction = load(BY_KEY[name].function)
    return function


class Figures:
    """Figures of n images in G groups, as a function of how often each group is drawn.

    C[i, j] is the number of images of class i decided as j, the most probable class.
    A class is taken against all others:

    - accuracy; balanced_accuracy, the mean of the sensitivities; sensitivity; specificity; ppv; npv;
    - f1 = 2 TP / (2 TP + FP + FN) and f1_macro, its mean; mcc over all classes (Gorodkin 2004,
      Computational Biology and Chemistry 28:367; with two classes Matthews' own);
    - average_precision, the sum of precision times gain in recall over distinct scores, and
      average_precision_macro, its mean;
    - brier_vs_rest, mean (p - y)^2 of one class; brier, half their sum, in [0, 1] and with two classes
      the usual one; log_loss in nats, probabilities of the reference class bounded by 2.2e-16 as in
      scikit-learn;
    - those of ``usvit.figure_table`` with a function of their own.

    Attributes:
        keys: the figures, in the order above.
        n_groups: G.
    """

    def __init__(
        self,
        label: ArrayLike,
        prob: ArrayLike,
        group: ArrayLike,
        *,
        ranked: bool = True,
    ) -> None:
        """Sort the images and sum them by group.

        Args:
            label: (n,) int in 0 ... K - 1.
            prob: (n, K) probabilities.
            group: (n,) int or str.
            ranked: False leaves out average precision, which takes most of the time.

        Raises:
            ValueError: as ``checks.check_prob`` and ``checks.group_codes``.
        """
        self.label, self.prob = check_prob(label, prob)
        n, self.n_classes = self.prob.shape
        self.code, self.n_groups = group_codes(group, n)
        self.decided = decide(self.prob)
        every = range(self.n_classes)
        self.keys = [
            *(Key(name) for name in ("accuracy", "balanced_accuracy", "mcc", "f1_macro")),
            *(Key(name, k) for name in ("sensitivity", "specificity", "ppv", "npv", "f1") for k in every),
            *(Key(name) for name in ("brier", "log_loss")),
            *(Key("brier_vs_rest", k) for k in every),
        ]
        self._ranked = ranked
        if ranked:
            self.keys += [Key("average_precision_macro"), *(Key("average_precision", k) for k in every)]
        self._further = {row.key: function_of(row.key) for row in FIGURES if row.function}
        for name in self._further:
            self.keys += [Key(name, k) for k in every] if BY_KEY[name].of_class else [Key(name)]
        truth = np.eye(self.n_classes)[self.label]
        chosen = np.maximum(self.prob[np.arange(n), self.label], np.finfo(np.float64).eps)
        cell = np.eye(self.n_classes**2)[self.label * self.n_classes + self.decided]
        columns = np.column_stack([cell, (self.prob - truth) ** 2, -np.log(chosen)])
        self._sums = np.zeros((self.n_groups, columns.shape[1]))  # (G, K^2 + K + 1)
        np.add.at(self._sums, self.code, columns)
        self._rankings = [_Ranking(self.label == k, self.prob[:, k], self.code) for k in every]

    def __call__(self, counts: np.ndarray) -> dict[Key, np.ndarray]:
        """Compute each figure (B,), NaN if undefined, from (B, G) counts of how often each group is drawn."""
        size, k = len(counts), self.n_classes
        sums = counts @ self._sums
        table = sums[:, : k * k].reshape(size, k, k)
        n, right = table.sum(axis=(1, 2)), np.einsum("bkk->bk", table)
        reference, decided = table.sum(axis=2), table.sum(axis=1)  # (B, K)
        both_other = n[:, None] - reference - decided + right
        sensitivity = _ratio(right, reference)
        f1 = np.where(reference > 0, _ratio(2 * right, reference + decided), np.nan)
        brier = sums[:, k * k : k * k + k] / n[:, None]

        by_class = {
            "sensitivity": sensitivity,
            "specificity": _ratio(both_other, n[:, None] - reference),
            "ppv": _ratio(right, decided),
            "npv": _ratio(both_other, n[:, None] - decided),
            "f1": f1,
            "brier_vs_rest": brier,
        }
        overall = {
            "accuracy": right.sum(1) / n,
            "balanced_accuracy": sensitivity.mean(axis=1),
            "mcc": matthews(table),
            "f1_macro": f1.mean(axis=1),
            "brier": brier.sum(axis=1) / 2,
            "log_loss": np.maximum(sums[:, -1] / n, 0.0),
        }
        if self._ranked:
            precision = np.stack([ranking.average_precision(counts) for ranking in self._rankings], axis=1)
            by_class["average_precision"], overall["average_precision_macro"] = precision, precision.mean(axis=1)
        for name, function in self._further.items():
            values = function(self.label, self.prob, counts[:, self.code])
            (by_class if BY_KEY[name].of_class else overall)[name] = values
        return {
            key: overall[key.name] if key.of_class is None else by_class[key.name][:, key.of_class] for key in self.keys
        }

    @property
    def tables(self) -> np.ndarray:
        """The (G, K, K) float counts C of each group."""
        return self._sums[:, : self.n_classes**2].reshape(self.n_groups, self.n_classes, self.n_classes)

    def trials(self, key: Key) -> tuple[np.ndarray, np.ndarray]:
        """Return the images in the denominator of a proportion, (n,) bool, and the correct images, (n,) bool."""
        k = key.of_class
        if key.name == "accuracy":
            return np.ones(len(self.label), dtype=bool), self.label == self.decided
        looked_at = {
            "sensitivity": self.label == k,
            "specificity": self.label != k,
            "ppv": self.decided == k,
            "npv": self.decided != k,
        }[key.name]
        return looked_at, (self.label == k) == (self.decided == k)

    def support(self, key: Key) -> int:
        """Count the groups of a figure: for a proportion, those with an image in its denominator."""
        if key.name in PROPORTIONS:
            return len(np.unique(self.code[self.trials(key)[0]]))
        return self.n_groups

    def why_undefined(self, key: Key, classes: list[str]) -> str:
        """Return the reason why a figure is NaN on the original images."""
        if key.name == "mcc":
            return "all images have one class, or are decided as one class"
        if key.of_class is None:
            absent = [k for k in range(self.n_classes) if not (self.label == k).any()]
            return f"no image of class '{classes[absent[0]]}'" if absent else "every image is of one class"
        name = classes[key.of_class]
        if key.name == "ppv":
            return f"no image is decided as '{name}'"
        if key.name == "npv":
            return f"every image is decided as '{name}'"
        present = bool((self.label == key.of_class).any())
        return f"every image is of class '{name}'" if present else f"no image of class '{name}'"


class _Ranking:
    """Images sorted by the probability of one class, highest first, with ties."""

    def __init__(self, positive: np.ndarray, score: np.ndarray, code: np.ndarray) -> None:
        order = np.argsort(-score, kind="stable")
        ordered, self._code = score[order], code[order]
        self._positive = np.flatnonzero(positive[order])
        # For the run of equal scores of each positive: its last image, and the number of positives up to there.
        ends = np.flatnonzero(np.append(ordered[1:] != ordered[:-1], True))
        self._end = ends[np.searchsorted(ends, self._positive)]
        self._found = np.searchsorted(self._positive, self._end, "right") - 1

    def average_precision(self, counts: np.ndarray) -> np.ndarray:
        if not len(self._positive):
            return np.full(len(counts), np.nan)
        weight = counts[:, self._code[self._positive]]  # (B, positives)
        taken = counts[:, self._code].cumsum(axis=1)  # (B, n), how many images score so high, or higher
        everything = taken[:, -1].copy()
        found = weight.cumsum(axis=1)
        positives = found[:, -1].copy()
        # Counts are integers: if no image is taken, no positive is found either, and 0 / 1 is 0.
        precision = found[:, self._found] / np.maximum(taken[:, self._end], 1)
        area = _ratio(np.einsum("bi,bi->b", weight, precision), positives)
        # If all images are positive, it is 1 for any scores and therefore undefined.
        return np.where(positives < everything, area, np.nan)


def matthews(table: np.ndarray) -> np.ndarray:
    """Compute the (B,) Matthews correlation of (B, K, K) counts; NaN if all have one class or one decision."""
    n, right = table.sum(axis=(1, 2)), np.einsum("bkk->b", table)
    reference, decided = table.sum(axis=2), table.sum(axis=1)
    spread = (n**2 - (reference**2).sum(1)) * (n**2 - (decided**2).sum(1))
    return _ratio(right * n - (reference * decided).sum(1), np.sqrt(np.maximum(spread, 0)))


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    """Divide part by whole; NaN if whole is 0."""
    return np.divide(part, whole, out=np.full(np.broadcast(part, whole).shape, np.nan), where=whole > 0)
