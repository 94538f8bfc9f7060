"""A child process for each measurement, with fresh memory. A crash becomes a row of the table."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from usvit.bench.case import BenchmarkCase, BenchmarkRow, Status
from usvit.errors import UsvitError

START_SECONDS = 300.0
"""Time limit for importing PyTorch and building the network."""
COMPILE_SECONDS = 1800.0


def run_case(case: BenchmarkCase) -> list[BenchmarkRow]:
    """Run a measurement in a child process.

    Returns:
        The rows; one row with a reason if the child died or took too long.

    Raises:
        UsvitError: the child could not be started.
    """
    limit = START_SECONDS + case.hard_limit + (COMPILE_SECONDS if case.hardware.compile else 0.0)
    try:
        code, out, err = _ask({"measure": case.to_json()}, case, limit)
    except subprocess.TimeoutExpired:
        return [_row(case, "timeout", f"took longer than {limit:.0f} s with building")]
    if code == 0:
        return [BenchmarkRow(**row) for row in json.loads(out)["rows"]]
    if code == -getattr(signal, "SIGALRM", 14):
        return [_row(case, "timeout", f"two steps of a batch of {case.batch} take longer than {case.hard_limit} s")]
    if code == -getattr(signal, "SIGKILL", 9):
        return [_row(case, "out_of_memory", "ended by the system, usually because memory ran out")]
    last = err.strip().splitlines()[-1] if err.strip() else "nothing was said"
    return [_row(case, "crashed", f"the process ended with code {code}: {last[:300]}")]


def look(cases: list[BenchmarkCase]) -> dict[str, Any]:
    """Run ``usvit.bench.preflight.probe`` in a child process, so that this one stays small and holds no GPU.

    Raises:
        UsvitError: a measurement is impossible.
    """
    try:
        code, out, err = _ask({"probe": [case.to_json() for case in cases]}, cases[0], START_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise UsvitError(
            f"The check of the networks took longer than {START_SECONDS:.0f} s. Name fewer models, or try again."
        ) from error
    if code:
        raise RuntimeError(f"usvit.bench.preflight ended with code {code}:\n{err}")
    found: dict[str, Any] = json.loads(out)
    if "error" in found:
        raise UsvitError(found["error"])
    return found


def _ask(request: dict[str, Any], case: BenchmarkCase, limit: float) -> tuple[int, str, str]:
    package = Path(__file__).resolve().parents[2]
    with tempfile.TemporaryDirectory(prefix="usvit-bench-") as folder:
        environment = {
            **os.environ,
            # With a shared compiler cache, the compile time of the second measurement would be wrong.
            "TORCHINDUCTOR_CACHE_DIR": folder,
            "PYTHONPATH": os.pathsep.join(filter(None, [str(package), os.environ.get("PYTHONPATH", "")])),
        }
        if case.hardware.threads:
            environment["OMP_NUM_THREADS"] = str(case.hardware.threads)
        done = subprocess.run(
            # -P: do not import modules from the working folder.
            [sys.executable, "-P", "-m", "usvit.bench.worker"],
            input=json.dumps(request),
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=limit,
            env=environment,
        )
    return done.returncode, done.stdout, done.stderr


def _row(case: BenchmarkCase, status: Status, reason: str) -> BenchmarkRow:
    return BenchmarkRow(
        model=case.model["name"],
        mode=case.mode,
        batch=case.batch,
        image_size=case.model["image_size"],
        precision=case.hardware.precision,
        status=status,
        reason=reason,
        compiled=case.hardware.compile,
        channels_last=case.hardware.channels_last,
    )
