"""Fine-tuning over a sweep: each cell is one training; validation images choose a cell, and only that is tested.

With ``trials``, all cells are tested, to simulate a random search over them.
"""

import logging
import math
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
from torch import nn

from usvit.config import build, merge
from usvit.data.splits import write_seen
from usvit.errors import Diverged, UsvitError
from usvit.experiments import RunDirectory
from usvit.files import copy_folder
from usvit.metrics.random_search import best_of_random
from usvit.models import Weights, build_model, give_mlp_head, read_state_dict
from usvit.plain_data import Settings
from usvit.progress import Progress
from usvit.records import ModelMetadata, load_record, save_record
from usvit.records.seen_images import SeenCopies
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.pretraining_run.experiment import Pretraining
from usvit.upstream.records.training import Chosen, TransferEstimate, TransferRow
from usvit.upstream.transfer_learning import metrics
from usvit.upstream.transfer_learning.probes import ProbeResult
from usvit.upstream.transfer_learning.transfer_setup import TransferSetup

logger = logging.getLogger(__name__)

ONLY = "only"
"""Name of the only cell if there is no sweep."""
_FIXED = ("source", "data", "split", "seed", "objective", "recipe")
_FIXED_MODEL = ("name", "weights", "weights_sha256", "vit")


class Search(NamedTuple):
    """Simulated random searches over the cells."""

    rows: list[metrics.Row]
    """The rows of ``results.csv`` of the tested cells."""
    lines: list[TransferRow]
    """The lines of the printed table, one for each number of trials."""
    table: pd.DataFrame
    """``random_search.csv``."""


def finetune(
    setup: TransferSetup, run: RunDirectory, roots: dict[str, Path], command: str, progress: Progress
) -> ProbeResult:
    """Train every cell, choose one by validation accuracy, train it again if ``final`` is set, and test it.

    A finished cell is not trained again, and an interrupted one is resumed. Only the tested network is kept; the cells
    keep their records and curves.

    Raises:
        UsvitError: The settings of a cell are inconsistent, or its training fails.
        Diverged: The only cell diverged. If there are several, a cell that diverges cannot be chosen.
    """
    cells = setup.config.cells or {ONLY: {}}
    configs = {name: cell_config(setup.config, overrides) for name, overrides in cells.items()}  # checks all cells
    n_val = 0 if setup.splits.val is None else len(setup.splits.val)
    found: list[metrics.Row] = []
    for number, (name, config) in enumerate(configs.items(), start=1):
        logger.info(f"Cell {number} of {len(cells)}: {name}")
        out = run.path / "cells" / name
        try:
            outcome = Pretraining(config, roots=roots, out=out, command=command, progress=progress).run()
            accuracy = outcome.result.kept[0].val_accuracy
        except Diverged as error:  # a sweep may include learning rates that are too high
            if len(cells) == 1:
                raise
            logger.info(f"Cell {name}: {error}")
            accuracy = None
        found.append({"how": "finetune", "cell": name, "part": "val", "n_images": n_val, "accuracy": accuracy})
    best = choose([row["accuracy"] for row in found], list(cells))
    for row in found:
        row["chosen"] = row["cell"] == best
    folder = run.path / "cells" / best / "fold-0"
    if setup.config.final is not None:
        unvalidated = {"val": None, "val_source": None, "val_share": 0.0}
        final: dict[str, object] = {"source": {"split": setup.config.final, **unvalidated}}
        final |= {"train": {"early_stopping": {"patience": None}}}  # there are no validation images left
        config = _built(setup.config, merge(cells[best], final))
        logger.info(f"Training the chosen cell {best} again on {setup.config.final}")
        outcome = Pretraining(config, roots=roots, out=run.path / "final", command=command, progress=progress).run()
        folder = outcome.path / "fold-0"
    # Events are not copied, because TensorBoard would show the curve twice.
    copy_folder(folder, run.fold(0), but=("*.partial*", "state.pt", "events.out.*"))
    _remember_validation(setup, run.fold(0), progress)

    logits = setup.extractor(progress, configs[best]).logits(
        _whole_network(setup, configs[best], run.fold(0)), setup.splits.test
    )
    hits = metrics.right(setup.splits.test, logits)
    rows = [{key: value for key, value in row.items() if value is not None} for row in found]
    searched = _simulate(setup, run, configs, found, progress) if setup.config.trials else None
    if searched is not None:
        rows += [row for row in searched.rows if row["cell"] != best or setup.config.final is not None]
    rows.append(metrics.row("finetune", setup.splits.test, hits, interval=True, cell=best, chosen=True))
    accuracy = next(row["accuracy"] for row in found if row["cell"] == best)
    summary = [
        *([] if searched is None else searched.lines),
        metrics.line(f"fine-tuned ({configs[best].model.tune})", setup.splits.test, hits, cell=best),
    ]
    chosen = Chosen(cell=best, val_accuracy=accuracy, n_cells=len(cells), final=setup.config.final)
    tables = {} if searched is None else {"random_search.csv": searched.table}
    return ProbeResult(rows, summary, chosen, logits, tables=tables)


