"""Five folds of a network by a recipe, with the time of each phase."""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.gpu_pieces.images import like_busi_and_b
from usvit.models import count, find_model
from usvit.training.device import peak_by_name

CHECKING = ("checking images", "describing images", "comparing images")
DECODING = "decoding images"


def measure(settings: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Run a cross-validation one or several times on the same generated images, each time in a new process.

    Args:
        settings: ``model``, ``recipe``, ``overrides`` (dotted keys), ``images``, ``drawn_at``, ``widths``, ``device``
            and ``runs``.
        scratch: Folder for images and runs.

    Returns:
        ``runs``, the phases in seconds of each run (``phases``), and what all runs share.
    """
    begun = time.monotonic()
    data = like_busi_and_b(scratch, settings["images"], settings["drawn_at"], tuple(settings["widths"]))
    made = time.monotonic() - begun
    shutil.rmtree(scratch / "cache", ignore_errors=True)  # the first run finds nothing of earlier ones
    runs = []
    for number in range(settings["runs"]):
        out = scratch / f"cv-{number}"
        shutil.rmtree(out, ignore_errors=True)
        request = {**settings, "data": str(data), "out": str(out), "answer": str(scratch / "cv.json")}
        spawned = time.time()
        done = subprocess.run(
            [sys.executable, "-P", "-m", "benchmarks.gpu_pieces.crossval_process", json.dumps(request)]
        )
        if done.returncode:
            sys.exit(done.returncode)  # the process has said why
        ended = time.time()
        told = json.loads((scratch / "cv.json").read_text(encoding="utf-8"))
        runs.append(phases(told, spawned, ended) | {"folds": told["folds"], "peak_gb": told["peak_gb"]})
        shutil.rmtree(out, ignore_errors=True)
    return {
        "making_images_seconds": made,
        "runs": runs,
        **{key: told[key] for key in ("name", "precision", "n_images", "n_groups")},
        "operations": operations(told),
        "peak_tflops": peak_by_name(told["name"]),
        "command": command(settings),
    }


def operations(told: dict[str, Any]) -> int:
    """Return the FLOPs of the training steps of a run: six for each multiply-accumulate of the network."""
    model = told["config"]["model"]
    shape = {key: value for key, value in model["vit"].items() if value is not None}
    macs = count(find_model(model["name"], shape), image_size=model["image_size"], n_classes=3).macs
    return 6 * macs * sum(fold["steps"] for fold in told["folds"]) * told["config"]["train"]["batch_size"]


def phases(told: dict[str, Any], spawned: float, ended: float) -> dict[str, float]:
    """Divide the wall time of a run into phases.

    Args:
        told: ``started``, ``imported``, ``ready``, ``finished`` (Unix times) and ``tasks`` (name, unit, begin, end) of
            the process.
        spawned, ended: Unix times at which the process was started and had ended.

    Returns:
        Seconds of each phase, which add up to ``total``. The ``rest`` is divided into what is before the first training
        step (folds, the new network), between the tasks (predictions, metadata, files), and after the last one
        (figures, report, the end of the process). ``until_training`` is the time from the end of the start-up to the
        first training step.
    """

    def spent(*kinds: str) -> float:
        return sum(one["end"] - one["begin"] for one in told["tasks"] if kind_of(one) in kinds)

    start_up = {
        "python": told["started"] - spawned,
        "imports": told["imported"] - told["started"],
        "device": told["ready"] - told["imported"],
    }
    work = {kind: spent(kind) for kind in ("checking", "decoding", "training")}
    total = ended - spawned
    first = min((one["begin"] for one in told["tasks"] if kind_of(one) == "training"), default=told["finished"])
    last = max((one["end"] for one in told["tasks"]), default=told["finished"])
    before = first - told["ready"] - sum(work[kind] for kind in ("checking", "decoding"))
    rest = total - sum(start_up.values()) - sum(work.values())
    return {
        **start_up,
        **work,
        "rest": rest,
        "rest_before": before,
        "rest_after": ended - last,
        "rest_between": rest - before - (ended - last),
        "total": total,
        "without_start_up": total - sum(start_up.values()),
        "until_training": first - told["ready"],
    }


def kind_of(one: dict[str, Any]) -> str:
    """Return the phase of a task of the progress display; tasks that are not known are part of the rest."""
    if one["name"] in CHECKING:
        return "checking"
    if one["name"] == DECODING:
        return "decoding"
    return "training" if one["unit"] == "steps" else "rest"


def command(settings: dict[str, Any]) -> str:
    """Return the command line that does the same on a data set of the user's own."""
    more = " ".join(f"--set {key}={'null' if value is None else value}" for key, value in settings["overrides"].items())
    words = f"usvit cv --dataset phantom --data-root DIR --model {settings['model']} --recipe {settings['recipe']}"
    return f"{words} --weights scratch {more}".strip()
