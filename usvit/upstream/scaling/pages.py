"""The pages ``scaling.html`` and ``shape.html``: one file each, no script, no network."""

from pathlib import Path

from usvit.documents import html_page
from usvit.files import write_text
from usvit.upstream.records.scaling import ScalingRecord, ShapeRecord
from usvit.upstream.scaling.document import fit_document, shape_document
from usvit.upstream.scaling.figures import fit_plot, frontier_plot, isoflop_plot, residual_plot
from usvit.upstream.scaling.stored_fit import StoredFit, stored_fit


def write_fit_page(folder: Path, record: ScalingRecord) -> Path:
    """Write ``scaling.html`` of a fit; the same record gives the same bytes."""
    path = folder / "scaling.html"
    plots = {"fit": fit_plot(stored_fit(record)), "residuals": residual_plot(record)}
    write_text(path, html_page(fit_document(record, plots)))
    return path


def write_shape_page(folder: Path, fit: StoredFit, record: ShapeRecord) -> Path:
    """Write ``shape.html`` of a prediction; the same records give the same bytes."""
    path = folder / "shape.html"
    plots = {"isoflop": isoflop_plot(fit, record), "frontier": frontier_plot(fit, record)}
    write_text(path, html_page(shape_document(record, plots)))
    return path
