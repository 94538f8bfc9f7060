"""Reports of finished runs: page, Markdown and figures, and an overview of several runs."""

from dataclasses import dataclass
from pathlib import Path

from usvit.arguments import checked_arguments
from usvit.data.datasets import root_from_environment
from usvit.documents import markdown_document
from usvit.errors import UsvitError, unknown
from usvit.files import write_bytes, write_text
from usvit.records import fitting
from usvit.reports.author_answers import Answers, read_answers
from usvit.reports.content import Options, ReportContent, gather
from usvit.reports.page import overview, page
from usvit.reports.pdf import browser, pdf_of
from usvit.reports.report_document import report_document
from usvit.reports.workbook import workbook

FORMATS = ("svg", "pdf")


@dataclass(frozen=True)
class Written:
    """Paths of the report of one run."""

    page: Path
    markdown: Path
    workbook: Path
    figures: tuple[Path, ...]
    pdf: Path | None = None
    """The page as PDF, if it was asked for."""


@checked_arguments
def report(
    *runs: str | Path,
    out: Path | None = None,
    data_roots: dict[str, Path] | None = None,
    include_images: bool = False,
    answers: Path | None = None,
    audit: Path | None = None,
    prevalence: float | None = None,
    figures: tuple[str, ...] = (),
    pdf: bool = False,
) -> tuple[list[Written], Path | None]:
    """Write the report of finished runs: report.html (one file, no network), report.md, report.xlsx, and figures.

    Args:
        runs: one or more run directories, or folders of ``usvit.evaluate`` (a table, or an external test).
        out: folder for the report; of several runs, for a folder each and an overview. None writes each report into
            its run.
        data_roots: data set -> folder with its images, "" for all others; small copies of images are shown if the
            data card's licence allows it. None shows no images.
        include_images: show images whatever the licences say; without ``data_roots``, those in the folder that
            the environment names.
        answers: YAML file with the authors' answers to the checklists.
        audit: folder or audit.json of an audit of the same images; None takes ``RUN/audit`` if it exists.
        prevalence: share of positives in (0, 1) at which PPV and NPV are wanted.
        figures: formats in which figures are also written as files: "svg", "pdf".
        pdf: whether a Chromium, Chrome or Edge of this machine prints each page as report.pdf.

    Returns:
        What was written for each run, and the path of the overview (None without one).

    Raises:
        UsvitError: as ``write_reports`` and ``read_answers``.

    Example:
        >>> written, overview = report("runs/busi", figures=("pdf",))  # doctest: +SKIP
        >>> written[0].page  # doctest: +SKIP
        PosixPath('runs/busi/report.html')
    """
    roots = data_roots or None
    if include_images and not roots and (known := root_from_environment()):
        roots = {"": known}
    options = Options(
        roots=roots,
        include_images=include_images,
        answers=read_answers(answers) if answers else Answers(),
        audit=audit,
        prevalence=prevalence,
    )
    return write_reports([Path(run) for run in runs], out, options, figures, pdf=pdf)


def write_reports(
    runs: list[Path], out: Path | None, options: Options, formats: tuple[str, ...] = (), *, pdf: bool = False
) -> tuple[list[Written], Path | None]:
    """Write the report of each run: report.html, report.md, report.xlsx and, on request, figures/*.

    Args:
        runs: run directories.
        out: the folder for the report of a single run; for several runs, the parent of one folder each and of the
            overview index.html. None writes each report into its run, without an overview.
        options: options of the reports.
        formats: file formats of the figures, from ``FORMATS``.
        pdf: whether a browser prints each page as report.pdf.

    Returns:
        What was written for each run, and the path of the overview (None without one).

    Raises:
        UsvitError: a format is unknown, there is no browser for ``pdf``, two runs have one name, or as
            ``content.gather``; nothing has been written for the run with the error.
    """
    for name in formats:
        if name not in FORMATS:
            raise unknown("format of figures", name, FORMATS)
    if pdf:
        browser()  # before anything is written
    names = [run.resolve().name for run in runs]
    if out is not None and (double := next((name for name in names if names.count(name) > 1), None)):
        raise UsvitError(f"Two runs are called {double}; their reports cannot stand side by side in {out}.")
    several = len(runs) > 1
    contents = [gather(run, options) for run in runs]
    folders = [run if out is None else out / name if several else out for run, name in zip(runs, names, strict=True)]
    written = [_write(content, folder, formats, pdf=pdf) for content, folder in zip(contents, folders, strict=True)]
    if out is None or not several:
        return written, None
    index = out / "index.html"
    write_text(index, overview(list(zip(names, contents, strict=True))))
    return written, index


def _write(content: ReportContent, folder: Path, formats: tuple[str, ...], *, pdf: bool) -> Written:
    plots = [*content.plots.values(), *content.losses.values()]
    figures = []
    with fitting(content.run.folder):
        for plot in plots:
            for suffix in formats:
                path = folder / "figures" / f"{plot.name}.{suffix}"
                plot.save(path, folder)
                figures.append(path)
    shown = {plot.name: f"figures/{plot.name}.svg" for plot in plots} if "svg" in formats else {}
    with fitting(content.run.folder):
        text = markdown_document(report_document(content), shown)
        book = workbook(content)
    write_text(folder / "report.md", text)
    write_bytes(folder / "report.xlsx", book)
    write_text(folder / "report.html", page(content))
    if pdf:
        write_bytes(folder / "report.pdf", pdf_of(folder / "report.html"))
    printed = folder / "report.pdf" if pdf else None
    return Written(folder / "report.html", folder / "report.md", folder / "report.xlsx", tuple(figures), printed)
