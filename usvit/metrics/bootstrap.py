"""Bootstrap intervals for figures without a closed formula.

Whole groups are drawn with all their images, because images of one patient are not independent.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtr, ndtri

from usvit.estimate import Estimate
from usvit.metrics.clustered_wilson import ONE_GROUP
from usvit.metrics.figures import PROPORTIONS, Figures, Key
from usvit.metrics.intervals import ALPHA, Interval, undefined, with_interval
from usvit.metrics.proportions import clustered_share
from usvit.metrics.support import Support, rarest, support_of
from usvit.metrics.table_intervals import (
    F1_METHOD,
    MATTHEWS_METHOD,
    MEAN_METHOD,
    balanced_accuracy_interval,
    f1_interval,
    f1_macro_interval,
    matthews_interval,
)

N_RESAMPLES = 2000
CHUNK = 32
"""Resamples per batch: 32 x 2,000 images of float64 are 0.5 MB, which fits into the processor's cache."""

MAX_JACKKNIFE = 2000
"""Above this number of groups, the jackknife leaves out blocks of groups; it only estimates the skewness."""

MAX_UNDEFINED = 0.05
"""There is no interval above this share of resamples without a value (a class was not drawn)."""

_TABLE_METHODS = {"balanced_accuracy": MEAN_METHOD, "f1_macro": MEAN_METHOD, "f1": F1_METHOD, "mcc": MATTHEWS_METHOD}

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class _Resampled:
    """Estimate of a figure, its 95 % interval if there is one, the method, and the reason for a missing interval."""

    value: float
    ci95: Interval | None
    method: Literal["BCa", "percentile"]
    reason: str = ""

    def estimate(self, code: np.ndarray, why_undefined: str, n_resamples: int = N_RESAMPLES) -> Estimate:
        """Return the estimate of a figure of n images.

        Args:
            code: (n,) number of the group of each image.
            why_undefined: Reason why there is no value, if there is none.
            n_resamples: Those of ``cluster_bootstrap``.
        """
        support = support_of(code)
        if np.isnan(self.value):
            return undefined(why_undefined, support.n_groups)
        method = f"cluster bootstrap, {self.method}, {n_resamples} resamples"
        return with_interval(
            self.value, self.ci95, method=method, n_groups=support.n_groups, reason=self.reason, support=support
        )


@dataclass(frozen=True)
class FigureValues:
    """Figures of one set of images.

    Attributes:
        values: name -> the figure, or a dictionary with the figure of each class. AUCs of classes are named
            ``<class>_vs_rest``.
    """

    values: dict[str, Any] = field(default_factory=dict)

    def figure(self, name: str, of: str = "") -> Estimate:
        """Return a figure by its name; that of the class ``of`` if each class has one."""
        found = self.values[name]
        figure: Estimate = found[f"{of}_vs_rest" if name == "auc" else of] if isinstance(found, dict) else found
        return figure

    def add(self, name: str, of: str | None, value: Estimate) -> None:
        """Add a figure, of the class ``of`` if it is not None."""
        if of is None:
            self.values[name] = value
        else:
            self.values.setdefault(name, {})[of] = value


