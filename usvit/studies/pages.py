"""The study's pages: ``study.html`` (one file, no script, no network), ``study.md`` and ``study.tex``."""

from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from usvit.files import write_text
from usvit.records import StudyRecord
from usvit.studies import formatters
from usvit.studies.metric_names import title_of


def write_pages(folder: Path, record: StudyRecord) -> Path:
    """Write ``study.html``, ``study.md`` and ``study.tex`` of a study's record; returns the page's path."""
    write_text(folder / "study.md", formatters.markdown(record))
    write_text(folder / "study.tex", formatters.latex(record))
    write_text(folder / "study.html", _environment().get_template("study.html.j2").render(_values(record)))
    return folder / "study.html"


def _environment() -> Environment:
    # All pages use the style of the report.
    loader = ChoiceLoader([PackageLoader("usvit.studies"), PackageLoader("usvit.reports")])
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _values(record: StudyRecord) -> dict[str, Any]:
    names = record.figures
    percent = {name: formatters.in_percent(name, record) for name in names}
    return {
        "study": record,
        "counted": formatters.counted(record),
        "caveats": formatters.caveats(record),
        "failed": formatters.failures(record),
        "has_paper": formatters.has_paper(record),
        "several": len({line.dataset for line in record.table}) > 1,
        "titles": {name: title_of(name) for name in names},
        "labels": [formatters.label_of(line, record) for line in record.table],
        "percent": percent,
        "axes": {name: _axis(record, name) for name in names},
        "ours": lambda figure, name: formatters.ours(figure, percent[name], unit=False),
        "number": lambda value, name: formatters.number(value, percent[name]),
        "position": _position,
        "spread_header": formatters.spread_grid(record)[0] if record.seed_spread else [],
        "spread_lines": formatters.spread_grid(record)[1] if record.seed_spread else [],
        "key": formatters.key(record),
    }


def _axis(record: StudyRecord, name: str) -> tuple[float, float] | None:
    """Return the limits of the axis of a figure, or None if there is nothing to draw."""
    drawn: list[float | None] = []
    for line in record.table:
        figure = line.figures[name]
        drawn += [figure.value, *(figure.ci95 or [])]
        drawn += [figure.paper.value] if figure.paper and figure.value is not None else []
    known = [value for value in drawn if value is not None]
    if not known:
        return None
    margin = 0.04 * (max(known) - min(known)) or 0.01
    return min(known) - margin, max(known) + margin


def _position(value: float, axis: tuple[float, float]) -> float:
    """Return the position of a value on an axis of 120 units."""
    return round(120 * (value - axis[0]) / (axis[1] - axis[0]), 1)
