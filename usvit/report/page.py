"""The report page: what the files of a run say, laid out for a reader."""

from pathlib import Path
from typing import Any

from usvit.files import write_text
from usvit.report.content import Content, Options, gather
from usvit.report.environment import environment
from usvit.report.limits import patients
from usvit.report.words import usefulness


def write_report(run_dir: Path, options: Options | None = None) -> Path:
    """Write ``report.html`` into a run directory.

    The page is one file without script or network access. Its numbers are those of metrics.json; only
    curves are drawn from predictions.csv and the histories. The same files and options give the same bytes. What an
    older run did not record is shown as such.

    Args:
        run_dir: holds run.json, metrics.json and predictions.csv; all else is shown where it is there
            (docs/reference/files.md).
        options: thumbnails, answers, audit; none of them by default.

    Returns:
        The path of the page.

    Raises:
        UsvitError: a needed file is absent or damaged, files contradict each other, or the page cannot be written.
    """
    path = Path(run_dir) / "report.html"
    write_text(path, page(gather(Path(run_dir), options or Options())))
    return path


def page(content: Content) -> str:
    """The page's HTML."""
    return environment().get_template("report.html.j2").render(_values(content))


def overview(contents: list[tuple[str, Content]]) -> str:
    """A page that sets several runs side by side and leads to their reports.

    Args:
        contents: the folder that holds each report, beside the overview, and the report.
    """
    return environment().get_template("overview.html.j2").render(contents=contents)


def _values(content: Content) -> dict[str, Any]:
    run = content.run
    metrics, record = run.metrics, run.record
    curve = metrics.get("decision_curve")
    return {
        "c": content,
        "title": content.title,
        "run": record,
        "metrics": metrics,
        "classes": metrics["classes"],
        "positive": content.positive,
        "cross_validated": content.cross_validated,
        "parts": run.parts,
        "results": {one["fold"]: one for one in record.get("results") or [] if "fold" in one},
        "patients": patients(run),
        "useful": usefulness(curve) if curve else "",
        "source": _source(content),
        "config": content.config,
    }


def _source(content: Content) -> str:
    """Which images chose the thresholds; a hold-out has no folds to speak of."""
    points = content.run.metrics.get("operating_points") or [{"source": ""}]
    return points[0]["source"] if content.cross_validated else points[0]["source"].replace(" of the same fold", "")
