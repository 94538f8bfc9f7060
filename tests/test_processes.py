"""Child processes: the pipe, how they are ended, how their end is told, and that they do not outlive their parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.programs import until
from usvit.processes import Child, in_words, run_module

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
REPOSITORY = Path(__file__).parents[1]
LONG = 120
"""Seconds that nothing here takes, even on a busy machine."""


def add(connection, *numbers):
    connection.send((os.getpid(), sum(numbers)))


def wait(connection):
    connection.send(os.getpid())
    time.sleep(LONG)


def die(connection, number):
    os.kill(os.getpid(), number)


def show_blocked(connection):
    connection.send(signal.pthread_sigmask(signal.SIG_BLOCK, ()))


def test_a_child_answers_through_its_pipe_and_ends():
    child = Child(add, 1, 2)
    assert child.connection.recv() == (child.pid, 3)
    child.wait(LONG)
    assert (child.alive, child.exit_code, child.killed_from_outside) == (False, 0, False)
    child.end()


def test_a_killed_child_says_who_killed_it():
    ours, theirs = Child(wait), Child(die, signal.SIGKILL)
    assert ours.connection.recv() == ours.pid
    ours.end()
    theirs.wait(LONG)
    assert (ours.exit_code, ours.killed_from_outside, ours.alive) == (-signal.SIGKILL, False, False)
    assert (theirs.exit_code, theirs.killed_from_outside) == (-signal.SIGKILL, True)
    assert in_words(theirs.exit_code) == "was ended by the signal SIGKILL"
    assert in_words(3) == "ended with code 3"
    theirs.end()


def test_signals_are_held_in_the_child_and_not_here():
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    child = Child(show_blocked, held=(signal.SIGTERM, signal.SIGINT))
    assert {signal.SIGTERM, signal.SIGINT} <= child.connection.recv()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before
    child.end()


WORK = """
import os, time
from pathlib import Path
from usvit.processes import exit_with_parent

def work(connection, pid):
    exit_with_parent()
    Path(pid).write_text(str(os.getpid()))
    time.sleep(120)

if __name__ == "__main__":
    import sys
    work(None, sys.stdin.read())
"""
STARTS = {
    "child": "import sys, work; from usvit.processes import Child; child = Child(work.work, sys.argv[1])",
    "module": "import os, sys; from usvit.processes import run_module; "
    "run_module('work', sys.argv[1], seconds=120, environment={'PYTHONPATH': os.pathsep.join(sys.path)})",
}
"""Scripts without the guard of ``__main__``."""


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks at /proc")
@pytest.mark.parametrize("way", STARTS)
def test_a_child_does_not_outlive_a_parent_that_was_killed(tmp_path, way):
    (tmp_path / "work.py").write_text(WORK)
    (tmp_path / "parent.py").write_text(f"{STARTS[way]}\nimport time; time.sleep({LONG})\n")
    pid = tmp_path / "pid"
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    parent = subprocess.Popen([sys.executable, str(tmp_path / "parent.py"), str(pid)], env=environment)
    try:
        child = int(until(lambda: pid.exists() and pid.read_text(), 60))
        assert runs(child)
    finally:
        parent.kill()
        parent.wait()
    until(lambda: not runs(child), 20)


def runs(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_module_is_asked_once_with_its_own_environment_and_a_limit(tmp_path, monkeypatch):
    (tmp_path / "json.py").write_text("raise SystemExit('the wrong json')")
    monkeypatch.chdir(tmp_path)
    done = run_module("json.tool", '{"a": 1}', seconds=LONG, environment={"PYTHONHASHSEED": "7"})
    assert (done.returncode, done.stdout.split()) == (0, ["{", '"a":', "1", "}"])
    with pytest.raises(subprocess.TimeoutExpired):
        run_module("asyncio", "import time; time.sleep(60)", seconds=0.5, environment={})
