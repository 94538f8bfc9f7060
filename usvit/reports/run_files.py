"""The files of one run directory, read and checked against each other, as the source of a report."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from usvit.errors import UsvitError
from usvit.evaluation import RECORD as ENSEMBLE
from usvit.evaluation import (
    classes_of,
    first_repeat,
    read_predictions,
    refuse_other_figures,
    refuse_other_pool,
    refuse_upstream,
    settings_of,
    units_of,
    with_unit_columns,
)
from usvit.files import read_csv, read_parquet, refuse_linked_folders
from usvit.records import EnsembleRecord, MetricsRecord, ModelMetadata, RunRecord, load_record, refuse_changed_run
from usvit.records.run import MAX_FOLDS, Evaluation

_NEEDS_RUN = "A report is made from the directory of a finished run, or from a folder of 'usvit evaluate --out'."


@dataclass(frozen=True)
class Run:
    """The content of the files of one run."""

    record: RunRecord
    metrics: MetricsRecord
    test: pd.DataFrame
    """Test rows of predictions.csv, each image once: of the first repeat if there are several."""
    measured: pd.DataFrame
    """The rows of which the figures are: ``test``, or its units."""
    predicted: pd.DataFrame
    """Test rows of predictions.csv of all repeats."""
    parts: dict[int, dict[str, int]]
    """Fold -> split -> number of images, from folds.csv; empty if the file is absent."""
    histories: dict[int, pd.DataFrame]
    """Fold -> history.csv, one row per record; folds without the file are left out."""
    folds: pd.DataFrame | None = None
    """folds.csv: dataset, image_id, fold, part; None if the file or a column is absent."""
    manifest: pd.DataFrame | None = None
    """manifest.parquet; None if the file is absent."""
    metadata: dict[int, ModelMetadata] = field(default_factory=dict)
    """Fold -> model.json; folds without the file are left out."""
    folder: Path = Path()
    networks: tuple[tuple[int, ModelMetadata, Path], ...] = ()
    """Fold, model.json and folder of each network; a fold of an ensemble has one for each member."""

    @property
    def n_repeats(self) -> int:
        """Number of complete cross-validations; 1 for a hold-out."""
        return int(self.predicted["repeat"].nunique()) if "repeat" in self.predicted else 1

    @property
    def members(self) -> list[str]:
        """Names of the runs whose networks an ensemble averages; empty for other runs."""
        ensemble = self.record.config.as_written().get("ensemble")
        names = ensemble.get("members") if isinstance(ensemble, dict) else None
        return [str(name) for name in names] if isinstance(names, list) else []

    @property
    def evaluated(self) -> Evaluation | None:
        """What was evaluated, if this is an evaluation and not a run that trained a network."""
        return self.record.evaluation

    @property
    def cross_validated(self) -> bool:
        """False for a hold-out, for an ensemble of hold-outs, and for a table or test of a single set."""
        return self.record.kind != "train" and (
            self.record.kind not in ("ensemble", "evaluation") or len(self.metrics.folds) > 1
        )

    @property
    def tested_set(self) -> str:
        """The images that a single set of figures is about: ``hold-out``, ``external test`` or ``test set``."""
        if self.evaluated is None:
            return "hold-out"
        return "external test" if self.metrics.external else "test set"

    @property
    def design(self) -> str:
        """``5-fold cross-validation``, ``5-fold cross-validation, 3 repeats``, or ``tested_set``."""
        if not self.cross_validated:
            return self.tested_set
        n_folds = len(self.metrics.folds) // self.n_repeats
        return f"{n_folds}-fold cross-validation" + (f", {self.n_repeats} repeats" if self.n_repeats > 1 else "")


def read_run(run_dir: Path) -> Run:
    """Read a run directory.

    run.json, metrics.json and predictions.csv are required; all other files are optional.

    Raises:
        UsvitError: a required file is absent or damaged, or predictions.csv and metrics.json have different classes or
            numbers of images.
    """
    refuse_linked_folders(run_dir)
    _refuse_other_things(run_dir)
    record = load_record(run_dir / "run.json", RunRecord, _NEEDS_RUN)
    refuse_upstream(run_dir, record, "A report")
    metrics = load_record(run_dir / "metrics.json", MetricsRecord, _NEEDS_RUN)
    table = read_predictions(run_dir / "predictions.csv")
    predicted = table[table["part"] == "test"]
    test = first_repeat(predicted)
    refuse_changed_run(run_dir, record)
    manifest = read_manifest(run_dir / "manifest.parquet")
    measured = predicted
    if metrics.unit is not None and not metrics.external:  # an external test writes the units themselves
        measured = units_of(with_unit_columns(predicted, manifest), settings_of(metrics.unit), metrics.positive_class)[
            0
        ]
    if len(first_repeat(measured)) != metrics.n_images or sorted(classes_of(test)) != sorted(metrics.classes):
        raise UsvitError(
            f"In {run_dir}, metrics.json ({metrics.n_images} {metrics.row}s; {', '.join(metrics.classes)}) was not "
            f"made from predictions.csv ({len(first_repeat(measured))} {metrics.row}s of part test; "
            f"{', '.join(classes_of(test))})."
        )
    refuse_other_figures(metrics, measured, run_dir / "metrics.json")
    refuse_other_pool(run_dir, predicted)
    histories: dict[int, pd.DataFrame] = {}
    metadata: dict[int, ModelMetadata] = {}
    for one in metrics.folds:
        folder = run_dir / f"fold-{one.fold}"
        if (folder / "history.csv").is_file():
            histories[one.fold] = read_csv(folder / "history.csv", text=False, needed=["step"])
    networks = _networks(run_dir, record, [one.fold for one in metrics.folds])
    for fold, own, _ in reversed(networks):
        metadata[fold] = own  # the first one of a fold
    folds = read_folds(run_dir / "folds.csv")
    keyed = folds if folds is not None and {"dataset", "image_id"} <= {*folds.columns} else None
    return Run(
        record=record,
        metrics=metrics,
        test=test,
        measured=first_repeat(measured),
        predicted=predicted,
        parts={} if folds is None else _sizes(folds),
        histories=histories,
        folds=keyed,
        manifest=manifest,
        metadata=metadata,
        folder=run_dir,
        networks=tuple(networks),
    )


def _refuse_other_things(path: Path) -> None:
    """Refuse a table of predictions and a scored set, which have no figures yet."""
    out = "--out FOLDER writes the report and everything else into FOLDER"
    if path.is_file():
        raise UsvitError(f"{path} is a file, and a report is made from a folder. 'usvit evaluate {path}' {out}.")
    if not (path / "run.json").exists() and any((path / name).is_file() for name in ("scores.parquet", "scores.csv")):
        raise UsvitError(
            f"{path} is a scored set, whose page is scores.html. With the labels of its images it becomes an external "
            f"test: 'usvit evaluate {path} --labels FILE' {out}."
        )


def _networks(run: Path, record: RunRecord, folds: list[int]) -> list[tuple[int, ModelMetadata, Path]]:
    """Return fold, model.json and folder of each network whose metadata was kept."""
    runs = [run]
    if record.kind == "ensemble":
        runs = [run / member.path for member in load_record(run / ENSEMBLE, EnsembleRecord).members]
    folders = [(fold, own / f"fold-{fold}") for fold in folds for own in runs]
    return [
        (fold, load_record(folder / "model.json", ModelMetadata), folder)
        for fold, folder in folders
        if (folder / "model.json").is_file()
    ]


def read_folds(path: Path) -> pd.DataFrame | None:
    """Read the splits of a run; None if the file is absent."""
    if not path.exists():
        return None
    folds = read_csv(path, text=("dataset", "image_id", "part"), needed=["fold", "part"])
    numbers = pd.to_numeric(folds["fold"], errors="coerce")
    if (numbers.isna() | (numbers % 1 != 0) | (numbers.abs() > MAX_FOLDS)).any():
        raise UsvitError(f"{path}: column 'fold' must hold whole numbers.")
    return folds.assign(fold=numbers.astype(int))


def _sizes(folds: pd.DataFrame) -> dict[int, dict[str, int]]:
    sizes: dict[int, dict[str, int]] = defaultdict(Counter)
    for fold, part in zip(folds["fold"], folds["part"], strict=True):
        sizes[int(fold)][part] += 1
    return dict(sizes)


def read_manifest(path: Path) -> pd.DataFrame | None:
    """Read the images of a run; None if the file is absent."""
    if not path.exists():
        return None
    return read_parquet(path, needed=("image_id", "dataset", "group_id"))
