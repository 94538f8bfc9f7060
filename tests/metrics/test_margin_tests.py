"""Non-inferiority and equivalence: p-values that agree with the limits, in both directions."""

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from usvit.errors import UsvitError
from usvit.estimate import Difference
from usvit.metrics.fold_difference import difference_limits, difference_within_folds
from usvit.metrics.fold_figures import area_figure
from usvit.metrics.margin_tests import (
    StudentLimits,
    check_margin,
    equivalence,
    non_inferiority,
    one_sided_p,
    two_sided_p,
)
from usvit.metrics.paired_tests import PairedShares
from usvit.records import Verdict


def limits(difference=0.01, error=0.02, freedom=30.0):
    return StudentLimits(difference, error, freedom)


@pytest.mark.parametrize("difference", [-0.2, -0.05, -0.01, 0.0, 0.01, 0.3])
def test_the_one_sided_p_of_a_t_is_that_of_its_quantiles(difference):
    one = limits(difference)
    above = student.sf((difference + 0.05) / 0.02, 30)
    assert one_sided_p(one, -0.05, above=True) == pytest.approx(above, rel=1e-6, abs=1e-11)
    below = student.cdf((difference - 0.05) / 0.02, 30)
    assert one_sided_p(one, 0.05, above=False) == pytest.approx(below, rel=1e-6, abs=1e-11)
    assert two_sided_p(one) == pytest.approx(2 * student.sf(abs(difference) / 0.02, 30), rel=1e-6, abs=1e-11)


def test_the_bound_decides_and_each_side_has_its_own():
    found = non_inferiority(limits(0.015, 0.0275, 1e9), 0.05)  # -0.039 to 0.069
    assert found.a_vs_b.verdict == "non-inferior" and found.a_vs_b.bound == pytest.approx(-0.0389, abs=1e-4)
    assert found.b_vs_a.verdict == "not shown to be non-inferior"
    assert found.b_vs_a.bound == pytest.approx(-0.0689, abs=1e-4)


def test_equivalence_is_two_one_sided_tests_at_5_per_cent():
    found = equivalence(limits(0.01, 0.02, 30), 0.05)
    half = student.ppf(0.95, 30) * 0.02
    assert found.ci90 == pytest.approx([0.01 - half, 0.01 + half])
    assert found.verdict == "equivalent"
    assert found.p == pytest.approx(student.sf((0.05 - 0.01) / 0.02, 30), rel=1e-6)  # the upper test is the weaker
    assert equivalence(limits(0.02, 0.02, 30), 0.05).verdict == "not shown to be equivalent"


def shares(seed, n=60, m=3):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(n), m)
    own = rng.normal(size=n)[group]
    a, b = (own + rng.normal(size=n * m) + 1.2 > 0 for _ in range(2))
    return PairedShares.of(a, b, group)


@pytest.mark.parametrize("seed", range(12))
def test_p_and_verdict_never_contradict_each_other(seed):
    for one in (shares(seed), limits(0.01 * seed - 0.06, 0.02, 12.0)):
        for margin in (0.02, 0.05, 0.1):
            both = non_inferiority(one, margin)
            for claim in (both.a_vs_b, both.b_vs_a):
                assert (claim.p < 0.025) == (claim.verdict == "non-inferior")
            claim = equivalence(one, margin)
            assert (claim.p < 0.05) == (claim.verdict == "equivalent")


def test_without_an_interval_nothing_is_shown_and_the_reason_is_kept():
    found = non_inferiority(None, 0.05, reason="no image").a_vs_b
    assert found == Verdict(bound=None, p=None, verdict="not shown to be non-inferior", reason="no image")
    assert equivalence(None, 0.05, reason="no image").reason == "no image"
    assert StudentLimits.of(Difference(value=None, ci95=None, reason="no image")) is None


@pytest.mark.parametrize("margin", [0, -0.1, 0.5, 2, float("nan")])
def test_margins_out_of_range_are_refused(margin):
    with pytest.raises(UsvitError, match=r"--margin .* above 0 and below 0.5"):
        check_margin(margin)
    for judge in (non_inferiority, equivalence):
        with pytest.raises(UsvitError, match="above 0 and below"):
            judge(limits(), margin)


def test_a_negative_margin_is_told_to_have_no_sign():
    with pytest.raises(UsvitError, match="without a sign"):
        check_margin(-0.05)


@pytest.mark.slow
def test_at_the_margin_the_error_is_what_is_stated():
    """150 patients of two images; A is worse by exactly the margin. The full table: benchmarks.coverage, "margins"."""
    group, margin, n = np.repeat(np.arange(150), 2), 0.05, 300
    shifts = [np.sqrt(2) * norm.ppf(area) for area in (0.85, 0.9)]
    claims = np.zeros(3)
    for k in range(n):
        rng = np.random.default_rng(k)
        positive = (rng.permutation(150) < 60)[group]

        def noise(rng=rng):
            return (rng.normal(size=150)[group] + rng.normal(size=300)) / np.sqrt(2)

        common = noise()
        figures = [
            area_figure(positive, (common + noise()) / np.sqrt(2) + shift * positive, group, 150) for shift in shifts
        ]
        found = difference_limits(difference_within_folds([figures[:1]], [figures[1:]], 0.0, absent="", n_groups=150))
        low, high = found.interval(0.05)
        claims += [
            low <= -margin <= high,
            non_inferiority(found, margin).a_vs_b.verdict == "non-inferior",
            equivalence(found, margin).verdict == "equivalent",
        ]
    assert 0.92 <= claims[0] / n <= 0.98 and claims[1] / n <= 0.05 and claims[2] / n <= 0.08
