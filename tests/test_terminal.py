import io
import json
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from usvit.progress import LiveProgress, PlainProgress
from usvit.terminal import PlainStream, plain

ATTACK = "a\x1b]0;title\x07\x1b[2Jb\x9b31m\u202egpj\rc\x7f"


def test_commands_are_written_out_and_text_stays():
    assert plain("Größe\t日本\n") == "Größe\t日本\n"
    assert plain(ATTACK) == r"a\u001b]0;title\u0007\u001b[2Jb\u009b31m\u202egpj\u000dc\u007f"
    assert json.loads(plain(json.dumps(ATTACK, ensure_ascii=False))) == ATTACK  # --json stays the same text


def test_a_stream_writes_plain_text_and_lets_a_bar_return():
    written = io.StringIO()
    stream = PlainStream(written)
    print("\rbar", file=stream)
    print(ATTACK, file=stream)
    assert "\x1b" not in written.getvalue() and written.getvalue().startswith("\rbar\n")
    assert not stream.isatty()


def test_progress_shows_no_commands(capsys):
    from rich.console import Console

    progress = PlainProgress()
    progress.start(ATTACK, 2, "files")
    progress._last -= 60
    progress.update(1, ATTACK)
    assert "\x1b" not in capsys.readouterr().err
    screen = io.StringIO()
    live = LiveProgress(Console(file=screen, force_terminal=False))
    live.start(ATTACK, 2, "files")
    live.update(1, ATTACK)
    live.finish()
    assert "\x1b]0" not in screen.getvalue() and r"\u001b]0;title" in screen.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ["report", f"{ATTACK}/run"],
        ["data", "info", f"{ATTACK}.md"],
        ["cv", "--recipe", f"{ATTACK}.yaml"],
        ["cv", "--set", f"{ATTACK}=1"],
        ["models", "info", ATTACK],
        [f"--{ATTACK}"],
    ],
)
def test_no_command_line_prints_what_a_terminal_obeys(arguments):
    done = subprocess.run([sys.executable, "-m", "usvit", *arguments], cwd=REPOSITORY, capture_output=True)
    assert done.returncode == 2
    said = (done.stdout + done.stderr).decode()
    assert said and not {"\x1b", "\x07", "\x9b", "\u202e", "\x7f"} & set(said), said
