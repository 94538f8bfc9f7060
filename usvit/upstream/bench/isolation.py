"""A child process for each measurement, with fresh memory. A crash becomes a row of the table."""

import json
import signal
import subprocess
import tempfile

from usvit.errors import UsvitError
from usvit.plain_data import Json
from usvit.processes import in_words, run_module
from usvit.upstream.bench.case import BenchmarkCase, Preflight
from usvit.upstream.records.bench import BenchResult

START_SECONDS = 300.0
"""Time limit for importing PyTorch and building the network."""
_COMPILE_SECONDS = 1800.0


def run_case(case: BenchmarkCase) -> list[BenchResult]:
    """Run a measurement in a child process.

    Returns:
        The rows; one row with a reason if the child died or took too long.

    Raises:
        UsvitError: the child could not be started.
    """
    limit = START_SECONDS + case.hard_limit + (_COMPILE_SECONDS if case.hardware.compile else 0.0)
    try:
        code, out, err = _ask({"measure": case.to_json()}, case, limit)
    except subprocess.TimeoutExpired:
        return [case.result("timeout", reason=f"took longer than {limit:.0f} s with building")]
    if code == 0:
        return [BenchResult.model_validate(row) for row in json.loads(out)["rows"]]
    if code == -getattr(signal, "SIGALRM", 14):
        return [
            case.result("timeout", reason=f"two steps of a batch of {case.batch} take longer than {case.hard_limit} s")
        ]
    if code == -getattr(signal, "SIGKILL", 9):
        return [case.result("out_of_memory", reason="ended by the system, usually because memory ran out")]
    last = err.strip().splitlines()[-1] if err.strip() else "nothing was said"
    return [case.result("crashed", reason=f"the process ended with code {code}: {last[:300]}")]


def look(cases: list[BenchmarkCase]) -> Preflight:
    """Run ``usvit.upstream.bench.preflight.probe`` in a child process, so that this one stays small and holds no GPU.

    Raises:
        UsvitError: a measurement is impossible.
    """
    try:
        code, out, err = _ask({"probe": [case.to_json() for case in cases]}, cases[0], START_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise UsvitError(
            f"The check of the networks took longer than {START_SECONDS:.0f} s. Name fewer models, or try again."
        ) from error
    if code < 0:
        raise UsvitError(
            f"The check of the networks {in_words(code)}, usually because memory ran out. Name fewer models, "
            "or end other programs."
        )
    if code:
        raise RuntimeError(f"usvit.upstream.bench.preflight ended with code {code}:\n{err}")
    found = json.loads(out)
    if "error" in found:
        raise UsvitError(found["error"])
    return Preflight.model_validate(found)


def _ask(request: Json, case: BenchmarkCase, limit: float) -> tuple[int, str, str]:
    with tempfile.TemporaryDirectory(prefix="usvit-bench-") as folder:
        # With a shared compiler cache, the compile time of the second measurement would be wrong.
        environment = {"TORCHINDUCTOR_CACHE_DIR": folder}
        if case.hardware.threads:
            environment["OMP_NUM_THREADS"] = str(case.hardware.threads)
        done = run_module("usvit.upstream.bench.worker", json.dumps(request), seconds=limit, environment=environment)
    return done.returncode, done.stdout, done.stderr
