"""``usvit shape``: scaling laws of a network's shape."""

import json
from pathlib import Path
from typing import Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.errors import EXIT_USER
from usvit.upstream.config.shape import ShapeFitSettings, ShapePlanSettings, ShapePredictionSettings

app = typer.Typer(
    help="Find the best depth, width and MLP width for a compute budget (Alabdulmohsin et al. 2023).",
    no_args_is_help=True,
)


@app.command()
@takes_options(without=["warmup", "name"])
def plan(
    budget: Annotated[
        list[float], typer.Option(help="FLOPs of a training, forward and backward; can be repeated.", metavar="F")
    ],
    settings: ShapePlanSettings,
    set_: o.Set = None,
    json_: o.Json = False,
) -> None:
    """Write a star sweep, a grid sweep or both as a study, with the estimated time.

    Widths are rounded so that every head has equally many channels. Run the study with 'usvit study', then fit its
    study.csv with 'usvit shape fit'.
    """
    from usvit.config import parse_overrides
    from usvit.upstream.scaling import plan_shapes

    made = plan_shapes(budget, settings=settings, overrides=parse_overrides(set_ or []))
    if json_:
        cells = [
            {
                "sweep": cell.sweep,
                "width": cell.shape.width,
                "depth": cell.shape.depth,
                "mlp": cell.shape.mlp,
                "budget": cell.budget,
                "flops": cell.flops,
                "steps": cell.steps,
                "params": cell.params,
            }
            for cell in made.cells
        ]
        told = {
            "study": str(made.path),
            "seconds": made.seconds,
            "estimated_on": made.where,
            "warnings": list(made.warnings),
            "trainings": cells,
        }
        print(json.dumps(told, indent=2, ensure_ascii=False))
        return
    from usvit.documents import Table, numbers, terminal_text

    rows = [
        (cell.sweep, str(cell.shape), f"{cell.params / 1e6:.3g}", f"{cell.budget:.3g}", cell.steps)
        for cell in made.cells
    ]
    print(terminal_text([Table("Trainings", ["sweep", "shape", *numbers("params/M", "FLOPs", "steps")], rows)]))
    for cell in made.left_out:
        print(f"left out: {cell.name} would have {cell.steps:,} steps")
    print(f"\n{len(made.cells)} trainings, about {_duration(made.seconds)} on {made.where}")
    for warning in made.warnings:
        print(f"Warning: {warning}")
    print(f"next: usvit study {made.path}")


@app.command()
@takes_options()
def fit(
    table: Annotated[Path, typer.Argument(help="study.csv, or any CSV of shape, compute and loss.", metavar="TABLE")],
    settings: ShapeFitSettings,
    json_: o.Json = False,
) -> None:
    """Fit the loss as a function of shape and compute, and show how the best shape grows with compute.

    An exponent that the data do not identify is not printed; the reason is, and the exit code is 2. The files are
    written in any case.
    """
    from usvit.documents import terminal_text
    from usvit.upstream.scaling import fit_document, fit_shapes

    found = fit_shapes(table, settings=settings, command=o.command_line())
    record = found.record
    if json_:
        print(found.path.read_text(encoding="utf-8"), end="")
    else:
        print(terminal_text(fit_document(record)))
        print(f"fit: {found.path}\npage: {found.page}")
    if found.complaint:
        typer.echo(f"Error: {found.complaint}", err=True)
        raise typer.Exit(EXIT_USER)


@app.command()
@takes_options()
def predict(
    fit_: Annotated[Path, typer.Argument(help="scaling.json of 'usvit shape fit', or its folder.", metavar="FIT")],
    flops: Annotated[float, typer.Option(help="Compute of the training, forward and backward.", metavar="F")],
    settings: ShapePredictionSettings,
    json_: o.Json = False,
) -> None:
    """Predict the best shape for a compute budget, rounded to a network that can be trained."""
    from usvit.upstream.scaling import predict_shape, shape_document

    found = predict_shape(fit_, flops, settings=settings, command=o.command_line())
    if json_:
        print(found.path.read_text(encoding="utf-8"), end="")
        return
    from usvit.documents import terminal_text

    print(terminal_text(shape_document(found.record)))
    print(f"shape: {found.path}\npage: {found.page}")
    if found.study:
        print(f"next: usvit study {found.study}")


def _duration(seconds: float) -> str:
    for unit, length in (("years", 365 * 86_400), ("days", 86_400), ("hours", 3_600)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds / 60:,.0f} minutes" if seconds >= 120 else f"{seconds:,.0f} seconds"
