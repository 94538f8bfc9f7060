"""Run the measurements one after the other, each in a process of its own, within the time of the call."""

import contextlib
import datetime
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu_pieces.plan import Measurement
from benchmarks.gpu_pieces.requirements import missing, missing_optional
from benchmarks.gpu_pieces.results import ATTEMPTS, Results

TAIL = 25
"""Number of last lines of a failed process that are kept."""
ENVIRONMENT = Measurement(
    "environment", "the machine and the software", "benchmarks.gpu_pieces.environment:describe", {}, 20, 120
)
_NO_MODULE = re.compile(r"(?:No module named|No package metadata was found for) '?(?!usvit|benchmarks)([A-Za-z0-9_-]+)")
"""A missing package, as Python and ``importlib.metadata`` name it; a missing file of usvit is a failure."""


def measure_all(
    measurements: list[Measurement],
    results: Results,
    *,
    minutes: float,
    again: bool,
    scratch: Path | None,
    commit: str | None,
    repository: Path,
) -> int:
    """Measure what is not in ``results`` yet and fits into the time.

    Args:
        measurements: In order of importance.
        results: Read before, and written after each measurement.
        minutes: Time of the call.
        again: Measure what is there, too.
        scratch: Folder for data and runs; None for a temporary one.
        commit: Commit of this copy; None to ask git.
        repository: Folder of this copy.

    Returns:
        0 if nothing is left to measure, 3 if another call would continue, 2 if the machine cannot be used.
    """
    deadline, tiny = time.monotonic() + 60 * minutes, results.content["tiny"]
    todo = [one for one in measurements if again or not results.is_done(one.key)]
    if not todo:
        print(f"All {len(measurements)} measurements are in {results.path}.")
        return 0
    with Scratch(scratch) as folder:
        machine = run_process(ENVIRONMENT, folder, repository, deadline - time.monotonic(), tiny=tiny)
        if machine["status"] != "ok":
            print(f"Error: PyTorch cannot be used here.\n{machine['error']}", file=sys.stderr)
            return 2
        values = machine["values"]
        if values["device"] != "cuda" and not tiny:
            print(
                "Error: PyTorch finds no usable GPU (nvidia-smi shows the driver). Pass --tiny to try the command on "
                "the CPU.",
                file=sys.stderr,
            )
            return 2
        session = results.add_session(
            {
                **values,
                "started": _now(),
                "commit": commit or _commit(repository),
                "missing_packages": missing(),
                "missing_optional_packages": missing_optional(),
            }
        )
        print(f"{values['name']}, torch {values['versions'].get('torch')}, {values['cores']} cores", flush=True)
        left = []
        for number, one in enumerate(todo, start=1):
            remaining = deadline - time.monotonic()
            if one.estimate > remaining:
                left.append(one.key)
                continue
            print(f"[{number}/{len(todo)}] {one.key} (about {one.estimate:.0f} s) ...", end=" ", flush=True)
            results.begin(one.key, {"session": session, "settings": one.settings, "says": one.says})
            outcome = run_process(one, folder, repository, remaining, tiny=tiny)
            results.finish(one.key, outcome)
            print(f"{outcome['status']}, {outcome['seconds']:.0f} s{_last_line(outcome)}", flush=True)
    left += [one.key for one in todo if one.key not in left and not results.is_done(one.key) and _again(results, one)]
    states = [results.content["results"].get(one.key, {}).get("status", "left") for one in measurements]
    counts = {state: states.count(state) for state in dict.fromkeys(states)}
    print(f"{', '.join(f'{count} {state}' for state, count in counts.items())}: {results.path}")
    if left:
        print(f"For the next call: {', '.join(left)}")
    return 3 if left else 0


