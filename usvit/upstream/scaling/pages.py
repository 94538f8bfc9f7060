"""The pages ``scaling.html`` and ``shape.html``: one file each, no script, no network."""

import functools
from collections.abc import Mapping
from pathlib import Path

from jinja2 import ChoiceLoader, Environment, PackageLoader

from usvit.estimate_text import HasInterval, Style, estimate_text, fixed
from usvit.files import write_text
from usvit.reports import LOADERS, environment
from usvit.upstream.records.scaling import ScalingRecord, ShapeRecord
from usvit.upstream.scaling.figures import fit_plot, frontier_plot, isoflop_plot, residual_plot
from usvit.upstream.scaling.shapes import DIMENSIONS, TITLES
from usvit.upstream.scaling.simulation import PAPER_EXPONENTS
from usvit.upstream.scaling.stored_fit import StoredFit, stored_fit

ADVICE = "Space the values wider, or train more networks or seeds."
"""What helps if the data do not identify an exponent."""


def write_fit_page(folder: Path, record: ScalingRecord) -> Path:
    """Write ``scaling.html`` of a fit; the same record gives the same bytes."""
    fit = stored_fit(record)
    page = (
        _environment()
        .get_template("scaling.html.j2")
        .render(
            fit=record,
            titles=TITLES,
            paper=PAPER_EXPONENTS,
            fitted=fit_plot(fit),
            residuals=residual_plot(record),
            number=_number,
            lost=[one for one in record.dimensions if one.exponent.value is None],
            advice=ADVICE,
        )
    )
    return _write(folder / "scaling.html", page)


def write_shape_page(folder: Path, fit: StoredFit, record: ShapeRecord) -> Path:
    """Write ``shape.html`` of a prediction; the same records give the same bytes."""
    page = (
        _environment()
        .get_template("shape.html.j2")
        .render(
            shape=record,
            titles=TITLES,
            dimensions=DIMENSIONS,
            isoflop=isoflop_plot(fit, record),
            frontier=frontier_plot(fit, record),
            number=_number,
            in_words=in_words,
            any_measured=record.verdict is not None,
        )
    )
    return _write(folder / "shape.html", page)


def in_words(shape: Mapping[str, float]) -> str:
    """Format a shape: ``width 1152, depth 27, MLP width 4304``."""
    return ", ".join(f"{TITLES[name]} {shape[name]:,.0f}" for name in DIMENSIONS)


def _number(value: HasInterval, digits: int = 3) -> str:
    """Format ``0.221 [0.203, 0.240]``, or that the value is not identified."""
    return estimate_text(value, Style(fixed(digits), undefined="not identified"))


def _write(path: Path, page: str) -> Path:
    write_text(path, page)
    return path


@functools.cache
def _environment() -> Environment:
    return environment().overlay(loader=ChoiceLoader([PackageLoader("usvit.upstream.scaling"), *LOADERS]))
