"""A command of usvit's that is killed (SIGKILL) at a moment that does not depend on the clock."""

import os
import signal
import subprocess
import sys
from itertools import count
from pathlib import Path


def kill(arguments: list[str], nth: int, where: str) -> None:
    """Run ``python -m usvit ...`` and have it killed, with its process group, as it saves for the ``nth`` time.

    Saved are the checkpoints of a training and the batches of a scoring. ``where``: "torn", the checkpoint is written
    but not yet in its place, the batch is scored but not yet in the journal; "after", it is.
    """
    command = [sys.executable, "-m", "tests.dying", str(nth), where, *arguments]
    process = subprocess.run(command, capture_output=True, start_new_session=True, cwd=Path(__file__).parents[1])
    assert process.returncode == -signal.SIGKILL, f"not killed: {process.stderr.decode()}"


def _die() -> None:
    os.killpg(0, signal.SIGKILL)


def _prepare(nth: int, where: str) -> None:
    from usvit.scoring.journal import Journal
    from usvit.training import checkpoint

    saves = count(1)
    write_atomic, commit = checkpoint.write_atomic, Journal.commit

    def write_and_die(path, write):
        fatal = next(saves) == nth

        def torn(temporary):
            write(temporary)
            _die()

        write_atomic(path, torn if fatal and where == "torn" else write)
        if fatal:
            _die()

    def commit_and_die(self, batch):
        fatal = next(saves) == nth
        if fatal and where == "torn":
            _die()
        commit(self, batch)
        if fatal:
            _die()

    checkpoint.write_atomic = write_and_die
    Journal.commit = commit_and_die


if __name__ == "__main__":
    _prepare(int(sys.argv.pop(1)), sys.argv.pop(1))

    from usvit.cli import main

    main()
