"""The study's pages: ``study.html`` (one file, no script, no network), ``study.md`` and ``study.tex``."""

import functools
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from usvit.files import write_text
from usvit.reports import LOADERS
from usvit.upstream.records.study import StudyColumn, StudyRecord, StudyRun
from usvit.upstream.studies import formatters
from usvit.upstream.studies.metric_names import OF_NETWORK


def write_pages(folder: Path, record: StudyRecord) -> Path:
    """Write ``study.html``, ``study.md`` and ``study.tex`` of a study's record; returns the page's path."""
    write_text(folder / "study.md", formatters.markdown(record))
    write_text(folder / "study.tex", formatters.latex(record))
    write_text(folder / "study.html", _environment().get_template("study.html.j2").render(_values(record)))
    return folder / "study.html"


@functools.cache
def _environment() -> Environment:
    # All pages use the style of the report.
    loader = ChoiceLoader([PackageLoader("usvit.upstream.studies"), *LOADERS])
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _values(record: StudyRecord) -> dict[str, Any]:
    return {
        "study": record,
        "counted": formatters.counted(record),
        "caveats": formatters.caveats(record),
        "notes": formatters.notes(record),
        "failed": formatters.failures(record),
        "has_paper": formatters.has_paper(record),
        "grouped": any(row.group for row in record.table),
        "with_images": any(row.n_images for row in record.table),
        "printed": {column.name: formatters.in_paper(column, record) for column in record.columns},
        "compared": {column.name: formatters.is_compared(column, record) for column in record.columns},
        "axes": {column.name: _axis(record, column) for column in record.columns},
        "title": formatters.title,
        "difference": formatters.difference,
        "ours": lambda figure, column: formatters.ours(figure, column.percent, unit=False),
        "number": lambda value, column: formatters.number(value, column.percent),
        "position": _position,
        "seeds": formatters.seeds(record),
        "spread_header": formatters.spread_grid(record)[0] if record.seed_spread else [],
        "spread_lines": formatters.spread_grid(record)[1] if record.seed_spread else [],
        "correlation_header": formatters.correlation_grid(record)[0],
        "correlation_lines": formatters.correlation_grid(record)[1],
        "key": formatters.key(record),
        "kinds": sorted({run.kind for run in record.runs}),
        "page_of": _page_of,
    }


def _page_of(run: StudyRun, folder: str) -> str:
    """Return the address of a run's page, relative to that of the study."""
    name = "bench.svg" if run.kind == "bench" else "report.html"
    return f"{quote(folder)}/{quote(run.id)}/{name}"


def _axis(record: StudyRecord, column: StudyColumn) -> tuple[float, float] | None:
    """Return the limits of the axis of a column, or None if there is nothing to draw."""
    drawn: list[float | None] = []
    for row in record.table:
        figure = row.figures[column.name]
        drawn += [figure.value, *(figure.ci95 or [])]
        drawn += [figure.paper.value] if figure.paper and figure.value is not None else []
    known = [value for value in drawn if value is not None]
    if not known or column.figure in OF_NETWORK:
        return None
    margin = 0.04 * (max(known) - min(known)) or 0.01
    return min(known) - margin, max(known) + margin


def _position(value: float, axis: tuple[float, float]) -> float:
    """Return the position of a value on an axis of 120 units."""
    return round(120 * (value - axis[0]) / (axis[1] - axis[0]), 1)
