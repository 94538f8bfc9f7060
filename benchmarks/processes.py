"""Time, memory and other figures of processes and of those that they started, from Linux's ``/proc``."""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

SAMPLE_SECONDS = 0.02


@dataclass(frozen=True)
class Figures:
    """What a process uses at one time."""

    cpu: float
    """Seconds of CPU time, with those of children that have ended and been waited for."""
    held: int
    """Bytes of anonymous and shared memory, which the system cannot take back."""
    resident: int
    """Bytes of resident memory, with pages of files."""
    threads: int


@dataclass(frozen=True)
class Measured:
    """The cost of a command and of the processes that it started."""

    wall: float
    cpu: float
    held: float
    """Peak of the anonymous and shared memory of all, in bytes."""
    resident: float
    """Peak of the resident memory of all, in bytes."""


def figures(pid: int) -> Figures | None:
    """Return the figures of a process; None if it has ended."""
    with contextlib.suppress(OSError, IndexError):
        stat, text = _stat(pid), Path(f"/proc/{pid}/status").read_text()
        status = dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
        kb = {name: int(status.get(name, "0").split()[0]) for name in ("RssAnon", "RssShmem", "VmRSS")}
        cpu = sum(map(int, stat[11:15])) / os.sysconf("SC_CLK_TCK")
        held = 1024 * (kb["RssAnon"] + kb["RssShmem"])
        return Figures(cpu, held, 1024 * kb["VmRSS"], int(status["Threads"]))
    return None


def tree(root: int) -> dict[int, Figures]:
    """Return the figures of a process and of all its descendants."""
    found, pids = {}, [root]
    while pids:
        pid = pids.pop()
        with contextlib.suppress(OSError):  # it has ended meanwhile
            for children in Path(f"/proc/{pid}/task").glob("*/children"):
                pids += map(int, children.read_text().split())
        if (one := figures(pid)) is not None:
            found[pid] = one
    return found


def session(leader: int) -> dict[int, Figures]:
    """Return the figures of all processes of a session, also of those whose parents have ended."""
    found = {}
    for path in Path("/proc").iterdir():
        with contextlib.suppress(OSError, IndexError):
            if path.name.isdigit() and _stat(int(path.name))[3] == str(leader):
                found[int(path.name)] = figures(int(path.name))
    return {pid: one for pid, one in found.items() if one is not None}


def _stat(pid: int) -> list[str]:
    """Return the fields of ``/proc/PID/stat`` from the state on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def measure(
    command: Sequence[str], environment: Mapping[str, str] | None = None, folder: Path | None = None
) -> Measured:
    """Run a command to its end, in a folder.

    Raises:
        RuntimeError: It failed; the error has the end of its output.
    """
    with tempfile.TemporaryFile() as output:
        begun = time.perf_counter()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=folder
        )
        held = resident = 0
        while True:
            # wait4 instead of Popen.poll: it also returns the CPU time of the process and of its children.
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            now = tree(process.pid).values()
            held, resident = max(held, sum(one.held for one in now)), max(resident, sum(one.resident for one in now))
            time.sleep(SAMPLE_SECONDS)
        wall = time.perf_counter() - begun
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            output.seek(0)
            said = output.read().decode(errors="replace")[-2000:]
            raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}:\n{said}")
    return Measured(wall, usage.ru_utime + usage.ru_stime, float(held), float(resident))
