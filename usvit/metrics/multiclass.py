"""Three definitions of the AUC for more than two classes, each with an interval that respects patients.

Each is a mean of two-class AUCs. The contribution of a group is therefore the mean of its contributions to those
(``clustered.AreaParts``), and the variance follows from these sums over groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike

from usvit.estimate import Estimate
from usvit.metrics.area_interval import few_errors
from usvit.metrics.checks import check_prob, group_codes
from usvit.metrics.clustered import AreaParts, area_covariance, area_parts, clustered_auc
from usvit.metrics.delong import area_value, difference_value
from usvit.metrics.intervals import undefined
from usvit.metrics.support import rarest

Average = Literal["macro", "weighted", "hand-till"]


@dataclass(frozen=True)
class _MeanArea:
    """A mean of AUCs and the contribution of each of G groups.

    Attributes:
        value: in [0, 1].
        total: (G,) contribution of each group, corrected for small numbers of groups so that its sum of squares is the
            variance; None if one of the AUCs has no variance.
        disjoint_pairs: the smallest number among the AUCs.
        two_classes: the AUC itself if there are only two classes.
    """

    value: float
    total: np.ndarray | None
    disjoint_pairs: int
    two_classes: AreaParts | None = None


def multiclass_auc(
    label: ArrayLike,
    prob: ArrayLike,
    group: ArrayLike,
    *,
    average: Average = "macro",
    positive: int = 1,
    classes: Sequence[str] | None = None,
) -> Estimate:
    """Compute an AUC over K classes with a clustered interval.

    - ``macro``: unweighted mean of the one-vs-rest AUCs of the classes.
    - ``weighted``: the same, weighted by the classes' shares of the images (Provost & Domingos 2001).
      The shares are estimated as well, and the interval accounts for it.
    - ``hand-till``: mean over all pairs of classes of [A(i|j) + A(j|i)] / 2, each on the images of the
      two classes only; it does not depend on the frequencies of the classes (Hand & Till 2001, eq. 7).

    With two classes all three are the AUC of the positive class's probability.

    Args:
        label: (n,) int in 0 ... K - 1.
        prob: (n, K) probabilities.
        group: (n,) int or str, the patient (or duplicate cluster) of each image.
        average: one of the three.
        positive: with two classes, the class whose probability is used; ignored otherwise.
        classes: K names for a warning about few groups; None takes the numbers.

    Returns:
        It is undefined if a class is absent, because a mean over other classes would be a different quantity.
        It has no interval in the cases of ``clustered_auc``.

    Raises:
        ValueError: a label outside 0 ... K - 1, a probability that is NaN or outside [0, 1], a missing
            group (the index is named); an unknown average.

    Source: Hand & Till (2001), Machine Learning 45:171; variance after Obuchowski (1997), Biometrics
    53:567: her structural components, each with its I/(I - 1), averaged over the AUCs and summed by group.
    """
    codes, p = check_prob(label, prob)
    code, n_groups = group_codes(group, len(codes))
    absent = _absent(codes, p.shape[1])
    if absent:
        return undefined(absent, n_groups)
    if p.shape[1] == 2:
        if average not in get_args(Average):
            raise ValueError(f"average '{average}' is not one of {', '.join(get_args(Average))}")
        return clustered_auc(codes == positive, p[:, positive], group)
    mean = mean_area(codes, p, code, n_groups, average, positive)
    variance = _covariance(mean, mean)
    method = f"clustered (Obuchowski), logit, {average}"
    names = range(p.shape[1]) if classes is None else [f"'{name}'" for name in classes]
    support = rarest(codes, code, {k: f"images of class {name}" for k, name in enumerate(names)})
    found = area_value(
        mean.value, variance, disjoint_pairs=mean.disjoint_pairs, n_groups=n_groups, method=method, support=support
    )
    if found.ci95 is not None and few_errors(mean.value, support.n_groups):
        near = (
            "the interval of a mean of AUCs is too short this close to its bound with so few groups of the rarest class"
        )
        return found.with_warning(near)
    return found


def multiclass_difference(
    label: ArrayLike,
    prob_a: ArrayLike,
    prob_b: ArrayLike,
    group: ArrayLike,
    *,
    average: Average = "macro",
    positive: int = 1,
) -> Estimate:
    """Compute ``multiclass_auc`` of model A minus that of model B on the same images, with p-value.

    Returns:
        An Estimate with "p" (two-sided, normal), as ``delong.difference_value`` describes; null with a reason
        if a class is absent.

    Raises:
        ValueError: as ``multiclass_auc``; or the models have different numbers of classes.
    """
    codes, a = check_prob(label, prob_a)
    _, b = check_prob(label, prob_b)
    if a.shape != b.shape:
        raise ValueError(f"probabilities of {a.shape[1]} and of {b.shape[1]} classes cannot be compared")
    code, n_groups = group_codes(group, len(codes))
    absent = _absent(codes, a.shape[1])
    if absent:
        return undefined(absent, n_groups)
    one, other = (mean_area(codes, prob, code, n_groups, average, positive) for prob in (a, b))
    variance = _covariance(one, one) + _covariance(other, other) - 2 * _covariance(one, other)
    method = f"clustered (Obuchowski), paired, {average}"
    support = rarest(codes, code, dict.fromkeys(range(a.shape[1]), "images of the rarest class"))
    return difference_value(one.value - other.value, variance, n_groups=n_groups, method=method, support=support)


def mean_area(
    label: np.ndarray, prob: np.ndarray, code: np.ndarray, n_groups: int, average: Average, positive: int
) -> _MeanArea:
    """Compute the mean AUC and its contributions by group; every class must occur (arguments as ``multiclass_auc``)."""
    if average not in get_args(Average):
        raise ValueError(f"average '{average}' is not one of {', '.join(get_args(Average))}")
    n, n_classes = prob.shape
    if n_classes == 2:
        two = _present(area_parts(label == positive, prob[:, positive], code, n_groups))
        return _MeanArea(two.value, None, two.disjoint_pairs, two)

    if average == "hand-till":
        parts = []
        for i, j in combinations(range(n_classes), 2):
            of_two = (label == i) | (label == j)
            for k in (i, j):
                parts.append(area_parts(label[of_two] == k, prob[of_two, k], code[of_two], n_groups))
    else:
        parts = [area_parts(label == k, prob[:, k], code, n_groups) for k in range(n_classes)]
    areas = [_present(part) for part in parts]

    values = np.array([area.value for area in areas])
    weight = np.full(len(areas), 1 / len(areas))
    if average == "weighted":
        weight = np.bincount(label, minlength=n_classes) / n
    value = 1.0 if (values == 1).all() else float(weight @ values)  # the weights' sum may be 1 - 1e-16
    pairs = min(area.disjoint_pairs for area in areas)
    stretched = [_stretched(area) for area in areas]
    if any(part is None for part in stretched):
        return _MeanArea(value, None, pairs)
    total = weight @ np.stack([part for part in stretched if part is not None])
    if average == "weighted":  # a group with more than its share of class k changes the weight of class k
        of_class = np.zeros((n_groups, n_classes))
        np.add.at(of_class, (code, label), 1.0)
        moved = (of_class - of_class.sum(axis=1, keepdims=True) * weight) @ values / n
        total = total + np.sqrt(n_groups / (n_groups - 1)) * moved
    return _MeanArea(value, total, pairs)


def _stretched(area: AreaParts) -> np.ndarray | None:
    """Compute (G,) contributions whose sum of squares includes Obuchowski's factors I/(I - 1)."""
    up, down = int(area.has_positive.sum()), int(area.has_negative.sum())
    if min(up, down) < 2:
        return None
    return np.sqrt(up / (up - 1)) * area.positives + np.sqrt(down / (down - 1)) * area.negatives


def _covariance(a: _MeanArea, b: _MeanArea) -> float:
    if a.two_classes is not None and b.two_classes is not None:
        return area_covariance(a.two_classes, b.two_classes)
    if a.total is None or b.total is None:
        return float("nan")
    return float(a.total @ b.total)


def _absent(label: np.ndarray, n_classes: int) -> str:
    counts = np.bincount(label, minlength=n_classes)
    if not counts.all():
        return f"no image of class {int(counts.argmin())}"
    return ""


def _present(parts: AreaParts | None) -> AreaParts:
    assert parts is not None, "every class is there"
    return parts
