"""Means over the folds of a cross-validation, with an interval that respects patients, folds and shared training.

Each figure is computed on the test images of one fold, which one model has scored, and then averaged over folds:
scores of different models are never ranked against each other. The variance has up to three parts.

1. Patients: the contribution of each group to the figure of its fold, squared and summed over groups (``fold_mean``).
   With repeats, the contributions of a group are first averaged over the repeats because they are the same patient.
2. Shared training: the model of each fold was trained on the test images of the other folds, so the errors of the
   folds are correlated. The part of a fold's variance that is due to chance in training counts twice
   (``training_share``): it is 0 for a model that does not depend on the training set, and 1 for a model without skill.
3. Training: the variance between repeats, if there are repeats. Without repeats, the variance between folds that the
   patients do not explain, if it is beyond chance (``FoldMean.between_models``).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from scipy.special import expit, logit
from scipy.stats import f as f_distribution
from scipy.stats import t as student

from usvit.estimate import Estimate
from usvit.metrics.delong import NO_VARIANCE
from usvit.metrics.fold_figures import FoldFigure, Stratum
from usvit.metrics.fold_shares import FoldShare, equal_sizes, shares_interval
from usvit.metrics.intervals import ALPHA, Interval, all_or_none_interval, undefined, with_interval
from usvit.metrics.support import Support, effective_groups

OneEstimate = TypeVar("OneEstimate", bound=Estimate)

METHOD = "mean of folds, clustered, logit t"
SHARE_METHOD = "mean of folds, clustered Wilson"
_SHARES_METHOD = "mean of folds, clustered Wilson intervals of the classes, combined (MOVER)"
_UNLIKE = 0.001
"""The models of the folds count as different below this p-value, which hardly ever occurs with equal models."""
_STRATA = {"positives": "positive images", "negatives": "negative images"}
"""Strata of an AUC, as the warning about few groups names them."""


@dataclass(frozen=True)
class FoldMean:
    """A mean over folds, and over repeats if there are any.

    Attributes:
        value: the mean over repeats of the mean over folds.
        by_repeat: (R,) the mean over folds of each repeat.
        variance: of the contributions of the groups alone; NaN if a stratum has not more groups than folds.
        freedom: degrees of freedom of that variance (Satterthwaite).
        n_groups: groups that contribute.
        independent: independent cases in all folds of one repeat.
        support: the groups of the rarest stratum, such as the positives of an AUC.
        folds: (K,) the figure of each fold that has one, if there is one repeat; otherwise empty.
        n_skipped: folds in which the figure is undefined.
        shares: of a share of images, itself; of a mean of shares, each of them; otherwise empty.
    """

    value: float
    by_repeat: np.ndarray
    variance: float
    freedom: float
    n_groups: int
    independent: int
    support: Support
    folds: np.ndarray
    n_skipped: int = 0
    shares: tuple[FoldShare, ...] = ()

    @property
    def between_models(self) -> float:
        """Variance of the mean that is due to differences between the models of the folds; 0 if they show none.

        The figures of the folds differ because their patients do, and also if their models do. If an F-test rejects
        that the patients explain the variance between folds (p < ``_UNLIKE``), this is the part that they do not
        explain. Repeats measure this variation themselves.

        Source: the moment estimator of DerSimonian & Laird (1986), Controlled Clinical Trials 7:177, for equal weights.
        """
        n = len(self.folds)
        if n < 2 or np.isnan(self.variance):
            return 0.0
        apart = float(self.folds.var(ddof=1)) / n
        if (
            not apart > self.variance
            or f_distribution.sf(apart / max(self.variance, NO_VARIANCE), n - 1, self.freedom) >= _UNLIKE
        ):
            return 0.0
        return apart - self.variance

    def variance_with(self, share: float) -> tuple[float, float]:
        """Return the total variance and its degrees of freedom for a training share in [0, 1]."""
        parts = [(self.variance * (1 + share), self.freedom)]
        n = len(self.by_repeat)
        if n > 1:
            parts.append((float(self.by_repeat.var(ddof=1)) / n, n - 1))
        whole = sum(one for one, _ in parts)
        if not whole > NO_VARIANCE:
            return whole, self.freedom
        return whole, whole**2 / sum(one**2 / freedom for one, freedom in parts if one > 0)


def fold_mean(repeats: Sequence[Sequence[FoldFigure | None]]) -> FoldMean | None:
    """Compute the mean of one figure over folds and repeats, with the variance of the contributions of the groups.

    The contributions of a group are added over the folds of a repeat (a group is in one fold if folds keep groups
    together) and averaged over repeats. The variance between the groups of a stratum is that within folds, pooled over
    folds (``PooledVariance``). So a fold with a single group, which shows no variance of its own, counts as the others
    do. If all groups of a fold have equally many images, it is the sum of squares over I - K for I groups in K folds;
    with one fold that is Obuchowski's I / (I - 1).

    Args:
        repeats: the figures of the folds of each repeat, None if undefined.

    Returns:
        None if a repeat has no fold with a value.

    Source: LeDell, Petersen & van der Laan (2015), Electronic Journal of Statistics 9:1583 (the mean of the
    folds' influence curves); groups and the factor after Obuchowski (1997), Biometrics 53:567; degrees of freedom
    of several strata as in Brunner & Munzel (2000), Biometrical Journal 42:17.
    """
    known = [[figure for figure in folds if figure is not None] for folds in repeats]
    if not all(known):
        return None
    by_repeat = np.array([np.mean([figure.value for figure in folds]) for folds in known])
    if all(figure.value == 1 for folds in known for figure in folds):
        by_repeat[:] = 1.0  # rounding must not turn a perfect score into 1 - 1e-16
    names = list(known[0][0].strata)
    total, components, groups = np.zeros(len(known[0][0].strata[names[0]].adds)), [], np.zeros(0, bool)
    variance = 0.0
    for name in names:
        strata = [[one.strata[name] for one in folds] for folds in known]
        pooled = [PooledVariance.of(own) for own in strata]
        if np.mean([one.spare for one in pooled]) < 1:
            variance = float("nan")
            continue
        adds = np.mean([one.adds for one in pooled], axis=0)
        total = total + adds
        components.append((float(adds @ adds), float(np.mean([one.freedom for one in pooled]))))
        here = np.any([one.present for own in strata for one in own], axis=0)
        groups = here if not len(groups) else groups | here
    if not np.isnan(variance):
        variance = float(total @ total)
    squares = sum(one**2 / spare for one, spare in components)
    freedom = sum(one for one, _ in components) ** 2 / squares if squares else 1.0
    return FoldMean(
        value=float(by_repeat.mean()),
        by_repeat=by_repeat,
        variance=variance,
        freedom=freedom,
        n_groups=int(groups.sum()),
        independent=min(sum(one.independent for one in folds) for folds in known),
        support=_rarest_stratum(known[0]),
        folds=np.array([one.value for one in known[0]]) if len(known) == 1 else np.zeros(0),
        n_skipped=sum(figure is None for folds in repeats for figure in folds),
        shares=_shares(known, by_repeat, variance, freedom, total),
    )


def _shares(
    known: Sequence[Sequence[FoldFigure]], by_repeat: np.ndarray, variance: float, freedom: float, adds: np.ndarray
) -> tuple[FoldShare, ...]:
    """Return ``FoldMean.shares`` of the figures of each repeat."""
    every = [figure for folds in known for figure in folds]
    if every[0].parts:
        means = [fold_mean([[one.parts[k] for one in folds] for folds in known]) for k in range(len(every[0].parts))]
        shares = [one for mean in means if mean is not None for one in mean.shares]
        return tuple(shares) if len(shares) == len(means) else ()
    sizes = [[one.images for one in folds if one.images is not None] for folds in known]
    if sum(map(len, sizes)) < len(every):
        return ()
    images, effective = np.mean([equal_sizes(one) for one in sizes], axis=0)
    n = len(by_repeat)
    of_repeats = float(by_repeat.var(ddof=1)) / n if n > 1 else 0.0
    present = np.any([one > 0 for folds in sizes for one in folds], axis=0)
    return (FoldShare(float(by_repeat.mean()), variance, freedom, adds, images, effective, of_repeats, n, present),)


def _rarest_stratum(folds: Sequence[FoldFigure]) -> Support:
    """Return the support of the stratum with the fewest effective groups, in the folds of one repeat."""
    found = []
    for name in folds[0].strata:
        images = np.sum([one.strata[name].images for one in folds], axis=0)
        of = "" if len(folds[0].strata) == 1 else _STRATA.get(name, "images of the rarest class")
        found.append(Support(int((images > 0).sum()), effective_groups(images), of))
    return min(found, key=lambda one: one.effective)


@dataclass(frozen=True)
class PooledVariance:
    """Contributions of the groups of a stratum to the mean of K folds, whose squares sum to its variance.

    A mean over images gives the group g of a fold the weight w_g, its share of the fold's images. Its contribution is
    w_g times its deviation from the mean, which the group itself has moved: the more, the larger it is. If groups vary
    by s^2, the squares of the contributions of a fold sum on average to s^2 times sum w^2 (1 - 2 w + S) with
    S = sum w^2, and the variance of the fold's mean is s^2 S. One s^2 is estimated from all folds, each weighted by
    1 / S^2. With equally many images in each group, s^2 is the sum of squared deviations over I - K.

    Attributes:
        adds: (G,) float.
        freedom: degrees of freedom of the variance, at least 1: I - K for equal groups, fewer if a few groups hold most
            of the images.
        spare: I - K for I groups in K folds. Below 1 there is no variance.

    Source: the bias and the degrees of freedom of a clustered variance: Bell & McCaffrey (2002), Survey Methodology
    28:169, for deviations of groups of one variance, whatever their sizes. That is the case of images that are all
    alike within their group; if they are not, the variance is slightly too large rather than too small.
    """

    adds: np.ndarray
    freedom: float
    spare: int

    @classmethod
    def of(cls, folds: Sequence[Stratum]) -> "PooledVariance":
        """Pool the K folds of one repeat."""
        spare = sum(int(one.present.sum()) for one in folds) - len(folds)
        if spare < 1:
            return cls(np.zeros(len(folds[0].adds)), 1.0, spare)
        square = shown = twice = 0.0
        adds = np.zeros(len(folds[0].adds))
        for one in folds:
            w = one.images[one.present] / one.images.sum()
            s, cubes, fourths = (float((w**power).sum()) for power in (2, 3, 4))
            square += s / len(folds) ** 2
            shown += (s + s * s - 2 * cubes) / s**2
            # The squares of the contributions are y' P' W^2 P y with P = I - 1 w', and the variance of this form of a
            # normal y is twice the trace of its square, here summed over pairs of groups and over the groups.
            pairs = s**4 + 2 * s * fourths - 4 * s * s * cubes + 2 * cubes**2
            twice += (pairs + float((w**4 * (1 + 2 * s - 4 * w)).sum())) / s**4
            adds = adds + one.adds / s
        return cls(np.sqrt(square / shown) * adds, max(1.0, shown**2 / twice), spare)


def mean_value(mean: FoldMean | None, share: float, *, absent: str, n_groups: int) -> Estimate:
    """Create the Estimate of a mean over folds in [0, 1]: interval on the logit scale with Student's t.

    Shares of images, and means of them, have Wilson's interval (``fold_shares``).

    Args:
        mean: from ``fold_mean``.
        share: from ``training_share``.
        absent: the reason if ``mean`` is None.
        n_groups: total number of groups, used if ``mean`` is None.
    """
    if mean is None:
        return undefined(absent, n_groups)
    ci95: Interval | None = None
    variance, freedom = mean.variance_with(share)
    method, reason = METHOD, ""
    if mean.shares:
        ci95 = shares_interval(mean.shares, share)
        method = SHARE_METHOD if len(mean.shares) == 1 else _SHARES_METHOD
    elif mean.value in (0.0, 1.0):
        ci95 = all_or_none_interval(mean.value, mean.independent)
        method = f"Clopper-Pearson on {mean.independent} independent cases"
        reason = f"the figure is {mean.value:g} in every fold, so the variance is 0"
    elif np.isnan(variance):
        reason = "the variance needs more groups than folds in each class"
    elif not variance > NO_VARIANCE:
        reason = "all groups have the same contribution, so the variance is 0"
    else:
        ci95 = _logit_t_interval(mean.value, variance, freedom)
    between = mean.between_models
    if between:
        both = (variance + between) ** 2 / (variance**2 / freedom + between**2 / (len(mean.folds) - 1))
        low, high = _logit_t_interval(mean.value, variance + between, both)
        ci95 = (low, high) if ci95 is None else (min(low, ci95[0]), max(high, ci95[1]))
        method, reason = f"{method}, with the variance between models", ""
    value = with_interval(mean.value, ci95, method=method, n_groups=mean.n_groups, reason=reason, support=mean.support)
    if between:
        said = (
            f"the folds differ by more than their patients explain ({mean.folds.min():.3f} to {mean.folds.max():.3f}), "
            "so that the models differ, or the folds hold unlike patients; the interval includes this variation"
        )
        value = value.with_warning(said)
    return with_skipped_folds(value, mean.n_skipped)


def _logit_t_interval(value: float, variance: float, freedom: float) -> Interval:
    half = float(student.ppf(1 - ALPHA / 2, freedom)) * np.sqrt(variance) / (value * (1 - value))
    return float(expit(logit(value) - half)), float(expit(logit(value) + half))


def with_skipped_folds(value: OneEstimate, n_skipped: int) -> OneEstimate:
    """Add a warning to an Estimate if folds are left out of its mean."""
    if n_skipped:
        return value.with_warning(f"undefined in {n_skipped} folds, which are left out of the mean")
    return value
