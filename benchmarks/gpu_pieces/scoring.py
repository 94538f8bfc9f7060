"""Scoring from DICOM files to tables, beside its parts."""

import argparse
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import usvit
from benchmarks.score_throughput import measure as measure_scoring


def measure(settings: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Score phantoms as DICOM files with the networks of a cross-validation of one step.

    Args:
        settings: ``model``, ``overrides``, ``fold``, ``files``, ``side``, ``workers``, ``batch_size``, ``rounds``,
            ``device`` and ``precision``.
        scratch: Folder for the networks and the files.
    """
    run = networks(settings, scratch)
    options = argparse.Namespace(
        model=run,
        n=settings["files"],
        size=settings["side"],
        fold=settings["fold"],
        device=settings["device"],
        precision=settings["precision"],
        workers=settings["workers"],
        batch_size=settings["batch_size"],
        rounds=settings["rounds"],
    )
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        found = measure_scoring(options, Path(folder))
    return {
        "n_networks": found.n_networks,
        "rates": found.rates,
        "medians": found.medians,
        "of_the_slower": found.of_the_slower,
        "seconds": time.monotonic() - begun,
        "command": "python -m benchmarks.score_throughput speed --model RUN "
        f"--n {settings['files']} --size {settings['side']} --fold {settings['fold']} "
        f"--workers {settings['workers']} --batch-size {settings['batch_size']} --rounds {settings['rounds']} "
        f"--precision {settings['precision']}",
    }


def networks(settings: dict[str, Any], scratch: Path) -> Path:
    """Return the run directory of five networks that were trained for one step each; make it if it is not there."""
    out = scratch / f"networks-{settings['model'].replace(':', '-')}"
    if (out / "report.html").is_file():
        return out
    shutil.rmtree(out, ignore_errors=True)
    data = scratch / "small-phantom"
    if not data.is_dir():
        from usvit.data.phantom import PhantomSpec, write_phantom

        write_phantom(PhantomSpec(n=60, seed=1, size=128), data)
    once = {"train.steps": 1, "train.batch_size": 8, "device": settings["device"], "split.folds": 5}
    return usvit.cross_validate(
        "phantom",
        settings["model"],
        recipe="gheflati2022_vit",
        weights="scratch",
        data_root=data,
        out=out,
        overrides={**once, **settings["overrides"]},
    ).path
