"""Multi-reader multi-case (MRMC) statistics: means over readers, whose intervals count readers and patients.

Several readers read the same images, perhaps in several modalities (without and with a model). A mean over readers
varies with the readers and, because all read the same patients, with the patients. The analysis of Obuchowski and
Rockette, with Hillis' degrees of freedom, counts both. Here it has one form for the mean of a modality, for the
difference of two, and for a model less the readers: a number for each reader, and the covariance of these numbers that
the patients cause.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit
from scipy.stats import nct
from scipy.stats import t as student

from usvit.estimate import Difference
from usvit.metrics.checks import check_positive, check_score, group_codes
from usvit.metrics.clustered import AreaParts, area_covariance, area_parts
from usvit.metrics.delong import NO_VARIANCE
from usvit.metrics.intervals import ALPHA
from usvit.metrics.margin_tests import StudentLimits

ReaderFigure = Literal["auc", "sensitivity", "specificity"]
Inference = Literal["readers and patients", "patients", "readers"]
"""What other studies would differ in: new readers read new patients; these readers read new patients; new readers read
these patients."""
INFERENCES: tuple[Inference, ...] = ("readers and patients", "patients", "readers")
METHODS: dict[Inference, str] = {
    "readers and patients": "Obuchowski-Rockette, Hillis' degrees of freedom",
    "patients": "clustered (Obuchowski), these readers",
    "readers": "Student's t over readers, these patients",
}
_ONE_READER = "one reader tells nothing about other readers"
_FEW_PATIENTS = "at least two patients with and two without the condition are needed"
_NO_VARIANCE = "the readers do not differ, and the patients cause no variance"


@dataclass(frozen=True)
class ReaderParts:
    """A figure of each of J readers, in one modality, and the contribution of each patient to it."""

    parts: tuple[AreaParts, ...]

    @property
    def values(self) -> np.ndarray:
        """(J,) the figures."""
        return np.array([one.value for one in self.parts])


def reader_parts(
    positive: ArrayLike,
    ratings: Sequence[ArrayLike],
    group: ArrayLike,
    figure: ReaderFigure = "auc",
    positive_from: float | None = None,
) -> ReaderParts | None:
    """Compute a figure of each reader of the same images, split by patient.

    Args:
        positive: (n,) bool.
        ratings: J times (n,) float, higher for positive; ties count one half in an AUC.
        group: (n,) int or str, the patient of each image.
        figure: ``auc``; or ``sensitivity`` or ``specificity`` of calling ratings from ``positive_from`` positive.
        positive_from: the lowest positive rating.

    Returns:
        None if no image, or every image, is positive.

    Raises:
        ValueError: a rating is not finite or a group missing (the index is named); shapes do not fit.
    """
    truth = check_positive(positive)
    code, n_groups = group_codes(group, len(truth))
    if truth.all() or not truth.any():
        return None
    found = []
    for one in ratings:
        values = check_score(one, len(truth))
        if figure == "auc":
            parts = area_parts(truth, values, code, n_groups)
            assert parts is not None
        else:
            if positive_from is None:
                raise ValueError(f"{figure} needs positive_from")
            parts = _share_parts(truth, values >= positive_from, code, n_groups, sensitivity=figure == "sensitivity")
        found.append(parts)
    return ReaderParts(tuple(found))


def _share_parts(
    truth: np.ndarray, called: np.ndarray, code: np.ndarray, n_groups: int, *, sensitivity: bool
) -> AreaParts:
    """Split a sensitivity or specificity by group, as ``area_parts`` splits an AUC."""
    own = truth if sensitivity else ~truth
    right = (called == truth)[own]
    value, none = float(right.mean()), np.zeros(n_groups)
    contribution = np.bincount(code[own], right - value, n_groups) / own.sum()
    has = [np.bincount(code[one], minlength=n_groups) > 0 for one in (truth, ~truth)]
    return AreaParts(value, *((contribution, none) if sensitivity else (none, contribution)), *has)


@dataclass(frozen=True)
class ReaderNumbers:
    """A number of each of J readers, such as an AUC or a difference of AUCs, and what makes it vary.

    Attributes:
        values: (J,) the numbers.
        covariance: (J, J) that the patients cause; NaN with fewer than two patients of a class.
        n_groups: patients.
        differences: whether the numbers are differences; otherwise they are figures in [0, 1].
    """

    values: np.ndarray
    covariance: np.ndarray
    n_groups: int
    differences: bool

    @classmethod
    def of(cls, of: ReaderParts, minus: ReaderParts | None = None) -> "ReaderNumbers":
        """Return the figures of a modality, or their differences to those of another.

        Args:
            of: J readers, or one model that is compared with each of the readers of ``minus``.
            minus: the same J readers in another modality, or one model.
        """
        pairs = [(one, None) for one in of.parts] if minus is None else _pairs(of.parts, minus.parts)
        values = np.array([a.value - (b.value if b else 0.0) for a, b in pairs])
        covariance = np.array([[_covariance(one, other) for other in pairs] for one in pairs])
        return cls(values, covariance, of.parts[0].n_groups, minus is not None)

    @property
    def mean(self) -> float:
        return float(self.values.mean())

    @property
    def mean_square(self) -> float:
        """Variance of the numbers between readers; NaN for one reader."""
        return float(self.values.var(ddof=1)) if len(self.values) > 1 else float("nan")

    @property
    def variance(self) -> float:
        """Mean variance of a reader's number that the patients cause."""
        return float(np.diag(self.covariance).mean())

    @property
    def shared(self) -> float:
        """Mean covariance of the numbers of two readers that the patients cause; NaN for one reader."""
        j = len(self.values)
        off = self.covariance.sum() - np.trace(self.covariance)
        return float(off / (j * (j - 1))) if j > 1 else float("nan")


