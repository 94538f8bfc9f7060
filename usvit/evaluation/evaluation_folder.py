"""The folder of an evaluation: figures, predictions and ``run.json``, from which the report is made.

It is a run in which nothing was trained, so that ``usvit report``, ``compare`` and ``evaluate`` read it as any other.
"""

import datetime
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pandas as pd

import usvit
from usvit.errors import UsvitError
from usvit.files import OutputFolder, sha256_of_file, write_csv
from usvit.records import Evaluation, MetricsRecord, RunRecord, load_record, run_hashes, save_record
from usvit.records.run import Data, Folds

FILES = (
    *("run.json", "metrics.json", "predictions.csv", "unmatched.csv"),
    *("report.html", "report.md", "report.xlsx", "figures"),
)
_LIBRARIES = ("numpy", "pandas", "scipy")


def refuse_occupied(out: Path) -> None:
    """Raise UsvitError if a folder contains anything but an earlier evaluation."""
    _output_folder(out).refuse_other_files()
    run = out / "run.json"
    if run.is_file() and load_record(run, RunRecord).kind != "evaluation":
        raise UsvitError(f"{out} holds a run. Nothing was changed: choose another folder with --out.")


def _output_folder(out: Path) -> OutputFolder:
    return OutputFolder(out, "an evaluation", files=FILES)


def write_evaluation(
    out: Path,
    metrics: MetricsRecord,
    table: pd.DataFrame,
    evaluated: Evaluation,
    files: Mapping[str, Path],
    *,
    command: str = "",
    unmatched: pd.DataFrame | None = None,
) -> None:
    """Write predictions.csv, metrics.json and run.json, the last of which makes the folder complete.

    Args:
        out: the folder; an earlier evaluation in it is replaced, together with its report.
        metrics: the figures.
        table: the predictions table, whose rows of part test were evaluated.
        evaluated: the entry ``evaluation`` of run.json, without hashes.
        files: kind of a file that was read -> the file, of which the hash is recorded.
        command: what the user called.
        unmatched: the rows of unmatched.csv, for an external test.
    """
    with _output_folder(out).opened():
        refuse_occupied(out)  # again: another process may have written a run in between
        for name in ("run.json", "report.html", "report.md", "report.xlsx", "unmatched.csv"):
            (out / name).unlink(missing_ok=True)
        write_csv(out / "predictions.csv", table)
        if unmatched is not None:
            write_csv(out / "unmatched.csv", unmatched)
        save_record(out / "metrics.json", metrics)
        hashes = {what: sha256_of_file(path) for what, path in files.items() if path.is_file()}
        evaluation = evaluated.model_copy(update={"files": hashes})
        save_record(out / "run.json", _run_record(out, metrics, table, evaluation, command))


def _run_record(
    out: Path, metrics: MetricsRecord, table: pd.DataFrame, evaluation: Evaluation, command: str
) -> RunRecord:
    """Return the content of run.json, with the hashes of the other files."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    tested = table[table["part"] == "test"]
    return RunRecord(
        kind="evaluation",
        name=os.fsencode(out.absolute().name).decode("utf-8", "backslashreplace"),
        command=command or None,
        data=Data(
            datasets=sorted(map(str, tested["dataset"].unique())),
            classes=metrics.classes,
            positive_class=metrics.positive_class,
            n_images=metrics.n_images,
            n_groups=metrics.n_groups,
            class_counts=metrics.class_counts,
            contamination=metrics.contamination or None,
        ),
        folds=Folds(n=len(metrics.folds)),
        evaluation=evaluation,
        state="finished",
        created=now,
        finished=now,
        usvit_version=usvit.__version__,
        versions={"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}},
        files=run_hashes(out),
    )
