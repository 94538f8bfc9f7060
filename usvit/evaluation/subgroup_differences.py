"""Differences between subgroups of a run: each level against all other images, with Holm's correction."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as student

from usvit.estimate import Estimate
from usvit.metrics.basic import decide
from usvit.metrics.clustered import AreaParts, area_parts
from usvit.metrics.clustered_wilson import ShareSums, share_freedom
from usvit.metrics.delong import NO_VARIANCE
from usvit.metrics.intervals import ALPHA, Interval, undefined, with_interval
from usvit.metrics.margin_tests import two_sided_p
from usvit.metrics.paired_tests import holm, mover
from usvit.metrics.support import Support, rarest, support_of
from usvit.records import LevelDifference, Subgrouping

FIGURES = tuple(name for name, field in LevelDifference.model_fields.items() if field.annotation is Estimate)
"""Figures whose difference is computed, in the order of the record."""
FEWEST = 5
"""Groups of a class on one side below which no interval and no p is given: they could not be relied on."""
_AREA_METHOD = "clustered (Obuchowski), Welch's t"
SHARE_METHOD = "clustered Wilson (MOVER)"
_TOO_SMALL = "too small: {count} group{s} with {of} in {side}, and at least {fewest} are needed"


def level_differences(
    label: np.ndarray, prob: np.ndarray, group: np.ndarray, level: np.ndarray, *, positive: int
) -> list[LevelDifference]:
    """Compute the figures of each level minus those of all other images.

    Args:
        label: (n,) int, index of the reference class.
        prob: (n, K) probabilities.
        group: (n,) int or str, the patient (or near-duplicate cluster) of each image; a group may have images in
            several levels.
        level: (n,) str, the subgroup of each image.
        positive: index of the class of the AUC, the sensitivity and the specificity.

    Returns:
        One entry per level, in order of the names; its figures have ``p`` if it can be computed. Decisions are
        those of the most probable class. If a side has fewer than ``FEWEST`` groups that a figure needs, the figure has
        no interval and no p, and the reason says how many there are. With two levels, the second entry would mirror the
        first and is left out.
    """
    names = sorted(set(level.tolist()))
    code = np.unique(group, return_inverse=True)[1]
    called, up = decide(prob) == positive, label == positive
    right = decide(prob) == label
    if len(names) < 2:
        return []
    found = []
    for name in names[: 1 if len(names) == 2 else len(names)]:
        own = level == name
        against = names[1] if len(names) == 2 else "all others"
        sides = (f"'{name}'", f"'{against}'" if len(names) == 2 else against)
        found.append(
            LevelDifference(
                level=name,
                against=against,
                n_images=int(own.sum()),
                n_groups=len(np.unique(code[own])),
                n_images_against=int((~own).sum()),
                n_groups_against=len(np.unique(code[~own])),
                auc=_area_difference(up, prob[:, positive], code, own, sides),
                accuracy=_share_difference(right, code, own, "images", sides),
                sensitivity=_share_difference(called[up], code[up], own[up], "positive images", sides),
                specificity=_share_difference(~called[~up], code[~up], own[~up], "negative images", sides),
            )
        )
    return found


def correct_after_holm(tables: Sequence[Subgrouping]) -> list[Subgrouping]:
    """Return tables of differences with ``p_holm`` for every p, corrected for all of them together."""
    p = {
        (number, k, figure): getattr(entry, figure).p
        for number, table in enumerate(tables)
        for k, entry in enumerate(table.differences)
        for figure in FIGURES
    }
    adjusted = holm(p)

    def corrected(number: int, k: int, entry: LevelDifference) -> LevelDifference:
        values = {figure: getattr(entry, figure) for figure in FIGURES if p[number, k, figure] is not None}
        return entry.model_copy(
            update={name: one.replace(p_holm=adjusted[number, k, name]) for name, one in values.items()}
        )

    return [
        table.model_copy(
            update={"differences": [corrected(number, k, entry) for k, entry in enumerate(table.differences)]}
        )
        for number, table in enumerate(tables)
    ]


@dataclass(frozen=True)
class ShareDifference:
    """A share of one set of images minus that of another, whose groups may have images in both.

    Attributes:
        own, rest: sums over the groups of the two sides.
        correlation: of the two shares, from the groups that have images on both sides.
        freedom: degrees of freedom of the variances of the two shares (``share_freedom``).
    """

    own: ShareSums
    rest: ShareSums
    correlation: float
    freedom: tuple[float, float]

    @classmethod
    def of(cls, hits: np.ndarray, code: np.ndarray, own: np.ndarray) -> "ShareDifference":
        """Compute the sums of (n,) bool hits, (n,) int groups and (n,) bool sides, each with an image."""
        n_groups = int(code.max()) + 1
        away = [np.bincount(code[at], hits[at] - hits[at].mean(), n_groups) for at in (own, ~own)]
        scatter = float((away[0] @ away[0]) * (away[1] @ away[1]))
        correlation = float(np.clip(away[0] @ away[1] / np.sqrt(scatter), -1, 1)) if scatter > 1e-20 else 0.0
        sides = [(hits[at], np.unique(code[at], return_inverse=True)[1]) for at in (own, ~own)]
        one, other = (ShareSums.of(*side) for side in sides)
        return cls(one, other, correlation, (share_freedom(*sides[0]), share_freedom(*sides[1])))

    @property
    def difference(self) -> float:
        return self.own.n_hits / self.own.n_images - self.rest.n_hits / self.rest.n_images

    def interval(self, alpha: float = ALPHA) -> Interval:
        """Combine Wilson's intervals of both sides (``paired_tests.mover``)."""
        shares = [one.n_hits / one.n_images for one in (self.own, self.rest)]
        sides = zip((self.own, self.rest), self.freedom, strict=True)
        ends = [one.interval(alpha=alpha, freedom=freedom) or (0.0, 1.0) for one, freedom in sides]
        return mover(shares, ends, self.correlation)