_Pair = tuple[AreaParts, AreaParts | None]


def _pairs(a: tuple[AreaParts, ...], b: tuple[AreaParts, ...]) -> list[_Pair]:
    n = max(len(a), len(b))
    return list(zip(a * n if len(a) == 1 else a, b * n if len(b) == 1 else b, strict=False))


def _covariance(one: _Pair, other: _Pair) -> float:
    (a, b), (c, d) = one, other
    found = area_covariance(a, c)
    found -= area_covariance(a, d) if d else 0.0
    found -= area_covariance(b, c) if b else 0.0
    return found + (area_covariance(b, d) if b and d else 0.0)


def reader_limits(numbers: ReaderNumbers, inference: Inference) -> StudentLimits | str:
    """Compute the mean over readers with its standard error and degrees of freedom; or say why there is none.

    Args:
        numbers: of each reader.
        inference: what other studies would differ in.

    Source: Obuchowski & Rockette (1995), Communications in Statistics 24:285; Hillis (2007), Statistics in Medicine
    26:596 (degrees of freedom); Hillis (2014), Statistics in Medicine 33:330 (differences). Of J readers with the mean
    square MS and the mean covariance C of two of them, the variance of the mean is (MS + J max(C, 0)) / J with (J - 1)
    ((MS + J max(C, 0)) / MS)^2 degrees of freedom. For two modalities, MS is twice MS(T:R), and C twice Cov2 - Cov3.
    """
    j, freedom = len(numbers.values), float("inf")
    if inference == "patients":
        variance = float(numbers.covariance.mean())
        reason = _FEW_PATIENTS if np.isnan(variance) else _NO_VARIANCE
    elif j < 2:
        variance, reason = float("nan"), _ONE_READER
    elif inference == "readers":
        variance, freedom, reason = numbers.mean_square / j, j - 1.0, _NO_VARIANCE
    else:
        square, shared = numbers.mean_square, j * max(numbers.shared, 0.0)
        variance = (square + shared) / j
        reason = _FEW_PATIENTS if np.isnan(numbers.shared) else _NO_VARIANCE
        variance = float("nan") if np.isnan(numbers.shared) else variance
        freedom = (j - 1) * ((square + shared) / square) ** 2 if square > NO_VARIANCE else float("inf")
    return StudentLimits(numbers.mean, float(np.sqrt(variance)), freedom) if variance > NO_VARIANCE else reason


def mean_over_readers(numbers: ReaderNumbers, inference: Inference) -> tuple[Difference, StudentLimits | None]:
    """Compute the mean over readers with the 95 % interval of an inference (``reader_limits``).

    Args:
        numbers: of each reader, in [-1, 1].
        inference: what other studies would differ in.

    Returns:
        The mean, and the limits of a difference from which intervals of other levels follow. The interval of a
        difference is symmetric, with a two-sided p of 0; that of a figure is symmetric on the logit scale, because the
        plain one is too short near 1. Without an interval there is a reason and no limits.
    """
    value, method = numbers.mean, METHODS[inference]
    limits = reader_limits(numbers, inference)
    if isinstance(limits, str):
        return Difference(value=value, ci95=None, method=method, n_groups=numbers.n_groups, reason=limits), None
    ends, freedom = limits.interval(ALPHA), limits.freedom
    if not numbers.differences and 0 < value < 1:
        half = float(student.ppf(1 - ALPHA / 2, freedom)) * limits.error / (value * (1 - value))
        low, high = expit(logit(value) + np.array([-half, half]))
        ends, method = (float(low), float(high)), f"{method}, logit"
    found = Difference(
        value=value,
        ci95=ends,
        method=method,
        n_groups=numbers.n_groups,
        p=2 * float(student.sf(abs(value) / limits.error, freedom)) if numbers.differences else None,
        error=limits.error,
        freedom=None if np.isinf(freedom) else freedom,
    )
    return found, limits if numbers.differences else None


def reader_power(numbers: ReaderNumbers, effect: float, n_readers: int, patients: float) -> float:
    """Compute the power of a study like a pilot study, with other numbers of readers and patients.

    Args:
        numbers: differences of the pilot study, of at least two readers.
        effect: the true difference that is assumed, which is tested against 0, two-sided at 5 %.
        n_readers: J >= 2.
        patients: number of patients relative to the pilot study, with the same share of positives.

    Returns:
        In [0, 1]; NaN if the pilot study has no variance.

    Source: Hillis, Obuchowski & Berbaum (2011), Academic Radiology 18:129: the reader variance is the mean square less
    the part that patients cause, not below 0, and the patients' part falls with their number.
    """
    own, shared = numbers.variance - numbers.shared, max(numbers.shared, 0.0)
    square = max(numbers.mean_square - own, 0.0) + max(own, 0.0) / patients
    variance = (square + n_readers * shared / patients) / n_readers
    if not square > NO_VARIANCE:
        return float("nan")
    freedom = (n_readers - 1) * (n_readers * variance / square) ** 2
    shift = effect / np.sqrt(variance)
    critical = float(student.ppf(1 - ALPHA / 2, freedom))
    return float(nct.sf(critical, freedom, shift) + nct.cdf(-critical, freedom, shift))
