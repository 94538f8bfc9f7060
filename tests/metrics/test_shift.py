import math

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from usvit.estimate import Estimate
from usvit.metrics.clustered import clustered_auc
from usvit.metrics.fold_figures import area_figure
from usvit.metrics.intervals import wilson
from usvit.metrics.shift import (
    independent_change,
    mean_area_of_folds,
    mean_area_of_networks,
    observed_to_expected,
    paired_change,
)


def images(n, seed, skill=1.0):
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < 0.4
    return positive, rng.normal(size=n) + skill * positive, np.arange(n) // 2


def test_the_area_of_several_networks_is_the_mean_of_their_areas():
    positive, score, group = images(120, 0)
    scores = np.stack([score, score + np.random.default_rng(1).normal(size=120), -score])
    found = mean_area_of_networks(positive, scores, group)
    assert found.value == pytest.approx(np.mean([roc_auc_score(positive, one) for one in scores]))
    assert found.ci95[0] < found.value < found.ci95[1]


def test_a_network_that_is_repeated_counts_once():
    positive, score, group = images(200, 2)
    once, thrice = (mean_area_of_networks(positive, np.stack([score] * k), group) for k in (1, 3))
    assert once == clustered_auc(positive, score, group)
    assert thrice.value == pytest.approx(once.value)
    assert thrice.ci95 == pytest.approx(once.ci95, abs=0.005)  # Student's t in place of the normal quantile


def test_networks_that_differ_by_chance_are_no_sampling_error():
    """Averaging independent noise makes the mean surer; the spread between networks does not widen the interval."""
    positive, score, group = images(200, 3)
    rng = np.random.default_rng(4)
    noisy = score + rng.normal(size=(8, 200))
    one, mean = mean_area_of_networks(positive, noisy[:1], group), mean_area_of_networks(positive, noisy, group)
    assert np.ptp(mean.ci95) < np.ptp(one.ci95)


def test_the_area_of_folds_never_ranks_two_networks_against_each_other():
    positive, score, group = images(120, 5)
    fold = group % 3
    found = mean_area_of_folds(positive, score + 100 * fold, group, fold)
    expected = np.mean([roc_auc_score(positive[fold == k], score[fold == k]) for k in range(3)])
    assert found.value == pytest.approx(expected)


def test_a_change_of_proportions_has_newcombes_interval():
    """Newcombe (1998), Statistics in Medicine 17:873, table II, example (a): 56/70 against 48/80, method 10."""
    after = Estimate(value=56 / 70, ci95=wilson(56, 70), n_groups=70)
    before = Estimate(value=48 / 80, ci95=wilson(48, 80), n_groups=80)
    found = independent_change(after, before)
    assert found.value == pytest.approx(0.2)
    assert found.ci95 == pytest.approx([0.0524, 0.3339], abs=5e-5)
    assert found.n_groups == 150


def test_a_change_without_one_side_says_why():
    known = Estimate(value=0.8, ci95=(0.7, 0.9), n_groups=9)
    none = Estimate(value=None, ci95=None, reason="no positive image", n_groups=3)
    assert independent_change(known, none).reason == "no positive image"
    point = independent_change(known, Estimate(value=0.7, ci95=None, n_groups=3))
    assert point.value == pytest.approx(0.1) and point.ci95 is None and "no interval" in point.reason


def test_observed_to_expected_has_the_known_variance_of_independent_images():
    """Debray et al. (2017): the variance of log O:E is (1 - O/n) / O, if the expected number is taken as known."""
    n, events = 400, 60
    positive = np.arange(n) < events
    found = observed_to_expected(positive, np.full(n, 0.1), np.arange(n))
    assert found.value == pytest.approx(1.5)
    error = math.sqrt((1 - events / n) / events * n / (n - 1))
    half = math.log(found.ci95[1] / found.value)
    assert half == pytest.approx(1.966 * error, rel=1e-3)
    assert found.ci95[0] * found.ci95[1] == pytest.approx(1.5**2)


def test_repeating_each_image_within_its_patient_changes_no_interval():
    positive, _, _ = images(90, 6)
    prob = np.random.default_rng(7).random(90)
    once = observed_to_expected(positive, prob, np.arange(90))
    twice = observed_to_expected(np.repeat(positive, 2), np.repeat(prob, 2), np.repeat(np.arange(90), 2))
    assert twice.ci95 == pytest.approx(once.ci95)


def test_observed_to_expected_needs_a_positive_image():
    found = observed_to_expected(np.zeros(4, bool), np.full(4, 0.5), np.arange(4))
    assert found.value is None and found.reason == "no positive image"


def test_a_paired_change_of_equal_networks_is_zero_and_its_interval_counts_training():
    positive, score, group = images(160, 8)
    worse = score + np.random.default_rng(9).normal(size=160)
    a, b = (area_figure(positive, one, group, 80) for one in (worse, score))
    found = paired_change([[a]], [[b]], 80)
    assert found.value == pytest.approx(roc_auc_score(positive, worse) - roc_auc_score(positive, score))
    assert found.ci95[0] < found.value < found.ci95[1]
    assert paired_change([[a]], [[a]], 80).value == 0
