"""The interval of a difference from the logits of both figures, against draws of the bivariate Student variable."""

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import multivariate_t
from scipy.stats import t as student

from usvit.metrics.logit_difference import LogitDifference
from usvit.metrics.margin_tests import equivalence, non_inferiority, one_sided_p, two_sided_p

ORDINARY = LogitDifference(0.96, 0.92, 0.012, 0.022, 0.8, 25)
PAIRS = (
    ORDINARY,
    LogitDifference(0.9, 0.9, 0.03, 0.03, 0.9999, 12),  # two models that nearly agree
    LogitDifference(0.96, 0.92, 0.012, 0.022, 1.0, 25),
    LogitDifference(0.92, 0.9, 0.05, 0.001, 0.95, 9),
    LogitDifference(0.8, 0.79, 0.01, 0.01, -1.0, 1000),
    LogitDifference(0.99, 0.98, 0.02, 0.01, 0.2, 4),
    LogitDifference(0.995, 0.7, 0.005, 0.1, 0.5, 1.3),  # heavy tails
    LogitDifference(0.5, 0.6, 0.05, 0.05, 0.3, np.inf),
)


def draws(pair, n, seed=0):
    sd = np.array([pair.error_a / (pair.a * (1 - pair.a)), pair.error_b / (pair.b * (1 - pair.b))])
    shape = np.outer(sd, sd) * np.array([[1, pair.correlation], [pair.correlation, 1]])
    drawn = multivariate_t([logit(pair.a), logit(pair.b)], shape, df=pair.freedom, allow_singular=True)
    x, y = drawn.rvs(n, random_state=np.random.default_rng(seed)).T
    return expit(x) - expit(y)


@pytest.mark.slow
@pytest.mark.parametrize("pair", PAIRS)
def test_the_limits_are_the_quantiles_of_many_draws(pair):
    n = 400_000
    found = draws(pair, n)
    for alpha in (0.05, 0.1):
        low, high = pair.interval(alpha)
        error = 5 * np.sqrt(alpha / 2 / n) + 0.0005  # the bound on a correlation of 1 moves a limit by 0.2 % of an SD
        assert np.mean(found < low) == pytest.approx(alpha / 2, abs=error)
        assert np.mean(found > high) == pytest.approx(alpha / 2, abs=error)
    for boundary in (-0.05, 0.0, 0.02):
        assert pair.below(boundary) == pytest.approx(np.mean(found <= boundary), abs=5 * np.sqrt(0.25 / n))


@pytest.mark.parametrize("pair", PAIRS)
def test_p_is_below_alpha_exactly_if_the_interval_excludes_zero(pair):
    assert 2 * min(pair.below(0), pair.swapped.below(0)) == pytest.approx(pair.p, rel=1e-3, abs=1e-8)
    assert two_sided_p(pair) == pytest.approx(pair.p, rel=1e-3, abs=1e-8)
    for alpha in (pair.p * 0.99, min(pair.p * 1.01, 0.999)):
        if 1e-6 < alpha < 1:
            low, high = pair.interval(alpha)
            assert (low > 0 or high < 0) == (pair.p < alpha)


@pytest.mark.parametrize("pair", PAIRS)
def test_swapping_the_models_mirrors_the_interval(pair):
    low, high = pair.interval(0.05)
    assert pair.swapped.interval(0.05) == pytest.approx((-high, -low), abs=1e-7)
    assert pair.swapped.p == pytest.approx(pair.p) and pair.swapped.difference == -pair.difference
    assert pair.below(0.01) + pair.swapped.below(-0.01) == pytest.approx(1, abs=1e-7)


def test_for_small_errors_the_interval_is_that_of_students_t():
    pair = LogitDifference(0.9, 0.88, 0.0009, 0.0011, 0.6, 40)
    error = np.sqrt(0.0009**2 + 0.0011**2 - 2 * 0.6 * 0.0009 * 0.0011)
    half = student.ppf(0.975, 40) * error
    low, high = pair.interval(0.05)
    assert (low, high) == pytest.approx((0.02 - half, 0.02 + half), abs=0.005 * half)
    assert LogitDifference(0.9, 0.8995, 0.0009, 0.0011, 0.6, 40).p == pytest.approx(
        2 * student.sf(0.0005 / error, 40), rel=0.01
    )


def test_near_one_the_interval_is_longer_on_the_side_where_the_error_grows():
    low, high = ORDINARY.interval(0.05)
    assert high - ORDINARY.difference > 1.3 * (ORDINARY.difference - low)
    assert -1 < low < high < 1


@pytest.mark.parametrize("pair", PAIRS)
def test_margins_are_tested_with_the_same_limits(pair):
    for margin in (0.02, 0.1):
        found = non_inferiority(pair, margin)
        assert found.a_vs_b.bound == pytest.approx(pair.interval(0.05)[0], abs=1e-9)
        for claim in (found.a_vs_b, found.b_vs_a):
            assert (claim.p < 0.025) == (claim.verdict == "non-inferior")
        both = equivalence(pair, margin)
        assert (both.p < 0.05) == (both.verdict == "equivalent")
    low, high = pair.interval(0.05)
    assert one_sided_p(pair, low, above=True) == pytest.approx(0.025, rel=1e-4)
    assert one_sided_p(pair, high, above=False) == pytest.approx(0.025, rel=1e-4)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"a": 1.0}, "above 0 and below 1"),
        ({"b": float("nan")}, "above 0 and below 1"),
        ({"error_a": 0.0}, "expected positive numbers"),
        ({"error_b": float("inf")}, "expected positive numbers"),
        ({"correlation": 1.01}, "from -1 to 1"),
        ({"freedom": 0.0}, "degrees of freedom"),
    ],
)
def test_numbers_out_of_range_are_refused(change, said):
    good = {"a": 0.9, "b": 0.8, "error_a": 0.01, "error_b": 0.01, "correlation": 0.5, "freedom": 20.0}
    with pytest.raises(ValueError, match=said):
        LogitDifference(**good | change)
