"""``usvit report``: page, Markdown and figures of finished runs, and an overview where there are several."""

from dataclasses import dataclass
from pathlib import Path

from usvit.errors import UsvitError, unknown
from usvit.files import write_text
from usvit.records import fitting
from usvit.report.content import Content, Options, gather
from usvit.report.markdown import markdown
from usvit.report.page import overview, page

FORMATS = ("svg", "pdf")


@dataclass(frozen=True)
class Written:
    """Where one run's report lies."""

    page: Path
    markdown: Path
    figures: tuple[Path, ...]


def write_reports(
    runs: list[Path], out: Path | None, options: Options, formats: tuple[str, ...] = ()
) -> tuple[list[Written], Path | None]:
    """Write the report of each run: report.html, report.md and, where asked for, figures/*.

    Args:
        runs: run directories.
        out: the folder for the report of a single run; of several, for a folder each and an overview index.html. None
            writes each report into its run, and no overview.
        options: what the reports hold.
        formats: of the figures' files, some of ``FORMATS``.

    Returns:
        What was written for each run, and the overview where there is one.

    Raises:
        UsvitError: an unknown format, two runs of one name, or as ``content.gather``; nothing has been written for
            the run that it is about.
    """
    for name in formats:
        if name not in FORMATS:
            raise unknown("format of figures", name, FORMATS)
    names = [run.resolve().name for run in runs]
    if out is not None and (double := next((name for name in names if names.count(name) > 1), None)):
        raise UsvitError(f"Two runs are called {double}; their reports cannot stand side by side in {out}.")
    several = len(runs) > 1
    contents = [gather(run, options) for run in runs]
    folders = [run if out is None else out / name if several else out for run, name in zip(runs, names, strict=True)]
    written = [_write(content, folder, formats) for content, folder in zip(contents, folders, strict=True)]
    if out is None or not several:
        return written, None
    index = out / "index.html"
    write_text(index, overview(list(zip(names, contents, strict=True))))
    return written, index


def _write(content: Content, folder: Path, formats: tuple[str, ...]) -> Written:
    plots = [*content.plots.values(), *content.losses.values()]
    figures = []
    with fitting(content.run.folder):
        for plot in plots:
            for suffix in formats:
                path = folder / "figures" / f"{plot.name}.{suffix}"
                plot.save(path, folder)
                figures.append(path)
    shown = {plot.title: f"figures/{plot.name}.svg" for plot in plots} if "svg" in formats else {}
    with fitting(content.run.folder):
        text = markdown(content, shown)
    write_text(folder / "report.md", text)
    write_text(folder / "report.html", page(content))
    return Written(folder / "report.html", folder / "report.md", tuple(figures))
