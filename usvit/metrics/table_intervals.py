"""Intervals of figures of a confusion table: F1, balanced accuracy, macro F1 and Matthews' correlation.

Each is a function of shares, and its interval is built from Wilson's intervals of these shares for clustered images. A
resampling of images sees no variance in a class that is right, or wrong, throughout; Wilson's interval has a bound.
"""

import numpy as np
from scipy.special import stdtrit

from usvit.metrics.clustered_wilson import share_interval
from usvit.metrics.figures import matthews
from usvit.metrics.intervals import ALPHA, Interval
from usvit.metrics.mover import common_groups, correlations, mean_interval
from usvit.metrics.support import effective_groups, satterthwaite_freedom

F1_METHOD = "clustered Wilson interval of TP / (TP + FP + FN), transformed"
MEAN_METHOD = "clustered Wilson intervals of the classes, combined (MOVER)"
MATTHEWS_METHOD = "clustered Wilson intervals of the classes' sensitivities, combined (MOVER)"
Labels = tuple[np.ndarray, np.ndarray, np.ndarray]
"""(n,) int reference class, (n,) int decided class, (n,) int group of each image."""


def f1_interval(images: Labels, k: int) -> Interval | None:
    """Compute the interval of the F1 score of class k, which occurs; None if its images are of a single group.

    F1 is 2 J / (1 + J), where J = TP / (TP + FP + FN) is the share of right decisions among the images that are of
    class k or are decided as class k.

    Source: Hand, Christen & Kirielle (2021), Machine Learning 110:451 (F1 as a function of this share).
    """
    label, decided, code = images
    either = (label == k) | (decided == k)
    ends = share_interval((label == decided)[either], _recoded(code[either]))
    return None if ends is None else (_f1(ends[0]), _f1(ends[1]))


def f1_macro_interval(images: Labels, n_classes: int) -> Interval | None:
    """Compute the interval of the mean F1 score over classes; None if one of them has none.

    The classes share their errors, so that the correlation of their scores is estimated from the contributions of the
    groups; if there is no error, or nothing else, it is taken to be 1.
    """
    label, decided, code = images
    ends = [f1_interval(images, k) for k in range(n_classes)]
    known = [one for one in ends if one is not None]
    if len(known) < n_classes:
        return None
    values, adds = [], []
    for k in range(n_classes):
        either = (label == k) | (decided == k)
        share, own = _share(label == decided, either, code)
        values.append(_f1(share))
        adds.append(own * 2 / (1 + share) ** 2)
    return mean_interval(values, known, np.array(adds))


def balanced_accuracy_interval(images: Labels, n_classes: int) -> Interval | None:
    """Compute the interval of the mean sensitivity over classes; None if the images of a class are of one group.

    Source: as ``mover``. Classes share patients if the images of a patient differ in their label, so the correlation of
    their sensitivities is estimated from the contributions of the groups. If a class is all right or all wrong, it
    is taken to be the share of their groups that two classes have in common.
    """
    label, decided, code = images
    known = [one for one in (_sensitivity_interval(images, k) for k in range(n_classes)) if one is not None]
    if len(known) < n_classes:
        return None
    values, adds = zip(*(_share(label == decided, label == k, code) for k in range(n_classes)), strict=True)
    return mean_interval(values, known, np.array(adds), _common(label, code))


def matthews_interval(images: Labels, tables: np.ndarray) -> Interval | None:
    """Compute the interval of Matthews' correlation; None if the images of a class are of one group.

    The distances to the bounds are those of the correlation if the sensitivity of one class after another lies at its
    bound, with the errors of the class spread over the other classes as they are now (one error more for each class
    without any). What the groups contribute besides, by the frequencies of the classes and by which class an error
    goes to, is added with its linear variance.

    Args:
        images: the images.
        tables: (G, K, K) counts of each group (``figures.Figures.tables``).

    Source: MOVER (``mover``) with the distance of a function of several parameters: Newcombe (2011), Communications in
    Statistics 40:3154.
    """
    label, decided, code = images
    n_groups, n_classes = tables.shape[:2]
    total = tables.sum(axis=0)
    value = float(matthews(total[None])[0])
    slope = _slope(total)
    contribution = (tables * slope).sum(axis=(1, 2))
    moved, adds = [], []
    for k in np.flatnonzero(total.sum(axis=1)):
        ends = _sensitivity_interval(images, int(k))
        if ends is None:
            return None
        own = _share(label == decided, label == k, code)[1]
        errors = total[k].copy() + 1 / (n_classes - 1)
        errors[k] = 0
        row = np.array([np.where(np.arange(n_classes) == k, p, (1 - p) * errors / errors.sum()) for p in ends])
        changed = np.tile(total, (2, 1, 1))
        changed[:, k] = row * total[k].sum()
        away = np.nan_to_num(matthews(changed)) - value
        moved.append((max(-away.min(), 0.0), max(away.max(), 0.0)))
        adds.append(own)
        contribution = contribution - own * total[k].sum() * (slope[k, k] - slope[k] @ errors / errors.sum())
    freedom = satterthwaite_freedom(contribution, effective_groups(tables.sum(axis=(1, 2))))
    rest = stdtrit(freedom, 1 - ALPHA / 2) ** 2 * n_groups / (n_groups - 1) * float(contribution @ contribution)
    r, (down, up) = correlations(np.array(adds), _common(label, code)), np.array(moved).T
    low, high = value - np.sqrt(max(down @ r @ down, 0.0) + rest), value + np.sqrt(max(up @ r @ up, 0.0) + rest)
    return max(float(low), -1.0), min(float(high), 1.0)


def _sensitivity_interval(images: Labels, k: int) -> Interval | None:
    label, decided, code = images
    return share_interval((decided == k)[label == k], _recoded(code[label == k]))


def _common(label: np.ndarray, code: np.ndarray) -> np.ndarray:
    """Return ``mover.common_groups`` of the classes that occur."""
    n_groups = int(code.max()) + 1
    return common_groups(np.array([np.bincount(code[label == k], minlength=n_groups) > 0 for k in np.unique(label)]))


def _recoded(code: np.ndarray) -> np.ndarray:
    return np.unique(code, return_inverse=True)[1]


def _share(right: np.ndarray, at: np.ndarray, code: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the share of right images among ``at``, and the (G,) contribution of each group to it."""
    share = float(right[at].mean())
    return share, np.bincount(code[at], right[at] - share, int(code.max()) + 1) / int(at.sum())


def _slope(table: np.ndarray) -> np.ndarray:
    """Return the (K, K) derivatives of Matthews' correlation by the counts; by central differences."""
    step = 1e-3 * np.eye(table.size).reshape(-1, *table.shape)
    return np.asarray((np.nan_to_num(matthews(table + step) - matthews(table - step)) / 2e-3).reshape(table.shape))


def _f1(share: float) -> float:
    return 2 * share / (1 + share)
