"""All figures from a run directory or any table of predictions, after a check that no test image was trained on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pandas as pd

from usvit.config.evaluation import Columns, EvaluationSettings, PredictionSettings, UnitSettings
from usvit.config.fields import part
from usvit.config.keywords import takes_settings
from usvit.data.datasets import descriptions_of
from usvit.data.splits import (
    described_among,
    names_with_same_images,
    refuse_contaminated,
    refuse_seen,
    seen_by,
    together,
)
from usvit.errors import UsvitError, unknown
from usvit.evaluation.ensembles import RECORD as ENSEMBLE
from usvit.evaluation.evaluation_folder import refuse_occupied, write_evaluation
from usvit.evaluation.foreign_tables import as_predictions, positive_of, read_raw, with_columns
from usvit.evaluation.headline_words import ONE_MODEL, PredictionOrigin
from usvit.evaluation.metrics_record import IMAGES, summarise, with_contamination
from usvit.evaluation.metrics_sections import NO_PATIENT_ID, SUBGROUP_COLUMNS
from usvit.evaluation.predictions import check_complete, classes_of, read_predictions
from usvit.evaluation.run_checks import refuse_upstream
from usvit.evaluation.units import units_of, with_unit_columns
from usvit.files import read_csv, read_parquet, refuse_linked_folders
from usvit.records import (
    ContaminationRecord,
    EnsembleRecord,
    Evaluation,
    MetricsRecord,
    ModelMetadata,
    RunRecord,
    UnitRecord,
    fitting,
    load_record,
    refuse_changed_run,
)

KEY = ["dataset", "image_id"]
USUAL_COLUMNS: Columns = Columns()


@dataclass(frozen=True)
class Predictions:
    """Predictions and the information that belongs to them."""

    name: str
    """Name of the run's folder or of the table's file."""
    table: pd.DataFrame
    """A predictions table, including rows of split val if there are any."""
    classes: list[str]
    positive: str
    columns: pd.DataFrame | None = None
    """The manifest: one row per image."""
    record: RunRecord | None = None
    """run.json of the run, or of the run that contains the table."""
    test_over_train: float | None = None
    """Mean over folds of test images / training images; None if it is not known."""
    warnings: list[str] = field(default_factory=list)
    contamination: tuple[ContaminationRecord, ...] = ()
    """Tested data sets that a foundation model behind the network was pre-trained on, which the user allowed."""
    unit: UnitRecord | None = None
    """What a row is; None for an image."""
    origin: PredictionOrigin = ONE_MODEL
    """What gave the predictions, for the text of the headline."""

    @property
    def split_by_image(self) -> bool:
        """True if the run's splits are disjoint by image only, as requested, so that they leak."""
        return self.record is not None and self.record.folds is not None and self.record.folds.unit == "image"