def _simulate(
    setup: TransferSetup,
    run: RunDirectory,
    configs: dict[str, PretrainConfig],
    found: list[metrics.Row],
    progress: Progress,
) -> Search:
    """Test every cell, and simulate random searches over them with ``trials`` cells each.

    A cell that diverged counts as an accuracy of 0. The networks are those of the cells, before ``final``.

    Args:
        setup: The resolved transfer.
        run: Its run directory, with the trained cells.
        configs: Configuration of each cell.
        found: The rows of the cells' validation figures, in the same order.
        progress: Where progress is shown.
    """
    rows, figures = [], []
    n_groups = None
    for name, config in configs.items():
        folder = run.path / "cells" / name / "fold-0"
        if not (folder / "model.safetensors").is_file():
            figures.append((0.0, 0.0))
            continue
        logits = setup.extractor(progress, config).logits(_whole_network(setup, config, folder), setup.splits.test)
        hits = metrics.right(setup.splits.test, logits)
        n_groups = metrics.accuracy(setup.splits.test, hits).n_groups
        row = metrics.row("finetune", setup.splits.test, hits, interval=True, cell=name)
        rows.append(row)
        figures.append((row["accuracy"], row["mean_class_accuracy"]))
    validation = [math.nan if row["accuracy"] is None else row["accuracy"] for row in found]
    accuracy, of_classes = zip(*figures, strict=True)
    lines, table = [], []
    for trials in setup.config.trials:
        k = min(trials, len(configs))
        result = best_of_random(validation, accuracy, k)
        table.append({"trials": trials, "cells": len(configs), **result._asdict()})
        value = TransferEstimate(
            value=result.median,
            ci95=None,
            method=f"median over all sets of {k} cells",
            n_groups=n_groups,
            reason="the range of 90 % of the searches is in random_search.csv",
        )
        mean = best_of_random(validation, of_classes, k).median
        lines.append(TransferRow(name=f"best of {trials}", accuracy=value, mean_class_accuracy=mean))
    return Search(rows, lines, pd.DataFrame(table))


def cell_config(config: TransferConfig, overrides: Settings) -> PretrainConfig:
    """Return the configuration of the training of one cell.

    Raises:
        UsvitError: A setting is unknown or out of range, or must be the same in all cells: they start from the same
            network and are trained on the same images.
    """
    model = overrides.get("model", {})
    fixed = [key for key in _FIXED if key in overrides] + [f"model.{key}" for key in _FIXED_MODEL if key in model]
    if fixed:
        raise UsvitError(
            f"A cell of the sweep sets {fixed[0]}, which must be the same for all cells: set it outside the sweep."
        )
    return _built(config, overrides)


def _built(config: TransferConfig, overrides: Settings) -> PretrainConfig:
    own = set(TransferConfig.model_fields) - set(PretrainConfig.model_fields)
    return build(PretrainConfig, config.model_dump(mode="json", exclude=own), overrides)


def choose(accuracy: list[float | None], names: list[str]) -> str:
    """Return the cell with the best validation accuracy (the first of equal ones), or the only cell.

    Raises:
        UsvitError: No cell has a validation accuracy.
    """
    if len(names) == 1:
        return names[0]
    known = {name: value for name, value in zip(names, accuracy, strict=True) if value is not None}
    if not known:
        raise UsvitError(
            "No cell of the sweep has a validation accuracy: all diverged. Lower the learning rates (optim.lr), or set "
            "optim.clip_norm=1."
        )
    return max(known, key=lambda name: known[name])


def _whole_network(setup: TransferSetup, config: PretrainConfig, folder: Path) -> nn.Module:
    """Load the trained network with its head on the CPU."""
    with torch.random.fork_rng(devices=[]):
        model = build_model(
            setup.spec, Weights("scratch"), n_classes=len(setup.splits.classes), image_size=config.model.image_size
        )
        if config.model.head == "mlp":
            give_mlp_head(model)
    model.load_state_dict(read_state_dict(folder / "model.safetensors"))
    return model


def _remember_validation(setup: TransferSetup, folder: Path, progress: Progress) -> None:
    """Add the validation images to the images that the network has seen: they chose its cell or its step."""
    val = setup.splits.val
    hashes = None if val is None or not setup.config.source.hashes else val.hashes(progress)
    if val is None or not hashes:
        return
    metadata = load_record(folder / "model.json", ModelMetadata)
    written = write_seen(folder, {"val": hashes}, described=val.descriptions(progress), name=val.source.name)
    told, more = metadata.seen_sha256, written.seen_sha256
    files = [*(one for one in told.files or [] if one.part != "val"), *(more.files or [])]
    copies = metadata.seen_copies
    changes = {
        "seen_sha256": told.model_copy(update={"val": more.val, "files": files or None}),
        "seen_copies": SeenCopies(
            files=[*(one for one in copies.files if one.part != "val"), *written.seen_copies.files],
            gaps=[*(one for one in copies.gaps if one.part != "val"), *written.seen_copies.gaps],
        ),
    }
    save_record(folder / "model.json", metadata.model_copy(update=changes))


def forget_networks(folder: Path) -> None:
    """Delete the networks of the cells of a finished run; the tested network is in ``fold-0``."""
    for file in [*folder.glob("cells/*/fold-0/model.safetensors"), *folder.glob("final/fold-0/model.safetensors")]:
        file.unlink()
