"""The folder of an evaluation: figures, predictions and ``run.json``, from which the report is made.

It is a run in which nothing was trained, so that ``usvit report``, ``compare`` and ``evaluate`` read it as any other.
"""

import datetime
import platform
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd

import usvit
from usvit.errors import UsvitError
from usvit.files import LOCK, alone_in, sha256_of_file, write_csv
from usvit.records import MetricsRecord, RunRecord, load_record, run_hashes, write_record

FILES = {
    *("run.json", "metrics.json", "predictions.csv", "unmatched.csv"),
    *("report.html", "report.md", "report.xlsx", "figures"),
}
_LIBRARIES = ("numpy", "pandas", "scipy")


def refuse_occupied(out: Path) -> None:
    """Raise UsvitError if a folder contains anything but an earlier evaluation."""
    if not out.exists():
        return
    run = out / "run.json"
    if not (out.is_dir() and {one.name for one in out.iterdir()} <= {*FILES, LOCK}) or (
        run.is_file() and load_record(run, RunRecord).kind != "evaluation"
    ):
        raise UsvitError(f"{out} holds other files. Nothing was changed: choose another folder with --out.")


def write_evaluation(
    out: Path,
    metrics: dict[str, Any],
    table: pd.DataFrame,
    evaluated: dict[str, Any],
    *,
    command: str = "",
    unmatched: pd.DataFrame | None = None,
) -> None:
    """Write predictions.csv, metrics.json and run.json, the last of which makes the folder complete.

    Args:
        out: the folder; an earlier evaluation in it is replaced, together with its report.
        metrics: the content of metrics.json.
        table: the predictions table, whose rows of part test were evaluated.
        evaluated: the entry ``evaluation`` of run.json; ``files`` holds paths, of which the hashes are recorded.
        command: what the user called.
        unmatched: the rows of unmatched.csv, for an external test.
    """
    with alone_in(out):
        for name in ("run.json", "report.html", "report.md", "report.xlsx", "unmatched.csv"):
            (out / name).unlink(missing_ok=True)
        write_csv(out / "predictions.csv", table)
        if unmatched is not None:
            write_csv(out / "unmatched.csv", unmatched)
        write_record(out / "metrics.json", metrics, MetricsRecord)
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        tested = table[table["part"] == "test"]
        record = {
            "kind": "evaluation",
            "name": out.absolute().name,
            "command": command or None,
            "data": {
                "datasets": sorted(map(str, tested["dataset"].unique())),
                "classes": metrics["classes"],
                "positive_class": metrics["positive_class"],
                "n_images": metrics["n_images"],
                "n_groups": metrics["n_groups"],
                "class_counts": metrics["class_counts"],
                **({"contamination": metrics["contamination"]} if metrics.get("contamination") else {}),
            },
            "folds": {"n": len(metrics["folds"])},
            "evaluation": {
                **evaluated,
                "files": {what: sha256_of_file(path) for what, path in evaluated["files"].items() if path.is_file()},
            },
            "schema_version": RunRecord.VERSION,
            "state": "finished",
            "created": now,
            "finished": now,
            "usvit_version": usvit.__version__,
            "versions": {"python": platform.python_version(), **{name: version(name) for name in _LIBRARIES}},
            "files": run_hashes(out),
        }
        write_record(out / "run.json", record, RunRecord)
