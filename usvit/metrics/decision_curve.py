"""Decision curves: is it better to act on the model than to act on everybody, or on nobody?"""

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from usvit.metrics.bootstrap import N_RESAMPLES
from usvit.metrics.checks import group_codes
from usvit.metrics.decision_band import Band, simultaneous_band
from usvit.metrics.proportions import check_binary
from usvit.metrics.rows import rows_of

THRESHOLDS = tuple(percent / 100 for percent in range(1, 100))
TINY = 1e-12
"""A difference of net benefits that is nothing but rounding."""


@dataclass(frozen=True)
class DecisionCurve:
    """Net benefit over a range of threshold probabilities, in true positives per image."""

    thresholds: tuple[float, ...]
    model: tuple[float | None, ...]
    treat_all: tuple[float | None, ...]
    treat_none: tuple[float, ...]
    """Zero everywhere, by definition."""
    standardised: tuple[float | None, ...]
    """``model`` as a share of the prevalence, the best that there is: 1 is perfect."""
    prevalence: float
    n_images: int
    n_groups: int
    n_positive: int
    useful: tuple[tuple[float, float], ...]
    """Runs of neighbouring thresholds, as (first, last), at which the model is better than both defaults: the lower end
    of the simultaneous band lies above 0."""
    estimated_useful: tuple[tuple[float, float], ...]
    """The same by the estimate alone, which a model without skill reaches in most studies."""
    band: Band | None
    """Of the net benefit of the model less that of the better default."""
    band_reason: str | None
    """Why there is no band, and so nothing ``useful``; None where there is one."""
    reason: str | None
    """Why ``model``, ``treat_all`` or ``standardised`` hold None; None where they do not."""


def decision_curve(
    positive: ArrayLike,
    prob: ArrayLike,
    group: ArrayLike | None = None,
    *,
    thresholds: ArrayLike = THRESHOLDS,
    prevalence: float | None = None,
    n_resamples: int = N_RESAMPLES,
    seed: int = 0,
) -> DecisionCurve:
    """Net benefit TP / n - FP / n * pt / (1 - pt), where an image is acted on if its probability is at least pt.

    A threshold probability pt says how many needless interventions one found cancer is worth: at 0.1,
    nine. The curve means something only for calibrated probabilities, and only at the prevalence it is
    drawn for: public data sets hold far more cancers than a clinic sees.

    Args:
        positive: (n,) bool, n >= 1.
        prob: (n,) float in [0, 1].
        group: (n,) the patient of each image; None: every image is a group of its own.
        thresholds: (m,) ascending, in [0, 1).
        prevalence: in (0, 1), of the population to speak of: TP / n becomes sensitivity * prevalence, FP / n becomes
            (1 - specificity) * (1 - prevalence). None: the share of positives among the images.
        n_resamples, seed: of the band (``decision_band.simultaneous_band``).

    Returns:
        Without positives the net benefit is defined, the standardised one not. With a ``prevalence``
        given and a class absent, sensitivity or specificity is missing and nothing but ``treat_all`` is defined.

    Raises:
        ValueError: see ``proportions.check_binary``; thresholds or prevalence out of range.

    Source: Vickers & Elkin (2006), Medical Decision Making 26:565; standardised: Kerr et al. (2016), J. Clinical
    Oncology 34:2534; another prevalence: Pfeiffer & Gail (2020), Biometrical Journal 62:764.
    """
    reference, p, n_groups = check_binary(positive, prob, group)
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
        reason = "no positive image: there is no benefit to be a share of"

    band: Band | str = f"no {'negative' if n_positive else 'positive'} image"
    if 0 < n_positive < n:
        code = np.arange(n) if group is None else group_codes(group, n)[0]
        band = simultaneous_band(reference, p, code, at, prevalence=prevalence, n_resamples=n_resamples, seed=seed)
    surely = np.zeros(len(at), dtype=bool) if isinstance(band, str) else np.array(band.lower) > TINY

    nothing = (None,) * len(at)
    return DecisionCurve(
        thresholds=tuple(at.tolist()),
        model=nothing if model is None else tuple(model.tolist()),
        treat_all=tuple(treat_all.tolist()),
        treat_none=(0.0,) * len(at),
        standardised=nothing if model is None or not share else tuple((model / share).tolist()),
        prevalence=share,
        n_images=n,
        n_groups=n_groups,
        n_positive=n_positive,
        useful=_runs(at, surely),
        estimated_useful=() if model is None else _runs(at, model > np.maximum(treat_all, 0) + TINY),
        band=None if isinstance(band, str) else band,
        band_reason=band if isinstance(band, str) else None,
        reason=reason,
    )


def run_decision_curve(
    table: pd.DataFrame, *, positive: str, thresholds: ArrayLike = THRESHOLDS, prevalence: float | None = None
) -> DecisionCurve:
    """``decision_curve`` of a run: all its test images, one class against the rest.

    Each image's probability comes from the model of its own fold.

    Raises:
        UsvitError: see ``rows.rows_of``; ``positive`` is no class.
        ValueError: see ``decision_curve``.
    """
    rows = rows_of(table, "test")
    k = rows.index(positive)
    return decision_curve(rows.label == k, rows.prob[:, k], rows.group, thresholds=thresholds, prevalence=prevalence)


def _runs(at: np.ndarray, good: np.ndarray) -> tuple[tuple[float, float], ...]:
    edge = np.diff(np.concatenate([[0], good.astype(np.int8), [0]]))
    starts, ends = np.flatnonzero(edge == 1), np.flatnonzero(edge == -1) - 1
    return tuple((float(at[start]), float(at[end])) for start, end in zip(starts, ends, strict=True))
