"""The difference of two models' sensitivities (or specificities) on the same images, with patients respected."""

import numpy as np
from numpy.typing import ArrayLike

from usvit.metrics.checks import check_positive, group_codes
from usvit.metrics.clustered_wilson import ShareSums
from usvit.metrics.compare import mcnemar
from usvit.metrics.intervals import undefined, with_interval
from usvit.metrics.points import Value
from usvit.metrics.support import support_of

METHOD = "paired, clustered Wilson (Newcombe, MOVER); p of McNemar, {}"


def paired_difference(hits_a: ArrayLike, hits_b: ArrayLike, group: ArrayLike, *, of: str) -> Value:
    """The share of hits of model A less that of model B on the same images.

    The interval joins the two shares' own Wilson intervals, taking into account how the shares vary together between
    groups. The p-value is McNemar's: clustered where groups have several images, else mid-p.

    Args:
        hits_a, hits_b: (n,) bool, such as whether each positive image is called positive.
        group: (n,) int or str, the patient (or duplicate cluster) of each image.
        of: what the images are, in the plural, for the reason where there are none.

    Returns:
        A Value in [-1, 1] with "p"; null with a reason where n is 0.

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
    sums = ShareSums.of(a, code), ShareSums.of(b, code)
    (low_a, high_a), (low_b, high_b) = (one.interval() or (0.0, 1.0) for one in sums)
    share_a, share_b = float(a.mean()), float(b.mean())
    r, difference = _correlation(a, b, code), share_a - share_b

    def reach(one: float, other: float) -> float:
        return float(np.sqrt(max(one**2 - 2 * r * one * other + other**2, 0.0)))

    low = difference - reach(share_a - low_a, high_b - share_b)
    high = difference + reach(high_a - share_a, share_b - low_b)
    test = mcnemar(a, b, code, method="clustered" if n_groups < len(a) else "mid-p")
    return with_interval(
        difference,
        (max(low, -1.0), min(high, 1.0)),
        method=METHOD.format(test["method"].removeprefix("McNemar, ")),
        n_groups=n_groups,
        p=test["p"],
        support=support_of(code),
    )


def _correlation(a: np.ndarray, b: np.ndarray, code: np.ndarray) -> float:
    """Of the two shares' estimates, from what each group has above or below its part; 0 where either does not vary."""
    m = np.bincount(code)
    away_a, away_b = (np.bincount(code, one) - one.mean() * m for one in (a, b))
    scatter = float((away_a @ away_a) * (away_b @ away_b))
    return float(np.clip(away_a @ away_b / np.sqrt(scatter), -1, 1)) if scatter > 1e-20 else 0.0
