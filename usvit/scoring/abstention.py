"""When a model abstains: it has a threshold, but makes no decision on an image, a file, a study or a patient.

It abstains for one of two reasons: the image is ``unusual`` (out of distribution; ``--abstain``), or the calibrated
probability is ``uncertain``, in a zone around the threshold (``--abstain-at``).
"""

from typing import TYPE_CHECKING

from usvit.errors import UsvitError
from usvit.records import AbstentionZone, ConformalFit
from usvit.scoring.tables.cells import decide, digit

if TYPE_CHECKING:
    from usvit.scoring.calibration import LocalCalibration

UNUSUAL, UNCERTAIN = "unusual", "uncertain"
_CONFORMAL = "conformal"
_WIDER = 1e-8
"""The bounds of conformal sets are widened by this share, because the tables round probabilities to nine digits."""


def _in_zone(value: float, zone: AbstentionZone) -> bool:
    """Return whether no decision is made for a calibrated probability."""
    return zone.low <= digit(value) < zone.high


def decide_or_abstain(
    value: float | None, threshold: float | None, positive: str, zone: AbstentionZone | None, *, refused: bool = False
) -> tuple[str, str]:
    """Return the decision and the reason for abstaining; at least one of them is "".

    Args:
        value: calibrated probability; None if no image is left to decide on.
        threshold: of the decision; None: there are no decisions, and nothing to abstain from.
        positive: the positive class.
        zone: of ``--abstain-at``; None without it.
        refused: whether an image is unusual (for a roll-up: all are) and gets no decision for this reason.
    """
    if threshold is None:
        return "", ""
    if refused:
        return "", UNUSUAL
    if value is not None and zone is not None and _in_zone(value, zone):
        return "", UNCERTAIN
    return decide(value, threshold, positive), ""


def zone_of(text: str, threshold: float | None, fit: "LocalCalibration | None", positive: str) -> AbstentionZone:
    """Parse ``--abstain-at``.

    Args:
        text: ``LOW,HIGH``, two probabilities such as ``0.05,0.6``; or ``conformal``.
        threshold: threshold of the job's decisions.
        fit: the calibration of the job.
        positive: the positive class.

    Raises:
        UsvitError: the text is neither, the zone does not hold the threshold, the calibration has no conformal sets,
            or there is no threshold.
    """
    if threshold is None:
        raise UsvitError(
            "--abstain-at has no effect: the job makes no decisions, because it has no threshold. Pass "
            "--operating-point 0.5, or a --calibration with a threshold."
        )
    threshold = digit(threshold)  # as the tables state it
    if text.strip().lower() == _CONFORMAL:
        return _conformal_zone(threshold, fit, positive)
    try:
        low, high = (float(one) for one in text.split(","))
    except ValueError:
        low, high = 1.0, 0.0
    if not 0 <= low < high <= 1:
        raise UsvitError(
            f"--abstain-at '{text}': pass the lower and the upper end of the probabilities that get no decision, such "
            "as 0.05,0.6, or 'conformal' with a --calibration that has conformal sets."
        )
    if not low <= threshold <= high:
        raise UsvitError(
            f"--abstain-at {text}: the threshold {threshold:.4g} lies outside this zone, so that images on one side of "
            "the zone would be decided against it. Choose a zone around the threshold, or another --operating-point."
        )
    return AbstentionZone(low=low, high=high, origin=f"stated: {low:g} to below {high:g}")


def _conformal_zone(threshold: float, fit: "LocalCalibration | None", positive: str) -> AbstentionZone:
    """Return the probabilities whose set does not hold exactly the class that the threshold decides for.

    With sets of two classes these probabilities form one interval: where both classes are in the set, or none is. It is
    extended to the threshold, because the set and the threshold disagree in between.
    """
    if fit is None:
        raise UsvitError(
            "--abstain-at conformal needs --calibration FILE, a file of usvit recalibrate: the sets are fitted on "
            "your own labelled patients."
        )
    sets = fit.conformal
    if sets.reason is not None or sets.positive.bound is None or sets.rest.bound is None:
        raise UsvitError(f"{fit.source} has no conformal sets: {sets.reason}. Run usvit recalibrate on more patients.")
    ends = sorted((sets.positive.bound, sets.rest.bound))
    low = min(ends[0] * (1 - _WIDER), threshold)
    high = min(max(ends[1] * (1 + _WIDER), threshold), 1.0)
    return AbstentionZone(low=low, high=high, origin=_guaranteed(sets, positive))


def _guaranteed(sets: ConformalFit, positive: str) -> str:
    both = (sets.positive.bound or 0) <= (sets.rest.bound or 0)
    inside = "both classes" if both else "neither class"
    return (
        f"conformal sets, alpha = {sets.alpha:g}: {inside} from {sets.positive.n_groups} groups with {positive} and "
        f"{sets.rest.n_groups} groups without (usvit recalibrate)"
    )
