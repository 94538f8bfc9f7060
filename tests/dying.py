"""A command of usvit's that is killed (SIGKILL) at a moment that does not depend on the clock."""

import os
import signal
from itertools import count

from tests.processes import command_line, run


def kill(arguments: list[str], nth: int, where: str) -> None:
    """Run the command ``usvit ...`` and have it killed, with its process group, as it saves for the ``nth`` time.

    Saved are the checkpoints of a training and the batches of a scoring. ``where``: "torn", the checkpoint is written
    but not yet in its place, the batch is scored but not yet in the journal; "after", it is.
    """
    ended = run(_command, nth, where, arguments)
    assert ended.returncode == -signal.SIGKILL, f"not killed: {ended.stderr}"


def die() -> None:
    """Kill this process and its group, which must be its own: it was made the leader by ``os.setsid``."""
    assert os.getpgid(0) == os.getpid()
    os.killpg(0, signal.SIGKILL)


def _command(nth: int, where: str, arguments: list[str]) -> None:
    os.setsid()
    _prepare(nth, where)
    command_line(*arguments)


def _prepare(nth: int, where: str) -> None:
    from usvit.scoring.journal import Journal
    from usvit.training import checkpoint

    saves = count(1)
    write_atomic, commit = checkpoint.write_atomic, Journal.commit

    def write_and_die(path, write):
        fatal = next(saves) == nth

        def torn(temporary):
            write(temporary)
            die()

        write_atomic(path, torn if fatal and where == "torn" else write)
        if fatal:
            die()

    def commit_and_die(self, batch):
        fatal = next(saves) == nth
        if fatal and where == "torn":
            die()
        commit(self, batch)
        if fatal:
            die()

    checkpoint.write_atomic = write_and_die
    Journal.commit = commit_and_die
