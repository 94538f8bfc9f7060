"""Power of a comparison with an interval that is not symmetric, against studies drawn from its own assumptions."""

import numpy as np
import pytest
from scipy.special import expit, logit

from usvit.metrics.comparison_power import ObservedComparison
from usvit.metrics.influence import binormal_placements
from usvit.metrics.logit_difference import LogitDifference
from usvit.metrics.margin_tests import equivalence, non_inferiority

AREA, N = 0.98, 200


def drawn_share(plan, n_studies):
    """Draw pairs of observed AUCs, and judge each as ``usvit compare`` does."""
    one = binormal_placements(AREA, 0.3)
    together = one.covariance(one, 0.5) / one.variance
    sd = np.sqrt(one.variance / N) / (AREA * (1 - AREA))
    rng, claims = np.random.default_rng(0), 0
    for u in rng.multivariate_normal([0, 0], [[1, together], [together, 1]], n_studies):
        areas = expit(logit(AREA) + sd * u)
        errors = [np.sqrt(binormal_placements(area, 0.3).variance / N) for area in areas]
        pair = LogitDifference(*areas, *errors, together, plan._freedom(N))
        if plan.test == "noninferiority":
            claims += non_inferiority(pair, plan.margin).a_vs_b.verdict == "non-inferior"
        elif plan.test == "equivalence":
            claims += equivalence(pair, plan.margin).verdict == "equivalent"
        else:
            claims += pair.p < 0.05
    return claims / n_studies


@pytest.mark.slow
@pytest.mark.parametrize(("test", "margin"), [("noninferiority", 0.03), ("equivalence", 0.035), ("difference", 0.0)])
def test_it_is_the_share_of_drawn_studies_that_make_the_claim(test, margin):
    plan = ObservedComparison(AREA, AREA, 0.3, 0.5, test, margin)
    assert plan.power(N) == pytest.approx(drawn_share(plan, 300), abs=0.08)  # three Monte Carlo errors


def test_a_margin_near_one_needs_more_than_the_symmetric_formula():
    plan = ObservedComparison(AREA, AREA, 0.3, 0.5, "noninferiority", 0.03)
    usual, size = plan.symmetric.size(0.8), plan.size(0.8)
    assert plan.power(usual) < 0.7 and size > 1.3 * usual
    assert plan.power(size) == pytest.approx(0.8, abs=0.005)


def test_far_from_one_and_for_a_difference_the_usual_size_stays():
    plan = ObservedComparison(0.9, 0.85, 0.3, 0.5)
    assert plan.size(0.8) == plan.symmetric.size(0.8) and 0.78 < plan.power(plan.size(0.8)) < 0.84
    assert ObservedComparison(0.85, 0.9, 0.3, 0.5, "noninferiority", 0.05).size(0.8) is None
