"""The mean difference within folds: its variance, the way back from its Value to limits, and what has no logit."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import t as student

from benchmarks.coverage.ensembles import ensemble_study, gain
from benchmarks.coverage.generators import COHORTS, Correlated
from usvit.estimate import Difference
from usvit.metrics.clustered import clustered_difference
from usvit.metrics.cross_validation import fold_mean, mean_value
from usvit.metrics.fold_difference import METHOD, PLAIN_METHOD, difference_limits, difference_within_folds
from usvit.metrics.fold_figures import area_figure
from usvit.metrics.logit_difference import LogitDifference
from usvit.metrics.margin_tests import StudentLimits, non_inferiority


@pytest.fixture(scope="module")
def rows():
    """Labels, scores of two models, groups and folds of 120 patients with three images."""
    rng = np.random.default_rng(5)
    group = np.repeat(np.arange(120), 3)
    positive = (np.arange(120) % 3 == 0)[group]
    common = rng.normal(size=120)[group] + positive * 2
    a, b = (common + rng.normal(size=360) for _ in range(2))
    return positive, a, b, group, np.arange(120)[group] % 5


def figures(positive, score, group, fold):
    n = int(group.max()) + 1
    return [area_figure(positive[fold == k], score[fold == k], group[fold == k], n) for k in np.unique(fold)]


def difference(a, b, share=0.0, n_groups=120):
    return difference_within_folds(a, b, share, absent="why", n_groups=n_groups)


def test_the_value_error_and_share_are_those_of_the_difference(rows):
    positive, a, b, group, _ = rows
    one, other = (figures(positive, score, group, np.zeros(360, int)) for score in (a, b))
    value = difference([one], [other])
    normal = clustered_difference(positive, a, b, group)
    assert value.value == pytest.approx(normal.value) and value.method == METHOD
    half = (normal.ci95[1] - normal.ci95[0]) / 2 / 1.959964
    assert value.error == pytest.approx(half, rel=0.01)
    np.testing.assert_allclose(value.ci95, normal.ci95, atol=0.2 * half)
    whole = difference([one], [other], 1.0)
    assert whole.error == pytest.approx(np.sqrt(2) * value.error)
    assert whole.areas.correlation == pytest.approx(value.areas.correlation)
    assert whole.p > value.p


def test_the_pair_holds_both_means_as_the_headline_reports_them(rows):
    positive, a, b, group, fold = rows
    one, other = (figures(positive, score, group, fold) for score in (a, b))
    value = difference([one], [other])
    assert value.value == pytest.approx(value.areas.a - value.areas.b)
    for name, own in (("a", one), ("b", other)):
        mean = fold_mean([own])
        assert getattr(value.areas, name) == mean.value == mean_value(mean, 0.0, absent="", n_groups=120).value
        assert getattr(value.areas, f"error_{name}") == pytest.approx(np.sqrt(mean.variance))
    errors = value.areas.error_a, value.areas.error_b
    squares = errors[0] ** 2 + errors[1] ** 2 - 2 * value.areas.correlation * errors[0] * errors[1]
    assert squares == pytest.approx(value.error**2)


def test_the_limits_of_a_value_are_those_of_its_interval_p_and_margins(rows):
    positive, a, b, group, fold = rows
    value = difference(*([figures(positive, score, group, fold)] for score in (a, b)), share=0.3)
    limits = difference_limits(value)
    assert isinstance(limits, LogitDifference)
    assert limits.interval(0.05) == pytest.approx(tuple(value.ci95)) and limits.p == pytest.approx(value.p)
    assert non_inferiority(limits, 0.1).a_vs_b.bound == pytest.approx(value.ci95[0])


def test_a_value_of_an_earlier_usvit_keeps_its_symmetric_limits():
    earlier = Difference(value=0.02, ci95=(-0.021, 0.061), error=0.02, freedom=30.0)
    assert difference_limits(earlier) == StudentLimits(0.02, 0.02, 30.0)
    assert difference_limits(Difference(value=0.02, ci95=None, reason="none")) is None
    assert difference_limits(Difference(value=0.02, ci95=(0.0, 0.04))) is None  # before 1.2


def test_swapped_models_have_the_mirrored_interval_and_equal_models_none(rows):
    positive, a, b, group, fold = rows
    one, other = ([figures(positive, score, group, fold)] for score in (a, b))
    value, swapped = difference(one, other), difference(other, one)
    assert swapped.ci95 == pytest.approx([-value.ci95[1], -value.ci95[0]], abs=1e-7)
    assert swapped.p == pytest.approx(value.p)
    same = difference(one, one, 1.0)
    assert (same.value, same.p, same.ci95) == (0.0, 1.0, None)
    assert "the variance is 0" in same.reason


def test_a_model_without_an_error_leaves_a_symmetric_interval(rows):
    positive, _, b, group, fold = rows
    perfect, other = ([figures(positive, score, group, fold)] for score in (positive.astype(float), b))
    value = difference(perfect, other)
    assert value.method == PLAIN_METHOD and value.areas is None
    half = student.ppf(0.975, value.freedom) * value.error
    assert value.ci95 == pytest.approx([value.value - half, min(value.value + half, 1)])
    assert value.p == pytest.approx(2 * student.sf(value.value / value.error, value.freedom))
    assert difference_limits(value).interval(0.05) == pytest.approx(tuple(value.ci95))


def test_folds_without_a_class_are_left_out_of_both_means(rows):
    positive, a, b, group, fold = rows
    kept = positive & (fold == 4)
    one, other = (figures(positive[~kept], score[~kept], group[~kept], fold[~kept]) for score in (a, b))
    assert one[4] is None
    value, without = difference([one], [other]), difference([one[:4]], [other[:4]])
    few = "from 32 groups with positive images only: below 50, intervals cover the true value less often than 95 %"
    assert without.warning == few
    assert value.warning == f"{few}; undefined in 1 folds, which are left out of the mean"
    assert value.without("warning") == without.without("warning")
    assert difference([[None]], [[None]], n_groups=7) == Difference(value=None, ci95=None, reason="why", n_groups=7)


def test_repeats_add_their_variance_to_both_means_and_to_the_difference(rows):
    positive, a, b, group, fold = rows
    rng = np.random.default_rng(1)
    repeats = [
        [
            figures(positive, expit(score) + 0.05 * rng.normal(size=360), group, (fold + k * (group % 7)) % 5)
            for k in (0, 1)
        ]
        for score in (a, b)
    ]
    value = difference(*repeats)
    means = [fold_mean(own) for own in repeats]
    assert value.areas.error_a == pytest.approx(np.sqrt(means[0].variance_with(0.0)[0]))
    assert -1 <= value.areas.correlation <= 1 and value.ci95[0] < value.value < value.ci95[1]


@pytest.mark.slow
def test_the_difference_of_an_ensemble_and_its_member_is_missed_less_often_from_below():
    """13 of 38 patients are positive. The table 'ensemble' of benchmarks.coverage is the full simulation."""
    missed, row = np.zeros(2), Correlated(COHORTS[1], 0.8)
    code = row.cohort.patient
    for k in range(60):
        positive, mean, one, fold = ensemble_study(row, np.random.default_rng([11, k]))
        value = difference(*([figures(positive, score, code, fold)] for score in (mean, one)), n_groups=38)
        for k, limits in enumerate((difference_limits(value), StudentLimits.of(value))):
            assert limits is not None
            missed[k] += limits.interval(0.05)[1] < gain()
    assert missed[0] < missed[1]
