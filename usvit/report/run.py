"""What a report is made from: the files of one run directory, read and checked against each other."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from usvit.errors import UsvitError
from usvit.files import read_json
from usvit.metrics.predictions import classes_of, first_repeat, read_predictions
from usvit.metrics.upstream import refuse_upstream

_NEEDED = {"positive_class", "classes", "n_images", "n_groups", "class_counts"}
_NEEDED |= {"pooled", "folds", "mean_sd", "confusion"}

_NEEDS_RUN = "A report is made from the directory of a finished run."


@dataclass(frozen=True)
class Run:
    """One run, as its files tell it."""

    record: dict[str, Any]
    """run.json."""
    metrics: dict[str, Any]
    """metrics.json."""
    test: pd.DataFrame
    """The rows of predictions.csv of part test, each image once: of the first repeat where there are several."""
    predicted: pd.DataFrame
    """The rows of predictions.csv of part test, of all repeats."""
    parts: dict[int, dict[str, int]]
    """Fold -> part -> images, from folds.csv; empty where the file is absent."""
    histories: dict[int, pd.DataFrame]
    """Fold -> its history.csv, one row a record; folds without the file are left out."""
    folds: pd.DataFrame | None = None
    """folds.csv: dataset, image_id, fold, part; None where the file, or a column, is absent."""
    manifest: pd.DataFrame | None = None
    """manifest.parquet; None where the file is absent."""
    passports: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Fold -> its model.json; folds without the file are left out."""
    folder: Path = Path()

    @property
    def n_repeats(self) -> int:
        """Complete cross-validations; 1 for a hold-out."""
        return int(self.predicted["repeat"].nunique()) if "repeat" in self.predicted else 1

    @property
    def design(self) -> str:
        """``5-fold cross-validation``, ``5-fold cross-validation, 3 repeats`` or ``hold-out``."""
        if self.record.get("kind") == "train":
            return "hold-out"
        n_folds = len(self.metrics["folds"]) // self.n_repeats
        return f"{n_folds}-fold cross-validation" + (f", {self.n_repeats} repeats" if self.n_repeats > 1 else "")


def read_run(run_dir: Path) -> Run:
    """Read a run directory.

    run.json, metrics.json and predictions.csv must be there; all else may be absent.

    Raises:
        UsvitError: a needed file is absent or damaged, or predictions.csv and metrics.json tell of
            different classes or numbers of images.
    """
    if (run_dir / "run.json").is_file():
        refuse_upstream(run_dir, read_json(run_dir / "run.json"), "A report")
    metrics = read_json(run_dir / "metrics.json", _NEEDS_RUN)
    version = str(metrics.get("schema_version", "absent"))
    if version.partition(".")[0] != "1":
        raise UsvitError(f"{run_dir / 'metrics.json'}: schema_version is {version}; this usvit reads version 1.")
    missing = sorted(_NEEDED - metrics.keys())
    if missing:
        raise UsvitError(
            f"{run_dir / 'metrics.json'}: no key {', '.join(missing)} (docs/reference/metrics.schema.json)."
        )
    table = read_predictions(run_dir / "predictions.csv")
    predicted = table[table["part"] == "test"]
    test = first_repeat(predicted)
    if len(test) != metrics["n_images"] or sorted(classes_of(test)) != sorted(metrics["classes"]):
        raise UsvitError(
            f"In {run_dir}, metrics.json ({metrics['n_images']} images; {', '.join(metrics['classes'])}) was not made "
            f"from predictions.csv ({len(test)} images of part test; {', '.join(classes_of(test))})."
        )
    histories, passports = {}, {}
    for one in metrics["folds"]:
        folder = run_dir / f"fold-{one['fold']}"
        if (folder / "history.csv").is_file():
            histories[one["fold"]] = read_csv(folder / "history.csv", ["step"])
        if (folder / "model.json").is_file():
            passports[one["fold"]] = read_json(folder / "model.json", _NEEDS_RUN)
    folds = _read_folds(run_dir / "folds.csv")
    keyed = folds if folds is not None and {"dataset", "image_id"} <= {*folds.columns} else None
    return Run(
        record=read_json(run_dir / "run.json", _NEEDS_RUN),
        metrics=metrics,
        test=test,
        predicted=predicted,
        parts={} if folds is None else _sizes(folds),
        histories=histories,
        folds=keyed,
        manifest=_read_manifest(run_dir / "manifest.parquet"),
        passports=passports,
        folder=run_dir,
    )


def _read_folds(path: Path) -> pd.DataFrame | None:
    if not path.is_file():
        return None
    folds = read_csv(path, ["fold", "part"], text=("dataset", "image_id", "part"))
    numbers = pd.to_numeric(folds["fold"], errors="coerce")
    if (numbers.isna() | (numbers % 1 != 0)).any():
        raise UsvitError(f"{path}: column 'fold' must hold whole numbers.")
    return folds.assign(fold=numbers.astype(int))


def _sizes(folds: pd.DataFrame) -> dict[int, dict[str, int]]:
    sizes: dict[int, dict[str, int]] = defaultdict(Counter)
    for fold, part in zip(folds["fold"], folds["part"], strict=True):
        sizes[int(fold)][part] += 1
    return dict(sizes)


def _read_manifest(path: Path) -> pd.DataFrame | None:
    if not path.is_file():
        return None
    try:
        table = pd.read_parquet(path)
    except (OSError, ValueError) as error:  # pyarrow's own errors are ValueErrors
        raise UsvitError(f"Cannot read {path} as a Parquet table: {' '.join(str(error).split())}.") from error
    missing = [name for name in ("image_id", "dataset", "group_id") if name not in table]
    if missing:
        raise UsvitError(f"{path}: no column {', '.join(missing)}.")
    return table


def read_csv(path: Path, needed: list[str], text: tuple[str, ...] = ()) -> pd.DataFrame:
    """A table of a run, some of its columns as text.

    Raises:
        UsvitError: it is damaged, or a needed column is absent.
    """
    try:
        table = pd.read_csv(path, dtype=dict.fromkeys(text, str), keep_default_na=not text)
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise UsvitError(f"Cannot read {path} as a CSV table: {' '.join(str(error).split())}.") from error
    missing = [name for name in needed if name not in table]
    if missing:
        raise UsvitError(f"{path}: no column {', '.join(missing)}.")
    return table
