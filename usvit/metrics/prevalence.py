"""Predictive values at a stated prevalence, from sensitivity and specificity.

PPV and NPV of a test set hold for its own share of positives, which in research data is usually far above that of a
clinic. Bayes' rule gives them at any other prevalence, provided that sensitivity and specificity are the same there.
"""

import math
from dataclasses import dataclass

import numpy as np

from usvit.errors import UsvitError
from usvit.estimate import Estimate
from usvit.metrics.clustered_wilson import ShareSums, share_freedom
from usvit.metrics.intervals import Interval, undefined, with_interval
from usvit.metrics.support import support_of
from usvit.records import AtPrevalence, RuleAtPrevalence

METHOD = "clustered Wilson intervals of sensitivity and specificity, combined for the likelihood ratio (MOVER)"


@dataclass(frozen=True)
class PredictiveValues:
    """Positive and negative predictive value, each in [0, 1]."""

    ppv: Estimate
    npv: Estimate


def check_prevalence(prevalence: float) -> float:
    """Validate and return a prevalence.

    Raises:
        UsvitError: it is not a number above 0 and below 1.
    """
    if not 0 < prevalence < 1:
        raise UsvitError(
            f"--prevalence {prevalence:g}: give a prevalence above 0 and below 1, such as 0.005 for 5 cancers in 1,000."
        )
    return float(prevalence)


def predictive_values(
    reference: np.ndarray, called: np.ndarray, group: np.ndarray, prevalence: float
) -> PredictiveValues:
    """Compute PPV and NPV of decisions at a stated prevalence, with 95 % intervals that respect patients.

    Args:
        reference: (n,) bool, the positive class.
        called: (n,) bool, the decisions.
        group: (n,) int or str, the patient (or duplicate cluster) of each image.
        prevalence: share of positives, in (0, 1), taken as known.

    Returns:
        Values that are null with a reason if a class is absent or no image has this decision.

    Raises:
        UsvitError: as ``check_prevalence``.

    Source: Mercaldo, Lau & Zhou (2007), Statistics in Medicine 26:2170 (predictive values in case-control studies: both
    are a function of one likelihood ratio); the likelihood ratio's interval from those of sensitivity and specificity:
    Donner & Zou (2012), Statistical Methods in Medical Research 21:347. Unlike a normal interval on the logit scale, it
    exists if no negative, or every positive, is called positive.
    """
    check_prevalence(prevalence)
    n_groups = len(np.unique(group))
    if not reference.any() or reference.all():
        none = undefined("no positive or no negative image", n_groups)
        return PredictiveValues(none, none)
    codes = [np.unique(group[at], return_inverse=True)[1] for at in (reference, ~reference)]
    decided = called[reference], called[~reference]
    of_positive, of_negative = (ShareSums.of(hits, code) for hits, code in zip(decided, codes, strict=True))
    up, down = (share_freedom(hits, code) for hits, code in zip(decided, codes, strict=True))
    support = min((support_of(code) for code in codes), key=lambda one: one.effective)
    found: dict[str, Estimate] = {}
    odds = prevalence / (1 - prevalence)
    for name, above, own, below, other, of in (
        # PPV = 1 / (1 + 1 / (odds * LR+)); NPV likewise, with the chances exchanged.
        ("ppv", of_positive, up, of_negative, down, odds),
        ("npv", _failures(of_negative), down, _failures(of_positive), up, 1 / odds),
    ):
        if not above.n_hits and not below.n_hits:
            word = "positive" if name == "ppv" else "negative"
            found[name] = undefined(f"no image is called {word}", n_groups)
            continue
        low, high = ratio_interval(_share(above), _bounds(above, own), _share(below), _bounds(below, other))
        value = _predictive(_share(above) / _share(below) if below.n_hits else math.inf, of)
        ci95 = _predictive(low, of), _predictive(high, of)
        found[name] = with_interval(value, ci95, method=METHOD, n_groups=n_groups, support=support)
    return PredictiveValues(**found)


def ratio_interval(above: float, ci_above: Interval, below: float, ci_below: Interval) -> Interval:
    """Compute bounds of the ratio of two independent shares from the bounds of each; the upper one may be infinite.

    Source: Donner & Zou (2012), eq. 9, in a form that also holds for shares of 0.
    """
    product = above * below

    def bound(u: float, v: float, *, upper: bool) -> float:
        a, b = u * (2 * above - u), v * (2 * below - v)
        root = math.sqrt(max(product**2 - a * b, 0.0))
        if upper:
            return math.inf if v <= 0 else (product + root) / b if b > 0 else a / (product - root)
        return a / (product + root) if product + root > 0 else 0.0

    low = bound(ci_above[0], ci_below[1], upper=False)
    return max(low, 0.0), bound(ci_above[1], ci_below[0], upper=True)


def prevalence_section(
    reference: np.ndarray, decisions: dict[str, np.ndarray], group: np.ndarray, prevalence: float
) -> AtPrevalence:
    """Create the section ``at_prevalence`` of metrics.json: predictive values of each set of decisions.

    Args:
        reference, group, prevalence: as ``predictive_values``.
        decisions: rule -> (n,) bool decisions.
    """
    values = {rule: predictive_values(reference, called, group, prevalence) for rule, called in decisions.items()}
    rules = [RuleAtPrevalence(rule=rule, ppv=one.ppv, npv=one.npv) for rule, one in values.items()]
    return AtPrevalence(prevalence=prevalence, of_test_images=float(reference.mean()), rules=rules)


def _failures(sums: ShareSums) -> ShareSums:
    """Return the sums of the images that are not hits."""
    return ShareSums(
        sums.n_images,
        sums.n_images - sums.n_hits,
        sums.n_groups,
        sums.hits_squared - 2 * sums.hits_by_images + sums.images_squared,
        sums.images_squared - sums.hits_by_images,
        sums.images_squared,
    )


def _share(sums: ShareSums) -> float:
    return sums.n_hits / sums.n_images


def _bounds(sums: ShareSums, freedom: float) -> Interval:
    found = sums.interval(freedom=freedom)
    assert found is not None, "there are images"
    return found


def _predictive(ratio: float, odds: float) -> float:
    return 1.0 if math.isinf(ratio) else ratio * odds / (1 + ratio * odds)
