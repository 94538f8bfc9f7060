import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from usvit.estimate import Estimate
from usvit.metrics.intervals import (
    all_or_none_interval,
    clopper_pearson,
    few_groups_warning,
    logit_interval,
    wilson,
    with_interval,
)

PROC = json.loads((Path(__file__).parents[1] / "oracles/proc.json").read_text())


@pytest.mark.parametrize(
    ("successes", "n", "exact", "score"),
    [  # Newcombe 1998, Table I: method 5 (Clopper-Pearson) and method 3 (score), four decimals
        (81, 263, (0.2527, 0.3676), (0.2553, 0.3662)),
        (15, 148, (0.0578, 0.1617), (0.0624, 0.1605)),
        (0, 20, (0.0000, 0.1684), (0.0000, 0.1611)),
        (1, 29, (0.0009, 0.1776), (0.0061, 0.1718)),
    ],
)
def test_newcombes_examples(successes, n, exact, score):
    assert clopper_pearson(successes, n) == pytest.approx(exact, abs=6e-5)
    assert wilson(successes, n) == pytest.approx(score, abs=6e-5)


def test_r_gives_the_same():
    assert clopper_pearson(81, 263) == pytest.approx(PROC["clopper_pearson"], rel=1e-9)
    assert wilson(81, 263) == pytest.approx(PROC["wilson"], rel=1e-9)


@pytest.mark.slow
@given(st.integers(1, 400), st.floats(0, 1))
def test_scipy_gives_the_same(n, share):
    successes = round(share * n)
    test = stats.binomtest(successes, n)
    for ours, method in ((clopper_pearson, "exact"), (wilson, "wilson")):
        low, high = ours(successes, n)
        assert (low, high) == pytest.approx(tuple(test.proportion_ci(method=method)), abs=1e-9)
        assert 0 <= low <= successes / n <= high <= 1


def test_statsmodels_gives_the_same():
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    for successes in range(0, 31):
        for ours, method in ((clopper_pearson, "beta"), (wilson, "wilson")):
            assert ours(successes, 30) == pytest.approx(proportion.proportion_confint(successes, 30, method=method))


def test_no_case_has_no_interval_and_impossible_counts_are_refused():
    assert clopper_pearson(0, 0) is None and wilson(0, 0) is None
    for interval in (clopper_pearson, wilson):
        with pytest.raises(ValueError, match="5 successes among 4"):
            interval(5, 4)


def test_the_logit_interval_is_that_of_the_delta_method():
    low, high = logit_interval(0.9, 0.02**2)
    odds = np.log(9) + np.array([-1, 1]) * stats.norm.ppf(0.975) * 0.02 / 0.09
    assert [low, high] == pytest.approx(1 / (1 + np.exp(-odds)))
    assert 0.9 - low > high - 0.9


@given(st.floats(0.001, 0.999), st.floats(1e-9, 0.25))
def test_the_logit_interval_never_leaves_zero_to_one(value, variance):
    low, high = logit_interval(value, variance)
    assert 0 <= low <= value <= high <= 1


@pytest.mark.parametrize(("value", "variance"), [(0, 0), (1, 0), (1, 0.1), (0.5, 0), (0.5, float("nan"))])
def test_where_the_logit_or_the_variance_says_nothing_there_is_no_interval(value, variance):
    assert logit_interval(value, variance) is None


def test_all_of_n_is_the_rule_of_three():
    low, high = all_or_none_interval(1, 100)
    assert (low, high) == (pytest.approx(1 - 3.6 / 100, abs=1e-3), 1)
    assert all_or_none_interval(0, 100) == pytest.approx((0, 1 - low))
    assert all_or_none_interval(0.5, 100) is None and all_or_none_interval(1, 0) is None


def test_a_missing_interval_must_say_why_and_a_warning_stands_beside_intervals_only():
    with pytest.raises(ValueError, match="needs a reason"):
        with_interval(0.5, None, method="m", n_groups=3)
    assert with_interval(0.5, None, method="m", n_groups=3, reason="why").warning is None
    assert with_interval(0.5, (0, 1), method="m", n_groups=3).warning == few_groups_warning(3)
    found = with_interval(np.float64(0.5), (np.float64(0.1), 1), method="m", n_groups=np.int64(50), p=0.2)
    assert found == Estimate(value=0.5, ci95=(0.1, 1.0), method="m", n_groups=50, p=0.2)
