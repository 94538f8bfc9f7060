import io

import pytest
from rich.console import Console

from usvit import progress
from usvit.progress import LiveProgress, NoProgress, PlainProgress, make_progress, task


class Clock:
    """Time that passes when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    said = capsys.readouterr()
    assert said.out == ""  # standard output is the result's
    return said.err.splitlines()


def test_plain_line_has_count_note_and_time_left(capsys, clock):
    plain = PlainProgress()
    plain.start("fold 1/5", 250, "steps")
    plain.update(1)
    clock.now += 26
    plain.update(41, "61.0 images/s")
    assert lines(capsys) == ["fold 1/5: 41/250 steps, 61.0 images/s, 2:15 left"]  # 26 s / 40 * 209


def test_no_time_left_is_guessed_from_the_first_file_alone(capsys, clock):
    plain = PlainProgress()
    plain.start("scoring", 25, "files")
    clock.now += 98  # readers start and networks are loaded
    plain.update(1)
    clock.now += 10
    plain.update(11)
    assert lines(capsys) == ["scoring: 1/25 files", "scoring: 11/25 files, 0:14 left"]


def test_time_left_counts_only_what_was_done_since_the_start(capsys, clock):
    plain = PlainProgress()
    plain.start("fold 2/5", 250, "steps", done=200)
    plain.update(201)
    clock.now += 20
    plain.update(211)
    assert lines(capsys) == ["fold 2/5: 211/250 steps, 1:18 left"]


def test_log_gets_a_line_now_and_then_and_not_one_a_step(capsys, clock):
    plain = PlainProgress()
    plain.start("checking images", 1000, "images")
    for done in range(1, 1001):
        clock.now += 0.1
        plain.update(done)
    said = lines(capsys)
    assert 8 <= len(said) <= 10
    assert said[0].startswith("checking images: 10")


def test_short_work_says_nothing(capsys, clock):
    with task(PlainProgress(), "checking images", 3, "images") as advance:
        for done in (1, 2, 3):
            clock.now += 1
            advance(done)
    assert lines(capsys) == []


def test_nothing_done_yet_gives_no_estimate(capsys, clock):
    plain = PlainProgress()
    plain.start("fold", 10, "steps", done=4)
    clock.now += 60
    plain.update(4)
    assert lines(capsys) == []


def test_second_task_begins_with_a_clock_of_its_own(capsys, clock):
    plain = PlainProgress()
    plain.start("one", 10, "steps")
    plain.update(1)
    clock.now += 1000
    plain.start("two", 10, "steps")
    plain.update(1)
    clock.now += 11
    plain.update(5)
    assert lines(capsys) == ["two: 5/10 steps, 0:13 left"]  # 11 s / 4 * 5


def test_live_display_shows_count_unit_and_note():
    screen = io.StringIO()
    live = LiveProgress(Console(file=screen, force_terminal=True, width=120))
    live.start("fold 1/5", 250, "steps", done=10)
    live.update(40, "61.0 images/s")
    live.finish()
    shown = screen.getvalue()
    for text in ("fold 1/5", "40/250", "steps", "61.0 images/s"):
        assert text in shown


def test_task_is_finished_also_when_its_block_fails():
    live = LiveProgress(Console(file=io.StringIO(), force_terminal=True))
    with pytest.raises(ValueError, match="damaged"), task(live, "one", 3, "images"):
        raise ValueError("damaged")
    with task(live, "two", 3, "images") as advance:  # two bars at once would be refused
        advance(1)


def test_without_a_terminal_lines_are_plain(capsys):
    assert isinstance(make_progress(), PlainProgress)


def test_no_progress_says_nothing(capsys):
    quiet = NoProgress()
    with task(quiet, "one", 3, "images") as advance:
        advance(3)
    assert lines(capsys) == []
