"""Threads of native libraries: what they do while they wait, and how many there are.

The threads of OpenMP (PyTorch) and of OpenBLAS (NumPy, SciPy) wait for each other in a loop before they sleep. On a
machine with other work, a waiting thread takes the core from the very thread that it waits for. OpenMP's loop is
therefore shortened. The matrices that NumPy and SciPy multiply here are small, so that OpenBLAS gains nothing from
threads: it gets one. ``docs/benchmarks.md`` has the measurements.
"""

import math
import os
from collections.abc import MutableMapping
from pathlib import Path

from usvit.resources import usable_cores

SPINS = 10_000
"""Rounds of GNU OpenMP's loop before a waiting thread sleeps (its default is 300,000: some milliseconds)."""
_BLOCK_MILLISECONDS = 1
"""The same for the OpenMP of LLVM and Intel, whose default is 200 ms."""
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def configure_threads(environment: MutableMapping[str, str] = os.environ) -> None:
    """Let waiting threads sleep soon, and start no more threads than a container may use.

    It must be called before PyTorch is imported. Variables that the user has set stay as they are.

    Args:
        environment: The environment variables.
    """
    if "OMP_WAIT_POLICY" not in environment:
        environment.setdefault("GOMP_SPINCOUNT", str(SPINS))
        environment.setdefault("KMP_BLOCKTIME", str(_BLOCK_MILLISECONDS))
    if "OMP_NUM_THREADS" not in environment:  # which OpenBLAS respects, too
        environment.setdefault("OPENBLAS_NUM_THREADS", "1")
    quota = cpu_quota()
    if quota is not None and quota < usable_cores():
        environment.setdefault("OMP_NUM_THREADS", str(max(1, math.ceil(quota))))


def cpu_quota(path: Path | None = None) -> float | None:
    """Return the number of cores whose time a container may use (cgroup version 2); None without a limit."""
    try:
        used, period = (path or _QUOTA).read_text(encoding="ascii").split()
        return None if used == "max" else int(used) / int(period)
    except (OSError, ValueError, ZeroDivisionError):
        return None
