"""The report page of a run, made from its files, and the overview of several."""

from pathlib import Path
from urllib.parse import quote

import usvit.documents as doc
from usvit.files import write_text
from usvit.records import fitting
from usvit.reports.content import Options, ReportContent, gather
from usvit.reports.report_document import report_document


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
        return doc.html_page(report_document(content))


def overview(contents: list[tuple[str, ReportContent]]) -> str:
    """Render a page that lists several runs with links to their reports.

    Args:
        contents: (folder of the report relative to the overview, content of the report) of each run.
    """
    said = (
        *(
            "Overlapping intervals do not show whether two runs differ. Use ",
            doc.code("usvit compare"),
            ", which tests pairs ",
        ),
        "of runs on the same images.",
    )
    table = doc.Table(
        "Runs",
        [
            *("Run", "Model", "Data", "Positive"),
            *doc.numbers("Images", "Groups", "Accuracy", "AUC", "Sensitivity", "Specificity"),
        ],
        [_line(folder, content) for folder, content in contents],
        "For a cross-validation, the mean within folds with its 95 % interval. AUC, sensitivity and specificity of the "
        "positive class against the rest.",
    )
    section = doc.DocumentSection("Runs", [table], "runs")
    return doc.html_page(
        doc.Document(f"{len(contents)} runs", [section], lead=[doc.Paragraph(said)], name="usvit report")
    )


def _line(folder: str, content: ReportContent) -> tuple[doc.Cell, ...]:
    record, metrics = content.run.record, content.run.metrics
    quoted = metrics.headline
    name: doc.Words = doc.link(content.title, f"{quote(folder)}/report.html")
    if record.folds.unit == "image":
        name = (name, " ", doc.bad("LEAKING SPLIT"))
    datasets = " + ".join(record.data.datasets) if record.data.datasets else None
    return (
        *(name, record.model.name, datasets, content.positive, metrics.n_images, metrics.n_groups),
        *(quoted.accuracy, quoted.auc, quoted.sensitivity, quoted.specificity),
    )
