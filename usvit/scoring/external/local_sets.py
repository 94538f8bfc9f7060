"""Conformal prediction sets that ``usvit recalibrate`` fits on local patients."""

from typing import Literal

import numpy as np

from usvit.errors import UsvitError
from usvit.evaluation import set_thresholds
from usvit.metrics.conformal import SetThreshold, coverage_range, least_patients
from usvit.records import ConformalFit, SetBound

ALPHA = 0.1
"""Default share of new patients of a class whom the sets may miss; it needs 9 patients of each class."""
_GUARANTEE: Literal["every image"] = "every image"
"""The guarantee that also holds for the means of files, studies and patients, which have decisions as well."""


def check_alpha(alpha: float) -> None:
    """Raise ``UsvitError`` unless alpha lies between 0 and 0.5."""
    if not 0 < alpha <= 0.5:
        raise UsvitError(
            f"--alpha {alpha:g}: pass the share of new patients whom the sets may miss, above 0 and at most 0.5, such "
            "as 0.1."
        )


def fit_sets(
    reference: np.ndarray, score: np.ndarray, group: np.ndarray, *, positive: str, alpha: float | None, who: str
) -> ConformalFit:
    """Fit the bounds of the sets for both classes.

    Args:
        reference: (n,) bool, whether the image is of the positive class.
        score: (n,) calibrated probability of the positive class.
        group: (n,) the patient of each image.
        positive: name of the positive class.
        alpha: share of patients whom the sets may miss; None: ``ALPHA``, and no sets if there are too few patients.
        who: word for the groups in the messages.

    Raises:
        UsvitError: ``alpha`` was given, and a class has fewer patients than it needs.
    """
    level = ALPHA if alpha is None else alpha
    up, down = set_thresholds(reference, score, group, alpha=level, guarantee=_GUARANTEE)
    needed = least_patients(level)
    few = [
        f"{one.n_patients} {who} with {name}"
        for name, one in (
            (f"an image of class '{positive}'", up),
            (f"an image of another class than '{positive}'", down),
        )
        if one.threshold is None
    ]
    reason = f"there are {' and '.join(few)}; alpha = {level:g} needs {needed} of each" if few else None
    if reason and alpha is not None:
        best = 1 / (min(up.n_patients, down.n_patients) + 1)
        possible = f"Label more {who}" + (f", or pass --alpha {_rounded_up(best):g} or more" if best <= 0.5 else "")
        raise UsvitError(
            f"No conformal sets with --alpha {alpha:g}: {reason}. With fewer, a set can leave a class out for more new "
            f"{who} than alpha allows. {possible}."
        )
    return ConformalFit(
        alpha=level,
        guarantee=_GUARANTEE,
        positive=_bound(up, level, up.threshold if reason is None else None),
        rest=_bound(down, level, None if reason or down.threshold is None else -down.threshold),
        reason=reason,
    )


def _bound(one: SetThreshold, alpha: float, bound: float | None) -> SetBound:
    return SetBound(
        bound=bound,
        n_groups=one.n_patients,
        n_needed=least_patients(alpha),
        coverage=None if bound is None else coverage_range(one.n_patients, alpha),
    )


def _rounded_up(share: float) -> float:
    return float(np.ceil(share * 1000 - 1e-9) / 1000)
