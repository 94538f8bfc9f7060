"""The public function of ensembles: runs with the same folds -> a run directory of their mean."""

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import cast, get_args

import pandas as pd

import usvit
from usvit.config.evaluation import UnitSettings
from usvit.config.keywords import takes_settings
from usvit.errors import UsvitError, unknown
from usvit.evaluation import (
    IMAGES,
    RECORD,
    PredictionOrigin,
    read_predictions,
    summarise,
    units_of,
    units_to_use,
    with_contamination,
    with_unit_columns,
)
from usvit.experiments.ensembles.mean import FoldOfMeans, Weighting, mean_of_fold
from usvit.experiments.ensembles.members import Member, open_members
from usvit.experiments.run_directory import RunDirectory, RunResult, begun, outcome
from usvit.files import (
    OutputFolder,
    copy_file,
    make_folder,
    sha256_of_text,
    write_csv,
)
from usvit.records import (
    EnsembleRecord,
    MetricsRecord,
    RunRecord,
    WeightsRecord,
    load_record,
    load_run_record,
    save_record,
)
from usvit.records.run import Config, FoldResultRecord, Model
from usvit.reports import write_report

logger = logging.getLogger(__name__)

_FILES = (
    *(RECORD, "predictions.csv", "folds.csv", "manifest.parquet", "metrics.json", "report.html"),
    "fold-*/predictions.csv",
)
"""What an ensemble that was killed may have left without a ``run.json``."""


@takes_settings
def ensemble(
    *runs: str | Path,
    settings: UnitSettings,
    out: str | Path,
    weights: str = "equal",
    command: str | None = None,
) -> RunResult[MetricsRecord]:
    """Average the networks of runs that have the same folds, and measure the mean on the images that none has seen.

    In each fold, the probabilities of the members' networks of this fold are averaged, so that each test image is
    predicted by networks that were not trained on it. Temperature and thresholds of the mean are chosen on its inner
    validation images, as for a run. The folder is a run directory: ``evaluate``, ``compare``, ``score`` and the report
    take it. It refers to its members and copies no weights. Its unit is that of its members, if they have one in
    common; figures and thresholds of the mean are then those of the unit, too.

    Args:
        *runs: Two or more finished runs of ``cross_validate`` or ``train`` with the same images, folds and classes.
        out: The run directory of the ensemble. A finished one with the same members is returned as it is.
        settings: See ``UnitSettings``.
        weights: ``equal``, or ``validation`` for the convex combination with the smallest log loss on the inner
            validation images, chosen in each fold on its own.
        command: What the user called, for ``run.json``. Default: this call.

    Returns:
        The run: its ``path``, its metrics (``result``) and its ``record``.

    Raises:
        UsvitError: A run cannot be a member, two runs differ (the first difference is named), the images do not state
            the unit, or ``out`` holds something else. Nothing has been written then.
        LeakageError: A network was trained on one of its test images.

    Example:
        >>> import usvit
        >>> run = usvit.ensemble("runs/small", "runs/other", out="runs/both")
        >>> run.record.kind, len(run.result.folds)
        ('ensemble', 2)
    """
    if weights not in get_args(Weighting):
        raise unknown("kind of weights", weights, get_args(Weighting))
    folder, begun = Path(out), time.monotonic()
    members = open_members([Path(run) for run in runs])
    first = members[0].predictions
    classes, positive = first.classes, first.positive
    units, unlike = _units(members, settings)
    tables = [member.predictions.table for member in members]
    if not units.of_images:
        tables = [with_unit_columns(table, first.columns) for table in tables]
        units_of(tables[0], units, positive)  # refuses images that do not state the unit, before anything is written
    kind = cast(Weighting, weights)
    means = [
        mean_of_fold(tables, fold, classes=classes, positive=positive, weighting=kind, units=units)
        for fold in range(len(members[0].folders))
    ]
    record = EnsembleRecord(
        usvit_version=usvit.__version__,
        classes=list(classes),
        positive_class=positive,
        weights=kind,
        members=[member.described(folder) for member in members],
        folds=[one.record for one in means],
    )
    output = OutputFolder(folder, "an ensemble", "run.json", _FILES)
    if _is_finished(output, record):
        logger.info(f"{folder} is finished and has these members: nothing was changed.")
        return outcome(folder, MetricsRecord)
    for line in (*_warnings(members), *unlike):
        logger.warning(line)
    private = any(not (member.path / "predictions.csv").stat().st_mode & 0o077 for member in members)
    with output.opened(private=private):
        if not _is_finished(output, record):  # another process may have made it in between
            told = command or f"usvit.ensemble({', '.join(repr(str(run)) for run in runs)}, out={str(out)!r})"
            directory = RunDirectory(folder, _run_record(members, record, folder, told, units))
            _write(directory, members, means, record, units)
            directory.finish(time.monotonic() - begun)
            write_report(folder)
    return outcome(folder, MetricsRecord)


