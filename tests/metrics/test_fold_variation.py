"""Intervals from the variation between folds."""

import numpy as np
import pytest
from scipy import stats

from usvit.metrics.fold_variation import fold_variation_interval, mean_overlap


def test_without_common_groups_it_is_nearly_students_interval_of_the_mean_of_folds():
    folds = np.array([0.49, 0.51, 0.5, 0.52, 0.48])
    low, high = fold_variation_interval(0.5, folds, 0.0)
    half = stats.t.ppf(0.975, 4) * stats.sem(folds)
    assert (low, high) == pytest.approx((0.5 - half, 0.5 + half), abs=1e-4)
    assert (
        0 < fold_variation_interval(0.99, [1, 1, 0.95, 1, 1], 0.0)[0] < 0.99
    )  # within 0 and 1, where Student's is not
    assert fold_variation_interval(0.99, [1, 1, 0.95, 1, 1], 0.0)[1] <= 1


def test_its_variance_is_that_of_folds_with_a_common_part():
    """Folds whose values share a part of their variance: the mean varies as the corrected variance says."""
    rng, r, k = np.random.default_rng(0), 0.3, 5
    values = 0.5 + 0.02 * (np.sqrt(r) * rng.normal(size=(1000, 1)) + np.sqrt(1 - r) * rng.normal(size=(1000, k)))
    held = [np.subtract(*fold_variation_interval(0.5, one, r)[::-1]) / 2 / stats.t.ppf(0.975, k - 1) for one in values]
    assert np.sqrt(np.mean(np.square(held))) == pytest.approx(values.mean(axis=1).std(), rel=0.06)


def test_too_few_folds_or_too_many_common_groups_give_none():
    assert fold_variation_interval(0.5, [0.4, 0.6], 0.0) is None
    assert fold_variation_interval(0.5, [0.4, 0.6, 0.5], 0.75) is None
    assert fold_variation_interval(0.5, [0.5, 0.5, 0.5], 0.0) == (0.5, 0.5)


def test_overlap_is_the_mean_over_pairs_of_folds_and_counts_groups():
    a, b, c = np.array(["p1", "p1", "p2"]), np.array(["p2", "p3"]), np.array(["p9"])
    assert mean_overlap([a, b, c]) == pytest.approx((1 / 2 + 0 + 0) / 3)
    assert mean_overlap([a]) == 0
