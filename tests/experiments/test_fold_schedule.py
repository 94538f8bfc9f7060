"""Folds at the same time and their threads: by hand, and against a search over all schedules."""

import itertools

import pytest

from usvit.experiments.fold_schedule import (
    PARALLEL_SHARE,
    at_once_by_threads,
    best_at_once,
    most_at_once,
    threads_of_folds,
)


@pytest.mark.parametrize(
    ("n_folds", "cores", "at_once"),
    [
        (5, 1, 1),
        (1, 16, 1),
        (2, 2, 2),
        (5, 2, 2),
        (5, 4, 4),  # four with a thread each, then one with four
        (5, 8, 4),  # five would leave three cores idle
        (5, 16, 5),
        (3, 64, 3),
    ],
)
def test_the_folds_are_divided_among_the_cores(n_folds, cores, at_once):
    assert best_at_once(n_folds, cores, most=1000) == at_once


@pytest.mark.parametrize(
    ("n_folds", "cores"), list(itertools.product((1, 2, 3, 5, 10, 15), (1, 2, 3, 4, 6, 8, 16, 48)))
)
def test_no_other_number_at_once_ends_earlier(n_folds, cores):
    """Simulate each schedule: the folds of a round begin together, and it ends with the slowest."""

    def time_of_run(at_once):
        threads = threads_of_folds(n_folds, cores, at_once)
        times = [1 - PARALLEL_SHARE + PARALLEL_SHARE / number for number in threads]
        return sum(max(times[first : first + at_once]) for first in range(0, n_folds, at_once))

    best = time_of_run(best_at_once(n_folds, cores, most=1000))
    assert best == pytest.approx(min(time_of_run(k) for k in range(1, min(n_folds, cores) + 1)))


def test_the_memory_limits_the_folds_at_once():
    assert best_at_once(5, cores=16, most=2) == 2
    assert best_at_once(5, cores=16, most=1) == 1


def test_the_folds_of_a_round_share_the_cores():
    assert threads_of_folds(5, cores=2, at_once=2) == [1, 1, 1, 1, 2]
    assert threads_of_folds(5, cores=8, at_once=3) == [2, 2, 2, 4, 4]
    assert threads_of_folds(5, cores=8, at_once=1) == [8] * 5
    assert threads_of_folds(5, cores=2, at_once=5) == [1] * 5
    assert threads_of_folds(2, cores=8, at_once=5) == [4, 4]


def test_a_resumed_run_fills_the_cores_with_the_folds_that_are_left():
    assert at_once_by_threads([1, 1, 2], cores=2, most=9) == 2
    assert at_once_by_threads([2], cores=2, most=9) == 1
    assert at_once_by_threads([4, 4], cores=2, most=9) == 1, "begun on a larger machine"
    assert at_once_by_threads([1, 1, 1], cores=3, most=2) == 2


def test_memory_is_reckoned_by_the_parameters(monkeypatch):
    monkeypatch.setattr("usvit.experiments.fold_schedule.total_memory", lambda: 24 * 10**9)
    assert most_at_once(n_parameters=5_000_000) == 5
    assert most_at_once(n_parameters=300_000_000) == 2
    assert most_at_once(n_parameters=10**10) == 1
    monkeypatch.setattr("usvit.experiments.fold_schedule.total_memory", lambda: None)
    assert most_at_once(n_parameters=5_000_000) > 100
