"""The score interval of an AUC near 1, against a grid and against simulated patients."""

import numpy as np
import pytest
from scipy.stats import norm

from usvit.metrics.area_interval import METHOD, degrees_of_freedom, effective_images, few_errors, score_interval
from usvit.metrics.clustered import area_covariance, area_parts, clustered_auc
from usvit.metrics.intervals import logit_interval


def newcombe(area, m, n):
    """Newcombe (2006), method 5, as the paper writes it: N = (m + n) / 2 - 1 in the place of both m - 1 and n - 1."""
    both = (m + n) / 2 - 1
    return area * (1 - area) * (1 + both * (1 - area) / (2 - area) + both * area / (1 + area)) / (m * n)


@pytest.mark.parametrize(("value", "m", "n"), [(0.95, 12, 90), (0.7, 20, 20), (0.1, 15, 60), (0.999, 30, 400)])
def test_without_stretching_it_is_newcombes_fifth_method(value, m, n):
    found = score_interval(value, newcombe(value, m, n), n_positive=m, n_negative=n, freedom=1e9)
    grid = np.linspace(1e-6, 1 - 1e-6, 2_000_001)
    inside = grid[np.abs(value - grid) <= norm.ppf(0.975) * np.sqrt(newcombe(grid, m, n))]
    assert found == pytest.approx((inside[0], inside[-1]), abs=2e-6)


def test_it_stretches_with_the_variance_and_never_shrinks():
    usual = newcombe(0.95, 20, 100)
    ends = [score_interval(0.95, usual * k, n_positive=20, n_negative=100, freedom=30) for k in (0.1, 1, 4)]
    assert ends[0] == pytest.approx(ends[1], rel=1e-12)
    assert ends[2][0] < ends[1][0] < 0.95 < ends[1][1] < ends[2][1] < 1


def test_a_mirrored_score_has_the_mirrored_interval():
    rng = np.random.default_rng(0)
    positive = np.arange(100) < 12
    score = 2.5 * positive + rng.normal(size=100)
    up, down = clustered_auc(positive, score, range(100)), clustered_auc(positive, -score, range(100))
    assert up.method == METHOD
    assert down.ci95 == pytest.approx([1 - up.ci95[1], 1 - up.ci95[0]], abs=1e-9)


def test_images_repeated_within_their_patient_are_worth_one():
    rng = np.random.default_rng(1)
    positive = np.arange(80) < 10
    score = 2 * positive + rng.normal(size=80)
    assert effective_images(positive, score, np.arange(80)) == pytest.approx((10, 70))
    five = [np.repeat(one, 5) for one in (positive, score, np.arange(80))]
    assert effective_images(*five) == pytest.approx((10, 70), rel=1e-6)
    assert clustered_auc(*five).ci95 == pytest.approx(clustered_auc(positive, score, range(80)).ci95, rel=1e-3)


def test_independent_images_of_a_patient_are_worth_nearly_as_many_as_they_are():
    rng = np.random.default_rng(2)
    group = np.repeat(np.arange(200), 4)
    positive = group < 60
    m, n = effective_images(positive, positive + rng.normal(size=800), group)
    assert 0.8 * 240 < m <= 240 and 0.8 * 560 < n <= 560


def test_it_is_taken_where_errors_are_few_and_the_logit_scale_elsewhere():
    assert few_errors(0.95, 30) and not few_errors(0.8, 30) and few_errors(0.05, 30)
    rng = np.random.default_rng(3)
    positive = np.arange(300) < 100
    assert "logit" in clustered_auc(positive, positive + rng.normal(size=300), range(300)).method


def test_the_degrees_of_freedom_are_those_of_the_rarer_class_where_it_makes_the_variance():
    rng = np.random.default_rng(4)
    assert degrees_of_freedom(rng.normal(size=12), np.full(90, 1e-9), 12, 90) == pytest.approx(11, rel=1e-6)
    assert degrees_of_freedom(np.zeros(12), np.zeros(90), 12, 90) == 11


@pytest.mark.slow
@pytest.mark.parametrize("images", [1, 3])
def test_it_holds_the_truth_near_one_where_the_logit_scale_does_not(images):
    """15 positive patients, AUC 0.97; 300 studies have a standard error of 0.013 at 0.95."""
    shift, held = norm.ppf(0.97) * np.sqrt(5), np.zeros(2)
    group = np.repeat(np.arange(95), images)
    positive = group < 15
    for seed in range(300):
        rng = np.random.default_rng(seed)
        noise = (rng.normal(size=95)[group] + rng.normal(size=len(group))) / np.sqrt(2)
        score = np.where(positive, shift + 2 * noise, noise)
        parts = area_parts(positive, score, group, 95)
        now = clustered_auc(positive, score, group).ci95
        old = logit_interval(parts.value, area_covariance(parts, parts)) or now
        held += [old[0] <= 0.97 <= old[1], now[0] <= 0.97 <= now[1]]
    assert held[0] / 300 < 0.90 and held[1] / 300 > 0.93
