"""Fine-tuning over a sweep: each cell is one supervised training; validation images choose, the test is seen once."""

import json
from pathlib import Path
from typing import Any

import torch
from torch import nn

from usvit.config import PretrainConfig, TransferConfig, build, merge
from usvit.data.seen import FILES, GAPS, write_seen
from usvit.errors import Diverged, UsvitError
from usvit.files import copy_folder, write_json
from usvit.models.build import build_model
from usvit.models.mlp_head import give_mlp_head
from usvit.models.weights import Weights, read_state_dict
from usvit.pretrain.run import run_pretraining
from usvit.progress import Progress
from usvit.run_dir import RunDir
from usvit.transfer import judge
from usvit.transfer.job import TransferJob
from usvit.transfer.probes import Judged

ONLY = "only"
"""Name of the one cell where there is no sweep."""
_FIXED = ("source", "data", "split", "seed", "objective", "recipe")
_FIXED_MODEL = ("name", "weights", "weights_sha256", "vit")


def finetune(job: TransferJob, run: RunDir, roots: dict[str, Path], command: str, progress: Progress) -> Judged:
    """Train every cell, choose by validation accuracy, train the chosen again where that is asked for, and test it.

    A cell that is finished is not trained again; one that was stopped goes on where it was. Only the network that is
    tested stays: the cells keep their records and curves.

    Raises:
        UsvitError: a cell's settings do not fit together, or its training cannot be made.
        Diverged: the only cell diverged. Of several, one that does is out of the race.
    """
    cells = job.config.cells or {ONLY: {}}
    configs = {name: cell_config(job.config, overrides) for name, overrides in cells.items()}  # all are checked first
    n_val = 0 if job.parts.val is None else len(job.parts.val)
    found: list[dict[str, Any]] = []
    for number, (name, config) in enumerate(configs.items(), start=1):
        progress.say(f"Cell {number} of {len(cells)}: {name}")
        out = run.path / "cells" / name
        try:
            outcome = run_pretraining(config, roots=roots, out=out, command=command, progress=progress)
            accuracy = outcome.result["kept"][0].get("val_accuracy")
        except Diverged as error:  # a sweep tries rates that are too high, too: that is a result
            if len(cells) == 1:
                raise
            progress.say(f"Cell {name}: {error}")
            accuracy = None
        found.append({"how": "finetune", "cell": name, "part": "val", "n_images": n_val, "accuracy": accuracy})
    best = choose([row["accuracy"] for row in found], list(cells))
    for row in found:
        row["chosen"] = row["cell"] == best
    folder = run.path / "cells" / best / "fold-0"
    if job.config.final is not None:
        final: dict[str, Any] = {"source": {"split": job.config.final, "val": None, "val_share": 0.0}}
        final |= {"train": {"early_stopping": {"patience": None}}}  # nothing is left that it could wait for
        config = _built(job.config, merge(cells[best], final))
        progress.say(f"The chosen cell {best} once more, on {job.config.final}")
        outcome = run_pretraining(config, roots=roots, out=run.path / "final", command=command, progress=progress)
        folder = outcome.path / "fold-0"
    # Without the events: TensorBoard would show a curve twice.
    copy_folder(folder, run.fold(0), but=("*.partial*", "state.pt", "events.out.*"))
    _remember_validation(job, run.fold(0), progress)

    eye = job.eye(progress, configs[best])
    logits = eye.logits(_whole_network(job, configs[best], run.fold(0)), job.parts.test)
    hits = judge.right(job.parts.test, logits)
    rows = [{key: value for key, value in row.items() if value is not None} for row in found]
    rows.append(judge.row("finetune", job.parts.test, hits, interval=True, cell=best, chosen=True))
    accuracy = next(row["accuracy"] for row in found if row["cell"] == best)
    summary = [
        {
            "name": f"fine-tuned ({job.config.model.tune})",
            "accuracy": judge.accuracy(job.parts.test, hits),
            "mean_class_accuracy": judge.mean_class_accuracy(job.parts.test.targets, hits),
            "cell": best,
        }
    ]
    chosen = {"cell": best, "val_accuracy": accuracy, "n_cells": len(cells), "final": job.config.final}
    return Judged(rows, summary, chosen, logits)


def cell_config(config: TransferConfig, overrides: dict[str, Any]) -> PretrainConfig:
    """The training of one cell.

    Raises:
        UsvitError: a setting is unknown, or out of range, or none that a cell may differ in: all cells begin from the
            same network and learn from the same images.
    """
    model = overrides.get("model", {})
    fixed = [key for key in _FIXED if key in overrides] + [f"model.{key}" for key in _FIXED_MODEL if key in model]
    if fixed:
        raise UsvitError(
            f"A cell of the sweep sets {fixed[0]}, which is the same for all cells: set it outside of them."
        )
    return _built(config, overrides)


def _built(config: TransferConfig, overrides: dict[str, Any]) -> PretrainConfig:
    own = set(TransferConfig.model_fields) - set(PretrainConfig.model_fields)
    return build(PretrainConfig, config.model_dump(mode="json", exclude=own), overrides)


def choose(accuracy: list[float | None], names: list[str]) -> str:
    """The cell of the best validation accuracy; the first of equal ones; the only one, where there is but one.

    Raises:
        UsvitError: none has a validation accuracy.
    """
    if len(names) == 1:
        return names[0]
    known = {name: value for name, value in zip(names, accuracy, strict=True) if value is not None}
    if not known:
        raise UsvitError(
            "No cell of the sweep has a validation accuracy: all diverged. Lower the rates (optim.lr), or set "
            "optim.clip_norm=1."
        )
    return max(known, key=lambda name: known[name])


def _whole_network(job: TransferJob, config: PretrainConfig, folder: Path) -> nn.Module:
    """The trained network with its head, on the CPU."""
    with torch.random.fork_rng(devices=[]):
        model = build_model(
            job.spec, Weights("scratch"), n_classes=len(job.parts.classes), image_size=config.model.image_size
        )
        if config.model.head == "mlp":
            give_mlp_head(model)
    model.load_state_dict(read_state_dict(folder / "model.safetensors"))
    return model


def _remember_validation(job: TransferJob, folder: Path, progress: Progress) -> None:
    """The images that chose a cell, or the step that was kept, have been seen, too."""
    val = job.parts.val
    hashes = None if val is None or not job.config.source.hashes else val.hashes(progress)
    if val is None or not hashes:
        return
    passport = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    written = write_seen(folder, {"val": hashes}, described=val.descriptions(progress), name=val.source.name)
    told, more = passport["seen_sha256"], written["seen_sha256"]
    told["val"] = more["val"]
    files = [*(entry for entry in told.get(FILES, []) if entry["part"] != "val"), *more.get(FILES, [])]
    passport["seen_sha256"] = told | ({FILES: files} if files else {})
    copies = passport.get("seen_copies")
    if copies is not None:  # a cell that an earlier usvit trained has none: not known stays not known
        passport["seen_copies"] = {
            key: [*(entry for entry in copies[key] if entry["part"] != "val"), *written["seen_copies"][key]]
            for key in (FILES, GAPS)
        }
    write_json(folder / "model.json", passport)


def forget_networks(folder: Path) -> None:
    """Delete the networks of the cells of a finished run: the one that was tested lies in ``fold-0``."""
    for file in [*folder.glob("cells/*/fold-0/model.safetensors"), *folder.glob("final/fold-0/model.safetensors")]:
        file.unlink()
