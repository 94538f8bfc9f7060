"""Decision curves: the net benefit of acting on the model, compared with acting on everybody or on nobody.

A curve over a hundred thresholds makes a hundred comparisons, and a model without skill lies above both defaults at
some of them by chance. The simultaneous band therefore holds the whole curve of differences at once.
"""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from usvit.metrics.bootstrap import MAX_UNDEFINED, N_RESAMPLES
from usvit.metrics.checks import group_codes
from usvit.metrics.intervals import CONFIDENCE
from usvit.metrics.proportions import check_binary
from usvit.records import DecisionBand
from usvit.records import DecisionCurve as DecisionCurve

Float = NDArray[np.float64]
CELLS = 2_000_000
"""Resamples x groups in memory at once: 16 MB of float64."""
THRESHOLDS = tuple(percent / 100 for percent in range(1, 100))
TINY = 1e-12
"""Differences of net benefits below this are due to rounding."""


def decision_curve(
    y_true: ArrayLike,
    y_prob: ArrayLike,
    groups: ArrayLike | None = None,
    *,
    thresholds: ArrayLike = THRESHOLDS,
    prevalence: float | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> DecisionCurve:
    """Compute the net benefit of a model over a range of threshold probabilities.

    The net benefit is TP / n - FP / n * pt / (1 - pt), where an image is acted on if its probability is at least pt. A
    threshold probability pt says how many needless interventions one found cancer is worth: nine at 0.1. The curve is
    meaningful only for calibrated probabilities, and only at the prevalence that it is drawn for: public data sets
    hold far more cancers than a clinic sees.

    Args:
        y_true: (n,) bool or 0/1, 1 for positive; n >= 1.
        y_prob: (n,) float in [0, 1], the probability of the positive class.
        groups: (n,) int or str, the patient of each image; None if all images are independent.
        thresholds: (m,) ascending, in [0, 1).
        prevalence: share of positives in (0, 1) of the population: TP / n becomes sensitivity * prevalence, FP / n
            becomes (1 - specificity) * (1 - prevalence). None takes the share among the images.
        n_resamples: resamples of the band (``simultaneous_band``).
        seed: of the resamples.

    Returns:
        Without positive images the net benefit is defined but the standardised one is not. If ``prevalence`` is given
        and a class is absent, only ``treat_all`` is defined.

    Raises:
        ValueError: as ``proportions.check_binary``, or thresholds or prevalence are out of range.

    Source: Vickers & Elkin (2006), Medical Decision Making 26:565; standardised: Kerr et al. (2016), J. Clinical
    Oncology 34:2534; another prevalence: Pfeiffer & Gail (2020), Biometrical Journal 62:764.

    Example:
        >>> curve = decision_curve([0, 0, 0, 1], [0.1, 0.2, 0.3, 0.8], thresholds=[0.25, 0.5])
        >>> [round(one, 3) for one in curve.model]
        [0.167, 0.25]
    """
    reference, p, n_groups = check_binary(y_true, y_prob, groups)
    at = np.asarray(thresholds, dtype=np.float64)
    if at.ndim != 1 or not len(at) or not ((at >= 0) & (at < 1)).all() or not (np.diff(at) > 0).all():
        raise ValueError("thresholds must be one ascending row of numbers from 0 to below 1")
    if prevalence is not None and not 0 < prevalence < 1:
        raise ValueError(f"prevalence must lie between 0 and 1, not at {prevalence}")

    n, n_positive = len(p), int(reference.sum())
    true_positive = n_positive - np.searchsorted(np.sort(p[reference]), at, side="left")  # (m,) images with p >= pt
    false_positive = n - n_positive - np.searchsorted(np.sort(p[~reference]), at, side="left")
    odds = at / (1 - at)
    share = n_positive / n if prevalence is None else prevalence
    treat_all = share - (1 - share) * odds
    reason, model = None, None
    if prevalence is None:
        model = true_positive / n - false_positive / n * odds
    elif 0 < n_positive < n:
        rest = n - n_positive
        model = true_positive / n_positive * share - false_positive / rest * (1 - share) * odds
    else:
        absent = "negative" if n_positive else "positive"
        reason = f"no {absent} image: a net benefit at another prevalence needs both classes"
    if model is not None and not share:
        reason = "no positive image: the maximum benefit is 0"

    band: DecisionBand | str = f"no {'negative' if n_positive else 'positive'} image"
    if 0 < n_positive < n:
        code = np.arange(n) if groups is None else group_codes(groups, n)[0]
        band = simultaneous_band(reference, p, code, at, prevalence=prevalence, n_resamples=n_resamples, seed=seed)
    surely = np.zeros(len(at), dtype=bool) if isinstance(band, str) else np.array(band.lower) > TINY

    nothing: list[float | None] = [None] * len(at)
    return DecisionCurve(
        thresholds=at.tolist(),
        model=nothing if model is None else model.tolist(),
        treat_all=treat_all.tolist(),
        treat_none=[0.0] * len(at),
        standardised=nothing if model is None or not share else (model / share).tolist(),
        prevalence=share,
        n_images=n,
        n_groups=n_groups,
        n_positive=n_positive,
        useful=_runs(at, surely),
        estimated_useful=[] if model is None else _runs(at, model > np.maximum(treat_all, 0) + TINY),
        band=None if isinstance(band, str) else band,
        band_reason=band if isinstance(band, str) else None,
        reason=reason,
    )


def simultaneous_band(
    positive: NDArray[np.bool_],
    prob: Float,
    code: NDArray[np.int64],
    at: Float,
    *,
    prevalence: float | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> DecisionBand | str:
    """Compute a 95 % band of the difference to the better default that holds at all thresholds at once.

    Both differences, to acting on everybody and to acting on nobody, are estimated in resamples of whole groups. The
    critical value is the 95 % quantile over resamples of the largest standardised deviation at any threshold from
    either default (sup-t). The band of the difference to the better default is the lower of the two bands.

    A standard error is never smaller than that of a model which is no better than the default: if all of five
    images below a threshold are negative, the bootstrap has no variance. The model beats "everybody" if fewer
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
        The band, or the reason why there is none.

    Source: Montiel Olea & Plagborg-Moller (2019), J. Applied Econometrics 34:1 (sup-t bands); Kerr et al. (2016), J.
    Clinical Oncology 34:2534 (why a decision curve needs one).
    """
    n_groups, m = int(code.max()) + 1, len(at)
    if n_groups < 2:
        return "there is only one group"
    odds = at / (1 - at)
    # An image is acted on at the first `reached` thresholds. Sums over images become sums over groups x reached.
    reached = np.searchsorted(at, prob, side="right")
    cell, size = code * (m + 1) + reached, n_groups * (m + 1)

    def acted(which: NDArray[np.bool_]) -> Float:
        """Count the images of each group that are acted on at each threshold, (G, m + 1); the first column is all."""
        counts = np.bincount(cell[which], minlength=size).reshape(n_groups, m + 1).astype(np.float64)
        return np.flip(np.flip(counts, 1).cumsum(axis=1), 1)

    true, false = acted(positive), acted(~positive)
    n_positive, n_negative = float(true[:, 0].sum()), float(false[:, 0].sum())

    def differences(weight: Float) -> Float:
        """Compute the differences to acting on everybody and on nobody, (B, m, 2), from counts of the groups (B, G)."""
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
    return DecisionBand(
        difference=value.min(axis=1).tolist(),
        lower=(value - critical * error).min(axis=1).tolist(),
        upper=(value + critical * error).min(axis=1).tolist(),
        critical=critical,
        n_resamples=n_resamples,
        method=f"sup-t over {m} thresholds, cluster bootstrap of {n_groups} groups, {n_resamples} resamples",
    )


def _runs(at: np.ndarray, good: np.ndarray) -> list[list[float]]:
    edge = np.diff(np.concatenate([[0], good.astype(np.int8), [0]]))
    starts, ends = np.flatnonzero(edge == 1), np.flatnonzero(edge == -1) - 1
    return [[float(at[start]), float(at[end])] for start, end in zip(starts, ends, strict=True)]
