"""Settings of ``usvit shape``: the sweep, the fit, and the predicted shape."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from usvit.config.fields import Option
from usvit.config.sections import Section


def _parts(given: Any) -> Any:
    """Return the parts of a text that lists them with commas; other values stay."""
    return tuple(part.strip() for part in given.split(",") if part.strip()) if isinstance(given, str) else given


def _integers(given: Any) -> Any:
    try:
        return tuple(int(part) for part in _parts(given)) if isinstance(given, str) else given
    except ValueError:
        raise ValueError(f"give whole numbers, separated by commas, not '{given}'") from None


def _grid(given: Any) -> Any:
    """Parse ``32,64:2,4:64,128`` as values of width, depth and MLP width."""
    if not isinstance(given, str):
        return given
    parts = given.split(":")
    if len(parts) != 3:
        raise ValueError(f"give widths, depths and MLP widths, such as 32,64:2,4:64,128, not '{given}'")
    return {name: _integers(part) for name, part in zip(("width", "depth", "mlp"), parts, strict=True)}


def _fixed(given: Mapping[str, float] | Sequence[str] | None) -> Mapping[str, float]:
    """Parse ``["mlp=1536"]`` as ``{"mlp": 1536}``."""
    if isinstance(given, Mapping):
        return given
    try:
        return {name.strip(): float(value) for name, value in (text.split("=") for text in given or ())}
    except ValueError:
        raise ValueError(f"give a dimension and its value, such as mlp=1536, not '{', '.join(given or ())}'") from None


_Values = Annotated[
    tuple[int, ...] | None,
    BeforeValidator(_integers, json_schema_input_type=str | Sequence[int] | None),
    Option(metavar="N,..."),
]
_Count = Annotated[int | None, Field(ge=1)]


class ShapePlanSettings(Section):
    """Settings of a sweep of shapes."""

    out: Path = Path("shape-sweep.yaml")
    """The study's file. An existing file is not overwritten."""
    sweep: Literal["star", "grid", "both"] = "star"
    """``star``, ``grid`` or ``both``."""
    center: Annotated[
        tuple[int, ...],
        BeforeValidator(_integers, json_schema_input_type=str | Sequence[int]),
        Option(metavar="WIDTH,DEPTH,MLP"),
    ] = (1968, 40, 6144)
    """Width, depth and MLP width of the centre of the star sweep. (default: the paper's, 1968,40,6144)"""
    widths: _Values = None
    """Widths of the star sweep. (default: six, from half the centre's downwards by a factor of 1.25)"""
    depths: _Values = None
    """Depths of the star sweep. (default: six, from half the centre's downwards by a factor of 1.25)"""
    mlps: _Values = None
    """MLP widths of the star sweep. (default: six, from half the centre's downwards by a factor of 1.25)"""
    grid_values: Annotated[
        Mapping[str, tuple[int, ...]] | None,
        BeforeValidator(_grid, json_schema_input_type=str | Mapping[str, Sequence[int]] | None),
        Option("--grid", metavar="WIDTHS:DEPTHS:MLPS"),
    ] = None
    """Values of ``width``, ``depth`` and ``mlp`` of the grid sweep. (default: those of the star sweep)"""
    grid_budgets: Annotated[tuple[float, ...] | None, Option("--grid-budget", metavar="F")] = None
    """Budget of the grid sweep; can be repeated. (default: the smallest)"""
    recipe: Annotated[str, Option(metavar="NAME|FILE")] = "fractals"
    """Recipe of ``usvit pretrain`` for all networks."""
    model: Annotated[str, Option(metavar="M")] = "vit"
    """Plain ViT whose other parts are kept."""
    heads: int | None = None
    """Number of heads of every network, as in the paper (16). (default: one for each ``head_dim`` channels)"""
    head_dim: int = 64
    """Channels of a head. Widths are rounded to multiples of it, or of ``heads``."""
    min_steps: Annotated[int, Field(ge=1)] = 100
    """Fewest steps of a training; shorter ones are left out and listed."""
    max_steps: _Count = None
    """Most steps of a training."""
    warmup: float = 0.1
    """Share of the steps in which the learning rate rises."""
    name: str | None = None
    """Name of the study. (default: that of the file)"""


class ShapeFitSettings(Section):
    """Settings of the fit of a sweep."""

    out: Path | None = None
    """Folder of the result. (default: ``shape-fit``, beside the table)"""
    loss: Annotated[str, Option(metavar="COLUMN")] = "loss"
    """Column of the loss; any figure above 0 that is lower for better networks, such as an error rate."""
    compute: Annotated[str, Option(metavar="COLUMN")] = "gflops"
    """Column of the compute in GFLOPs."""
    dimensions: Annotated[
        tuple[str, ...],
        BeforeValidator(_parts, json_schema_input_type=str | Sequence[str]),
        Option(metavar="D,..."),
    ] = ("width", "depth", "mlp")
    """Columns of the dimensions to fit. (default: width,depth,mlp)"""
    drop_missing: bool = False
    """Leave out trainings without a loss instead of refusing the table."""
    draws: Annotated[int, Field(ge=50, le=10_000)] = 400
    """Number of bootstrap draws."""
    seed: Annotated[int, Field(ge=0)] = 0
    """Seed of the starting points and of the bootstrap; the same seed gives the same bytes."""


class ShapePredictionSettings(Section):
    """Settings of a prediction: its start, its network, and the study that tests it."""

    out: Path | None = None
    """Folder of the result. (default: that of the fit)"""
    start: Annotated[
        tuple[float, ...] | None,
        BeforeValidator(_integers, json_schema_input_type=str | Sequence[float] | None),
        Option(metavar="WIDTH,DEPTH,MLP"),
    ] = None
    """Width, depth and MLP width of a small network that is optimal for ``start_flops``, which the paper's rule
    scales."""
    start_flops: Annotated[float | None, Option(metavar="F")] = None
    """FLOPs for which ``start`` is optimal; the least of them, if it is for several."""
    fixed: Annotated[
        Mapping[str, float],
        BeforeValidator(_fixed, json_schema_input_type=Mapping[str, float] | Sequence[str] | None),
        Option("--fix", metavar="D=N"),
    ] = Field(default_factory=dict)
    """Dimension that is held instead of predicted, with its value, such as mlp=1536; can be repeated."""
    model: Annotated[str | None, Option(metavar="M")] = None
    """Plain ViT whose other parts the network has. (default: vit)"""
    patch: _Count = None
    """Patch of the network. (default: the model's)"""
    image_size: _Count = None
    """Side of its images in pixels. (default: 224)"""
    heads: int | None = None
    """Number of its heads. (default: one for each ``head_dim`` channels)"""
    head_dim: int | None = None
    """Channels of a head. (default: 64)"""
    like: Annotated[Path | None, Option(metavar="FILE")] = None
    """Study file of the sweep: ``study`` takes over its settings, and the network its model, patch, image size and
    heads, which cannot be given beside it."""
    study: Annotated[Path | None, Option(metavar="FILE")] = None
    """Study file to write, which trains the predicted shape and its neighbours."""
    trained: Annotated[Path | None, Option(metavar="TABLE")] = None
    """study.csv of trainings; the page says whether the predicted shape has the lowest loss at this compute."""
