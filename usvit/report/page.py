"""The report page: what the files of a run say, laid out for a reader."""

from pathlib import Path
from typing import Any

import yaml
from jinja2 import ChainableUndefined, Environment, PackageLoader, Undefined

from usvit.files import write_text
from usvit.report.figures import loss_curves, roc_by_class, roc_by_fold
from usvit.report.run import Run, read_run
from usvit.report.svg import DASHES, N_SERIES

NOT_RECORDED = "not recorded"


def write_report(run_dir: Path) -> Path:
    """Write ``report.html`` into a run directory.

    The page is one file without script or network access. Its numbers are those of metrics.json;
    only the curves are drawn from predictions.csv and the histories. The same files give the same
    bytes. What an older run did not record is shown as such.

    Args:
        run_dir: holds run.json, metrics.json and predictions.csv; folds.csv and fold-<k>/history.csv
            are shown where they are there (docs/reference/files.md).

    Returns:
        The path of the page.

    Raises:
        UsvitError: a needed file is absent or damaged, files contradict each other, or the page
            cannot be written.
    """
    run = read_run(Path(run_dir))
    path = Path(run_dir) / "report.html"
    write_text(path, _environment().get_template("report.html.j2").render(_values(run, Path(run_dir).resolve().name)))
    return path


def _values(run: Run, folder: str) -> dict[str, Any]:
    metrics, record = run.metrics, run.record
    classes, positive = metrics["classes"], metrics["positive_class"]
    series = classes.index(positive)
    cross_validated = record.get("kind") != "train"
    results = {one["fold"]: one for one in record.get("results") or [] if "fold" in one}
    best_steps = {fold: one["best_step"] for fold, one in results.items() if one.get("best_step") is not None}
    return {
        "title": record.get("name") or folder,
        "run": record,
        "metrics": metrics,
        "classes": classes,
        "positive": positive,
        "series": series,
        "cross_validated": cross_validated,
        "parts": run.parts,
        "results": results,
        "patients": _patients(record.get("data") or {}),
        "roc_classes": roc_by_class(run.test, classes if len(classes) > 2 else [positive]),
        "roc_folds": roc_by_fold(run.test, positive, series if len(classes) > 2 else 0) if cross_validated else None,
        "losses": loss_curves(run.histories, best_steps),
        "dashes": [" ".join(f"{1.6 * length:g}" for length in dash) for dash in DASHES],
        "n_series": N_SERIES,
        "config": yaml.safe_dump(record["config"], sort_keys=False, allow_unicode=True)
        if record.get("config")
        else None,
    }


def _patients(data: dict[str, Any]) -> str | None:
    """ "all", "some" or "none" of the images carry a patient identifier; None where it is not recorded."""
    grouping = data.get("grouping")
    if not grouping:
        return None
    by_patient, total = grouping.get("patient", 0), sum(grouping.values())
    return "none" if by_patient == 0 else "all" if by_patient == total else "some"


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("usvit.report"),
        autoescape=True,
        undefined=_NotRecorded,
        finalize=lambda value: NOT_RECORDED if value is None else value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"decimals": decimals, "count": count, "duration": duration}
    return environment


class _NotRecorded(ChainableUndefined):
    def __str__(self) -> str:
        return NOT_RECORDED


def decimals(value: Any, digits: int = 3) -> str:
    """``0.8667`` -> ``0.867``; a metrics.json Value may be given whole."""
    if isinstance(value, dict):
        value = value.get("value")
    return _absent(value) or f"{value:.{digits}f}"


def count(value: Any) -> str:
    """``88224232`` -> ``88,224,232``."""
    return _absent(value) or f"{value:,}"


def duration(seconds: Any) -> str:
    """Seconds in the two units that matter: ``1 h 05 min``, ``3 min 20 s``, ``8.4 s``."""
    if absent := _absent(seconds):
        return absent
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"


def _absent(value: Any) -> str:
    return NOT_RECORDED if value is None or isinstance(value, Undefined) else ""
