"""Figures of one set of images: with intervals, or as numbers alone."""

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from usvit.estimate import Estimate
from usvit.metrics.bootstrap import N_RESAMPLES, FigureValues, figure_values
from usvit.metrics.checks import group_codes
from usvit.metrics.clustered import area_parts, clustered_auc
from usvit.metrics.figures import Figures
from usvit.metrics.intervals import undefined
from usvit.metrics.multiclass import Average, mean_area, multiclass_auc
from usvit.metrics.proportions import point
from usvit.records import MeanSd, MeanSdRecord

_AVERAGES: dict[Average, str] = {
    "macro": "auc_macro_ovr",
    "weighted": "auc_weighted_ovr",
    "hand-till": "auc_hand_till",
}
assert set(_AVERAGES) == set(get_args(Average))


def figures_with_intervals(
    label: np.ndarray,
    prob: np.ndarray,
    group: np.ndarray,
    *,
    classes: Sequence[str],
    positive: str,
    ranked: bool = True,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> FigureValues:
    """Compute every figure with its 95 % interval: AUCs after Obuchowski, others as ``bootstrap.figure_values``.

    Figures of a class take it against all others, at the decision of ``basic.decide``. An average over classes is
    undefined if one class is, because averages over different sets of classes are not comparable.

    Args:
        label: (n,) int, index of the reference class; n >= 1.
        prob: (n, K) float64, rows sum to one.
        group: (n,) str, the patient (or duplicate cluster) of each image.
        classes: K names.
        positive: one of the classes. With two classes, both AUCs are computed from its probability, because rounding
            must not make the two equal areas differ.
        ranked: whether to compute average precision, which takes most of the time.
        n_resamples, seed: of the bootstrap.

    Returns:
        The figures of ``figures.Figures`` and auc (``<class>_vs_rest``), auc_macro_ovr, auc_weighted_ovr and
        auc_hand_till. The n_groups of an Estimate counts the
        groups that contribute: for a sensitivity, those with an image of the class.
    """
    found = figure_values(label, prob, group, classes=classes, ranked=ranked, n_resamples=n_resamples, seed=seed)
    absent = _absent(label, classes)
    p = list(classes).index(positive)
    for k, name in enumerate(classes):
        of = p if len(classes) == 2 else k
        area = clustered_auc(label == of, prob[:, of], group)
        area = area if area.value is not None else _no_area(label, k, name, area.n_groups or 0)
        found.add("auc", f"{name}_vs_rest", area)
    for average, name in _AVERAGES.items():
        mean = multiclass_auc(label, prob, group, average=average, positive=p, classes=classes)
        found.add(name, None, undefined(absent, mean.n_groups or 0) if absent else mean)
    return found


def figure_points(
    label: np.ndarray, prob: np.ndarray, group: np.ndarray, *, classes: Sequence[str], positive: str
) -> FigureValues:
    """Compute the same figures without intervals; arguments and result as ``figures_with_intervals``."""
    figures = Figures(label, prob, group)
    found = FigureValues()
    for key, values in figures(np.ones((1, figures.n_groups))).items():
        n_groups, number = figures.support(key), float(values[0])
        why = figures.why_undefined(key, list(classes)) if np.isnan(number) else ""
        value = undefined(why, n_groups) if why else point(number, n_groups)
        found.add(key.name, None if key.of_class is None else classes[key.of_class], value)

    code, n_groups = group_codes(group, len(label))
    absent = _absent(label, classes)
    p = list(classes).index(positive)
    for k, name in enumerate(classes):
        of = p if len(classes) == 2 else k
        # The same sum as for the interval, so that values of a fold and of the whole agree to the last bit.
        area = area_parts(label == of, prob[:, of], code, n_groups)
        value = _no_area(label, k, name, n_groups) if area is None else point(area.value, n_groups)
        found.add("auc", f"{name}_vs_rest", value)
    for average, name in _AVERAGES.items():
        if absent:
            found.add(name, None, undefined(absent, n_groups))
        else:
            found.add(name, None, point(mean_area(label, prob, code, n_groups, average, p).value, n_groups))
    return found


def mean_and_sd(folds: Sequence[Estimate]) -> MeanSd:
    """Compute mean and SD (n - 1 in the denominator) of one figure over folds."""
    known = [one.value for one in folds if one.value is not None]
    reason = "an SD needs at least two folds" if len(known) == 1 else None
    return MeanSd(
        mean=float(np.mean(known)) if known else None,
        sd=float(np.std(known, ddof=1)) if len(known) > 1 else None,
        n_folds=len(known),
        n_skipped=len(folds) - len(known),
        reason=reason if known else "undefined in every fold",
    )


def mean_and_sd_of_all(folds: Sequence[FigureValues]) -> MeanSdRecord:
    """Compute mean and SD over folds of each figure."""
    each = {name: [one.values[name] for one in folds] for name in folds[0].values}
    return MeanSdRecord(**{name: _mean_and_sd(figures) for name, figures in each.items()})


def _mean_and_sd(figures: Sequence[Any]) -> Any:
    """Return mean and SD of a figure, or of the figure of each class."""
    if not isinstance(figures[0], dict):
        return mean_and_sd(figures)
    return {name: mean_and_sd([one[name] for one in figures]) for name in figures[0]}


def _absent(label: np.ndarray, classes: Sequence[str]) -> str:
    """Return why an average over classes is undefined; empty if it is defined."""
    for k, name in enumerate(classes):
        if not (label == k).any():
            return f"no image of class '{name}'"
    return ""


def _no_area(label: np.ndarray, k: int, name: str, n_groups: int) -> Estimate:
    present = bool((label == k).any())
    return undefined(f"every image is of class '{name}'" if present else f"no image of class '{name}'", n_groups)
