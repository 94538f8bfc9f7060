"""``shift.html``: one file, no script, no network."""

import functools
import os
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from jinja2 import ChoiceLoader, Environment, PackageLoader

from usvit.estimate import Estimate
from usvit.estimate_text import WORDS, estimate_text, fixed
from usvit.files import write_text
from usvit.reports import LOADERS, environment
from usvit.upstream.records.shift import ShiftCell, ShiftRecord, ShiftRow, ShiftSpread
from usvit.upstream.studies.shift.plots import recalibration_plot, sides_plot


def write_shift_page(folder: Path, record: ShiftRecord, runs: Path) -> Path:
    """Write the page of a measurement; the same record gives the same bytes.

    Args:
        folder: where it is written.
        record: the content of ``shift.json``.
        runs: folder of the trainings, whose reports the page names.
    """
    relative = Path(os.path.relpath(runs, folder)).as_posix()
    page = (
        _environment()
        .get_template("shift.html.j2")
        .render(
            shift=record,
            matrix={(cell.left_out, cell.tested): cell for cell in record.matrix},
            sides=sides_plot(record),
            curves=[recalibration_plot(row, number) for number, row in enumerate(record.rows)],
            shade=_shade,
            spread=spread_text,
            verdict=verdict,
            report_of=lambda row: f"{quote(relative)}/{quote(row.run)}/report.html",
        )
    )
    path = folder / "shift.html"
    write_text(path, page)
    return path


def verdict(row: ShiftRow) -> str:
    """Say in a sentence whether the AUC outside differs from that inside, beyond chance in the patients."""
    change = row.change.auc
    who = f"{row.left_out} left out:"
    if change.value is None:
        return f"{who} no AUC can be compared ({change.reason})."
    if change.ci95 is None:
        return f"{who} the AUC changes by {change.value:+.3f}, without an interval."
    low, high = change.ci95
    said = "falls" if high < 0 else "rises" if low > 0 else "does not change beyond chance"
    paired = f" On the same images: {_signed(row.paired.auc)}." if row.paired.auc.value is not None else ""
    return f"{who} the AUC {said}, {_signed(change)} on other patients.{paired}"


def _signed(value: Estimate) -> str:
    return estimate_text(value, replace(WORDS, number=fixed(3, "+")))


def spread_text(spread: ShiftSpread) -> str:
    """Format ``0.89 (0.71 to 1.00)``, or a dash if no draw has the figure."""
    if spread.median is None or spread.interval is None:
        return "–"
    return f"{spread.median:.2f} ({spread.interval[0]:.2f} to {spread.interval[1]:.2f})"


def _shade(cell: ShiftCell) -> str:
    """Return the strength of a cell's background: 0 for an AUC of 0.5 or below, 1 for 1."""
    return f"{max(0.0, 2 * ((cell.auc.value or 0.5) - 0.5)):.2f}"


@functools.cache
def _environment() -> Environment:
    return environment().overlay(loader=ChoiceLoader([PackageLoader("usvit.upstream.studies"), *LOADERS]))
