"""``usvit shape``: scaling laws of a network's shape."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.errors import EXIT_USER, UsvitError

if TYPE_CHECKING:
    pass

app = typer.Typer(
    help="Find the best depth, width and MLP width for a compute budget (Alabdulmohsin et al. 2023).",
    no_args_is_help=True,
)


@app.command()
def plan(
    budget: Annotated[
        list[str], typer.Option(help="FLOPs of a training, forward and backward; repeat it.", metavar="F")
    ],
    out: Annotated[Path, typer.Option(help="The study's file.")] = Path("shape-sweep.yaml"),
    sweep: Annotated[str, typer.Option(help="star, grid or both.")] = "star",
    center: Annotated[
        str, typer.Option(help="Centre of the star sweep; the default is the paper's.", metavar="WIDTH,DEPTH,MLP")
    ] = "1968,40,6144",
    widths: Annotated[
        str | None,
        typer.Option(help="Widths of the star sweep. (default: six up to half the centre's)", metavar="N,..."),
    ] = None,
    depths: Annotated[
        str | None,
        typer.Option(help="Depths of the star sweep. (default: six up to half the centre's)", metavar="N,..."),
    ] = None,
    mlps: Annotated[
        str | None,
        typer.Option(help="MLP widths of the star sweep. (default: six up to half the centre's)", metavar="N,..."),
    ] = None,
    grid: Annotated[
        str | None,
        typer.Option(help="Values of the grid sweep. (default: those of the star sweep)", metavar="WIDTHS:DEPTHS:MLPS"),
    ] = None,
    grid_budget: Annotated[
        list[str] | None, typer.Option(help="Budget of the grid sweep; repeat it. (default: the smallest)", metavar="F")
    ] = None,
    recipe: Annotated[
        str, typer.Option(help="Recipe of pre-training for all networks.", metavar="NAME|FILE")
    ] = "fractals",
    model: Annotated[str, typer.Option(help="Plain ViT whose other parts are kept.", metavar="M")] = "vit",
    heads: Annotated[
        int | None, typer.Option(help="Heads of every network. (default: one for each --head-dim channels)")
    ] = None,
    head_dim: Annotated[int, typer.Option(help="Channels of a head.")] = 64,
    min_steps: Annotated[int, typer.Option(min=1, help="Fewest steps of a training; shorter ones are left out.")] = 100,
    max_steps: Annotated[int | None, typer.Option(min=1, help="Most steps of a training.")] = None,
    set_: o.Set = None,
    json_: o.Json = False,
) -> None:
    """Write a star sweep, a grid sweep or both as a study, with the estimated time.

    Widths are rounded so that every head has equally many channels. Run the study with 'usvit study', then fit its
    study.csv with 'usvit shape fit'.
    """
    from usvit.config import parse_overrides
    from usvit.upstream.scaling import plan_shapes

    made = plan_shapes(
        [_number(one, "--budget") for one in budget],
        out=out,
        sweep=sweep,
        center=_integers(center, "--center"),
        widths=None if widths is None else _integers(widths, "--widths"),
        depths=None if depths is None else _integers(depths, "--depths"),
        mlps=None if mlps is None else _integers(mlps, "--mlps"),
        grid_budgets=None if grid_budget is None else [_number(one, "--grid-budget") for one in grid_budget],
        grid_values=None if grid is None else _grid(grid),
        recipe=recipe,
        model=model,
        heads=heads,
        head_dim=head_dim,
        min_steps=min_steps,
        max_steps=max_steps,
        overrides=parse_overrides(set_ or []),
    )
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
def fit(
    table: Annotated[Path, typer.Argument(help="study.csv, or any CSV of shape, compute and loss.", metavar="TABLE")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the result. (default: shape-fit, beside the table)")
    ] = None,
    loss: Annotated[str, typer.Option(help="Column of the loss, or of an error rate.", metavar="COLUMN")] = "loss",
    compute: Annotated[str, typer.Option(help="Column of the compute in GFLOPs.", metavar="COLUMN")] = "gflops",
    dimensions: Annotated[
        str, typer.Option(help="Columns of the dimensions to fit.", metavar="D,...")
    ] = "width,depth,mlp",
    drop_missing: Annotated[bool, typer.Option("--drop-missing", help="Leave out trainings without a loss.")] = False,
    draws: Annotated[int, typer.Option(help="Number of bootstrap draws.")] = 400,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the bootstrap.")] = 0,
    json_: o.Json = False,
) -> None:
    """Fit the loss as a function of shape and compute, and show how the best shape grows with compute.

    An exponent that the data do not identify is not printed; the reason is, and the exit code is 2. The files are
    written in any case.
    """
    from usvit.documents import terminal_text
    from usvit.upstream.scaling import fit_document, fit_shapes

    found = fit_shapes(
        table,
        out=out,
        loss=loss,
        compute=compute,
        dimensions=[one.strip() for one in dimensions.split(",") if one.strip()],
        drop_missing=drop_missing,
        draws=draws,
        seed=seed,
        command=o.command_line(),
    )
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
def predict(
    fit_: Annotated[Path, typer.Argument(help="scaling.json of 'usvit shape fit', or its folder.", metavar="FIT")],
    flops: Annotated[str, typer.Option(help="Compute of the training, forward and backward.", metavar="F")],
    out: Annotated[Path | None, typer.Option(help="Folder of the result. (default: that of the fit)")] = None,
    start: Annotated[
        str | None,
        typer.Option(help="A small optimal shape that the paper's rule scales.", metavar="WIDTH,DEPTH,MLP"),
    ] = None,
    start_flops: Annotated[
        str | None, typer.Option(help="The least compute for which it is optimal.", metavar="F")
    ] = None,
    fix: Annotated[
        list[str] | None, typer.Option(help="Hold a dimension, such as mlp=1536; repeat it.", metavar="D=N")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Plain ViT whose other parts are kept. (default: vit)", metavar="M")
    ] = None,
    patch: Annotated[int | None, typer.Option(min=1, help="Patch of the network. (default: the model's)")] = None,
    image_size: Annotated[int | None, typer.Option(min=1, help="Side of its images in pixels. (default: 224)")] = None,
    heads: Annotated[
        int | None, typer.Option(help="Number of its heads. (default: one for each --head-dim channels)")
    ] = None,
    head_dim: Annotated[int | None, typer.Option(help="Channels of a head. (default: 64)")] = None,
    like: Annotated[
        Path | None,
        typer.Option(help="Study file of the sweep, whose network and settings are used.", metavar="FILE"),
    ] = None,
    study: Annotated[
        Path | None, typer.Option(help="Write a study that trains the shape beside its neighbours.", metavar="FILE")
    ] = None,
    trained: Annotated[
        Path | None,
        typer.Option(help="study.csv of that study, to check whether the shape has the lowest loss.", metavar="TABLE"),
    ] = None,
    json_: o.Json = False,
) -> None:
    """Predict the best shape for a compute budget, rounded to a network that can be trained."""
    from usvit.upstream.scaling import predict_shape, shape_document

    found = predict_shape(
        fit_,
        _number(flops, "--flops"),
        out=out,
        start=None if start is None else _integers(start, "--start"),
        start_flops=None if start_flops is None else _number(start_flops, "--start-flops"),
        fixed=dict(_pair(one) for one in fix or []),
        model=model,
        patch=patch,
        image_size=image_size,
        heads=heads,
        head_dim=head_dim,
        trained=trained,
        study=study,
        like=like,
        command=o.command_line(),
    )
    if json_:
        print(found.path.read_text(encoding="utf-8"), end="")
        return
    from usvit.documents import terminal_text

    print(terminal_text(shape_document(found.record)))
    print(f"shape: {found.path}\npage: {found.page}")
    if found.study:
        print(f"next: usvit study {found.study}")


def _number(text: str, option: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise UsvitError(f"{option} is '{text}': give a number such as 1e18.") from None
    if not 0 < value < float("inf"):
        raise UsvitError(f"{option} is {text}: give a number above 0.")
    return value


def _integers(text: str, option: str) -> list[int]:
    try:
        return [int(one) for one in text.split(",")]
    except ValueError:
        raise UsvitError(f"{option} is '{text}': give whole numbers, separated by commas.") from None


def _grid(text: str) -> dict[str, list[int]]:
    parts = text.split(":")
    if len(parts) != 3:
        raise UsvitError(f"--grid is '{text}': give widths, depths and MLP widths, such as 32,64:2,4:64,128.")
    return {name: _integers(part, "--grid") for name, part in zip(("width", "depth", "mlp"), parts, strict=True)}


def _pair(text: str) -> tuple[str, float]:
    name, equals, value = text.partition("=")
    if not equals:
        raise UsvitError(f"--fix is '{text}': give a dimension and its value, such as mlp=1536.")
    return name.strip(), _number(value, "--fix")


def _duration(seconds: float) -> str:
    for unit, length in (("years", 365 * 86_400), ("days", 86_400), ("hours", 3_600)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.1f} {unit}"
    return f"{seconds / 60:,.0f} minutes" if seconds >= 120 else f"{seconds:,.0f} seconds"
