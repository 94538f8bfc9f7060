"""Intervals of sums from the intervals of the parts."""

import numpy as np
import pytest

from usvit.metrics.intervals import wilson
from usvit.metrics.mover import common_groups, correlations, mean_interval, weighted_interval


def test_the_difference_of_two_independent_shares_is_newcombes():
    """56 of 70 and 48 of 80: Newcombe (1998), Statistics in Medicine 17:873, Table II, example a, method 10."""
    ends = [wilson(56, 70), wilson(48, 80)]
    assert weighted_interval([56 / 70, 48 / 80], ends, (1, -1), np.eye(2)) == pytest.approx((0.0524, 0.3339), abs=5e-5)


def test_with_symmetric_intervals_it_is_the_variance_of_the_sum():
    half, weights = np.array([0.1, 0.2, 0.05]), np.array([0.5, -0.3, 1.0])
    r = np.array([[1, 0.4, 0.1], [0.4, 1, -0.2], [0.1, -0.2, 1]])
    low, high = weighted_interval([0.5, 0.6, 0.4], [(0.4, 0.6), (0.4, 0.8), (0.35, 0.45)], weights, r)
    reach = np.sqrt(weights * half @ r @ (weights * half))
    assert (high - low) / 2 == pytest.approx(reach) and (high + low) / 2 == pytest.approx(0.25 - 0.18 + 0.4)


def test_a_part_at_its_bound_adds_the_distance_to_its_other_bound():
    """The case of 0 of 12 and 385 of 388: the mean can only be higher by what the first can."""
    zero, rest = wilson(0, 12), wilson(385, 388)
    low, high = mean_interval([0, 385 / 388], [zero, rest], np.zeros((2, 3)), 0.0)
    assert high - 385 / 776 == pytest.approx(np.hypot(zero[1], rest[1] - 385 / 388) / 2)
    assert 385 / 776 - low == pytest.approx((385 / 388 - rest[0]) / 2)


def test_correlations_are_those_of_the_contributions_and_given_where_there_are_none():
    adds = np.array([[1.0, -1, 0.5, -0.5], [1, 0, -1, 0], [0, 0, 0, 0]])
    found = correlations(adds, 0.25)
    assert found[0, 1] == pytest.approx(adds[0] @ adds[1] / np.linalg.norm(adds[0]) / np.linalg.norm(adds[1]))
    assert found[0, 2] == found[2, 1] == 0.25 and (np.diag(found) == 1).all()


def test_common_groups_is_none_for_different_patients_and_all_for_the_same():
    present = np.array([[1, 1, 0, 0], [0, 0, 1, 1], [1, 1, 0, 0], [1, 0, 0, 0]], bool)
    assert common_groups(present)[0] == pytest.approx([1, 0, 1, 1 / np.sqrt(2)])
