"""What a report is made from: the files of one run directory, read and checked against each other."""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from usvit.errors import UsvitError
from usvit.metrics.predictions import classes_of, read_predictions

_NEEDED = {"positive_class", "classes", "n_images", "n_groups", "class_counts"}
_NEEDED |= {"pooled", "folds", "mean_sd", "confusion"}


@dataclass(frozen=True)
class Run:
    """One run, as its files tell it."""

    record: dict[str, Any]
    """run.json."""
    metrics: dict[str, Any]
    """metrics.json."""
    test: pd.DataFrame
    """The rows of predictions.csv of part test."""
    parts: dict[int, dict[str, int]]
    """Fold -> part -> images, from folds.csv; empty where the file is absent."""
    histories: dict[int, pd.DataFrame]
    """Fold -> its history.csv, one row a record; folds without the file are left out."""


def read_run(run_dir: Path) -> Run:
    """Read a run directory.

    run.json, metrics.json and predictions.csv must be there; folds.csv and the histories may be absent.

    Raises:
        UsvitError: a needed file is absent or damaged, or predictions.csv and metrics.json tell of
            different classes or numbers of images.
    """
    metrics = _read_json(run_dir / "metrics.json")
    version = str(metrics.get("schema_version", "absent"))
    if version.partition(".")[0] != "1":
        raise UsvitError(f"{run_dir / 'metrics.json'}: schema_version is {version}; this usvit reads version 1.")
    missing = sorted(_NEEDED - metrics.keys())
    if missing:
        raise UsvitError(
            f"{run_dir / 'metrics.json'}: no key {', '.join(missing)} (docs/reference/metrics.schema.json)."
        )
    table = read_predictions(run_dir / "predictions.csv")
    test = table[table["part"] == "test"]
    if len(test) != metrics["n_images"] or sorted(classes_of(test)) != sorted(metrics["classes"]):
        raise UsvitError(
            f"In {run_dir}, metrics.json ({metrics['n_images']} images; {', '.join(metrics['classes'])}) was not made "
            f"from predictions.csv ({len(test)} images of part test; {', '.join(classes_of(test))})."
        )
    histories = {}
    for one in metrics["folds"]:
        path = run_dir / f"fold-{one['fold']}" / "history.csv"
        if path.is_file():
            histories[one["fold"]] = _read_csv(path, ["step"])
    return Run(_read_json(run_dir / "run.json"), metrics, test, _read_parts(run_dir / "folds.csv"), histories)


def _read_parts(path: Path) -> dict[int, dict[str, int]]:
    if not path.is_file():
        return {}
    folds = _read_csv(path, ["fold", "part"])
    sizes: dict[int, dict[str, int]] = defaultdict(Counter)
    for fold, part in zip(folds["fold"], folds["part"], strict=True):
        sizes[int(fold)][part] += 1
    return dict(sizes)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise UsvitError(f"There is no {path}. A report is made from the directory of a finished run.") from error
    except (OSError, ValueError) as error:
        raise UsvitError(f"Cannot read {path}: {error}.") from error
    if not isinstance(value, dict):
        raise UsvitError(f"Cannot read {path}: expected a JSON object.")
    return value


def _read_csv(path: Path, needed: list[str]) -> pd.DataFrame:
    try:
        table = pd.read_csv(path)
    except (OSError, ValueError) as error:  # pandas' own errors are ValueErrors
        raise UsvitError(f"Cannot read {path} as a CSV table: {' '.join(str(error).split())}.") from error
    missing = [name for name in needed if name not in table]
    if missing:
        raise UsvitError(f"{path}: no column {', '.join(missing)}.")
    return table