@takes_settings
def evaluate(
    predictions: str | Path,
    settings: EvaluationSettings,
    *,
    columns: Columns = USUAL_COLUMNS,
    out: str | Path | None = None,
    command: str = "",
) -> MetricsRecord:
    """Compute every figure of metrics.json from a run directory or from any table of predictions.

    Args:
        predictions: a run directory, or a CSV or Parquet table of any tool.
        settings: see ``EvaluationSettings``.
        columns: which column of the table holds what; a run's columns are known.
        out: folder to write metrics.json, predictions.csv (the table as it was understood) and run.json into, from
            which ``usvit.report`` makes the page; None writes none.
        command: what the user called, for run.json.

    Returns:
        The content of metrics.json (docs/reference/metrics.schema.json).

    Raises:
        UsvitError: as ``open_predictions`` and ``summarise``; ``predictions`` is a scored set; ``out`` holds other
            files.
        LeakageError: the network was trained on an image of the test, or, by a published list, on its data set.

    Example:
        >>> import usvit
        >>> metrics = usvit.evaluate("runs/small")
        >>> metrics.positive_class, metrics.headline.auc.n_groups > 10
        ('malignant', True)
    """
    path, out = Path(predictions), None if out is None else Path(out)
    if any((path / name).is_file() for name in ("scores.parquet", "scores.csv")):
        raise UsvitError(f"{path} is a scored set: give the labels of its images with --labels FILE.")
    if out is not None:
        refuse_occupied(out)
    with fitting(path):
        found = open_predictions(path, settings=settings, columns=columns)
        units = units_to_use(found, part(settings, UnitSettings))
        if not units.of_images:  # the written table names the units
            found = replace(found, table=with_unit_columns(found.table, found.columns))
        metrics = measure(found, settings.by, settings.prevalence, units)
    if out is not None:
        named = {key: value for key, value in columns if value}
        files = {"predictions": path / "predictions.csv" if path.is_dir() else path}
        files |= {} if settings.manifest is None else {"manifest": settings.manifest}
        evaluated = Evaluation(
            of="run" if path.is_dir() else "table",
            source=found.name,
            columns={key: value if isinstance(value, str) else ", ".join(value) for key, value in named.items()},
            warnings=found.warnings,
        )
        write_evaluation(out, metrics, found.table, evaluated, files, command=command)
    return metrics


def measure(
    found: Predictions,
    by: Mapping[str, Sequence[float] | None] | None = None,
    prevalence: float | None = None,
    units: UnitSettings = IMAGES,
) -> MetricsRecord:
    """Compute every figure; ``by``, ``prevalence`` and ``units`` as in ``evaluate``."""
    metrics = summarise(
        found.table,
        classes=found.classes,
        positive=found.positive,
        columns=found.columns,
        by=None if not by else _all_columns(found, by),
        prevalence=prevalence,
        origin=found.origin,
        units=units,
    )
    # Without groups there are no patients either; the table's own warning already says so.
    own = [one for one in metrics.warnings if not (found.warnings and one.startswith(NO_PATIENT_ID))]
    said = metrics.model_copy(update={"warnings": [*found.warnings, *own]})
    return with_contamination(said, found.contamination)


def units_to_use(found: Predictions, settings: UnitSettings) -> UnitSettings:
    """Return the settings of the unit: those that were given, else those of the run, or the level of its labels."""
    if found.record is None or settings.unit is not None:
        return settings
    own = UnitSettings.model_validate(found.record.config.as_written().get("units") or settings)
    return own.at(None if found.split_by_image else found.record.data.label_level)


def at_units(found: Predictions, settings: UnitSettings) -> Predictions:
    """Return the predictions of units, for what is computed from one row per image; unchanged for images.

    Raises:
        UsvitError: as ``units_of``.
    """
    if settings.of_images:
        return found
    table, unit = units_of(with_unit_columns(found.table, found.columns, *SUBGROUP_COLUMNS), settings, found.positive)
    said = [*found.warnings, *([f"{found.name}: left out {unit.reason}."] if unit.reason else [])]
    return replace(found, table=table, columns=None, warnings=said, unit=unit)


@takes_settings
def open_predictions(path: Path, settings: PredictionSettings, *, columns: Columns = USUAL_COLUMNS) -> Predictions:
    """Read the predictions of all folds of a run, or any table of predictions.

    Args:
        path: a run directory, whose fold tables are read; or a CSV or Parquet file.
        settings: see ``PredictionSettings``.
        columns: which column of the table holds what; not for a run.

    Raises:
        UsvitError: a file is missing or damaged; folds are missing or images predicted twice; columns,
            labels, classes or probabilities do not fit together.
        LeakageError: the metadata of a network lists an image of its test set, or an image of the same group. This is
            not checked for a run that was split by image on request; its report is marked.
    """
    run = run_of(path)
    if path.is_dir():
        if run is None:
            raise UsvitError(
                f"{path} is not a run directory: it has no run.json. Give a run, or a table of predictions."
            )
        if columns != USUAL_COLUMNS:
            raise UsvitError(f"{path} is a run, whose columns are known: leave out --label, --prob and the like.")
        found = _open_run(path)
        if settings.positive is not None:
            found = replace(found, positive=positive_of(found.classes, settings.positive))
    else:
        found = _open_table(path, run, columns, settings.positive, settings.manifest)
    if settings.manifest is not None:
        found = _with_manifest(found, settings.manifest, follow=True)
    elif run is not None and (run / "manifest.parquet").exists():
        found = _with_manifest(found, run / "manifest.parquet", follow=False)
    files = _metadata_files(found, run, settings.metadata)
    found = replace(found, contamination=_contamination(found, files, settings.allow_contaminated))
    _refuse_seen(found, files, settings.metadata)
    return found


