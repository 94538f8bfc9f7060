"""The study's pages: ``study.html`` (one file, no script, no network), ``study.md`` and ``study.tex``."""

from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined

from usvit.files import write_text
from usvit.study import text
from usvit.study.figures import title_of


def write_pages(folder: Path, record: dict[str, Any]) -> Path:
    """Write ``study.html``, ``study.md`` and ``study.tex`` of a study's record; returns the page's path."""
    write_text(folder / "study.md", text.markdown(record))
    write_text(folder / "study.tex", text.latex(record))
    write_text(folder / "study.html", _environment().get_template("study.html.j2").render(_values(record)))
    return folder / "study.html"


def _environment() -> Environment:
    # The style is the report's own: one look for all pages.
    loader = ChoiceLoader([PackageLoader("usvit.study"), PackageLoader("usvit.report")])
    return Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def _values(record: dict[str, Any]) -> dict[str, Any]:
    names = record["figures"]
    percent = {name: text.in_percent(name, record) for name in names}
    return {
        "study": record,
        "counted": text.counted(record),
        "caveats": text.caveats(record),
        "failed": text.failures(record),
        "has_paper": text.has_paper(record),
        "several": len({line["dataset"] for line in record["table"]}) > 1,
        "titles": {name: title_of(name) for name in names},
        "labels": [text.label_of(line, record) for line in record["table"]],
        "percent": percent,
        "axes": {name: _axis(record, name) for name in names},
        "ours": lambda figure, name: text.ours(figure, percent[name], unit=False),
        "number": lambda value, name: text.number(value, percent[name]),
        "position": _position,
        "spread_header": text.spread_grid(record)[0] if record["seed_spread"] else [],
        "spread_lines": text.spread_grid(record)[1] if record["seed_spread"] else [],
        "key": text.key(record),
    }


def _axis(record: dict[str, Any], name: str) -> tuple[float, float] | None:
    """Ends of a figure's axis: everything drawn lies within; None where there is nothing to draw."""
    drawn: list[float] = []
    for line in record["table"]:
        figure = line["figures"][name]
        drawn += [figure["value"]] if figure["value"] is not None else []
        drawn += figure["ci95"] or []
        drawn += [figure["paper"]["value"]] if figure["paper"] and figure["value"] is not None else []
    if not drawn:
        return None
    margin = 0.04 * (max(drawn) - min(drawn)) or 0.01
    return min(drawn) - margin, max(drawn) + margin


def _position(value: float, axis: tuple[float, float]) -> float:
    """Where a value stands on an axis of 120 units."""
    return round(120 * (value - axis[0]) / (axis[1] - axis[0]), 1)
