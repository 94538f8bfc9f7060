"""Folds at the same time, by hand and against a simulation of all schedules."""

import itertools

import pytest

from usvit.experiments.fold_schedule import PARALLEL_SHARE, best_at_once, most_at_once


@pytest.mark.parametrize(
    ("n_folds", "cores", "at_once"),
    [
        (5, 1, 1),
        (1, 16, 1),
        (2, 2, 2),
        (5, 2, 2),
        (5, 4, 2),  # two threads each in three rounds; four at once would leave three cores idle in the second
        (5, 8, 5),
        (5, 16, 5),
        (3, 64, 3),
    ],
)
def test_the_folds_share_the_cores(n_folds, cores, at_once):
    assert best_at_once(n_folds, cores, most=1000) == at_once


@pytest.mark.parametrize(
    ("n_folds", "cores"), list(itertools.product((1, 2, 3, 5, 10, 15), (1, 2, 3, 4, 6, 8, 16, 48)))
)
def test_no_other_number_at_once_ends_earlier(n_folds, cores):
    """Simulate each schedule: whenever a process is free, it takes the next fold."""

    def time_of_run(at_once):
        threads, free_at = cores // at_once, [0.0] * at_once
        for _ in range(n_folds):
            first = free_at.index(min(free_at))
            free_at[first] += 1 - PARALLEL_SHARE + PARALLEL_SHARE / threads
        return max(free_at)

    best = time_of_run(best_at_once(n_folds, cores, most=1000))
    assert best == pytest.approx(min(time_of_run(k) for k in range(1, min(n_folds, cores) + 1)))


def test_the_memory_limits_the_folds_at_once():
    assert best_at_once(5, cores=16, most=2) == 2
    assert best_at_once(5, cores=16, most=1) == 1


def test_memory_is_reckoned_by_the_parameters(monkeypatch):
    monkeypatch.setattr("usvit.experiments.fold_schedule.total_memory", lambda: 24 * 10**9)
    assert most_at_once(n_parameters=5_000_000) == 5
    assert most_at_once(n_parameters=300_000_000) == 2
    assert most_at_once(n_parameters=10**10) == 1
    monkeypatch.setattr("usvit.experiments.fold_schedule.total_memory", lambda: None)
    assert most_at_once(n_parameters=5_000_000) > 100