def run_of(path: Path) -> Path | None:
    """Return the run directory that is, or contains, a path."""
    candidates = [path] if path.is_dir() else [path.absolute().parent, path.absolute().parent.parent]
    return next((folder for folder in candidates if (folder / "run.json").is_file()), None)


def _open_run(run: Path) -> Predictions:
    record = load_record(run / "run.json", RunRecord)
    refuse_upstream(run, record, "An evaluation", but=("transfer",))
    refuse_linked_folders(run)
    refuse_changed_run(run, record)
    if record.kind == "transfer" and not (run / "predictions.csv").is_file():
        raise UsvitError(
            f"{run} is a run of usvit transfer without predictions.csv: its transfer.json says why "
            "(predictions_missing); or it is not finished. Its figures are in results.csv."
        )
    data, n_folds = record.data, record.folds.n if record.folds else None
    if data is None or data.classes is None or data.positive_class is None or n_folds is None:
        raise UsvitError(f"{run / 'run.json'} is damaged: it names no folds, classes or positive class.")
    classes = data.classes
    files = {fold: run / f"fold-{fold}" / "predictions.csv" for fold in range(n_folds)}
    missing = [str(fold) for fold, file in files.items() if not file.is_file()]
    if len(missing) == n_folds and (run / "predictions.csv").is_file():
        tables = [read_predictions(run / "predictions.csv")]  # only the result of the run was kept
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
    return Predictions(
        run.absolute().name,
        table,
        classes,
        data.positive_class,
        record=record,
        test_over_train=ratio,
        origin=_origin_of(run, record),
        warnings=list(record.evaluation.warnings) if record.evaluation else [],
    )


def _open_table(
    path: Path, run: Path | None, columns: Columns, positive: str | None, manifest: Path | None
) -> Predictions:
    record = None if run is None else load_record(run / "run.json", RunRecord)
    if record is not None and record.data is not None:
        positive = positive or record.data.positive_class
    raw = read_raw(path)
    if manifest is not None:
        raw = _with_groups(raw, columns, read_parquet(manifest, follow=True, what="manifest"))
    table, said = as_predictions(raw, str(path), columns, positive, dataset=path.stem)
    if run is not None and path.absolute().parent == run and (run / "folds.csv").exists():
        folds = _folds(run)
        check_complete(table, folds[folds["part"] == "test"], folds["fold"].nunique())
    classes = classes_of(table)
    return Predictions(
        path.name,
        table,
        classes,
        positive_of(classes, positive),
        record=record,
        warnings=said,
        origin=PredictionOrigin(table=True),
    )


def _origin_of(run: Path, record: RunRecord) -> PredictionOrigin:
    members = load_record(run / ENSEMBLE, EnsembleRecord).members if record.kind == "ensemble" else [run]
    return PredictionOrigin(networks=len(members))


