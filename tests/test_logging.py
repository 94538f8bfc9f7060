"""Messages of the command line."""

import io
import logging

import pytest
from rich.console import Console

import usvit.logging as messages
from usvit.progress import LiveProgress

logger = logging.getLogger("usvit.tests")


@pytest.mark.parametrize(
    ("verbosity", "shown"),
    [(-1, ["Warning: few"]), (0, ["done", "Warning: few"]), (1, ["detail", "done", "Warning: few"])],
)
def test_verbosity_decides_which_messages_are_shown_on_standard_error(verbosity, shown, capsys):
    messages.configure_logging(verbosity)
    logger.debug("detail")
    logger.info("done")
    logger.warning("few")
    captured = capsys.readouterr()
    assert captured.err.splitlines() == shown and captured.out == ""


def test_messages_hold_no_terminal_commands_and_no_markup(capsys):
    messages.configure_logging()
    logger.info("fold [1] of \x1b[31mred")
    assert capsys.readouterr().err == "fold [1] of \\u001b[31mred\n"


def test_a_message_of_a_run_begins_with_its_name(capsys):
    messages.configure_logging()
    with messages.messages_of("busi-seed0"):
        logger.info("resumed")
    logger.info("after")
    assert capsys.readouterr().err.splitlines() == ["busi-seed0: resumed", "after"]


def test_configuring_twice_shows_each_message_once(capsys):
    messages.configure_logging()
    messages.configure_logging()
    logger.info("once")
    assert capsys.readouterr().err == "once\n"


def test_a_message_stands_above_the_bar(monkeypatch):
    screen = io.StringIO()
    shared = Console(file=screen, force_terminal=True, width=100)
    monkeypatch.setattr(messages, "console", lambda: shared)
    messages.configure_logging()
    live = LiveProgress(shared)
    live.start("fold 1/5", 250, "steps", done=10)
    logger.info("fold 1 is resumed")
    live.finish()
    assert "fold 1 is resumed\n" in screen.getvalue()
