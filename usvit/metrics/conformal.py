"""Conformal prediction sets for patients with several images, with one threshold for each class (Mondrian).

A class belongs to the set of an image if its score for the image (its probability) is at least the threshold of the
class. The thresholds come from calibration patients. Images of one patient are not exchangeable with those of another,
but patients are. Two guarantees therefore exist for a new patient with images of class k, if the new patient and the
calibration patients of this class are exchangeable:

``every image``
    With probability 1 - alpha or more, the sets of all images of the patient that are of class k contain k. Each
    patient is represented by the image that fits the class worst. A mean over images of one class is never below the
    lowest of them, so the guarantee also holds for the mean of a file, a study or the patient.
``one image``
    With probability 1 - alpha or more, the set of one image of class k, drawn at random from the patient, contains k.
    Each calibration patient has weight 1 / (G + 1), shared equally among the patient's images. The sets are smaller,
    but some images of a patient may be wrong.

Both hold over the calibration patients and the new patient together. ``coverage_range`` shows what remains once the
calibration patients are given.

Source: Vovk, Gammerman & Shafer (2005), Algorithmic Learning in a Random World, section 4.5 (Mondrian); Dunn,
Wasserman & Ramdas (2023), JASA 118:2491 (two-layer hierarchical models); Lee, Barber & Willett (2023),
arXiv:2306.06342, theorem 1 (the weights of ``one image``).
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import beta
from scipy.stats import t as student

from usvit.estimate import Estimate
from usvit.metrics.checks import check_score, group_codes
from usvit.metrics.intervals import ALPHA, all_or_none_interval, effective_wilson, undefined, wilson, with_interval
from usvit.metrics.support import satterthwaite_freedom, steadied_design_effect

Guarantee = Literal["every image", "one image"]
GUARANTEES: tuple[Guarantee, ...] = get_args(Guarantee)
ROUNDING = 1e-9
"""Shares of patients closer than this are equal: 0.1 * 10 patients must count as one whole patient."""


@dataclass(frozen=True)
class SetThreshold:
    """The lowest score of a class with which an image still has the class in its set."""

    threshold: float | None
    n_patients: int
    """Calibration patients with an image of the class."""
    reason: str | None = None
    """Reason why there is no threshold; None if there is one."""


def least_patients(alpha: float) -> int:
    """Return the fewest calibration patients of a class with which a set at ``alpha`` can leave the class out.

    Raises:
        ValueError: ``alpha`` is not between 0 and 1.
    """
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie between 0 and 1, not at {alpha}")
    return max(1, math.ceil(1 / alpha - 1 - ROUNDING))


def set_threshold(score: ArrayLike, group: ArrayLike, *, alpha: float, guarantee: Guarantee) -> SetThreshold:
    """Compute the threshold of a class from its calibration images.

    Args:
        score: (n,) how well the class fits each image of this class, such as its probability; n may be 0.
        group: (n,) the patient of each image.
        alpha: in (0, 1), the share of patients who may be missed.
        guarantee: see the module.

    Returns:
        No threshold, with the reason, for fewer patients than ``least_patients``.

    Raises:
        ValueError: as ``checks.check_score`` and ``checks.group_codes``; ``alpha`` or ``guarantee`` is invalid.
    """
    if guarantee not in GUARANTEES:
        raise ValueError(f"guarantee must be one of {', '.join(GUARANTEES)}, not {guarantee!r}")
    values = np.asarray(score, dtype=np.float64)
    values = check_score(values, len(values))
    needed = least_patients(alpha)
    code, n = group_codes(group, len(values)) if len(values) else (np.zeros(0, np.int64), 0)
    if n < needed:
        return SetThreshold(None, n, f"{n} patients; alpha = {alpha:g} needs {needed}")
    if guarantee == "every image":
        worst = np.full(n, np.inf)
        np.minimum.at(worst, code, values)
        left_out = math.floor(alpha * (n + 1) + ROUNDING)  # of n + 1 patients, the new one among them
        return SetThreshold(float(np.sort(worst)[left_out - 1]), n)
    weight = 1 / ((n + 1) * np.bincount(code)[code])
    order = np.argsort(-values, kind="stable")
    enough = weight[order].cumsum() >= 1 - alpha - ROUNDING
    return SetThreshold(float(values[order][enough.argmax()]), n)


def coverage_range(n_patients: int, alpha: float, *, level: float = 0.9) -> tuple[float, float]:
    """Return the central range of the coverage over new patients, given the calibration patients of ``every image``.

    The guarantee averages over calibration patients. The coverage of one calibration follows a beta distribution if no
    two patients have equal scores.

    Args:
        n_patients: calibration patients of the class, at least ``least_patients``.
        alpha: as in ``set_threshold``.
        level: share of calibrations within the range.

    Source: Vovk (2012), Asian Conference on Machine Learning, proposition 2a.
    """
    left_out = math.floor(alpha * (n_patients + 1) + ROUNDING)
    low, high = beta.ppf([(1 - level) / 2, (1 + level) / 2], n_patients + 1 - left_out, left_out)
    return float(low), float(high)


def patient_coverage(covered: ArrayLike, group: ArrayLike, *, guarantee: Guarantee) -> Estimate:
    """Compute the share of patients for whom a guarantee held, with its interval for these thresholds.

    Args:
        covered: (n,) bool, whether the set of the image contains the reference class; n may be 0.
        group: (n,) the patient of each image.
        guarantee: ``every image`` counts patients whose sets are all right; ``one image`` averages over patients the
            share of images whose set is right.

    Returns:
        An Estimate with Wilson's interval if each patient counts as 0 or 1, and otherwise for the effective number of
        patients that the variance between patients gives, with Student's quantile and Satterthwaite's degrees of
        freedom.
    """
    hits = np.asarray(covered, dtype=np.float64)
    if not len(hits):
        return undefined("there are no images", 0)
    code, n = group_codes(group, len(hits))
    share = np.bincount(code, weights=hits) / np.bincount(code)
    if guarantee == "every image":
        share = (share == 1).astype(np.float64)
    value = float(share.mean())
    if np.isin(share, (0.0, 1.0)).all():
        return with_interval(value, wilson(round(float(share.sum())), n), method="Wilson, by patient", n_groups=n)
    if n < 2:
        return with_interval(value, None, method="Wilson, by patient", n_groups=n, reason="there is only one group")
    method = "Wilson, effective patients"
    variance = float(share.var(ddof=1)) / n
    if variance <= 0 or value in (0.0, 1.0):
        ends = all_or_none_interval(value, n)
        return with_interval(value, ends, method=method, n_groups=n, reason="the share is the same in every patient")
    freedom = satterthwaite_freedom(share - value, n)
    quantile = float(student.ppf(1 - ALPHA / 2, freedom))
    design = steadied_design_effect(n * variance / (value * (1 - value)), 1.0, n)
    ends = effective_wilson(value, n / design, quantile=quantile)
    return with_interval(value, ends, method=method, n_groups=n)
