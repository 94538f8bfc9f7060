"""Run one case in a forked child process with limits on time and memory.

``run_apart`` calls a function, and ``run_command`` the command line. ``Ended.outcome`` is one of

- ``passed`` (exit code 0 or 3) and ``refused`` (a ``UsvitError``, exit code 2);
- ``TRACEBACK``: another exception, another exit code, or a signal;
- ``HANG``: more than ``seconds`` of CPU time, or three times as long without using the CPU;
- ``MEMORY``: more resident memory than ``memory_gb`` beyond that of the parent process, child processes included;
- ``WROTE OUTSIDE``: something outside of the case's own folders is not as it was (``Ended.changed``).

The functions use ``fork`` and ``/proc``, so they run on Linux only.
"""

import contextlib
import hashlib
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.processes import figures, session

ADDRESS_GB = 64.0
"""Limit of the address space of a case beyond that of its parent process, so that the machine survives."""


@dataclass
class Ended:
    """How one case ended."""

    status: int | str
    """Exit code, ``hang``, ``memory`` or ``signal N``."""
    text: str
    """What the process printed, and the text of its error."""
    seconds: float
    """Seconds of CPU time of the process and those that it started."""
    gigabytes: float
    """Largest resident memory beyond that at the start, child processes included."""
    kind: str = ""
    """The row of the summary, such as a command."""
    name: str = ""
    """What was done to its input."""
    changed: list[str] = field(default_factory=list)
    """Paths outside of the case's own folders that are not as they were, or what else it touched there."""

    @property
    def outcome(self) -> str:
        if self.changed:
            return "WROTE OUTSIDE"
        if self.status in ("hang", "memory"):
            return str(self.status).upper()
        if self.status in (0, 3):
            return "passed"
        return "refused" if self.status == 2 else "TRACEBACK"

    @property
    def bad(self) -> bool:
        return self.outcome.isupper()

    @property
    def last_line(self) -> str:
        lines = [line for line in self.text.splitlines() if line.strip() and not line.startswith("This is a bug")]
        return lines[-1][:200] if lines else ""


def run_apart(
    work: Callable[[], object],
    *,
    seconds: float = 10,
    memory_gb: float = 3,
    address_gb: float | None = ADDRESS_GB,
    folder: Path | None = None,
    outside: Sequence[Path] = (),
    kind: str = "",
    name: str = "",
) -> Ended:
    """Call a function in a forked child process, and end it when it exceeds a limit.

    Args:
        work: The function. What it returns is printed; a ``UsvitError`` counts as exit code 2.
        seconds: Limit of the CPU time. A process that does not use the CPU is ended after three times as long, so that
            a busy machine is not taken for a hang.
        memory_gb: Limit of the resident memory beyond that of this process, in GB.
        address_gb: Limit of the address space of each process beyond that of this one; None for no limit.
        folder: Working directory of the child.
        outside: Folders in which the case may change nothing.
        kind, name: What the case is called in the summary.
    """
    sys.stdout.flush()
    before = snapshot(outside)
    moved = time.monotonic()
    with tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            _be_child(work, address_gb, folder, said.fileno())
        at_start, status, cpu, most = figures(child), None, 0.0, 0
        base = at_start.resident if at_start else 0
        while status is None:
            time.sleep(0.02)
            running, now = session(child).values(), time.monotonic()
            most = max(most, sum(one.resident for one in running) - base)
            if (used := sum(one.cpu for one in running)) > cpu:
                cpu, moved = used, now
            ended, code, usage = os.wait4(child, os.WNOHANG)
            if ended:
                most = max(most, usage.ru_maxrss * 1024 - base)
                status = f"signal {os.WTERMSIG(code)}" if os.WIFSIGNALED(code) else os.WEXITSTATUS(code)
            elif cpu > seconds or now - moved > 3 * seconds:
                status = "hang"
            elif most > memory_gb * 1e9:
                status = "memory"
        with contextlib.suppress(ProcessLookupError, PermissionError):  # the processes that it left, too
            os.killpg(child, signal.SIGKILL)
        if not ended:
            os.wait4(child, 0)
        if most > memory_gb * 1e9:
            status = "memory"
        said.seek(0)
        text = said.read(10_000_000).decode("utf-8", "replace")
    after = snapshot(outside)
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    return Ended(status, text, cpu, most / 1e9, kind, name, changed)


def run_command(arguments: Sequence[str], **options: Any) -> Ended:
    """Run ``usvit ARGUMENTS`` in a forked child process; the options are those of ``run_apart``."""

    def work() -> None:
        from usvit.cli import main

        sys.argv = ["usvit", *arguments]
        main()

    return run_apart(work, **options)


def _be_child(work: Callable[[], object], address_gb: float | None, folder: Path | None, said: int) -> None:
    """Call the function in this process; never return."""
    code = 70
    try:
        os.setsid()  # so that its child processes are counted, and end with it
        os.dup2(said, 1)
        os.dup2(said, 2)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        if folder is not None:
            os.chdir(folder)
        if address_gb is not None:
            now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
            resource.setrlimit(resource.RLIMIT_AS, (now + int(address_gb * 1e9),) * 2)
        from usvit.errors import UsvitError

        try:
            returned = work()
            if returned is not None:
                print(returned)
            code = 0
        except UsvitError as error:
            print(error)
            code = error.exit_code
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def snapshot(folders: Sequence[Path]) -> dict[str, str]:
    """Return path -> hash, target or kind, for everything below the folders; only plain files are opened."""
    found = {}
    for path in (path for folder in folders for path in folder.rglob("*")):
        if path.is_symlink():
            found[str(path)] = f"link to {path.readlink()}"
        elif path.is_file():
            size = path.stat().st_size
            found[str(path)] = hashlib.sha256(path.read_bytes()).hexdigest() if size < 10**9 else f"{size} bytes"
        else:
            found[str(path)] = "folder" if path.is_dir() else "other"
    return found