def _with_groups(raw: pd.DataFrame, columns: Columns, manifest: pd.DataFrame) -> pd.DataFrame:
    """Add the data set and the groups of the manifest to a table that has none, as one made from a run's folds.csv."""
    image = columns.image or "image_id"
    if image not in raw or not {*KEY, "group_id"} <= {*manifest.columns}:
        return raw
    if "dataset" not in raw and manifest["dataset"].nunique() == 1:
        raw = raw.assign(dataset=str(manifest["dataset"].iloc[0]))
    if "dataset" not in raw or columns.group or columns.patient or {"group_id", "patient_id"} & {*raw.columns}:
        return raw
    groups = dict(
        zip(zip(*(manifest[name].astype(str) for name in KEY), strict=True), manifest["group_id"], strict=True)
    )
    pairs = zip(raw["dataset"].astype(str), raw[image].astype(str), strict=True)
    return raw.assign(group_id=[groups.get(pair, "") for pair in pairs])


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
            f"{'/'.join(lonely[0])}; 'dataset' and 'image_id' must be the same in both files."
        )
    return replace(found, columns=manifest)


def _metadata_files(found: Predictions, run: Path | None, metadata: Path | None) -> list[tuple[int | None, Path]]:
    """Return each fold with its model.json, or None with the one of all images; without those that were not kept.

    A fold of an ensemble has one for each member.
    """
    if metadata is not None:
        if found.columns is None:
            raise UsvitError(f"--metadata {metadata} lists images by the hash of their pixels: give --manifest, too.")
        return [(None, metadata / "model.json" if metadata.is_dir() else metadata)]
    folds = [] if run is None else sorted(set(found.table["fold"].tolist()))
    runs = [] if run is None else [run]
    if run is not None and found.record is not None and found.record.kind == "ensemble":
        runs = [run / member.path for member in load_record(run / ENSEMBLE, EnsembleRecord).members]
    files = [(fold, own / f"fold-{fold}" / "model.json") for fold in folds for own in runs]
    return [(fold, file) for fold, file in files if file.is_file()]


def _contamination(
    found: Predictions, files: Sequence[tuple[int | None, Path]], allow: bool
) -> tuple[ContaminationRecord, ...]:
    """Return the contamination that a run, or the caller, allows; that of a run without networks is in its record.

    Raises:
        LeakageError: There is contamination that nobody has allowed.
    """
    if found.record is not None and not files:
        return tuple(found.record.data.contamination or [])
    allowed = allow or (found.record is not None and found.record.config.as_written().get("allow_contaminated") is True)
    seen = together(seen_by(load_record(file, ModelMetadata, follow=fold is None), file.parent) for fold, file in files)
    tested = found.table.loc[found.table["part"] == "test", "dataset"]
    who = "The network" if len(files) != 1 else f"The network of {files[0][1].parent}"
    return refuse_contaminated(names_with_same_images(tested), {who: seen.collections}, allow=allowed)


def _refuse_seen(found: Predictions, files: Sequence[tuple[int | None, Path]], metadata: Path | None) -> None:
    if metadata is None and (not files or found.split_by_image):
        return
    if found.columns is None or "sha256" not in found.columns:
        if metadata is not None:
            raise UsvitError("The manifest has no column sha256, so that nothing can be looked up in the metadata.")
        return
    test = found.table[found.table["part"] == "test"]
    tested = with_columns(test[[*KEY, "group_id", "fold"]], found.columns, {"sha256": "sha256"})
    described = descriptions_of(found.columns, Path("of the test images"))
    for fold, file in files:
        seen = seen_by(load_record(file, ModelMetadata, follow=fold is None), file.parent)
        own = tested if fold is None else tested[tested["fold"] == fold]
        copies = seen.copies_among(described_among(described, own["sha256"])[0])
        refuse_seen(own, seen, f"The network of {file.parent}", copies=copies)


def _all_columns(found: Predictions, by: Mapping[str, Sequence[float] | None]) -> dict[str, Sequence[float] | None]:
    """Return the usual columns that have several values, and the requested ones."""
    there = found.table if found.columns is None else found.columns
    usual = {name: limits for name, limits in SUBGROUP_COLUMNS.items() if name in there and there[name].nunique() > 1}
    names = {*map(str, found.table.columns), *(map(str, there.columns))}
    for name in by:
        if name not in names:
            raise unknown("column", name, names)
    return {**usual, **by}