def _share_difference(hits: np.ndarray, code: np.ndarray, own: np.ndarray, of: str, sides: tuple[str, str]) -> Estimate:
    n_groups = len(np.unique(code))
    if not own.any() or own.all():
        return undefined(f"no {of} in {sides[0] if not own.any() else sides[1]}", n_groups)
    found = ShareDifference.of(hits, code, own)
    if why := _too_small(code, own, of, sides):
        return with_interval(found.difference, None, method=SHARE_METHOD, n_groups=n_groups, reason=why)
    counted = "" if of == "images" else of
    support = min((support_of(code[at], counted) for at in (own, ~own)), key=lambda one: one.effective)
    return with_interval(
        found.difference,
        found.interval(),
        method=SHARE_METHOD,
        n_groups=n_groups,
        p=two_sided_p(found),
        support=support,
    )


def _area_difference(
    positive: np.ndarray, score: np.ndarray, code: np.ndarray, own: np.ndarray, sides: tuple[str, str]
) -> Estimate:
    """Compute Wald's interval and p of a difference of two AUCs.

    Source: Obuchowski (1997), Biometrics 53:567, with the covariance of groups that occur on both sides; Welch's
    degrees of freedom from those of the sides.
    """
    n_groups = int(code.max()) + 1
    one, other = (area_parts(positive[at], score[at], code[at], n_groups) for at in (own, ~own))
    if one is None or other is None:
        return undefined("no positive or no negative image on one side", n_groups)
    value = one.value - other.value
    for at_class, of in ((positive, "positive images"), (~positive, "negative images")):
        if why := _too_small(code[at_class], own[at_class], of, sides):
            return with_interval(value, None, method=_AREA_METHOD, n_groups=n_groups, reason=why)
    adds = (_stretched(one), _stretched(other))
    away = adds[0] - adds[1]
    variance, each = float(away @ away), [float(side @ side) for side in adds]
    if not variance > NO_VARIANCE:
        return with_interval(value, None, method=_AREA_METHOD, n_groups=n_groups, reason="the variance is 0")
    freedom = sum(each) ** 2 / sum(v**2 / part.freedom for v, part in zip(each, (one, other), strict=True))
    error = float(np.sqrt(variance))
    half = float(student.ppf(1 - ALPHA / 2, freedom)) * error
    return with_interval(
        value,
        (max(value - half, -1.0), min(value + half, 1.0)),
        method=_AREA_METHOD,
        n_groups=n_groups,
        p=2 * float(student.sf(abs(value) / error, freedom)),
        support=_support(positive, code, own),
    )


def _too_small(code: np.ndarray, own: np.ndarray, of: str, sides: tuple[str, str]) -> str:
    """Return the reason if a side has fewer groups than ``FEWEST``; empty otherwise."""
    for at, side in ((own, sides[0]), (~own, sides[1])):
        count = len(np.unique(code[at]))
        if count < FEWEST:
            return _TOO_SMALL.format(count=count, s="s" * (count != 1), of=of, side=side, fewest=FEWEST)
    return ""


def _stretched(part: AreaParts) -> np.ndarray:
    """Compute the (G,) contributions of the groups to the AUC; the sum of squares is its variance."""
    up, down = int(part.has_positive.sum()), int(part.has_negative.sum())
    return np.asarray(np.sqrt(up / (up - 1)) * part.positives + np.sqrt(down / (down - 1)) * part.negatives)


def _support(positive: np.ndarray, code: np.ndarray, own: np.ndarray) -> Support:
    """Return the support of the rarer class on the smaller side."""
    names = {1: "positive images", 0: "negative images"}
    return min(
        (rarest(positive[at].astype(np.int64), code[at], names) for at in (own, ~own)), key=lambda one: one.effective
    )
