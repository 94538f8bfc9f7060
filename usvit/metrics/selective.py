"""Selective prediction: the error of a model that answers only where it is confident.

The images are accepted in the order of their confidence; images of equal confidence are accepted together. The risk
at an accepted share c is the error among the share c of the images with the highest confidence.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from usvit.metrics.basic import Value
from usvit.metrics.bootstrap import N_RESAMPLES, cluster_bootstrap
from usvit.metrics.checks import check_positive, check_score, group_codes
from usvit.metrics.clustered_wilson import METHOD as WILSON
from usvit.metrics.clustered_wilson import ShareSums
from usvit.metrics.intervals import all_or_none_interval, with_interval
from usvit.metrics.support import support_of

SHARES = tuple(percent / 100 for percent in range(5, 101, 5))
AREA = "area"


@dataclass(frozen=True)
class RiskCoverage:
    """Error among the accepted images over the share that is accepted."""

    accepted: tuple[float, ...]
    error: tuple[float, ...]
    lower: tuple[float | None, ...]
    """Lower end of the pointwise 95 % band; None where the bootstrap gives no interval."""
    upper: tuple[float | None, ...]
    area: Value
    """AURC: the mean over images of the error among all images that are accepted no later; 0 is perfect."""


class RiskFigures:
    """Risk at accepted shares and AURC, for many resamples of groups at once (see ``bootstrap.cluster_bootstrap``)."""

    def __init__(self, confidence: np.ndarray, wrong: np.ndarray, code: np.ndarray, shares: Sequence[float]):
        order = np.argsort(-confidence, kind="stable")
        levels = confidence[order]
        self._first = np.flatnonzero(np.concatenate([[True], levels[1:] != levels[:-1]]))
        self._code, self._wrong, self._shares = code[order], wrong[order].astype(np.float64), tuple(shares)
        self._tied = len(self._first) < len(levels)

    def __call__(self, counts: np.ndarray) -> dict[float | str, np.ndarray]:
        """Return the (B,) risk at each share, and the AURC under ``AREA``, from (B, G) counts of the groups."""
        weight = counts[:, self._code]
        error = weight * self._wrong
        if self._tied:
            weight, error = (np.add.reduceat(one, self._first, axis=1) for one in (weight, error))
        accepted, errors = weight.cumsum(axis=1), error.cumsum(axis=1)
        total = accepted[:, -1]
        with np.errstate(invalid="ignore"):
            risk = np.where(accepted > 0, errors / accepted, 0.0)
        out: dict[float | str, np.ndarray] = {AREA: (weight * risk).sum(axis=1) / total}
        # The errors at a share lie on the line between two levels. All rows are searched in one ascending sequence.
        wanted = np.array(self._shares) * total[:, None]
        row = np.arange(len(counts))[:, None] * (total.max() + 1)
        at = np.searchsorted((accepted + row).ravel(), (wanted + row).ravel()).reshape(wanted.shape)
        at = np.minimum(at - np.arange(len(counts))[:, None] * accepted.shape[1], accepted.shape[1] - 1)
        reached, missed = (np.take_along_axis(one, at, 1) for one in (accepted, errors))
        inside, own = np.take_along_axis(weight, at, 1), np.take_along_axis(error, at, 1)
        with np.errstate(invalid="ignore", divide="ignore"):
            found = (missed - np.where(inside > 0, (reached - wanted) / inside * own, 0.0)) / wanted
        found = np.where(wanted < accepted[:, :1], risk[:, :1], found)  # the first level is accepted as a whole
        return out | {share: found[:, j] for j, share in enumerate(self._shares)}


def risk_coverage(
    confidence: ArrayLike,
    wrong: ArrayLike,
    group: ArrayLike,
    *,
    shares: Sequence[float] = SHARES,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> RiskCoverage:
    """Compute the risk-coverage curve and its area, with intervals from resampling whole groups.

    Args:
        confidence: (n,) finite float, n >= 1; images with the highest are accepted first.
        wrong: (n,) bool, whether the decision is wrong.
        group: (n,) the patient of each image.
        shares: accepted shares in (0, 1], ascending.
        n_resamples, seed: of the bootstrap; in each resample the confidence that accepts a share is found again.

    Raises:
        ValueError: as ``checks``; a share is not in (0, 1].

    Source: El-Yaniv & Wiener (2010), JMLR 11:1605 (risk and coverage); Geifman, Uziel & El-Yaniv (2019), ICLR (AURC).
    """
    missed = check_positive(wrong)
    values = check_score(confidence, len(missed))
    code, n_groups = group_codes(group, len(missed))
    if not shares or not all(0 < share <= 1 for share in shares):
        raise ValueError("shares must lie above 0 and be at most 1")
    found = cluster_bootstrap(RiskFigures(values, missed, code, shares), n_groups, n_resamples=n_resamples, seed=seed)
    ends = []
    order = np.argsort(-values, kind="stable")
    for share in shares:
        one, known = found[share], None
        if one.ci95 is None:  # without an error among the accepted images, all resamples are alike
            inside = len(np.unique(code[order[: max(1, round(share * len(values)))]]))
            known = all_or_none_interval(one.value, inside)
        ends.append(one.ci95 or known or (None, None))
    area = found[AREA]
    value = with_interval(
        area.value,
        area.ci95,
        method=f"cluster bootstrap, {area.method}, {n_resamples} resamples",
        n_groups=n_groups,
        reason=area.reason,
        support=support_of(code),
    )
    return RiskCoverage(
        tuple(shares),
        tuple(float(found[share].value) for share in shares),
        tuple(low for low, _ in ends),
        tuple(high for _, high in ends),
        value,
    )


def clustered_wilson_share(hits: np.ndarray, group: np.ndarray) -> Value:
    """Compute a share of n >= 1 images with Wilson's interval for clustered images (a ``proportions.ShareInterval``).

    It needs no resampling, so curves with many points remain cheap.
    """
    sums = ShareSums.of(hits, group)
    code, _ = group_codes(group, len(hits))
    value = float(np.mean(hits))
    return with_interval(value, sums.interval(), method=WILSON, n_groups=sums.n_groups, support=support_of(code))
