"""How often a study is saved and shown: always, or rarely enough not to matter."""

import pytest

from usvit.upstream.studies.pace import FREE_SECONDS, SHARE, Pace


class Clock:
    """A clock that moves only when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def pass_by(self, seconds):
        self.now += seconds


def shown_runs(n, run_seconds, show_seconds):
    """Run number -> whether it was shown, and the share of the whole time that showing took."""
    clock = Clock()
    pace = Pace(clock)
    shown = []
    for _ in range(n):
        clock.pass_by(run_seconds)
        shown.append(pace.do(lambda: clock.pass_by(show_seconds)))
    return shown, sum(shown) * show_seconds / (clock.now - 100.0)


def test_runs_that_take_long_beside_showing_them_are_all_shown():
    assert all(shown_runs(1000, run_seconds=60.0, show_seconds=1.0)[0])


def test_a_small_study_of_the_shortest_runs_is_shown_after_each():
    assert all(shown_runs(20, run_seconds=0.0, show_seconds=FREE_SECONDS / 20)[0])


@pytest.mark.parametrize("n", [1000, 10_000])
def test_showing_short_runs_takes_a_bounded_share_of_the_time(n):
    shown, share = shown_runs(n, run_seconds=0.1, show_seconds=n / 1000)
    assert any(shown) and not all(shown)
    assert share * n * 0.1 < SHARE * n * 0.1 * 1.2 + FREE_SECONDS + 2 * n / 1000


def test_work_that_fails_is_not_hidden():
    with pytest.raises(ZeroDivisionError):
        Pace().do(lambda: 1 / 0)
