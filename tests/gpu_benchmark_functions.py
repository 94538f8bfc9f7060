"""What the processes of ``tests/test_gpu_benchmark.py`` call instead of real measurements; it imports nothing heavy."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.gpu_pieces.plan import Measurement

MACHINE = {
    "device": "cpu",
    "name": "Imagined GPU",
    "cores": 3,
    "memory_gb": 1.0,
    "system": "none",
    "driver": None,
    "cuda": None,
    "versions": {"python": "3.12.0", "torch": "2.11.0"},
}


def fake(key, function, *, estimate=1.0, limit=60.0, **settings):
    """Return a measurement that calls a function of this file."""
    return Measurement(key, f"says {key}", f"tests.gpu_benchmark_functions:{function}", settings, estimate, limit)


def machine(settings, scratch):
    return MACHINE | settings


def count(settings, scratch):
    """Count the calls in a file, and return their number."""
    file = Path(settings["file"])
    calls = int(file.read_text()) + 1 if file.exists() else 1
    file.write_text(str(calls))
    return {"calls": calls}


def fail(settings, scratch):
    print("first words")
    raise ValueError("the reason of the failure")


def crash(settings, scratch):
    os.kill(os.getpid(), signal.SIGSEGV)


def needs_a_package(settings, scratch):
    import a_package_that_nobody_has  # noqa: F401


def needs_a_file_of_usvit(settings, scratch):
    import usvit.a_file_that_is_not_there  # noqa: F401


def hang(settings, scratch):
    """Start another process, note its number, and sleep."""
    other = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    Path(settings["file"]).write_text(str(other.pid))
    time.sleep(600)


def not_json(settings, scratch):
    return {"value": float("nan")}
