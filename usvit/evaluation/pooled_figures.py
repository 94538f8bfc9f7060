"""Figures of one set of images: with intervals, or as numbers alone."""

from collections.abc import Sequence
from typing import Any, get_args

import numpy as np

from usvit.estimate import Estimate
from usvit.metrics.bootstrap import N_RESAMPLES, figure_values
from usvit.metrics.checks import group_codes
from usvit.metrics.clustered import area_parts, clustered_auc
from usvit.metrics.figures import Figures
from usvit.metrics.intervals import undefined
from usvit.metrics.multiclass import Average, mean_area, multiclass_auc
from usvit.metrics.proportions import point

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
) -> dict[str, Any]:
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
        auc_hand_till: one Estimate each, or an Estimate for each class. The n_groups of an Estimate counts the
        groups that contribute: for a sensitivity, those with an image of the class.
    """
    found = figure_values(label, prob, group, classes=classes, ranked=ranked, n_resamples=n_resamples, seed=seed)
    absent = _absent(label, classes)
    p = list(classes).index(positive)
    areas = {}
    for k, name in enumerate(classes):
        of = p if len(classes) == 2 else k
        area = clustered_auc(label == of, prob[:, of], group)
        areas[f"{name}_vs_rest"] = area if area.value is not None else _no_area(label, k, name, area.n_groups or 0)
    found["auc"] = areas
    for average, name in _AVERAGES.items():
        mean = multiclass_auc(label, prob, group, average=average, positive=p, classes=classes)
        found[name] = undefined(absent, mean.n_groups or 0) if absent else mean
    return found


def figure_points(
    label: np.ndarray, prob: np.ndarray, group: np.ndarray, *, classes: Sequence[str], positive: str
) -> dict[str, Any]:
    """Compute the same figures without intervals; arguments and result as ``figures_with_intervals``."""
    figures = Figures(label, prob, group)
    found: dict[str, Any] = {}
    for key, values in figures(np.ones((1, figures.n_groups))).items():
        n_groups, number = figures.support(key), float(values[0])
        why = figures.why_undefined(key, list(classes)) if np.isnan(number) else ""
        value = undefined(why, n_groups) if why else point(number, n_groups)
        if key.of_class is None:
            found[key.name] = value
        else:
            found.setdefault(key.name, {})[classes[key.of_class]] = value

    code, n_groups = group_codes(group, len(label))
    absent = _absent(label, classes)
    p = list(classes).index(positive)
    found["auc"] = {}
    for k, name in enumerate(classes):
        of = p if len(classes) == 2 else k
        # The same sum as for the interval, so that values of a fold and of the whole agree to the last bit.
        area = area_parts(label == of, prob[:, of], code, n_groups)
        value = _no_area(label, k, name, n_groups) if area is None else point(area.value, n_groups)
        found["auc"][f"{name}_vs_rest"] = value
    for average, name in _AVERAGES.items():
        if absent:
            found[name] = undefined(absent, n_groups)
        else:
            found[name] = point(mean_area(label, prob, code, n_groups, average, p).value, n_groups)
    return found


def mean_and_sd(shape: Estimate | dict[str, Any], folds: list[Any]) -> dict[str, Any]:
    """Compute mean and SD (n - 1 in the denominator) over folds, for one Estimate or for an Estimate of each class.

    Args:
        shape: a figure with the same structure, such as the pooled one.
        folds: the figure of each fold.
    """
    if isinstance(shape, dict):
        return {name: mean_and_sd(inner, [one[name] for one in folds]) for name, inner in shape.items()}
    known = [one.value for one in folds if one.value is not None]
    mean_sd: dict[str, Any] = {
        "mean": float(np.mean(known)) if known else None,
        "sd": float(np.std(known, ddof=1)) if len(known) > 1 else None,
        "n_folds": len(known),
        "n_skipped": len(folds) - len(known),
    }
    if not known:
        mean_sd["reason"] = "undefined in every fold"
    elif len(known) == 1:
        mean_sd["reason"] = "an SD needs at least two folds"
    return mean_sd


def _absent(label: np.ndarray, classes: Sequence[str]) -> str:
    """Return why an average over classes is undefined; empty if it is defined."""
    for k, name in enumerate(classes):
        if not (label == k).any():
            return f"no image of class '{name}'"
    return ""


def _no_area(label: np.ndarray, k: int, name: str, n_groups: int) -> Estimate:
    present = bool((label == k).any())
    return undefined(f"every image is of class '{name}'" if present else f"no image of class '{name}'", n_groups)