def run_process(one: Measurement, scratch: Path, repository: Path, remaining: float, *, tiny: bool) -> dict[str, Any]:
    """Call the function of a measurement in a new process, and end all its processes after its time limit.

    Args:
        one: The measurement.
        scratch: Folder for data, runs and the messages of the process.
        repository: Folder of this copy.
        remaining: Seconds that are left of the call.
        tiny: Hide the GPU.

    Returns:
        ``status`` and ``seconds``, and ``values``, ``error`` (the last lines that the process printed) or, if a package
        is missing, ``needs``.
    """
    name = one.key.replace("/", "-")
    answer, log = scratch / f"{name}.answer.json", scratch / f"{name}.log"
    answer.unlink(missing_ok=True)
    shutil.rmtree(scratch / f"{name}.compiled", ignore_errors=True)  # compiling begins with an empty cache
    request = {"function": one.function, "settings": one.settings, "scratch": str(scratch), "answer": str(answer)}
    limit = max(1.0, min(one.limit, remaining))
    begun = time.monotonic()
    with log.open("w", encoding="utf-8") as file:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "benchmarks.gpu_pieces.worker", json.dumps(request)],
            cwd=scratch,
            env=_environment(scratch, repository, tiny)
            | {"TORCHINDUCTOR_CACHE_DIR": str(scratch / f"{name}.compiled")},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        late = False
        try:
            process.wait(limit)
        except subprocess.TimeoutExpired:
            late = True
        finally:
            _end(process)
    outcome: dict[str, Any] = {"seconds": round(time.monotonic() - begun, 1)}
    if not late and process.returncode == 0 and answer.is_file():
        return outcome | {"status": "ok", "values": json.loads(answer.read_text(encoding="utf-8"))}
    error = _tail(log)
    if late:
        cut = limit < one.limit
        why = f"ended after {limit:.0f} s, {'the rest of the time of this call' if cut else 'its time limit'}"
        return outcome | {"status": "cut" if cut else "timeout", "error": f"{error}\n{why}".strip()}
    if lacking := _NO_MODULE.search(error):
        return outcome | {"status": "skipped", "needs": lacking[1], "error": f"skipped: needs {lacking[1]}"}
    return outcome | {"status": "failed", "error": f"{error}\n(exit code {process.returncode})".strip()}


class Scratch:
    """The folder of data and runs: a given one, which is kept, or a temporary one."""

    def __init__(self, given: Path | None):
        self._given = given

    def __enter__(self) -> Path:
        if self._given is not None:
            self._given.mkdir(parents=True, exist_ok=True)
            return self._given.resolve()
        self._made = Path(tempfile.mkdtemp(prefix="usvit-gpu-"))
        return self._made

    def __exit__(self, *error: object) -> None:
        if self._given is None:
            shutil.rmtree(self._made, ignore_errors=True)


def _environment(scratch: Path, repository: Path, tiny: bool) -> dict[str, str]:
    others = [entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry]
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(repository), *others]),
        "PYTHONUNBUFFERED": "1",
        "HF_HUB_OFFLINE": "1",
        **({"CUDA_VISIBLE_DEVICES": ""} if tiny else {}),
        "USVIT_CACHE": str(scratch / "cache"),
        "USVIT_KEY": str(scratch / "pseudonym.key"),
    }


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End the process and everything that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _tail(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    return "\n".join(line[:500] for line in lines[-TAIL:])


def _last_line(outcome: dict[str, Any]) -> str:
    lines = [line for line in outcome.get("error", "").splitlines() if not line.startswith("(exit code")]
    return f": {lines[-1][:200]}" if lines else ""


def _again(results: Results, one: Measurement) -> bool:
    entry = results.content["results"].get(one.key, {})
    return entry.get("status") in ("started", "cut") and entry["attempts"] < ATTEMPTS


def _commit(repository: Path) -> str:
    """Return the commit of the repository, with a mark if files have changed; "unknown" without git."""
    words = ["git", "-C", str(repository)]
    try:
        found = subprocess.run([*words, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True)
        status = subprocess.run([*words, "status", "--porcelain"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return found.stdout.strip() + (" with changes" if status.stdout.strip() else "")


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
