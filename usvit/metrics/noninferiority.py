"""Is a model not worse than another by more than a margin that was stated beforehand?"""

from typing import Any, Literal

from usvit.errors import UsvitError
from usvit.metrics.points import Value

Verdict = Literal["non-inferior", "not shown to be non-inferior"]


def check_margin(margin: float) -> float:
    """The margin itself.

    Raises:
        UsvitError: it is not a number above 0 and below 0.5.
    """
    if not 0 < margin < 0.5:
        raise UsvitError(
            f"--non-inferiority-margin {margin:g}: a margin lies above 0 and below 0.5, such as 0.05. State it before "
            "the models are compared, and say why a loss of so much would not matter."
        )
    return float(margin)


def non_inferiority(difference: Value, margin: float) -> dict[str, Any]:
    """Whether A is non-inferior to B, and B to A, from the difference A less B of a figure where more is better.

    A is non-inferior where the lower bound of the one-sided 97.5 % interval of the difference lies above minus the
    margin. That bound is the lower end of the two-sided 95 % interval, so that the error of the claim is at most
    2.5 % where the interval covers as it says.

    Args:
        difference: a Value in [-1, 1] with its two-sided 95 % interval.
        margin: in (0, 0.5).

    Returns:
        {"margin", "a_vs_b", "b_vs_a"}: each with the "bound" of its own difference (the first less the second) and
        the "verdict". Without an interval the bound is null, with a reason, and nothing is shown.

    Raises:
        UsvitError: as ``check_margin``.

    Source: ICH E9 (1998), section 3.3.2; Piaggio et al. (2012), JAMA 308:2594 (CONSORT for non-inferiority); Obuchowski
    (1997), American Journal of Roentgenology 169:1015 (of AUCs).
    """
    check_margin(margin)
    ends = difference.get("ci95")
    if ends is None:
        reason = difference.get("reason", "the difference has no interval")
        none: dict[str, Any] = {"bound": None, "verdict": "not shown to be non-inferior", "reason": reason}
        return {"margin": margin, "a_vs_b": none, "b_vs_a": dict(none)}
    return {"margin": margin, "a_vs_b": _judged(ends[0], margin), "b_vs_a": _judged(-ends[1], margin)}


def _judged(bound: float, margin: float) -> dict[str, Any]:
    verdict: Verdict = "non-inferior" if bound > -margin else "not shown to be non-inferior"
    return {"bound": float(bound), "verdict": verdict}
