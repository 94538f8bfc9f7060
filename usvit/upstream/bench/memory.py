"""Peak memory of a measurement, and memory limits that protect the machine during a search."""

import contextlib
import sys
from pathlib import Path

import torch

_MIB = 2**20
_SHARE = 0.9
"""Share of the free memory that may be used, unless a limit is given."""


class PeakMemory:
    """Peak memory since this object was made (CPU) or since ``restart`` (GPU).

    On a GPU, it is ``torch.cuda.max_memory_allocated`` with the weights, as in the papers. On a CPU, it is the
    process's peak resident set minus that before the network was made, so that the libraries do not count. It is
    Linux's ``VmHWM``, because ``ru_maxrss`` of a child process starts at its parent's value.
    """

    def __init__(self, device: str, compiled: bool):
        self.device = device
        self.method: str = "max_memory_allocated"
        if device == "cpu":
            self.method = "peak resident set minus that before the network"
            if compiled:
                self.method = "not measured: the compiler works in the same process"
        self._before = _resident_peak()

    def restart(self) -> None:
        """Reset the peak, so that building and warming up do not count (GPU)."""
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()

    def peak_mib(self) -> float | None:
        """Return the peak in MiB; None if it is not measured."""
        if self.device == "cuda":
            return torch.cuda.max_memory_allocated() / _MIB
        if self.method.startswith("not measured"):
            return None
        return (_resident_peak() - self._before) / _MIB


def bound_memory(device: str, gigabytes: float | None) -> None:
    """Limit the memory of this process, so that it fails with an error before the system ends a process.

    Args:
        device: ``cpu`` or ``cuda``.
        gigabytes: limit in 10^9 bytes; None for the whole GPU, or nearly all free memory.
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
    with contextlib.suppress(ImportError, ValueError, OSError):  # not on this platform, or a lower limit is set already
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (int(now + budget), resource.getrlimit(resource.RLIMIT_DATA)[1]))


def free_memory() -> int | None:
    """Return the free bytes of the system, or of the container if they are fewer; None if unknown."""
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
    """Read an entry of Linux's ``/proc/self/status`` in bytes; None if it is missing."""
    for line in _read("/proc/self/status").splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1]) * 1024
    return None


def _read(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
