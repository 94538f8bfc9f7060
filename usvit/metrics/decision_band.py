"""A simultaneous band for a decision curve: where is the model surely better than acting on everybody, or on nobody?

A curve that is read over a hundred thresholds is a hundred comparisons, and a model without skill lies above both
defaults at some of them by chance alone. The band holds the whole curve of differences at once.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usvit.metrics.bootstrap import MAX_UNDEFINED, N_RESAMPLES
from usvit.metrics.intervals import CONFIDENCE

Float = NDArray[np.float64]
CELLS = 2_000_000
"""Resamples x groups that are held at once: 16 MB of float64."""


@dataclass(frozen=True)
class Band:
    """The net benefit of the model less that of the better default at m thresholds, and where it lies.

    The better default is the one with the higher net benefit: acting on everybody, or on nobody.
    """

    difference: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    critical: float
    """Standard errors to either side."""
    n_resamples: int
    method: str


def simultaneous_band(
    positive: NDArray[np.bool_],
    prob: Float,
    code: NDArray[np.int64],
    at: Float,
    *,
    prevalence: float | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> Band | str:
    """Hold the difference to the better default at all thresholds at once with 95 % confidence.

    Both differences, to acting on everybody and to acting on nobody, are estimated in resamples of whole groups. The
    critical value is the 95 % quantile over resamples of the largest standardised deviation at any threshold from
    either default (sup-t). The band of the difference to the better default is the lower of the two bands.

    A standard error is never taken below that of a model which is no better than the default: where all of five
    images below a threshold are negative, the bootstrap sees no variance at all. The model beats "everybody" if fewer
    than a share pt of the images below pt are positive, and the floor is the standard error of that share were it pt,
    with the images of one group counted as one, and with one further group of average size of the unfavourable kind:
    where no image lies below pt, about three in G groups may lie there all the same.

    Args:
        positive: (n,) bool, both classes present.
        prob: (n,) in [0, 1].
        code: (n,) the group of each image, 0 ... G - 1.
        at: (m,) ascending thresholds in [0, 1).
        prevalence: as in ``decision_curve.decision_curve``.
        n_resamples, seed: of the bootstrap.

    Returns:
        The band; or in words why there is none.

    Source: Montiel Olea & Plagborg-Moller (2019), J. Applied Econometrics 34:1 (sup-t bands); Kerr et al. (2016), J.
    Clinical Oncology 34:2534 (why a decision curve needs one).
    """
    n_groups, m = int(code.max()) + 1, len(at)
    if n_groups < 2:
        return "there is but one group"
    odds = at / (1 - at)
    # An image is acted on at the first `reached` thresholds. Sums over images become sums over groups x reached.
    reached = np.searchsorted(at, prob, side="right")
    cell, size = code * (m + 1) + reached, n_groups * (m + 1)

    def acted(which: NDArray[np.bool_]) -> Float:
        """(G, m + 1): images of each group that are acted on at each threshold; first all of them."""
        counts = np.bincount(cell[which], minlength=size).reshape(n_groups, m + 1).astype(np.float64)
        return np.flip(np.flip(counts, 1).cumsum(axis=1), 1)

    true, false = acted(positive), acted(~positive)
    n_positive, n_negative = float(true[:, 0].sum()), float(false[:, 0].sum())

    def differences(weight: Float) -> Float:
        """(B, G) how often each group counts -> (B, m, 2) to acting on everybody, and on nobody."""
        found, needless = weight @ true, weight @ false
        if prevalence is None:
            total = found[:, :1] + needless[:, :1]
            gain, cost = found / total, needless / total
        else:
            gain = found / found[:, :1] * prevalence
            cost = needless / needless[:, :1] * (1 - prevalence)
        model = gain[:, 1:] - cost[:, 1:] * odds
        model[(found[:, 0] == 0) | (needless[:, 0] == 0)] = np.nan  # a class was not drawn
        return np.stack([model - (gain[:, :1] - cost[:, :1] * odds), model], axis=2)

    value = differences(np.ones((1, n_groups)))[0]
    rng = np.random.default_rng(seed)
    drawn, step = [], max(1, CELLS // max(n_groups, 4 * m))
    for start in range(0, n_resamples, step):
        rows = min(step, n_resamples - start)
        groups = rng.integers(0, n_groups, (rows, n_groups)) + n_groups * np.arange(rows)[:, None]
        counts = np.bincount(groups.ravel(), minlength=rows * n_groups).reshape(rows, n_groups)
        with np.errstate(invalid="ignore"):  # another prevalence divides by the images of a class
            drawn.append(differences(counts.astype(np.float64)))
    resampled = np.concatenate(drawn)
    resampled = resampled[np.isfinite(resampled).all(axis=(1, 2))]
    if n_resamples - len(resampled) > MAX_UNDEFINED * n_resamples:
        return f"a class is absent from {n_resamples - len(resampled)} of {n_resamples} resamples"

    n = n_positive + n_negative
    benefit = 1 / n if prevalence is None else prevalence / n_positive
    harm = odds / n if prevalence is None else odds * (1 - prevalence) / n_negative
    images = true + false
    spared, treated = images[:, :1] - images[:, 1:], images[:, 1:]
    same = np.stack([(spared**2).sum(axis=0), (treated**2).sum(axis=0)], axis=1)
    further = np.stack([np.full(m, benefit), harm], axis=1) * n / n_groups
    error = np.maximum(resampled.std(axis=0), np.sqrt(benefit * harm[:, None] * same + further**2))
    deviation = np.abs(resampled - value) / error
    critical = float(np.quantile(deviation.max(axis=(1, 2)), CONFIDENCE))
    return Band(
        difference=tuple(value.min(axis=1).tolist()),
        lower=tuple((value - critical * error).min(axis=1).tolist()),
        upper=tuple((value + critical * error).min(axis=1).tolist()),
        critical=critical,
        n_resamples=n_resamples,
        method=f"sup-t over {m} thresholds, cluster bootstrap of {n_groups} groups, {n_resamples} resamples",
    )
