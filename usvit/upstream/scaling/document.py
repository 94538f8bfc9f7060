"""The documents of a fit (scaling.json) and of a prediction (shape.json): for their pages and for the terminal."""

from collections.abc import Mapping, Sequence
from typing import get_args

import usvit.documents as doc
from usvit.documents import Plot
from usvit.upstream.records.scaling import (
    DimensionName,
    NamedShape,
    ScalingDimension,
    ScalingRecord,
    ScalingValue,
    ShapeRecord,
)
from usvit.upstream.scaling.shapes import TITLES
from usvit.upstream.scaling.simulation import PAPER_EXPONENTS
from usvit.wording import capitalized

_DIMENSIONS: tuple[DimensionName, ...] = get_args(DimensionName)
ADVICE = "Space the values wider, or train more networks or seeds."
"""What helps if the data do not identify an exponent."""


def fit_document(fit: ScalingRecord, plots: Mapping[str, Plot] | None = None) -> doc.Document:
    """Build the document of a fit; ``plots`` are ``fit`` and ``residuals``, which the terminal does not show."""
    shown = plots or {}
    lost = [one for one in fit.dimensions if one.exponent.value is None]
    lead: list[doc.Block] = [
        doc.Note(f"The data do not identify the exponent of the {TITLES[one.name]}: {one.exponent.reason}.")
        for one in lost
    ]
    lead += [doc.Paragraph(ADVICE)] if lost else []
    lead += [doc.Note(warning) for warning in fit.warnings]
    low, high = (_flops(gflops) for gflops in fit.compute)
    sections = [_exponents(fit)]
    if "fit" in shown:
        caption = (
            "Each panel varies one dimension of the network that occurs most often. Points are trainings, lines "
            "are the "
        )
        figure = doc.Figure(shown["fit"], f"{caption}fit.", wide=True)
        sections.append(doc.DocumentSection("Fitted curves", [figure], "curves"))
    sections += [_residuals(fit, shown), _form(fit)]
    facts: list[tuple[str, doc.Words]] = [
        ("Seed", str(fit.seed)),
        ("Table, SHA-256", doc.code(fit.table_sha256)),
        ("usvit", fit.usvit_version),
    ]
    return doc.Document(
        title="Loss by shape and compute",
        kind=(
            f"A fit to {len(fit.points)} trainings in {fit.table}, with {fit.n_budgets} budgets from {low} to {high} "
            "FLOPs"
        ),
        lead=lead,
        sections=[*sections, _repeat(fit.command, facts)],
        made_from=f"scaling.json (schema {fit.schema_version})",
    )


def _exponents(fit: ScalingRecord) -> doc.DocumentSection:
    rows: list[tuple[doc.Cell, ...]] = [
        (
            *(TITLES[one.name], ", ".join(f"{value:g}" for value in one.values), _value(one.exponent)),
            f"{PAPER_EXPONENTS[one.name]:.2f}",
        )
        for one in fit.dimensions
    ]
    caption = (
        "A dimension x grows as compute to the power s = c / (a + b). The 95 % bands are percentiles of "
        f"{len(fit.draws)} bootstrap draws. The paper's exponents are for other data and larger networks."
    )
    heads = doc.numbers("Exponent s", "Paper")
    said = ("Data exponent c: ", _value(fit.c), ". Irreducible loss: ", _value(fit.eps), ".")
    table = doc.Table("Exponents", ["Dimension", "Values in the sweep", *heads], rows, caption)
    return doc.DocumentSection(
        "How the best shape grows with compute", [table, doc.Paragraph(said)], "exponents", "Exponents"
    )


def _value(one: ScalingValue, digits: int = 3) -> doc.Words:
    return "not identified" if one.value is None else doc.Quantity(one, digits)


def _residuals(fit: ScalingRecord, plots: Mapping[str, Plot]) -> doc.DocumentSection:
    caption = "Fitted loss relative to the measured one. A trend would show that the form does not describe these data."
    figures = [doc.Figure(plots["residuals"], caption, wide=True)] if "residuals" in plots else []
    said = (
        f"Robust standard deviation: {100 * fit.residual_sd:.2g} % of the loss. {fit.n_outliers} of {len(fit.points)} "
        f"trainings lie beyond {fit.huber:g} standard deviations and have less weight."
    )
    return doc.DocumentSection("Residuals", [*figures, doc.Paragraph(said)], "residuals-section")


def _form(fit: ScalingRecord) -> doc.DocumentSection:
    said = (
        "f(x, t) = Σ α x^(−a) + (Σ β x^b + ξ) t^(−c) + ε, with the sums over the dimensions, each divided by its "
        f"reference, and the compute t divided by {_flops(fit.compute_reference)} FLOPs (Alabdulmohsin et al. 2023, "
        "section 3). The relative error is minimised with Huber's loss by variable projection."
    )
    rows = [_coefficients(one) for one in fit.dimensions]
    table = doc.Table("Coefficients", ["Dimension", *doc.numbers("Reference", "α", "a", "β", "b")], rows)
    blocks: list[doc.Block] = [doc.Paragraph(said), table, doc.Paragraph(f"ξ = {fit.xi:.4g}.")]
    return doc.DocumentSection("The form", blocks, "form", detail=True)


