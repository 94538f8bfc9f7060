"""The report as an Excel workbook: every figure as a number, and the predictions."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from usvit.files import workbook_bytes
from usvit.reports.content import ReportContent

_MAX_PREDICTIONS = 50_000
"""Most predictions in the workbook; more rows are in predictions.csv only."""
_HEADER = ("figure", "value", "95 % low", "95 % high", "groups", "p", "method", "note")


def workbook(content: ReportContent) -> bytes:
    """Render the report as XLSX with the sheets ``about``, ``figures`` and ``predictions``.

    The sheet ``figures`` has one row for each number of metrics.json, under its key there. Text is written as text, so
    that a spreadsheet executes none. The same report gives the same bytes.
    """
    sheets: dict[str, Iterable[tuple[Any, ...]]] = {
        "about": _about(content),
        "figures": [_HEADER, *_figures(content.run.metrics.content())],
    }
    test = content.run.predicted
    if len(test) <= _MAX_PREDICTIONS:
        sheets["predictions"] = [tuple(test.columns), *test.itertuples(index=False, name=None)]
    return workbook_bytes(sheets, {"A": 44, "G": 36})


def _about(content: ReportContent) -> Iterator[tuple[Any, ...]]:
    run = content.run
    yield ("For research use only. Not a medical device.",)
    yield ("report", content.title)
    yield ("design", run.design)
    if content.lead:
        yield ("what was done", content.lead)
    yield ("positive class", content.positive)
    yield ("images", run.metrics.n_images)
    yield ("groups", run.metrics.n_groups)
    for name, n in run.metrics.class_counts.items():
        yield (f"images of {name}", n)
    yield ("which figures to quote", f"those under headline: {run.metrics.headline.explains}")
    for warning in run.metrics.warnings:
        yield ("warning", warning)
    for limit in content.limits:
        yield ("limit", limit)
    if run.record.command:
        yield ("command", run.record.command)
    if len(run.predicted) > _MAX_PREDICTIONS:
        yield ("predictions", f"{len(run.predicted):,} rows, in predictions.csv only")


def _figures(content: Any, key: str = "") -> Iterator[tuple[Any, ...]]:
    """Yield a row for each value with an interval, and for each plain number, under its dotted key."""
    if isinstance(content, Mapping):
        if "value" in content and ("ci95" in content or "reason" in content):
            low, high = content.get("ci95") or (None, None)
            note = content.get("reason") or content.get("warning")
            found = (content["value"], low, high, content.get("n_groups"), content.get("p"), content.get("method"))
            yield (key, *found, note)
            return
        for name, value in content.items():
            yield from _figures(value, f"{key}.{name}" if key else str(name))
    elif isinstance(content, list):
        for number, value in enumerate(content):
            yield from _figures(value, f"{key}.{_name_of(value, number)}")
    elif isinstance(content, int | float) and not isinstance(content, bool):
        yield (key, content)


def _name_of(entry: Any, number: int) -> str:
    """Return what identifies an entry of a list: its rule, column, level or fold, else its number."""
    named = entry if isinstance(entry, Mapping) else {}
    return str(next((named[key] for key in ("rule", "by", "level", "fold", "reference") if key in named), number))
