"""Conformal sets by patient, against enumeration: of n + 1 exchangeable patients, each is the new one in turn."""

from itertools import product

import numpy as np
import pytest
from scipy.stats import beta

from usvit.metrics.conformal import GUARANTEES, coverage_range, least_patients, patient_coverage, set_threshold


def patients(rng, n):
    """Scores of n patients with 1 to 4 images; images of one patient are alike."""
    sizes = rng.integers(1, 5, n)
    group = np.repeat(np.arange(n), sizes)
    return rng.normal(size=n)[group] + 0.5 * rng.normal(size=len(group)), group


def left_out_in_turn(score, group, alpha, guarantee):
    """The mean over patients, each as the new one, of whether (or how much of) it is covered: the exact coverage."""
    covered = []
    for new in np.unique(group):
        own = group == new
        limit = set_threshold(score[~own], group[~own], alpha=alpha, guarantee=guarantee).threshold
        right = score[own] >= limit
        covered.append(right.all() if guarantee == "every image" else right.mean())
    return float(np.mean(covered))


@pytest.mark.parametrize(("alpha", "n", "guarantee"), [*product((0.05, 0.1, 0.3), (19, 25, 40), GUARANTEES)])
def test_of_exchangeable_patients_the_share_covered_is_at_least_what_is_promised(alpha, n, guarantee):
    for seed in range(4):
        score, group = patients(np.random.default_rng(seed), n + 1)
        found = left_out_in_turn(score, group, alpha, guarantee)
        assert found >= 1 - alpha - 1e-12
        slack = 1 / (n + 1) if guarantee == "every image" else 2 / (n + 1)  # Lee et al., theorem 1
        assert found <= 1 - alpha + slack + 1e-12


def test_every_image_takes_the_rank_of_split_conformal_on_the_worst_images():
    score = np.array([0.9, 0.2, 0.5, 0.8, 0.3, 0.7])
    group = np.array(["a", "a", "b", "c", "c", "d"])  # the worst: a 0.2, b 0.5, c 0.3, d 0.7
    # floor(0.4 * 5) = 2 of 5 patients may be missed: the second lowest
    assert set_threshold(score, group, alpha=0.4, guarantee="every image").threshold == 0.3
    assert set_threshold(score, group, alpha=0.2, guarantee="every image").threshold == 0.2


def test_one_image_is_the_weighted_quantile_by_brute_force():
    rng = np.random.default_rng(5)
    for _ in range(20):
        score, group = patients(rng, 12)
        score = score.round(1)  # with ties
        found = set_threshold(score, group, alpha=0.2, guarantee="one image").threshold
        sizes = {one: (group == one).sum() for one in group}
        able = [
            limit
            for limit in score
            if sum(1 / 13 / sizes[one] for value, one in zip(score, group, strict=True) if value >= limit) >= 0.8 - 1e-9
        ]
        assert found == max(able)


def test_one_image_a_patient_makes_both_guarantees_the_same():
    score, group = np.random.default_rng(1).normal(size=30), np.arange(30)
    one, every = (set_threshold(score, group, alpha=0.1, guarantee=guarantee) for guarantee in GUARANTEES)
    assert one == every


@pytest.mark.parametrize(("alpha", "least"), [(0.1, 9), (0.05, 19), (0.2, 4), (0.3, 3), (0.01, 99), (0.5, 1)])
def test_the_fewest_patients_are_those_with_which_a_class_can_be_left_out(alpha, least):
    assert least_patients(alpha) == least
    score = np.linspace(0, 1, least)
    for guarantee in GUARANTEES:
        assert set_threshold(score, np.arange(least), alpha=alpha, guarantee=guarantee).threshold == 0.0
        few = set_threshold(score[1:], np.arange(least - 1), alpha=alpha, guarantee=guarantee)
        assert few.threshold is None and few.n_patients == least - 1 and f"needs {least}" in few.reason


def test_the_range_of_one_calibration_is_that_of_many():
    rng, n, alpha = np.random.default_rng(0), 19, 0.1
    scores = rng.random((4000, n))
    limits = [set_threshold(own, np.arange(n), alpha=alpha, guarantee="every image").threshold for own in scores]
    low, high = coverage_range(n, alpha)
    covered = 1 - np.array(limits)  # of a uniform score
    assert abs((covered < low).mean() - 0.05) < 0.015 and abs((covered > high).mean() - 0.05) < 0.015
    assert (low, high) == tuple(beta.ppf([0.05, 0.95], 18, 2))


def test_coverage_counts_patients_and_not_images():
    covered = np.array([True, True, True, True, False])
    group = np.array(["a", "a", "a", "b", "b"])
    assert patient_coverage(covered, group, guarantee="every image").value == 0.5
    assert patient_coverage(covered, group, guarantee="one image").value == 0.75
    assert patient_coverage(covered[:4], group[:4], guarantee="one image").ci95[1] == 1.0
    assert patient_coverage(covered[:0], group[:0], guarantee="one image").value is None


@pytest.mark.parametrize("alpha", [0, 1, -0.1])
def test_a_level_that_is_none_is_refused(alpha):
    with pytest.raises(ValueError, match="between 0 and 1"):
        set_threshold([0.5], ["a"], alpha=alpha, guarantee="every image")
    with pytest.raises(ValueError, match="guarantee"):
        set_threshold([0.5], ["a"], alpha=0.5, guarantee="some image")
