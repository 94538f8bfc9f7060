"""Paired tests of two models on the same images, and Holm's correction for several tests."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import binom, chi2, t

from usvit.estimate import Difference, Estimate
from usvit.metrics.checks import check_positive, group_codes
from usvit.metrics.clustered_wilson import ShareSums, share_freedom
from usvit.metrics.intervals import ALPHA, Interval, undefined, with_interval
from usvit.metrics.mover import weighted_interval
from usvit.metrics.support import support_of
from usvit.records import McNemar

McNemarMethod = Literal["mid-p", "exact", "chi2", "clustered"]
Name = TypeVar("Name")

SHARE_METHOD = "paired, clustered Wilson (Newcombe, MOVER); p of McNemar, {}"

_CLUSTERED_ROWS = (
    "some groups have several images, but the {} McNemar test treats images as independent, so its p-value is not "
    "reliable; 'clustered' counts groups"
)


def mcnemar(right_a: ArrayLike, right_b: ArrayLike, group: ArrayLike, *, method: McNemarMethod = "mid-p") -> McNemar:
    """Test whether two models decide correctly equally often; only images that exactly one gets right count.

    - ``mid-p``: exact conditional p minus half the probability of the observed result; recommended by Fagerland et al.
    - ``exact``: two-sided binomial of the discordant images; conservative.
    - ``chi2``: (b - c)^2 / (b + c), without continuity correction.
    - ``clustered``: (sum d)^2 / sum d^2 * (I - 1) / I, d being b - c within each of I groups; the only valid
      test if patients have several images.

    Args:
        right_a, right_b: (n,) bool, whether the decision of each model on each image is correct.
        group: (n,) int or str, the patient (or duplicate cluster) of each image.

    Returns:
        p is 1, with a reason, if no image is decided correctly by one model only. There is a warning if the test
        ignores clusters of the rows or if ``clustered`` has fewer than 50 groups. p is None, with a reason, if
        ``clustered`` has one group.

    Raises:
        ValueError: shapes that do not fit, a missing group (the index is named), an unknown method.

    Source: McNemar (1947), Psychometrika 12:153; Fagerland, Lydersen & Laake (2013), BMC Medical Research
    Methodology 13:91; Obuchowski (1998), Statistics in Medicine 17:1495, in the form of Yang, Sun & Hardin
    (2010), Biometrical Journal 52:638.
    """
    if method not in get_args(McNemarMethod):
        raise ValueError(f"method '{method}' is not one of {', '.join(get_args(McNemarMethod))}")
    a, b = check_positive(right_a), check_positive(right_b)
    if a.shape != b.shape:
        raise ValueError(f"{len(a)} decisions of one model and {len(b)} of the other")
    code, n_groups = group_codes(group, len(a))
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    p: float | None = 1.0
    reason = warning = None
    if not only_a + only_b:
        reason = "the models are right on the same images"
    elif method != "clustered":
        p = _mcnemar_p(min(only_a, only_b), only_a + only_b, method)
        warning = _CLUSTERED_ROWS.format(method) if n_groups < len(a) else None
    elif n_groups < 2:
        p, reason = None, "there is only one group"
    else:
        d = np.bincount(code, a.astype(np.float64) - b, n_groups)
        if squares := float(d @ d):  # otherwise the wins of A and B cancel in each group
            p = float(chi2.sf(d.sum() ** 2 / squares * (n_groups - 1) / n_groups, 1))
        warning = support_of(code).warning  # the test has the same limits as the interval
    return McNemar(
        p=p,
        only_a=only_a,
        only_b=only_b,
        method=f"McNemar, {method}",
        n_groups=n_groups,
        reason=reason,
        warning=warning,
    )


@dataclass(frozen=True)
class PairedShares:
    """Shares of hits of two models on the same images, with the interval of their difference at any level.

    Attributes:
        a, b: sums over groups of the hits of each model.
        correlation: of the two shares, from the deviations of the groups.
        freedom: degrees of freedom of the variances of the two shares (``share_freedom``).
    """

    a: ShareSums
    b: ShareSums
    correlation: float
    freedom: tuple[float, float]

    @classmethod
    def of(cls, hits_a: np.ndarray, hits_b: np.ndarray, code: np.ndarray) -> "PairedShares":
        """Compute the sums of (n,) bool hits, n >= 1, and (n,) int groups."""
        freedom = share_freedom(hits_a, code), share_freedom(hits_b, code)
        return cls(ShareSums.of(hits_a, code), ShareSums.of(hits_b, code), _correlation(hits_a, hits_b, code), freedom)

    @property
    def difference(self) -> float:
        return (self.a.n_hits - self.b.n_hits) / self.a.n_images

    def interval(self, alpha: float = ALPHA) -> Interval:
        """Compute the interval of level 1 - alpha, clipped to [-1, 1]; sources in ``paired_difference``."""
        shares = [one.n_hits / one.n_images for one in (self.a, self.b)]
        sides = zip((self.a, self.b), self.freedom, strict=True)
        ends = [one.interval(alpha=alpha, freedom=freedom) or (0.0, 1.0) for one, freedom in sides]
        return mover(shares, ends, self.correlation)


def mover(shares: Sequence[float], ends: Sequence[Interval], correlation: float) -> Interval:
    """Combine the intervals of two shares into that of the first minus the second, clipped to [-1, 1].

    Args:
        shares: the two shares.
        ends: the interval of each.
        correlation: of the two estimates; 0 if they are from different patients.

    Source: as ``mover``.
    """
    low, high = weighted_interval(shares, ends, (1, -1), ((1, correlation), (correlation, 1)))
    return max(low, -1.0), min(high, 1.0)


def paired_difference(hits_a: ArrayLike, hits_b: ArrayLike, group: ArrayLike, *, of: str) -> Estimate:
    """Compute the share of hits of model A minus that of model B on the same images.

    The interval combines the Wilson intervals of the two shares and accounts for their correlation between groups. The
    p-value is McNemar's: clustered if groups have several images, otherwise mid-p.

    Args:
        hits_a, hits_b: (n,) bool, such as whether each positive image is called positive.
        group: (n,) int or str, the patient (or duplicate cluster) of each image.
        of: description of the images in the plural, for the reason if there are none.

    Returns:
        An Estimate in [-1, 1] with "p"; null with a reason if n is 0.

    Raises:
        ValueError: as ``checks.check_positive`` and ``checks.group_codes``; the lengths differ.

    Source: Newcombe (1998), Statistics in Medicine 17:2635, method 8; for clusters Zou & Donner (2008), Statistics in
    Medicine 27:1693 (MOVER, with the correlation of the two estimates), the correlation from sums over groups as in
    Obuchowski (1998), Statistics in Medicine 17:1495.
    """
    if not np.size(hits_a):
        return undefined(f"there are no {of}", 0)
    a, b = check_positive(hits_a), check_positive(hits_b)
    if a.shape != b.shape:
        raise ValueError(f"{len(a)} decisions of one model and {len(b)} of the other")
    code, n_groups = group_codes(group, len(a))
    shares = PairedShares.of(a, b, code)
    test = mcnemar(a, b, code, method="clustered" if n_groups < len(a) else "mid-p")
    return with_interval(
        shares.difference,
        shares.interval(),
        method=SHARE_METHOD.format(test.method.removeprefix("McNemar, ")),
        n_groups=n_groups,
        p=test.p,
        support=support_of(code),
    )


def corrected_t(differences: ArrayLike, test_over_train: float) -> Difference:
    """Compute Nadeau and Bengio's t-test of the mean difference over folds (or repeated splits).

    The folds share most of their training images, so the variance of their mean is not S^2 / J: 1/J becomes
    1/J + n_test/n_train. The test asks whether the *training procedure* is better at this size of the training set;
    the clustered difference asks about these predictions on new patients.

    Args:
        differences: (J,) differences of a figure in [0, 1], model A minus model B, one for each fold, J >= 1.
        test_over_train: n_test / n_train > 0; 1 / (J - 1) in J-fold cross-validation without a
            validation split.

    Returns:
        The mean with ``p`` (two-sided, J - 1 degrees of freedom), ``n_folds``, and the ``error`` and ``freedom`` of its
        interval. It has no n_groups because it counts folds. It has no interval and p if J is 1 or all differences
        are equal (p is 1 if they are 0).

    Raises:
        ValueError: a difference is not finite (the index is named), there is none, or the ratio is not positive.

    Source: Nadeau & Bengio (2003), Machine Learning 52:239, section 3, the corrected resampled t-test.
    """
    d = np.asarray(differences, dtype=np.float64)
    if d.ndim != 1 or not len(d):
        raise ValueError(f"expected one difference for each of at least one fold, got shape {d.shape}")
    if not np.isfinite(d).all():
        raise ValueError(f"the difference at index {int((~np.isfinite(d)).argmax())} is not finite")
    if not test_over_train > 0:
        raise ValueError(f"n_test / n_train is {test_over_train}, expected a positive number")
    mean, n = float(d.mean()), len(d)
    value = Difference(value=mean, ci95=None, method="Nadeau-Bengio corrected t", n_folds=n)
    if n == 1:
        return value.replace(reason="a variance needs at least two folds")
    error = float(np.sqrt((1 / n + test_over_train) * d.var(ddof=1)))
    if error <= 1e-15:
        value = value.replace(reason="the difference is the same in all folds, so the variance is 0")
        return value.replace(p=1.0) if mean == 0 else value
    half = float(t.ppf(1 - ALPHA / 2, n - 1)) * error
    ends = max(mean - half, -1.0), min(mean + half, 1.0)
    p = 2 * float(t.sf(abs(mean) / error, n - 1))
    return value.replace(ci95=ends, error=error, freedom=float(n - 1), p=p)


def holm(p: Mapping[Name, float | None], exclusive: Mapping[Name, Hashable] | None = None) -> dict[Name, float | None]:
    """Apply Holm's step-down correction, so that several p-values can be compared with one level.

    Args:
        p: a p-value in [0, 1] for each comparison; None (not computable) remains None and is not counted.
        exclusive: a key for each comparison, if of all null hypotheses with one key at most one can be true. A step
            then counts the keys that are left instead of the comparisons.

    Returns:
        The adjusted p-values, in the same order, at most 1.

    Raises:
        ValueError: a p-value is NaN or outside [0, 1] (the comparison is named).

    Source: Holm (1979), Scandinavian Journal of Statistics 6:65; hypotheses that exclude each other: Shaffer (1986),
    Journal of the American Statistical Association 81:826, method S2.

    >>> holm({"A to B": 0.02, "B to A": 0.6}, {"A to B": "A and B", "B to A": "A and B"})
    {'A to B': 0.02, 'B to A': 0.6}
    """
    for name, one in p.items():
        if one is not None and not 0 <= one <= 1:
            raise ValueError(f"the p-value of '{name}' is {one}")
    order = sorted(((one, name) for name, one in p.items() if one is not None), key=lambda pair: pair[0])
    keys = [name if exclusive is None else exclusive[name] for _, name in order]
    adjusted: dict[Name, float | None] = dict.fromkeys(p)
    so_far = 0.0
    for step, (one, name) in enumerate(order):
        so_far = max(so_far, min(1.0, len(set(keys[step:])) * one))
        adjusted[name] = so_far
    return adjusted


def _mcnemar_p(fewer: int, n: int, method: McNemarMethod) -> float:
    """Compute the two-sided p of ``fewer`` of n discordant images on one side."""
    if method == "chi2":
        return float(chi2.sf((n - 2 * fewer) ** 2 / n, 1))
    exact = min(1.0, 2 * float(binom.cdf(fewer, n, 0.5)))
    if method == "exact":
        return exact
    seen = float(binom.pmf(fewer, n, 0.5))
    return 1 - seen / 2 if 2 * fewer == n else exact - seen


def _correlation(a: np.ndarray, b: np.ndarray, code: np.ndarray) -> float:
    """Estimate the correlation of two shares from the deviations of the groups; 0 if either share does not vary."""
    m = np.bincount(code)
    away_a, away_b = (np.bincount(code, one) - one.mean() * m for one in (a, b))
    scatter = float((away_a @ away_a) * (away_b @ away_b))
    return float(np.clip(away_a @ away_b / np.sqrt(scatter), -1, 1)) if scatter > 1e-20 else 0.0
