"""Temperature and Platt scaling, fitted on inner validation images only.

Test images are never used for a fit, because a temperature that is fitted on them would look better than it is.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.optimize import brentq
from scipy.special import log_softmax, logsumexp, softmax

from usvit.errors import LeakageError
from usvit.evaluation.prediction_arrays import Rows, rows_of
from usvit.evaluation.predictions import first_repeat
from usvit.metrics.calibration_statistics import log_odds, logistic_fit, no_spread
from usvit.metrics.checks import check_scores

Method = Literal["temperature", "platt"]


@dataclass(frozen=True)
class Temperature:
    """Temperature scaling: p = softmax(scores / value)."""

    value: float
    """Above 0; above 1 it lowers the confidence."""

    def log_prob(self, scores: np.ndarray) -> np.ndarray:
        """Convert (n, K) scores to (n, K) log-probabilities; decisions do not change."""
        return log_softmax(scores / self.value, axis=1)


@dataclass(frozen=True)
class Platt:
    """Platt scaling: p(positive) = 1 / (1 + exp(-(intercept + slope * log-odds))).

    The proportions of the other classes are kept.
    """

    positive: int
    """Index of the class that was fitted against the rest."""
    slope: float
    intercept: float

    def log_prob(self, scores: np.ndarray) -> np.ndarray:
        """Convert (n, K) scores to (n, K) log-probabilities."""
        odds = self.intercept + self.slope * log_odds(scores, self.positive)
        others = np.arange(scores.shape[1]) != self.positive
        share = scores - logsumexp(scores[:, others], axis=1, keepdims=True)  # log of each other class's share
        out = -np.logaddexp(0, odds)[:, None] + share
        out[:, self.positive] = -np.logaddexp(0, -odds)
        return out


@dataclass(frozen=True)
class NoFit:
    """The scaling does not exist for these images."""

    reason: str


@dataclass(frozen=True)
class FoldFit:
    """The fit on the inner validation images of one fold."""

    fold: int
    scaling: Temperature | Platt | None
    reason: str | None
    """Reason why there is no scaling; None if there is one."""
    n_images: int
    n_groups: int
    class_counts: dict[str, int]


@dataclass(frozen=True)
class _Recalibrated:
    """Test predictions, scaled by the fit on the inner validation images of each fold."""

    method: Method
    folds: tuple[FoldFit, ...]
    table: pd.DataFrame | None
    """The test rows with scaled prob_ columns; logit_ columns are their logarithms. None if a fold has no fit."""
    reason: str | None


def fit_temperature(label: ArrayLike, scores: ArrayLike) -> Temperature | NoFit:
    """Fit the temperature by maximum likelihood.

    The log-likelihood is concave in 1 / temperature, so its maximum is the root of the derivative: the mean score of
    the reference class equals the mean score expected under softmax(scores / temperature).

    Args:
        label: (n,) int, index of the reference class, n >= 1.
        scores: (n, K) finite float: logits or log-probabilities.

    Returns:
        ``NoFit`` if all images are of one class; if every decision is correct (the best temperature is 0) or all scores
        of each image are equal; or if the reference class scores no better than the mean of all classes (the best
        temperature is infinite or negative).

    Raises:
        ValueError: see ``checks.check_scores``.

    Source: Guo et al. (2017), ICML, section 4.2.
    """
    codes, z = check_scores(label, scores)
    if len(np.unique(codes)) < 2:
        return NoFit("all images are of one class")
    z = z - z.max(axis=1, keepdims=True)
    scale = -z.min()
    if scale == 0:
        return NoFit("all predictions are equal")
    z /= scale
    reached = z[np.arange(len(z)), codes]
    if not (reached < 0).any():
        return NoFit("every decision is right: the best temperature is 0")

    def excess(inverse: float) -> float:
        return float(((softmax(inverse * z, axis=1) * z).sum(axis=1) - reached).mean())

    if excess(0) >= 0:
        return NoFit("the true class scores no higher than the others on average: no temperature above 0 is best")
    high = 1.0
    while excess(high) <= 0:
        high *= 2
        if high > 1e15:
            return NoFit("every decision is right, or wrong by a rounding error: the best temperature is 0")
    inverse = brentq(excess, 0, high, xtol=1e-300, rtol=1e-13)
    return Temperature(float(scale / inverse))


def fit_platt(label: ArrayLike, scores: ArrayLike, positive: int) -> Platt | NoFit:
    """Fit slope and intercept for one class against the rest, with Platt's targets.

    With P positive and N negative images, the targets are (P + 1) / (P + 2) and 1 / (N + 2) instead of 1 and 0, so the
    fit is finite even if the classes are separated perfectly.

    Args:
        label: (n,) int, index of the reference class, n >= 1.
        scores: (n, K) finite float: logits or log-probabilities.
        positive: index of the class.

    Returns:
        ``NoFit`` if the class or the rest is absent, all log-odds are equal, or the slope is not above 0 (the scaling
        would reverse the ranking).

    Raises:
        ValueError: see ``checks.check_scores``; ``positive`` is not a class.

    Source: Platt (1999), Advances in Large Margin Classifiers, p. 61; Lin et al. (2007), Machine Learning 68:267.
    """
    codes, z = check_scores(label, scores)
    if not 0 <= positive < z.shape[1]:
        raise ValueError(f"positive must be the index of one of {z.shape[1]} classes, not {positive}")
    reference, x = codes == positive, log_odds(z, positive)
    if reference.all() or not reference.any():
        return NoFit(f"no {'negative' if reference.all() else 'positive'} image")
    if no_spread(x):
        return NoFit("all predictions are equal")
    n_positive, n_negative = int(reference.sum()), int((~reference).sum())
    slope, intercept = logistic_fit(x, np.where(reference, (n_positive + 1) / (n_positive + 2), 1 / (n_negative + 2)))
    if slope <= 0:
        return NoFit("the positive class does not score higher: the scaling would reverse the ranking")
    return Platt(positive, slope, intercept)


def recalibrate(table: pd.DataFrame, *, positive: str, method: Method = "temperature") -> _Recalibrated:
    """Scale the test predictions of each fold by a fit on the inner validation images of that fold.

    The function uses the logits, or log-probabilities if the table has none (0 is read as ``LOWEST_PROB``).

    Args:
        table: a predictions table with rows of splits val and test.
        positive: the class that Platt scaling fits against the rest; a temperature applies to all classes.
        method: "temperature" or "platt".

    Returns:
        ``table`` is None, with the reason, if a fold has no inner validation images or no fit, because scaled and
        unscaled folds must not be pooled.

    Raises:
        UsvitError: see ``rows_of``; ``positive`` is not a class.
        LeakageError: a group is in splits val and test of one fold.
        ValueError: ``method`` is unknown.
    """
    if method not in ("temperature", "platt"):
        raise ValueError(f"method must be temperature or platt, not {method!r}")
    table = first_repeat(table)
    test, val = rows_of(table, "test"), rows_of(table, "val")
    k = test.index(positive)
    log_prob, fits = np.empty_like(test.scores), []
    for fold in np.unique(test.fold):
        at, inner = test.fold == fold, val[val.fold == fold]
        both = set(inner.group.tolist()) & set(test.group[at].tolist())
        if both:
            raise LeakageError(
                f"Fold {fold}: group '{min(both, key=str)}' is in the splits val and test. "
                "Split the data by group_id and predict again."
            )
        scaling = _fit(inner, k, method)
        if not isinstance(scaling, NoFit):
            log_prob[at] = scaling.log_prob(test.scores[at])
        fits.append(
            FoldFit(
                fold=int(fold),
                scaling=None if isinstance(scaling, NoFit) else scaling,
                reason=scaling.reason if isinstance(scaling, NoFit) else None,
                n_images=len(inner),
                n_groups=inner.n_groups,
                class_counts={name: int((inner.label == i).sum()) for i, name in enumerate(inner.classes)},
            )
        )
    without = [f"fold {fit.fold}: {fit.reason}" for fit in fits if fit.reason]
    if without:
        return _Recalibrated(method, tuple(fits), None, f"no {method} fit in {'; '.join(without)}")
    return _Recalibrated(method, tuple(fits), _with_prob(table, test.classes, log_prob), None)


def _fit(inner: Rows, positive: int, method: Method) -> Temperature | Platt | NoFit:
    if not len(inner):
        return NoFit("no inner validation images")
    if method == "temperature":
        return fit_temperature(inner.label, inner.scores)
    return fit_platt(inner.label, inner.scores, positive)


def _with_prob(table: pd.DataFrame, classes: tuple[str, ...], log_prob: np.ndarray) -> pd.DataFrame:
    scaled = table[table["part"] == "test"].copy()
    log_prob = np.maximum(log_prob, np.log(np.finfo(np.float64).tiny))  # finite even if the network is certain
    for i, name in enumerate(classes):
        scaled[f"logit_{name}"] = log_prob[:, i]
        scaled[f"prob_{name}"] = np.exp(log_prob[:, i])
    return scaled
