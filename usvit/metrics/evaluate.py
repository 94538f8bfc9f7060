"""All figures from a run directory or from any table of predictions, checked for images that the network had seen."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd

from usvit.data.manifest_file import descriptions_of
from usvit.data.seen import refuse_seen, seen_by
from usvit.data.seen_copies import described_among
from usvit.errors import UsvitError, unknown
from usvit.files import read_csv, read_parquet, refuse_linked_folders, write_csv, write_json
from usvit.metrics.predictions import check_complete, classes_of, read_predictions
from usvit.metrics.prevalence import check_prevalence
from usvit.metrics.sections import NO_PATIENT_ID, SUBGROUP_COLUMNS
from usvit.metrics.summary import summarise
from usvit.metrics.tables import Columns, as_predictions, positive_of, read_raw, with_columns
from usvit.metrics.upstream import refuse_upstream
from usvit.records import ModelRecord, fitting, read_record, read_run_record, refuse_changed_run

KEY = ["dataset", "image_id"]
USUAL_COLUMNS = Columns()
FILES = {"metrics.json", "predictions.csv", "unmatched.csv"}


@dataclass(frozen=True)
class Predictions:
    """Predictions with what is known of them."""

    name: str
    """Of the run's folder, or the table's file."""
    table: pd.DataFrame
    """A predictions table; rows of part val, too, where there are any."""
    classes: list[str]
    positive: str
    columns: pd.DataFrame | None = None
    """The manifest: one row an image."""
    record: dict[str, Any] | None = None
    """run.json, of a run or of the run that the table lies in."""
    test_over_train: float | None = None
    """Mean over folds of test images / training images; None where it is not known."""
    warnings: list[str] = field(default_factory=list)


def evaluate(
    path: Path,
    *,
    columns: Columns = USUAL_COLUMNS,
    positive: str | None = None,
    manifest: Path | None = None,
    passport: Path | None = None,
    by: Mapping[str, Sequence[float] | None] | None = None,
    prevalence: float | None = None,
    out: Path | None = None,
) -> tuple[dict[str, Any], Predictions]:
    """Every figure of metrics.json from a run directory, or from any CSV or Parquet table of predictions.

    Args:
        path: the run, or the table.
        columns, positive, manifest, passport: as ``open_predictions``.
        by: columns that make subgroups, each with limits that cut it or None, beside those looked at anyway.
        prevalence: a share of positives at which PPV and NPV are wanted, in (0, 1).
        out: a folder to write metrics.json and the predictions table, as it was understood, into.

    Returns:
        The content of metrics.json, and what it was made from.

    Raises:
        UsvitError: as ``open_predictions`` and ``summarise``; ``out`` holds something else.
        LeakageError: the network has seen an image of the test.
    """
    if prevalence is not None:
        check_prevalence(prevalence)
    if out is not None:
        refuse_occupied(out)
    with fitting(path):
        found = open_predictions(path, columns=columns, positive=positive, manifest=manifest, passport=passport)
        metrics = measure(found, by, prevalence)
    if out is not None:
        write_csv(out / "predictions.csv", found.table)
        write_json(out / "metrics.json", metrics)
    return metrics, found


def measure(
    found: Predictions, by: Mapping[str, Sequence[float] | None] | None = None, prevalence: float | None = None
) -> dict[str, Any]:
    """The content of metrics.json; ``by`` and ``prevalence`` as in ``evaluate``."""
    metrics = summarise(
        found.table,
        classes=found.classes,
        positive=found.positive,
        columns=found.columns,
        by=None if not by else _all_columns(found, by),
        prevalence=prevalence,
    )
    # Without groups there are no patients either: that is said once.
    own = [one for one in metrics["warnings"] if not (found.warnings and one.startswith(NO_PATIENT_ID))]
    metrics["warnings"] = [*found.warnings, *own]
    return metrics


def open_predictions(
    path: Path,
    *,
    columns: Columns = USUAL_COLUMNS,
    positive: str | None = None,
    manifest: Path | None = None,
    passport: Path | None = None,
) -> Predictions:
    """A run's predictions of all folds, or any table's.

    Args:
        path: a run directory, whose fold tables are read; or a CSV or Parquet file.
        columns: which column of a table holds what (not of a run).
        positive: the positive class; the run's own, or 'malignant', by default.
        manifest: a Parquet file with more columns of the images (by dataset and image_id); a run's own
            by default, also for a table that lies in a run.
        passport: model.json of the network that made the table; a run's own by default.

    Raises:
        UsvitError: a file is absent or damaged; folds are missing or images predicted twice; columns,
            labels, classes or probabilities do not fit together.
        LeakageError: the passport of a network lists an image of its test, or of that image's group. Of a run
            that was split by image, as asked, this is not checked: it is known, and marked in its report.
    """
    run = _run_of(path)
    if path.is_dir():
        if run is None:
            raise UsvitError(f"{path} is no run directory: it has no run.json. Give a run, or a table of predictions.")
        if columns != USUAL_COLUMNS:
            raise UsvitError(f"{path} is a run, whose columns are known: leave out --label, --prob and the like.")
        found = _open_run(path)
        if positive is not None:
            found = replace(found, positive=positive_of(found.classes, positive))
    else:
        found = _open_table(path, run, columns, positive)
    if manifest is not None:
        found = _with_manifest(found, manifest, follow=True)
    elif run is not None and (run / "manifest.parquet").exists():
        found = _with_manifest(found, run / "manifest.parquet", follow=False)
    _refuse_seen(found, run, passport)
    return found


def _run_of(path: Path) -> Path | None:
    """The run directory that a path is, or lies in."""
    candidates = [path] if path.is_dir() else [path.absolute().parent, path.absolute().parent.parent]
    return next((folder for folder in candidates if (folder / "run.json").is_file()), None)


def _open_run(run: Path) -> Predictions:
    record = read_run_record(run)
    refuse_upstream(run, record, "An evaluation", but=("transfer",))
    refuse_linked_folders(run)
    refuse_changed_run(run, record)
    if record.get("kind") == "transfer" and not (run / "predictions.csv").is_file():
        raise UsvitError(
            f"{run} is a run of usvit transfer without predictions.csv: its transfer.json says why "
            "(predictions_missing); or it is not finished. Its figures are in results.csv."
        )
    try:
        n_folds, classes = int(record["folds"]["n"]), list(record["data"]["classes"])
        positive = record["data"]["positive_class"]
    except (KeyError, TypeError, ValueError) as error:
        raise UsvitError(f"{run / 'run.json'} is damaged: it names no folds, classes or positive class.") from error
    files = {fold: run / f"fold-{fold}" / "predictions.csv" for fold in range(n_folds)}
    missing = [str(fold) for fold, file in files.items() if not file.is_file()]
    if len(missing) == n_folds and (run / "predictions.csv").is_file():
        tables = [read_predictions(run / "predictions.csv")]  # a run of which only the result was kept
    elif missing:
        raise UsvitError(
            f"{run}: missing folds: {', '.join(missing)} (no fold-{missing[0]}/predictions.csv). "
            "Give the run's command again to finish it."
        )
    else:
        tables = [read_predictions(file) for file in files.values()]
    if any(sorted(classes_of(table)) != sorted(classes) for table in tables):
        raise UsvitError(f"{run}: run.json and the predictions name different classes.")
    table = pd.concat(tables, ignore_index=True)
    ratio = None
    if (run / "folds.csv").exists():
        folds = _folds(run)
        check_complete(table, folds[folds["part"] == "test"], n_folds)
        sizes = folds.groupby(["fold", "part"]).size().unstack(fill_value=0)
        if "train" in sizes and (sizes["train"] > 0).all():
            ratio = float((sizes["test"] / sizes["train"]).mean())
    return Predictions(run.absolute().name, table, classes, positive, record=record, test_over_train=ratio)


def _open_table(path: Path, run: Path | None, columns: Columns, positive: str | None) -> Predictions:
    record = None if run is None else read_run_record(run)
    if record is not None:
        positive = positive or (record.get("data") or {}).get("positive_class")
    table, said = as_predictions(read_raw(path), str(path), columns, positive, dataset=path.stem)
    if run is not None and path.absolute().parent == run and (run / "folds.csv").exists():
        folds = _folds(run)
        check_complete(table, folds[folds["part"] == "test"], folds["fold"].nunique())
    classes = classes_of(table)
    return Predictions(path.name, table, classes, positive_of(classes, positive), record=record, warnings=said)


def _folds(run: Path) -> pd.DataFrame:
    return read_csv(run / "folds.csv", text=KEY, needed=(*KEY, "fold", "part"))


def _with_manifest(found: Predictions, path: Path, *, follow: bool) -> Predictions:
    manifest = read_parquet(path, follow=follow, what="manifest")
    absent = [name for name in KEY if name not in manifest]
    if absent:
        raise UsvitError(f"The manifest {path} has no column {', '.join(absent)} to find its images by.")
    manifest = manifest.astype(dict.fromkeys(KEY, str))
    if "image_id" in manifest and manifest.duplicated(KEY).any():
        raise UsvitError(f"The manifest {path} holds an image twice; each needs one row.")
    known = set(zip(manifest["dataset"], manifest["image_id"], strict=True))
    test = found.table[found.table["part"] == "test"]
    lonely = [pair for pair in zip(test["dataset"], test["image_id"], strict=True) if pair not in known]
    if lonely:
        raise UsvitError(
            f"The manifest {path} does not hold {len(lonely)} of {len(test)} predicted images, such as "
            f"{'/'.join(lonely[0])}; dataset and image_id must be written alike."
        )
    return replace(found, columns=manifest)


def _refuse_seen(found: Predictions, run: Path | None, passport: Path | None) -> None:
    passports: dict[int | None, Path]  # by fold; None: of all images
    if passport is not None:
        if found.columns is None:
            raise UsvitError(f"--passport {passport} lists images by the hash of their pixels: give --manifest, too.")
        passports = {None: passport / "model.json" if passport.is_dir() else passport}
    elif run is None or ((found.record or {}).get("folds") or {}).get("unit") == "image":
        return
    else:
        passports = {fold: run / f"fold-{fold}" / "model.json" for fold in sorted(set(found.table["fold"].tolist()))}
    if found.columns is None or "sha256" not in found.columns:
        if passport is not None:
            raise UsvitError("The manifest has no column sha256, so that nothing can be looked up in the passport.")
        return
    test = found.table[found.table["part"] == "test"]
    tested = with_columns(test[[*KEY, "group_id", "fold"]], found.columns, {"sha256": "sha256"})
    described = descriptions_of(found.columns, Path("of the test images"))
    for fold, file in passports.items():
        if fold is not None and not file.is_file():
            continue  # a run whose weights were not kept
        seen = seen_by(read_record(file, ModelRecord, follow=fold is None), file.parent)
        own = tested if fold is None else tested[tested["fold"] == fold]
        copies = seen.copies_among(described_among(described, own["sha256"])[0])
        refuse_seen(own, seen, f"The network of {file.parent}", copies=copies)


def _all_columns(found: Predictions, by: Mapping[str, Sequence[float] | None]) -> dict[str, Sequence[float] | None]:
    """Those looked at anyway, where they divide the images, and those asked for."""
    there = found.table if found.columns is None else found.columns
    usual = {name: limits for name, limits in SUBGROUP_COLUMNS.items() if name in there and there[name].nunique() > 1}
    names = {*map(str, found.table.columns), *(map(str, there.columns))}
    for name in by:
        if name not in names:
            raise unknown("column", name, names)
    return {**usual, **by}


def refuse_occupied(out: Path) -> None:
    """UsvitError where a folder holds anything but ``FILES``."""
    if out.exists() and not (out.is_dir() and {one.name for one in out.iterdir()} <= FILES):
        raise UsvitError(f"{out} holds other files. Nothing was changed: choose another folder with --out.")
