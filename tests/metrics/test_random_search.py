"""The simulated random search against the enumeration of all sets of trials."""

from itertools import combinations

import numpy as np
import pytest

from usvit.metrics.random_search import best_of_random

RNG = np.random.default_rng(3)
N = 9
CASES = {
    "distinct": (RNG.random(N), RNG.random(N)),
    "tied": (RNG.integers(0, 3, N) / 3, RNG.integers(0, 4, N) / 4),
    "diverged": (np.where(np.arange(N) % 4 == 1, np.nan, RNG.random(N)), RNG.random(N)),
    "all diverged": (np.full(N, np.nan), RNG.random(N)),
}


@pytest.mark.parametrize("k", [1, 2, 5, 8, 9])
@pytest.mark.parametrize("name", CASES)
def test_it_is_what_all_searches_find(name, k):
    validation, test = CASES[name]
    found = []
    for drawn in combinations(range(N), k):  # ascending, so the first of equal ones is kept
        best = drawn[0]
        for one in drawn[1:]:
            if validation[one] > validation[best] or (np.isnan(validation[best]) and not np.isnan(validation[one])):
                best = one
        found.append(test[best])
    result = best_of_random(validation, test, k)
    assert result.mean == pytest.approx(np.mean(found), abs=1e-12)
    expected = np.quantile(found, [0.5, 0.05, 0.95], method="inverted_cdf")
    assert [result.median, result.low, result.high] == expected.tolist()


def test_one_trial_is_a_random_setting_and_all_trials_the_best_on_validation():
    validation, test = [0.3, 0.9, 0.6], [0.5, 0.1, 0.8]
    assert best_of_random(validation, test, 1).mean == pytest.approx(1.4 / 3)
    assert set(best_of_random(validation, test, 3)) == {0.1}


@pytest.mark.parametrize("k", [0, 4])
def test_a_number_of_trials_that_cannot_be_drawn_is_refused(k):
    with pytest.raises(ValueError, match="trials of 3 settings"):
        best_of_random([1, 2, 3], [1, 2, 3], k)


def test_unequal_lengths_are_refused():
    with pytest.raises(ValueError, match="validation figures"):
        best_of_random([1, 2], [1, 2, 3], 1)


def test_thousands_of_settings_have_probabilities_that_sum_to_one():
    n = 1920
    result = best_of_random(np.arange(n), np.ones(n), 700)
    assert result.mean == pytest.approx(1, abs=1e-9)
