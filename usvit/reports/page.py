"""The report page of a run, made from its files."""

from pathlib import Path
from typing import Any

from usvit.files import write_text
from usvit.records import fitting
from usvit.reports.content import Options, ReportContent, gather
from usvit.reports.contradictions import MAX_SHOWN, contradictions, contradictions_sentences
from usvit.reports.formatting import usefulness
from usvit.reports.limitations import patients
from usvit.reports.patients import patient_figures, patients_headline_sentence, patients_sentence
from usvit.reports.remarks import class_remarks, headline_remarks, patient_remarks, point_remarks, subgroup_remarks
from usvit.reports.templating import environment


def write_report(run_dir: Path, options: Options | None = None) -> Path:
    """Write ``report.html`` into a run directory.

    The page is one file without script or network access. Its numbers are those of metrics.json; curves are drawn
    from predictions.csv and the histories. The same files and options give the same bytes. Values that the run
    has not recorded are shown as "not recorded".

    Args:
        run_dir: contains run.json, metrics.json and predictions.csv; all other files are optional
            (docs/reference/files.md).
        options: thumbnails, answers and audit; none by default.

    Returns:
        The path of the page.

    Raises:
        UsvitError: a needed file is absent or damaged, files contradict each other, or the page cannot be written.
    """
    path = Path(run_dir) / "report.html"
    write_text(path, page(gather(Path(run_dir), options or Options())))
    return path


def page(content: ReportContent) -> str:
    """Render the HTML of the page."""
    with fitting(content.run.folder):
        return environment().get_template("report.html.j2").render(_values(content))


def overview(contents: list[tuple[str, ReportContent]]) -> str:
    """Render a page that lists several runs with links to their reports.

    Args:
        contents: (folder of the report relative to the overview, content of the report) of each run.
    """
    return environment().get_template("overview.html.j2").render(contents=contents)


def _values(content: ReportContent) -> dict[str, Any]:
    run = content.run
    metrics, record = run.metrics, run.record
    found = contradictions(run)
    return {
        "c": content,
        "title": content.title,
        "run": record,
        "metrics": metrics,
        "classes": metrics.classes,
        "positive": content.positive,
        "cross_validated": content.cross_validated,
        "parts": run.parts,
        "results": {one.fold: one for one in record.results if one.fold is not None},
        "patients": patients(run),
        "patients_sentence": patients_sentence(metrics),
        "patients_headline_sentence": patients_headline_sentence(metrics),
        "patient_figures": [*patient_figures(metrics)],
        "contradictions": found[:MAX_SHOWN],
        "contradictions_sentences": contradictions_sentences(found),
        "remarks": {
            "headline": headline_remarks(metrics),
            "classes": class_remarks(metrics),
            "points": point_remarks(metrics),
            "patients": patient_remarks(metrics),
            "subgroups": subgroup_remarks(metrics),
        },
        "useful": usefulness(metrics.decision_curve) if metrics.decision_curve else "",
        "source": _source(content),
        "config": content.config,
    }


def _source(content: ReportContent) -> str:
    """Describe the images that chose the thresholds; the text for a hold-out does not mention folds."""
    points = content.run.metrics.operating_points
    source = points[0].source if points else ""
    return source if content.cross_validated else source.replace(" of the same fold", "")