def _coefficients(one: ScalingDimension) -> tuple[doc.Cell, ...]:
    name, reference = TITLES[one.name], f"{one.reference:.4g}"
    if one.exponent.value is None:
        return name, reference, "not identified"
    return name, reference, *(f"{value:.4g}" for value in (one.alpha, one.a, one.beta, one.b))


def shape_document(shape: ShapeRecord, plots: Mapping[str, Plot] | None = None) -> doc.Document:
    """Build the document of a prediction; ``plots`` are ``isoflop`` and ``frontier``, absent in the terminal."""
    shown = plots or {}
    captions = {
        "isoflop": (
            "At fixed compute",
            "Each panel varies one dimension; the others have their predicted values. Ticks mark the least loss of "
            "each budget.",
        ),
        "frontier": (
            "Frontier",
            "The best shape and its loss as compute grows. Outside the dashed lines the fit is extrapolated.",
        ),
    }
    sections = [_best(shape), _networks(shape)]
    sections += [
        doc.DocumentSection(title, [doc.Figure(shown[name], caption, wide=True)], f"{name}s")
        for name, (title, caption) in captions.items()
        if name in shown
    ]
    facts: list[tuple[str, doc.Words]] = [("Fit, SHA-256", doc.code(shape.fit_sha256)), ("usvit", shape.usvit_version)]
    verdict = [doc.Paragraph(doc.strong(shape.verdict))] if shape.verdict else []
    return doc.Document(
        title=f"Predicted shape: {in_words(shape.chosen.shape)}",
        kind=f"For a training with {_flops(shape.gflops)} FLOPs, forward and backward",
        lead=[*verdict, *(doc.Note(warning) for warning in shape.warnings)],
        sections=[*sections, _repeat(shape.command, facts)],
        made_from=f"shape.json (schema {shape.schema_version}) and scaling.json",
    )


def _best(shape: ShapeRecord) -> doc.DocumentSection:
    how = "The minimum of the fitted form."
    if shape.start is not None and shape.start_gflops is not None:
        how = (
            f"{capitalized(in_words(shape.start))}, optimal for {_flops(shape.start_gflops)} FLOPs, scaled by the "
            "exponents; the increase of compute is divided equally among the dimensions."
        )
    rows: list[tuple[doc.Cell, ...]] = []
    for name in _DIMENSIONS:
        one = shape.ideal[name]
        band = "given" if one.ci95 is None else f"{one.ci95[0]:,.1f} to {one.ci95[1]:,.1f}"
        inside = "given" if one.fixed else "yes" if one.inside else "no, extrapolated"
        rows.append((TITLES[name], f"{one.value:,.1f}", band, inside, shape.chosen.shape[name]))
    heads = (*doc.numbers("Best value", "95 % band"), doc.Column("In the sweep's range"), *doc.numbers("Rounded"))
    table = doc.Table("Best shape", ["Dimension", *heads], rows, f"{how} Bands: 95 %, from the bootstrap of the fit.")
    return doc.DocumentSection("Best shape", [table], "shape", "Shape")


def _networks(shape: ShapeRecord) -> doc.DocumentSection:
    measured = shape.verdict is not None
    heads = doc.numbers(*(capitalized(TITLES[name]) for name in _DIMENSIONS))
    heads += doc.numbers("Heads", "MACs (billions)", detail=True)
    heads += doc.numbers("Parameters (millions)", "Images", *(["Measured loss"] if measured else []), "Predicted loss")
    caption = (
        "The predicted shape, its neighbours in one dimension, and the paper's optimised shapes, which were derived "
        "for other data and compute. Images: how many this compute trains each network on. Parameters and MACs are "
        "without the head."
    )
    rows = [_network(one, measured) for one in (shape.chosen, *shape.neighbours, *shape.others)]
    return doc.DocumentSection("Networks", [doc.Table("Networks", ["Network", *heads], rows, caption)], "networks")


def _network(one: NamedShape, measured: bool) -> tuple[doc.Cell, ...]:
    cells: list[doc.Cell] = [one.name, *(one.shape[name] for name in _DIMENSIONS), one.heads]
    cells += [f"{one.macs / 1e9:.3g}", f"{one.params / 1e6:.3g}", f"{one.images:.3g}"]
    if measured:
        cells.append("–" if one.measured_loss is None else f"{one.measured_loss:.4f}")
    cells.append("–" if one.predicted_loss.value is None else doc.Quantity(one.predicted_loss, 4))
    return tuple(cells)


def _repeat(command: str, facts: Sequence[tuple[str, doc.Words]]) -> doc.DocumentSection:
    blocks: list[doc.Block] = [doc.CodeBlock("Command", command), doc.Facts(facts)]
    return doc.DocumentSection("How to repeat it", blocks, "repeat", detail=True)


def _flops(gflops: float) -> str:
    return f"{gflops * 1e9:.3g}"


def in_words(shape: Mapping[DimensionName, float]) -> str:
    """Format a shape: ``width 1152, depth 27, MLP width 4304``."""
    return ", ".join(f"{TITLES[name]} {shape[name]:,.0f}" for name in _DIMENSIONS)