def _units(members: Sequence[Member], settings: UnitSettings) -> tuple[UnitSettings, list[str]]:
    """Return the unit that was given, or that all members have; and why it is the image although members have one."""
    if settings.pooling == "attention":
        raise UsvitError(
            "--pooling attention: a mean of networks has no attention. Choose mean, max, top-K or noisy-or."
        )
    own = [units_to_use(member.predictions, settings) for member in members]
    if all(one == own[0] for one in own) and own[0].pooling != "attention":
        return own[0], []
    pairs = zip(members, own, strict=True)
    said = ", ".join(f"{member.name}: {one.unit or 'image'} by {one.pooling}" for member, one in pairs)
    return UnitSettings(unit="image"), [
        f"Figures and thresholds are those of images, at which studies and patients are decided, too: the members have "
        f"no unit and pooling that a mean of them can have ({said}). Name one with --unit and --pooling."
    ]


def _write(
    run: RunDirectory, members: Sequence[Member], means: list[FoldOfMeans], record: EnsembleRecord, units: UnitSettings
) -> None:
    """Write all files except run.json and the report."""
    first = members[0]
    for fold, one in enumerate(means):
        make_folder(run.fold(fold), run.path)
        write_csv(run.fold(fold) / "predictions.csv", one.table)
    write_csv(run.path / "folds.csv", first.folds)
    manifest = first.path / "manifest.parquet"
    if manifest.is_file():
        copy_file(manifest, run.path / "manifest.parquet")
    save_record(run.path / RECORD, record)
    everything = pd.concat([one.table for one in means], ignore_index=True)
    order = read_predictions(first.path / "predictions.csv")
    order = order[order["part"] == "test"]
    key = ["fold", "dataset", "image_id"]
    tested = everything[everything["part"] == "test"]
    at = pd.MultiIndex.from_frame(tested[key]).get_indexer(pd.MultiIndex.from_frame(order[key]))
    pooled = tested.iloc[at]
    write_csv(run.path / "predictions.csv", pooled)
    measured = pd.concat([pooled, everything[everything["part"] == "val"]], ignore_index=True)
    own = first.predictions
    metrics = summarise(
        measured,
        classes=own.classes,
        positive=own.positive,
        columns=own.columns,
        origin=PredictionOrigin(networks=len(members)),
        units=units,
    )
    contamination = list(dict.fromkeys(one for member in members for one in member.predictions.contamination))
    save_record(run.path / "metrics.json", with_contamination(metrics, contamination))


def _run_record(
    members: Sequence[Member], record: EnsembleRecord, out: Path, command: str, units: UnitSettings
) -> RunRecord:
    """Return the content of ``run.json``; what all members share is that of the first."""
    records = [member.record for member in members]
    first, models = records[0], [one.model for one in records]
    # Records of the same sets are equal in value, and some of them lie in several members.
    contamination = dict.fromkeys(one for each in records for one in each.data.contamination or [])
    config = first.config.as_written()
    settings = {
        "seed": first.seed,
        "data": config.get("data", {}),
        "model": {"image_size": config.get("model", {}).get("image_size")},
        "ensemble": {"weights": record.weights, "members": [member.name for member in members]},
        **({} if units == IMAGES else {"units": units.model_dump()}),
        "allow_contaminated": any(one.config.as_written().get("allow_contaminated") is True for one in records),
    }
    several = WeightsRecord(source="several", name=None, sha256=None, license=None, upstream=None, pretrained_by=None)
    model = Model(
        name=models[0].name if len({one.name for one in models}) == 1 else "ensemble",
        vit={},
        timm=models[0].timm if len({one.timm for one in models}) == 1 else "several",
        params=sum(one.params or 0 for one in models),
        weights=models[0].weights if all(one.weights == models[0].weights for one in models) else several,
    )
    new = begun(
        kind="ensemble",
        name=out.absolute().name,
        command=command,
        config=Config.model_validate(settings),
        config_sha256=sha256_of_text(str(sorted(settings.items()))),
        seed=first.seed,
        device=first.device,
        data=first.data.model_copy(update={"contamination": list(contamination) or None}),
        folds=first.folds,
        model=model,
    )
    return new.model_copy(update={"results": [_result(records, fold) for fold in range(len(record.folds))]})


def _result(records: Sequence[RunRecord], fold: int) -> FoldResultRecord:
    """Return the entry of a fold in ``run.json``: how long the training of all its networks took."""
    seconds = [one.seconds for record in records for one in record.results if one.fold == fold]
    known = [one for one in seconds if one is not None]
    return FoldResultRecord(fold=fold, seconds=round(sum(known), 1) if len(known) == len(records) else None)


def _warnings(members: Sequence[Member]) -> list[str]:
    first = members[0]
    return [
        f"usvit score cannot use this ensemble, because it prepares each image once: {first.path} and {member.path} "
        f"differ in image size, resizing or crop ({first.sees} and {member.sees})."
        for member in members[1:]
        if member.sees != first.sees
    ]


def _is_finished(output: OutputFolder, record: EnsembleRecord) -> bool:
    """Return whether a folder is this ensemble already.

    Raises:
        UsvitError: It holds another run or other files.
    """
    if not output.has_record():
        return False
    advice = "Nothing was changed: choose another folder with --out."
    if load_run_record(output.path).kind != "ensemble":
        raise UsvitError(f"{output.path} holds a run. {advice}")
    there = load_record(output.path / RECORD, EnsembleRecord)
    if there.model_copy(update={"usvit_version": record.usvit_version}) != record:
        raise UsvitError(f"{output.path} holds an ensemble of other members, weights or predictions. {advice}")
    return True
