"""Scoring from DICOM files to tables, beside its parts."""

import argparse
import json
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

import usvit
from benchmarks.score_throughput import measure as measure_scoring
from usvit.records import run_hashes


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
        "core_ms": found.core_ms,
        "most": found.most,
        "seconds": time.monotonic() - begun,
        "command": "python -m benchmarks.score_throughput speed --model RUN "
        f"--n {settings['files']} --size {settings['side']} --fold {settings['fold']} "
        f"--workers {settings['workers']} --batch-size {settings['batch_size']} --rounds {settings['rounds']} "
        f"--precision {settings['precision']}",
    }


def networks(settings: dict[str, Any], scratch: Path) -> Path:
    """Return the run directory of five networks that were trained for one step each; make it if it is not there.

    After one step some networks have a temperature and some have none, and scoring refuses such a mixture. None of them
    keeps its temperature; the speed is the same.
    """
    out = scratch / f"networks-{settings['model'].replace(':', '-')}"
    if (out / "without-temperatures").is_file():
        return out
    shutil.rmtree(out, ignore_errors=True)
    data = scratch / "small-phantom"
    if not data.is_dir():
        from usvit.data.phantom import PhantomSpec, write_phantom

        write_phantom(PhantomSpec(n=60, seed=1, size=128), data)
    once = {"train.steps": 1, "train.batch_size": 8, "device": settings["device"], "split.folds": 5}
    usvit.cross_validate(
        "phantom",
        settings["model"],
        recipe="gheflati2022_vit",
        weights="scratch",
        data_root=data,
        out=out,
        overrides={**once, **settings["overrides"]},
    )
    for file in out.glob("fold-*/model.json"):
        metadata = json.loads(file.read_text(encoding="utf-8"))
        metadata |= {"temperature": None, "temperature_reason": "removed, to measure the speed alone"}
        file.write_text(json.dumps(metadata), encoding="utf-8")
    record = json.loads((out / "run.json").read_text(encoding="utf-8"))
    (out / "run.json").write_text(json.dumps(record | {"files": run_hashes(out)}), encoding="utf-8")
    (out / "without-temperatures").touch()
    return out
