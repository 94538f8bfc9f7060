"""The load that other programs put on the cores of this process."""

import os
import time
from pathlib import Path

BUSY = 0.5
"""Cores used by others from which the machine is called busy."""
_LEAST_SECONDS = 2.0
"""Shortest time over which the load is measured."""


class MachineLoad:
    """Measures how many of this process's cores other programs use, between two calls (Linux only)."""

    def __init__(self) -> None:
        self._at, self._before, self._note = time.monotonic(), _times(), ""

    def note(self) -> str:
        """Return ``the machine is busy: others use 1.9 of 2 cores``, or an empty string."""
        now = time.monotonic()
        if now - self._at >= _LEAST_SECONDS:
            after, seconds = _times(), now - self._at
            self._note = ""
            if self._before is not None and after is not None:
                cores = len(after[2] & self._before[2])
                others = (after[0] - self._before[0] - (after[1] - self._before[1])) / seconds
                if others >= BUSY:
                    self._note = f"the machine is busy: others use {min(others, cores):.1f} of {cores} cores"
            self._at, self._before = now, after
        return self._note


def _times() -> tuple[float, float, frozenset[int]] | None:
    """Return the busy seconds of this process's cores, those of this process with its children, and the cores."""
    try:
        tick = os.sysconf("SC_CLK_TCK")
        cores = frozenset(os.sched_getaffinity(0))
        busy = 0
        for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
            name, *numbers = line.split()
            if name.startswith("cpu") and name[3:].isdecimal() and int(name[3:]) in cores:
                user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, numbers[:8])
                busy += user + nice + system + irq + softirq + steal
        return busy / tick, _own_ticks(os.getpid()) / tick, cores
    except (OSError, ValueError, AttributeError):  # not Linux
        return None


def _own_ticks(process: int) -> int:
    """Return the clock ticks that a process, its ended children and its running descendants have computed."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:  # the fields after the name, which may contain anything: state, parent, ...
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        number = int(path.parent.name)
        parents[number] = int(fields[1])
        ticks[number] = sum(map(int, fields[11:15]))  # utime, stime, and those of its ended children
    own, found = 0, {process}
    while found:
        own += sum(ticks.get(number, 0) for number in found)
        found = {number for number, parent in parents.items() if parent in found}
    return own
