"""Selective prediction: the error of a model that answers only where it is confident.

The images are accepted in the order of their confidence; images of equal confidence are accepted together. The risk
at an accepted share c is the error among the share c of the images with the highest confidence.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike
from scipy.stats import t as student

from usvit.metrics.checks import check_positive, check_score, group_codes
from usvit.metrics.intervals import ALPHA, Interval, all_or_none_interval, effective_wilson, with_interval
from usvit.metrics.support import effective_groups, satterthwaite_freedom, steadied_design_effect, support_of
from usvit.records import RiskCoverageRecord

SHARES = tuple(percent / 100 for percent in range(5, 101, 5))
AREA = "area"
METHOD = "jackknife over groups, Wilson"
MIN_GROUPS = 3
"""Fewest groups of which the jackknife estimates a variance."""
MAX_JACKKNIFE = 2000
"""With more groups, the jackknife leaves out this many blocks of groups."""
CHUNK = 32
"""Sets of groups at once: 32 x 2,000 images of float64 are 0.5 MB."""


class RiskFigures:
    """Risk at accepted shares and AURC, for many weightings of the groups at once."""

    def __init__(self, confidence: np.ndarray, wrong: np.ndarray, code: np.ndarray, shares: Sequence[float]):
        order = np.argsort(-confidence, kind="stable")
        levels = confidence[order]
        self._first = np.flatnonzero(np.concatenate([[True], levels[1:] != levels[:-1]]))
        self._code, self._wrong, self._shares = code[order], wrong[order].astype(np.float64), tuple(shares)
        self._tied = len(self._first) < len(levels)

    def __call__(self, counts: np.ndarray) -> dict[float | str, np.ndarray]:
        """Return the (B,) risk at each share, and the AURC under ``AREA``, from (B, G) weights of the groups."""
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
    confidence: ArrayLike, wrong: ArrayLike, group: ArrayLike, *, shares: Sequence[float] = SHARES
) -> RiskCoverageRecord:
    """Compute the risk-coverage curve and its area, with intervals that respect groups.

    The variance comes from the jackknife over groups: each is left out once, and the confidence that accepts a share is
    found again. ``support.steadied_design_effect`` lengthens it with few groups. The interval is Wilson's for the
    number of independent images with which the risk would have this variance, and Student's quantile has
    Satterthwaite's degrees of freedom, because errors at high confidence come from a few patients. A bootstrap of
    groups covers less with few of them (docs/explanation/intervals.md).

    Args:
        confidence: (n,) finite float, n >= 1; images with the highest are accepted first.
        wrong: (n,) bool, whether the decision is wrong.
        group: (n,) the patient of each image.
        shares: accepted shares in (0, 1], ascending.

    Raises:
        ValueError: as ``checks``; a share is not in (0, 1].

    Source: El-Yaniv & Wiener (2010), JMLR 11:1605 (risk and coverage); Geifman, Uziel & El-Yaniv (2019), ICLR (AURC);
    Shao & Wu (1989), Annals of Statistics 17:1176 (jackknife, one group or several left out).
    """
    missed = check_positive(wrong)
    values = check_score(confidence, len(missed))
    code, n_groups = group_codes(group, len(missed))
    if not shares or not all(0 < share <= 1 for share in shares):
        raise ValueError("shares must lie above 0 and be at most 1")
    figures = RiskFigures(values, missed, code, shares)
    value = {key: float(one[0]) for key, one in figures(np.ones((1, n_groups))).items()}
    without = _without_each(figures, n_groups)
    effective = effective_groups(np.bincount(code))
    order = np.argsort(-values, kind="stable")
    ends: dict[float | str, Interval | None] = {}
    for key, one in value.items():
        accepted = 1.0 if key == AREA else float(key)
        of_group = np.bincount(code[order[: max(1, round(accepted * len(values)))]])
        # Without an error among the accepted images, leaving out a group changes nothing.
        ends[key] = all_or_none_interval(one, effective_groups(of_group)) or _interval(
            one, without.get(key), effective, of_group
        )
    area = with_interval(
        value[AREA],
        ends[AREA],
        method=METHOD,
        n_groups=n_groups,
        reason="" if ends[AREA] else f"fewer than {MIN_GROUPS} groups, or all groups are alike",
        support=support_of(code),
    )
    band = [ends[share] or (None, None) for share in shares]
    return RiskCoverageRecord(
        accepted=list(shares),
        error=[value[share] for share in shares],
        lower=[low for low, _ in band],
        upper=[high for _, high in band],
        area=area,
    )


def _without_each(figures: RiskFigures, n_groups: int) -> dict[float | str, np.ndarray]:
    """Return each figure without each group (or block of groups); empty with too few groups."""
    if n_groups < MIN_GROUPS:
        return {}
    block = np.arange(n_groups) % MAX_JACKKNIFE
    rows = np.arange(int(block.max()) + 1)
    found = [figures((block != rows[at : at + CHUNK, None]).astype(np.float64)) for at in range(0, len(rows), CHUNK)]
    return {key: np.concatenate([one[key] for one in found]) for key in found[0]}


def _interval(value: float, without: np.ndarray | None, effective: float, of_group: np.ndarray) -> Interval | None:
    """Return Wilson's interval of a risk from its values without each group; None if there is no variance.

    The design effect is at least 1, and lengthened by ``support.steadied_design_effect``.

    Args:
        value: the risk.
        without: its value without each group.
        effective: effective number of groups.
        of_group: accepted images of each group.
    """
    if without is None or not 0 < value < 1:
        return None
    away = without - without.mean()
    variance = (len(away) - 1) / len(away) * float(away @ away)
    if not variance > 1e-18:
        return None
    quantile = float(student.ppf(1 - ALPHA / 2, satterthwaite_freedom(away, effective)))
    n_images, inside = float(of_group.sum()), effective_groups(of_group)
    design = max(1.0, n_images * variance / (value * (1 - value)))
    whole = steadied_design_effect(design, n_images / inside, inside)
    return effective_wilson(value, n_images / whole, quantile=quantile)
