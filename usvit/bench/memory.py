"""Peak memory of a measurement, and bounds that keep a search from taking the machine down."""

import contextlib
import sys
from pathlib import Path

import torch

MIB = 2**20
_SHARE = 0.9
"""Of the free memory, unless a bound is given."""


class PeakMemory:
    """The most memory that was taken since it was made (CPU) or since ``restart`` (GPU).

    On a GPU: ``torch.cuda.max_memory_allocated``, weights included, which is what the papers print.
    On a CPU: the process's largest resident set less that before the network was made, so that the
    libraries do not count. Linux's ``VmHWM`` is read and not ``ru_maxrss``, which in a child process
    begins at its parent's.
    """

    def __init__(self, device: str, compiled: bool):
        self.device = device
        self.method: str = "max_memory_allocated"
        if device == "cpu":
            self.method = "resident set, peak less that before the network"
            if compiled:
                self.method = "not measured: the compiler works in the same process"
        self._before = _resident_peak()

    def restart(self) -> None:
        """Forget what building and warming up took (GPU)."""
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def peak_mib(self) -> float | None:
        if self.device == "cuda":
            return torch.cuda.max_memory_allocated() / MIB
        if self.method.startswith("not measured"):
            return None
        return (_resident_peak() - self._before) / MIB


def bound_memory(device: str, gigabytes: float | None) -> None:
    """Let this process fail with an error where it would take more, before the system ends it or another one.

    Args:
        device: ``cpu`` or ``cuda``.
        gigabytes: 10^9 bytes; None: the whole GPU, or nearly all of the memory that is free.
    """
    if device == "cuda":
        if gigabytes is not None:
            total = torch.cuda.get_device_properties(0).total_memory
            torch.cuda.set_per_process_memory_fraction(min(1.0, gigabytes * 1e9 / total))
        return
    free = free_memory()
    budget = gigabytes * 1e9 if gigabytes is not None else free and _SHARE * free
    now = _status("VmData")
    if not budget or now is None:
        return
    with contextlib.suppress(ImportError, ValueError, OSError):  # another system, or a lower bound stands already
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (int(now + budget), resource.getrlimit(resource.RLIMIT_DATA)[1]))


def free_memory() -> int | None:
    """Bytes that may still be taken: the system's, or the container's if that is less; None where unknown."""
    lines = _read("/proc/meminfo").splitlines()
    bytes_free = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")]
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        with contextlib.suppress(ValueError):  # "max", or no such file
            bytes_free.append(int(_read(limit)))
    return min(bytes_free) if bytes_free else None


def _resident_peak() -> int:
    peak = _status("VmHWM")
    if peak is not None:
        return peak
    try:
        import resource
    except ImportError:  # Windows
        return 0
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _status(key: str) -> int | None:
    """A line of Linux's ``/proc/self/status``, in bytes."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