def cluster_bootstrap(
    figures: Callable[[np.ndarray], Mapping[K, np.ndarray]],
    n_groups: int,
    *,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> dict[K, _Resampled]:
    """Compute 95 % intervals of figures by resampling whole groups; all figures use the same resamples.

    The interval is BCa: bias-corrected by the share of resamples below the value and accelerated by the jackknife
    over groups. If BCa is impossible (all resamples are on one side of the value, or the figure is undefined without
    some group), the percentile interval is used and ``reason`` says why. There is no interval if all resamples give
    the same value, if more than ``MAX_UNDEFINED`` of them give none, or if there is only one group.

    Args:
        figures: function of (B, G) float, how often each of B resamples draws each group, that returns each figure
            as (B,), NaN if undefined, such as ``figures.Figures``.
        n_groups: G >= 1.
        n_resamples: with 2,000, the bounds are accurate to about 5 % of the length of the interval.
        seed: the same seed draws the same groups for all figures.

    Returns:
        A ``_Resampled`` for each figure; the value is NaN (without interval) if it is undefined on the data.

    Source: Efron (1987), JASA 82:171; Efron & Tibshirani (1993), section 14.3; groups as the unit:
    Davison & Hinkley (1997), section 3.8. Groups are not stratified by class.
    """
    value = figures(np.ones((1, n_groups)))
    if n_groups < 2:
        return {key: _Resampled(float(one[0]), None, "BCa", "there is only one group") for key, one in value.items()}
    rng = np.random.default_rng(seed)
    drawn: list[Mapping[K, np.ndarray]] = []
    for start in range(0, n_resamples, CHUNK):
        size = min(CHUNK, n_resamples - start)
        groups = rng.integers(0, n_groups, (size, n_groups)) + n_groups * np.arange(size)[:, None]
        counts = np.bincount(groups.ravel(), minlength=size * n_groups).reshape(size, n_groups)
        drawn.append(figures(counts.astype(np.float64)))

    blocks = np.arange(n_groups)
    if n_groups > MAX_JACKKNIFE:
        blocks = rng.permutation(n_groups) % MAX_JACKKNIFE
    left_out: list[Mapping[K, np.ndarray]] = []
    for start in range(0, int(blocks.max()) + 1, CHUNK):
        rows = np.arange(start, min(start + CHUNK, int(blocks.max()) + 1))
        left_out.append(figures((blocks[None, :] != rows[:, None]).astype(np.float64)))

    return {
        key: _interval(
            float(one[0]),
            np.concatenate([part[key] for part in drawn]),
            np.concatenate([part[key] for part in left_out]),
        )
        for key, one in value.items()
    }


def figure_values(
    label: ArrayLike,
    prob: ArrayLike,
    group: ArrayLike,
    *,
    classes: Sequence[str],
    ranked: bool = True,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> FigureValues:
    """Compute every figure except the AUC with its 95 % interval (the figures of ``figures.Figures``).

    A proportion (accuracy, sensitivity, specificity, PPV, NPV) has Wilson's interval, for an effective number of images
    if groups have several. Balanced accuracy, F1, macro F1 and Matthews' correlation have intervals that combine those
    of proportions (``table_intervals``). Brier score, log loss and average precision have a cluster bootstrap.

    Args:
        label: (n,) int in 0 ... K - 1.
        prob: (n, K) probabilities.
        group: (n,) int or str, the patient (or duplicate cluster) of each image.
        classes: K names.
        ranked: False leaves out average precision, which takes most of the time.
        n_resamples, seed: of the bootstrap.

    Returns:
        Undefined figures are null with a reason. The n_groups of a proportion counts the groups with an image in its
        denominator; for other figures, all.

    Raises:
        ValueError: a label outside 0 ... K - 1, a probability that is NaN or outside [0, 1], a
            missing group (the index is named); not K names.
    """
    figures = Figures(label, prob, group, ranked=ranked)
    if len(classes) != figures.n_classes:
        raise ValueError(f"{len(classes)} class names for {figures.n_classes} columns of probabilities")
    resampled = cluster_bootstrap(figures, figures.n_groups, n_resamples=n_resamples, seed=seed)
    found = FigureValues()
    for key, one in resampled.items():
        of = None if key.of_class is None else classes[key.of_class]
        found.add(key.name, of, _value(figures, key, one, list(classes), n_resamples))
    return found


def _value(figures: Figures, key: Key, one: _Resampled, classes: list[str], n_resamples: int) -> Estimate:
    n_groups = figures.support(key)
    if np.isnan(one.value):
        return undefined(figures.why_undefined(key, classes), n_groups)
    method, ci95, reason = f"cluster bootstrap, {one.method}, {n_resamples} resamples", one.ci95, one.reason
    if key.name in PROPORTIONS:
        looked_at, right = figures.trials(key)
        return clustered_share(right[looked_at], figures.code[looked_at])
    if key.name in _TABLE_METHODS:
        method, ci95 = _TABLE_METHODS[key.name], _table_interval(figures, key)
        reason = "" if ci95 else f"{ONE_GROUP} with images of some class"
    support = _support(figures, key, classes)
    return with_interval(one.value, ci95, method=method, n_groups=n_groups, reason=reason, support=support)


def _table_interval(figures: Figures, key: Key) -> Interval | None:
    images = figures.label, figures.decided, figures.code
    if key.of_class is not None:
        return f1_interval(images, key.of_class)
    if key.name == "mcc":
        return matthews_interval(images, figures.tables)
    of = balanced_accuracy_interval if key.name == "balanced_accuracy" else f1_macro_interval
    return of(images, figures.n_classes)


def _support(figures: Figures, key: Key, classes: list[str]) -> Support:
    """Return the groups that the interval of a figure is estimated from: those of the rarest class involved."""
    if key.name in ("brier", "log_loss"):
        return support_of(figures.code)
    if key.of_class is None:
        there = np.unique(figures.label).tolist()
        return rarest(figures.label, figures.code, {k: f"images of class '{classes[k]}'" for k in there})
    own = (figures.label == key.of_class).astype(np.int64)
    names = {1: f"images of class '{classes[key.of_class]}'", 0: "images of the other classes"}
    return rarest(own, figures.code, {k: of for k, of in names.items() if (own == k).any()})


def _interval(value: float, drawn: np.ndarray, left_out: np.ndarray) -> _Resampled:
    if np.isnan(value):
        return _Resampled(value, None, "BCa", "undefined")
    known = drawn[~np.isnan(drawn)]
    n_undefined = len(drawn) - len(known)
    if n_undefined > MAX_UNDEFINED * len(drawn):
        return _Resampled(value, None, "BCa", f"undefined in {n_undefined} of {len(drawn)} resamples")
    spread = float(np.ptp(known))
    if spread <= 1e-12 * max(1.0, abs(value)):
        return _Resampled(value, None, "BCa", "every resample gives the same value")
    note = f"{n_undefined} of {len(drawn)} resamples were undefined and left out" if n_undefined else ""

    below = ((known < value).sum() + (known <= value).sum()) / (2 * len(known))  # ties count one half
    middle = np.nanmean(left_out) - left_out
    power = float((middle**2).sum())  # NaN where the figure is undefined without some group
    if 0 < below < 1 and np.isfinite(power) and power > 0:
        bias, quantile = ndtri(below), ndtri([ALPHA / 2, 1 - ALPHA / 2])
        acceleration = float((middle**3).sum()) / (6 * power**1.5)
        shift = bias + quantile
        levels = ndtr(bias + shift / (1 - acceleration * shift))
        low, high = np.quantile(known, levels)
        return _Resampled(value, (float(low), float(high)), "BCa", note)
    if not 0 < below < 1:
        why = "no BCa: all resamples are on one side of the value"
    else:
        why = "no BCa: leaving out a group makes the figure undefined, or never changes it"
    low, high = np.quantile(known, [ALPHA / 2, 1 - ALPHA / 2])
    return _Resampled(value, (float(low), float(high)), "percentile", "; ".join(filter(None, [why, note])))
