"""The page of a run of ``usvit pretrain`` or ``usvit transfer``."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from usvit.data.splits import seen_by, together, unrecorded
from usvit.documents import Plot
from usvit.files import write_text
from usvit.records import ModelMetadata, PretrainRecord, RunRecord, TransferRecord, fitting, load_record
from usvit.reports.content import best_steps, config_text
from usvit.reports.energy import Energy, energy_estimate
from usvit.reports.figures import loss_curves
from usvit.reports.figures_transfer import tried_plot
from usvit.reports.run_files import read_csv
from usvit.reports.templating import environment

_NOT_FIGURES = {"fold", "step", "epoch", "lr", "images_per_second"}


@dataclass(frozen=True)
class UpstreamContent:
    """Content of the page in addition to ``run.json`` and the figures of the run."""

    losses: dict[int, Plot]
    training_seconds: float | None
    energy: Energy
    config: str | None
    lineage: tuple[str, ...]
    """Earlier training of the initial weights, oldest stage first."""
    n_seen: int
    """Number of pixel hashes on record, over all folds."""
    unrecorded: str | None
    columns: tuple[str, ...] = ()
    """Pre-training only: the figures that its folds have."""
    left_out: int = 0
    """Pre-training only: images excluded as near-duplicates of a data set's images, over all folds."""
    tried: Plot | None = None
    """Transfer only: validation accuracy of the settings that were tried."""
    cells: tuple[tuple[str, float | None, bool], ...] = ()
    """Fine-tuning over a sweep only: name, validation accuracy and choice of each cell."""


def report_upstream(run_dir: Path) -> None:
    """Call ``write_upstream_report`` unless the page exists."""
    if not (run_dir / "report.html").is_file():
        write_upstream_report(run_dir)


def write_upstream_report(run_dir: Path) -> Path:
    """Write ``report.html`` into the directory of a finished pre-training or transfer.

    One file without script or network access. The same files give the same bytes.

    Returns:
        The path of the page.

    Raises:
        UsvitError: a needed file is absent or damaged, or the page cannot be written.
    """
    record = load_record(run_dir / "run.json", RunRecord)
    result: PretrainRecord | TransferRecord
    if record.kind == "pretrain":
        result = load_record(run_dir / "pretrain.json", PretrainRecord)
    else:
        result = load_record(run_dir / "transfer.json", TransferRecord)
    with fitting(run_dir):
        values = {
            "c": _content(run_dir, record, result),
            "run": record,
            "result": result,
            "title": record.name or run_dir.resolve().name,
            "results": {one.fold: one for one in record.results if one.steps is not None},
            "cross_validated": record.folds is not None and (record.folds.n or 1) > 1,
        }
        page = environment().get_template("upstream.html.j2").render(values)
    path = run_dir / "report.html"
    write_text(path, page)
    return path


def _content(run_dir: Path, record: RunRecord, result: PretrainRecord | TransferRecord) -> UpstreamContent:
    folds = sorted(run_dir.glob("fold-*/"), key=lambda folder: int(folder.name.removeprefix("fold-")))
    histories = {
        int(folder.name.removeprefix("fold-")): read_csv(folder / "history.csv", text=False, needed=["step"])
        for folder in folds
        if (folder / "history.csv").is_file()
    }
    metadata = [
        (load_record(folder / "model.json", ModelMetadata), folder)
        for folder in folds
        if (folder / "model.json").is_file()
    ]
    seen = together(seen_by(metadata, folder) for metadata, folder in metadata)
    weights = metadata[0][0].upstream if metadata else None
    return UpstreamContent(
        losses=loss_curves(histories, best_steps(record)),
        training_seconds=record.training_seconds,
        energy=energy_estimate(record),
        config=config_text(record),
        lineage=tuple(_stages((weights and weights.lineage) or [])),
        n_seen=len(seen),
        unrecorded=unrecorded(seen, "The network"),
        **(_of_pretraining(folds, result) if isinstance(result, PretrainRecord) else _of_transfer(run_dir)),
    )


def _of_pretraining(folds: list[Path], result: PretrainRecord) -> dict[str, Any]:
    known = [name for row in result.kept for name, value in row if value is not None]
    copies = [path for folder in folds for path in sorted(folder.glob("excluded*.csv"))]
    return {
        "columns": tuple(name for name in dict.fromkeys(known) if name not in _NOT_FIGURES),
        "left_out": sum(
            read_csv(path, text=False, needed=["upstream_index"])["upstream_index"].nunique() for path in copies
        ),
    }


def _of_transfer(run_dir: Path) -> dict[str, Any]:
    table = read_csv(
        run_dir / "results.csv", text=False, needed=["how", "cell", "k", "l2", "part", "accuracy", "chosen"]
    )
    cells = table[(table["part"] != "test") & table["cell"].notna()]
    listed = zip(cells["cell"].astype(str), cells["accuracy"], cells["chosen"].astype(bool), strict=True)
    return {
        "tried": tried_plot(table),
        "cells": tuple((name, None if pd.isna(value) else float(value), chosen) for name, value, chosen in listed),
    }


def _stages(lineage: list[dict[str, Any]]) -> Iterator[str]:
    for one in lineage:
        source = one.get("source") or {}
        images = f" ({source['images']:,} images)" if "images" in source else ""
        yield (
            f"{one.get('stage', 'training')}: {one.get('objective') or 'supervised'}, recipe {one.get('recipe')}, "
            f"{one.get('steps', 0):,} steps on {source.get('name', 'images that are not recorded')}{images}"
        )
