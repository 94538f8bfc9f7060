"""Timing, on a clock that the steps themselves move."""

import numpy as np
import pytest

from usvit.upstream.bench import timing


class Clock:
    def __init__(self):
        self.now = 0.0
        self.ran = []

    def step(self, name, *durations):
        """A step that takes these seconds, the last of them for ever."""
        left = list(durations)

        def step():
            self.ran.append(name)
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return step


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing.time, "perf_counter", lambda: clock.now)
    return clock


def run(steps, **more):
    return timing.time_steps(steps, **{"device": "cpu", "repeats": 10, "seconds": 100.0, **more})


def test_the_median_and_quartiles_are_those_of_the_repeats_alone(clock):
    times = [1.0, 3.0, 2.0, 5.0, 4.0, 9.0, 7.0, 8.0, 6.0, 10.0]
    found = run({"a": clock.step("a", 99.0, 50.0, *times)}, seconds=1000.0)
    assert (found.warmup, found.repeats) == (2, 10)
    summary = found.summary("a")
    assert summary["seconds_median"] == np.median(times) and summary["seconds_mean"] == np.mean(times)
    assert (summary["seconds_min"], summary["seconds_q1"], summary["seconds_q3"]) == (1.0, 3.25, 7.75)


def test_short_steps_warm_up_for_half_a_second(clock):
    assert run({"a": clock.step("a", 0.01)}).warmup == pytest.approx(50, abs=1)


def test_two_steps_take_turns_and_change_order(clock):
    run({"a": clock.step("a", 1.0), "b": clock.step("b", 1.0)}, repeats=4)
    assert "".join(clock.ran[-8:]) == "baabbaab"


def test_time_that_runs_out_cuts_the_repeats_short(clock):
    found = run({"a": clock.step("a", 10.0)})
    assert found.repeats == 8 and clock.now <= 100.0


def test_a_step_longer_than_the_limit_still_gives_a_number(clock):
    found = run({"a": clock.step("a", 300.0)})
    assert (found.warmup, found.repeats) == (1, 1)


def test_what_a_first_step_compiles_takes_nothing_from_the_limit(clock):
    said = []
    found = run(
        {"a": clock.step("a", 500.0, 1.0)},
        compiled=True,
        compiled_now=lambda: said.append(("compiled", len(clock.ran))),
        warm_now=lambda: said.append(("warm", len(clock.ran))),
    )
    assert found.repeats == 10 and found.first == {"a": 500.0}
    assert said == [("compiled", 1), ("warm", 2)]
