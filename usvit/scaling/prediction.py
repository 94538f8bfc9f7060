"""``usvit shape predict``: the best shape for a compute budget, as a network that can be trained."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from usvit.errors import UsvitError
from usvit.files import make_folder, read_csv, sha256_of_file
from usvit.models import find_model
from usvit.records import (
    DimensionName,
    NamedShape,
    ScalingRecord,
    ScalingValue,
    ShapeRecord,
    ShapeValue,
    load_record,
    write_record,
)
from usvit.scaling.pages import write_shape_page
from usvit.scaling.planning import setup_like, write_neighbours
from usvit.scaling.shapes import DIMENSIONS, TITLES, NetworkShape, ShapeRule
from usvit.scaling.stored_fit import surfaces_of
from usvit.scaling.surface import Array, Surface

WIDEST = 4.0
"""A predicted dimension is identified if the upper end of its band is at most this multiple of the lower end."""
NEIGHBOUR = 1.3
"""Ratio of a neighbour's dimension to the predicted one, before rounding."""
FURTHEST = 10.0
"""Beyond this multiple of the largest compute in the sweep, the prediction is called a far extrapolation."""
MOST = 1e5
"""Largest dimension of a predicted network."""
PRINTED = ("sovit_400m_14", "sovit_150m_14")
"""The paper's own optimised shapes."""


@dataclass(frozen=True)
class ShapePrediction:
    """A predicted shape and its files."""

    record: ShapeRecord
    """The content of ``shape.json``."""
    path: Path
    page: Path
    study: Path | None
    """The study that trains the shape beside its neighbours, if one was requested."""


@dataclass(frozen=True)
class Start:
    """A shape that is optimal for a small compute, from which the paper's rule scales."""

    shape: tuple[float, float, float]
    flops: float


def predict_shape(
    fit: str | Path,
    flops: float,
    *,
    out: str | Path | None = None,
    start: Sequence[float] | None = None,
    start_flops: float | None = None,
    fixed: Mapping[str, float] | None = None,
    model: str = "vit",
    patch: int | None = None,
    image_size: int = 224,
    heads: int | None = None,
    head_dim: int = 64,
    trained: str | Path | None = None,
    study: str | Path | None = None,
    like: str | Path | None = None,
    command: str = "usvit.predict_shape",
) -> ShapePrediction:
    """Predict the best shape for a compute budget and round it to a network that can be trained.

    Without ``start``, the shape is the minimum of the fitted form. With it, the paper's rule scales a small optimal
    shape: when the compute grows by a factor tau, dimension k of K grows by tau^(s_k / K), because the increase is
    divided equally among the dimensions (section 3, "Scaling").

    Args:
        fit: ``scaling.json`` of ``fit_shapes``, or its folder.
        flops: Compute of the training in FLOPs, forward and backward.
        out: Folder of ``shape.json`` and ``shape.html``. Default: the folder of the fit.
        start: Width, depth and MLP width of a small network that is optimal for ``start_flops``.
        start_flops: FLOPs for which ``start`` is optimal; the least of them, if it is for several.
        fixed: Dimensions that are not predicted, with their values: ``{"mlp": 1536}``.
        model: Plain ViT whose other parts the network has.
        patch: Its patch. Default: the model's.
        image_size: Side of its images in pixels.
        heads: Its number of heads. Default: one for each ``head_dim`` channels.
        head_dim: Channels of a head.
        trained: ``study.csv`` of trainings at this budget; the page says whether the predicted shape is best.
        study: Study file to be written, which trains the predicted shape and its neighbours.
        like: Study file of the sweep: ``study`` takes over its settings, and the network its model, patch, image size
            and heads.
        command: What the user called, for the record.

    Returns:
        The record, its file and its page, and the study's file if one was requested.

    Raises:
        UsvitError: The fit cannot be read, a value is wrong, or the data do not identify the shape.

    Example:
        >>> import tempfile, usvit
        >>> from pathlib import Path
        >>> from usvit.scaling import example_sweep
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "sweep.csv").write_text(example_sweep())
        >>> fit = usvit.fit_shapes(folder / "sweep.csv", draws=50)
        >>> best = usvit.predict_shape(fit.path, 3e20, patch=14, heads=16)
        >>> best.record.chosen.shape["width"] % 16
        0
    """
    path = Path(fit)
    path = path / "scaling.json" if path.is_dir() else path
    record = load_record(path, ScalingRecord, "Fit a sweep first: usvit shape fit TABLE.", follow=True)
    if not 0 < flops < math.inf:
        raise UsvitError(f"The compute is {flops:g}: give FLOPs above 0, such as --flops 3e20.")
    held = dict(fixed or {})
    if wrong := [name for name in held if name not in DIMENSIONS]:
        raise UsvitError(f"Unknown dimension '{wrong[0]}'. Known: {', '.join(DIMENSIONS)}.")
    scaled = _start_of(start, start_flops)
    surface, draws = surfaces_of(record)
    ideal = (
        _scaled(record, surface, draws, flops, scaled, held)
        if scaled
        else _minimum(record, surface, draws, flops, held)
    )
    if study is not None and like is None:
        raise UsvitError("--study needs --like, the study of the sweep whose settings it takes over.")
    setup = None if like is None else setup_like(Path(like))
    vit = {} if patch is None else {"patch": patch}
    rule = setup.rule if setup else ShapeRule(model, tuple(vit.items()), image_size, heads, head_dim)
    largest = max(ideal.values(), key=lambda one: one.value)
    if largest.value > MOST:
        raise UsvitError(
            f"At {flops:.3g} FLOPs, the extrapolated shape has a dimension of {largest.value:.3g}, and no such network "
            "can be trained. Give less compute."
        )
    chosen = rule.snap(*(ideal[name].value for name in DIMENSIONS))
    folder = Path(out) if out is not None else path.parent
    measured = {} if trained is None else _measured(Path(trained))
    near = neighbours(chosen, rule, held)
    content = ShapeRecord(
        schema_version=ShapeRecord.VERSION,
        command=command,
        usvit_version=_version(),
        fit=path.name,
        fit_sha256=sha256_of_file(path),
        gflops=flops / 1e9,
        method="start" if scaled else "surface",
        start=dict(zip(DIMENSIONS, scaled.shape, strict=True)) if scaled else None,  # type: ignore[arg-type]
        start_gflops=scaled.flops / 1e9 if scaled else None,
        ideal=ideal,  # type: ignore[arg-type]
        chosen=_named("predicted", chosen, rule, record, flops, measured),
        neighbours=[_named(name, one, rule, record, flops, measured) for name, one in near],
        others=[_printed(name, flops) for name in PRINTED],
        verdict=None,
        warnings=_warnings(record, ideal, flops),
    )
    if trained is not None:
        content.verdict = verdict(content)
    make_folder(folder)
    written = write_record(folder / "shape.json", content.model_dump(mode="json", by_alias=True), ShapeRecord)
    page = write_shape_page(folder, record, written)
    made = None
    if study is not None and setup is not None:
        made = write_neighbours(Path(study), [("predicted", chosen), *near], setup, flops)
    return ShapePrediction(written, folder / "shape.json", page, made)


def _version() -> str:
    from usvit import __version__

    return __version__


def _start_of(start: Sequence[float] | None, flops: float | None) -> Start | None:
    if (start is None) != (flops is None):
        raise UsvitError(
            "Give the small optimal shape and its compute together: --start 608,10,928 --start-flops 9e18."
        )
    if start is None or flops is None:
        return None
    if len(start) != len(DIMENSIONS) or any(one <= 0 for one in start) or flops <= 0:
        raise UsvitError("The start has a width, a depth and an MLP width, and a compute, all above 0.")
    return Start((start[0], start[1], start[2]), flops)


def _minimum(
    record: ScalingRecord, surface: Surface, draws: Sequence[Surface], flops: float, held: Mapping[str, float]
) -> dict[str, ShapeValue]:
    """Return the minimum of the fitted form, with bands."""
    best = surface.optimum(flops / 1e9)
    drawn = np.array([one.optimum(flops / 1e9) for one in draws])
    found: dict[str, ShapeValue] = {}
    lost = []
    for place, one in enumerate(record.dimensions):
        if one.name in held:
            continue
        values = drawn[:, place]
        known = values[np.isfinite(values)]
        low, high = np.quantile(known, [0.025, 0.975]) if len(known) else (np.nan, np.nan)
        if not np.isfinite(best[place]) or len(known) < 0.975 * len(values):
            lost.append(f"the {TITLES[one.name]} has no optimum ({one.exponent.reason or 'in some bootstrap draws'})")
        elif high > WIDEST * low:
            lost.append(f"the {TITLES[one.name]} is only known to lie between {low:.3g} and {high:.3g}")
        else:
            found[one.name] = _value(one.values, float(best[place]), [float(low), float(high)])
    if lost:
        raise UsvitError(
            f"The fit does not identify the best shape at {flops:.3g} FLOPs: {'; '.join(lost)}. Nothing is predicted. "
            "Extend the sweep, or hold a dimension with --fix, such as --fix mlp=1536."
        )
    return _complete(record, found, held)


def _scaled(
    record: ScalingRecord,
    surface: Surface,
    draws: Sequence[Surface],
    flops: float,
    start: Start,
    held: Mapping[str, float],
) -> dict[str, ShapeValue]:
    """Return a small optimal shape, scaled by the exponents."""
    lost = [one for one in record.dimensions if one.exponent.value is None and one.name not in held]
    if lost:
        said = "; ".join(f"{TITLES[one.name]}: {one.exponent.reason}" for one in lost)
        raise UsvitError(
            f"The data do not identify the exponents that scale the start. {said}. Extend the sweep, or hold a "
            "dimension with --fix, such as --fix mlp=1536."
        )
    names = [one.name for one in record.dimensions]
    drawn = np.array([one.exponents for one in draws])
    found: dict[str, ShapeValue] = {}
    for place, one in enumerate(record.dimensions):
        if one.name in held:
            continue
        begun = start.shape[DIMENSIONS.index(one.name)]
        value = begun * grown(float(surface.exponents[place]), flops / start.flops, len(names))
        band = [
            begun * grown(float(s), flops / start.flops, len(names))
            for s in np.nanquantile(drawn[:, place], [0.025, 0.975])
        ]
        found[one.name] = _value(one.values, value, sorted(band))
    return _complete(record, found, held)


def grown(exponent: float, factor: float, dimensions: int) -> float:
    """Return the factor by which a dimension grows when the compute grows by ``factor``: tau^(s_k / K)."""
    return float(factor ** (exponent / dimensions))


def _value(values: Sequence[float], value: float, band: list[float]) -> ShapeValue:
    return ShapeValue(value=value, ci95=band, inside=min(values) <= value <= max(values), fixed=False)


def _complete(record: ScalingRecord, found: dict[str, ShapeValue], held: Mapping[str, float]) -> dict[str, ShapeValue]:
    """Add the dimensions that are held, or that were constant in the sweep."""
    given = {**{str(name): value for name, value in record.constant.items()}, **held}
    for name in DIMENSIONS:
        if name in found:
            continue
        if name not in given:
            raise UsvitError(f"The fit has no {TITLES[name]}. Give its value, such as --fix {name}=1536.")
        if given[name] <= 0:
            raise UsvitError(f"The {TITLES[name]} is {given[name]:g}: give a number above 0.")
        found[name] = ShapeValue(value=given[name], ci95=None, inside=True, fixed=True)
    return found


def _warnings(record: ScalingRecord, ideal: Mapping[str, ShapeValue], flops: float) -> list[str]:
    said = []
    low, high = record.compute
    if not low <= flops / 1e9 <= high:
        how = "far outside" if flops / 1e9 > FURTHEST * high else "outside"
        said.append(
            f"The compute is {how} the sweep's, {low * 1e9:.3g} to {high * 1e9:.3g} FLOPs: the shape is extrapolated."
        )
    outside = [TITLES[name] for name, one in ideal.items() if not one.inside]
    if outside:
        said.append(f"Outside the values of the sweep, and so extrapolated: {', '.join(outside)}.")
    return said


def neighbours(chosen: NetworkShape, rule: ShapeRule, held: Mapping[str, float]) -> list[tuple[str, NetworkShape]]:
    """Return shapes that differ in one dimension by a factor of about 1.3, as in the paper's Figure 6."""
    found = []
    for name in DIMENSIONS:
        if name in held:
            continue
        for word, factor in (("less", 1 / NEIGHBOUR), ("more", NEIGHBOUR)):
            wanted = {one: getattr(chosen, one) * (factor if one == name else 1.0) for one in DIMENSIONS}
            near = rule.snap(**wanted)
            if near == chosen:  # rounding took the change back: go one step further
                step = rule.width_multiple if name == "width" else 1 if name == "depth" else 8
                value = getattr(chosen, name) + (step if factor > 1 else -step)
                if value < step:
                    continue
                near = dataclasses.replace(chosen, **{name: value})
            found.append((f"{word} {TITLES[name]}", near))
    return found


def _named(
    name: str,
    shape: NetworkShape,
    rule: ShapeRule,
    record: ScalingRecord,
    flops: float,
    measured: Mapping[NetworkShape, float],
) -> NamedShape:
    cost = rule.cost(shape)
    return NamedShape(
        name=name,
        shape=_as_record(shape),
        heads=rule.n_heads(shape),
        params=cost.params,
        macs=cost.macs,
        images=flops / rule.flops(shape),
        predicted_loss=_loss(record, shape, flops),
        measured_loss=measured.get(shape),
    )


def _as_record(shape: NetworkShape) -> dict[DimensionName, int]:
    return {"width": shape.width, "depth": shape.depth, "mlp": shape.mlp}


def _loss(record: ScalingRecord, shape: NetworkShape, flops: float) -> ScalingValue:
    surface, draws = surfaces_of(record)
    values = [float(getattr(shape, one.name)) for one in record.dimensions]
    found = float(surface.loss(values, flops / 1e9))
    drawn: Array = np.array([float(one.loss(values, flops / 1e9)) for one in draws])
    low, high = np.quantile(drawn, [0.025, 0.975])
    return ScalingValue(value=found, ci95=[float(low), float(high)], reason=None)


def _printed(name: str, flops: float) -> NamedShape:
    """Return one of the paper's shapes with the number of images on which this compute trains it."""
    spec = find_model(name)
    assert spec.shape is not None
    shape = NetworkShape(spec.shape.width, spec.shape.depth, spec.shape.mlp)
    rule = ShapeRule(name, (), spec.image_size, spec.shape.heads)
    cost = rule.cost(shape)
    return NamedShape(
        name=name,
        shape=_as_record(shape),
        heads=spec.shape.heads,
        params=cost.params,
        macs=cost.macs,
        images=flops / rule.flops(shape),
        predicted_loss=ScalingValue(value=None, ci95=None, reason="trained on other data"),
        measured_loss=None,
    )


def _measured(table: Path) -> dict[NetworkShape, float]:
    """Read the losses of trained shapes from a study.csv; several trainings of a shape are averaged."""
    rows = read_csv(table, text=False, follow=True, needed=[*DIMENSIONS, "loss"]).dropna(subset=[*DIMENSIONS, "loss"])
    found: dict[NetworkShape, list[float]] = {}
    for width, depth, mlp, loss in rows[[*DIMENSIONS, "loss"]].itertuples(index=False):
        found.setdefault(NetworkShape(round(width), round(depth), round(mlp)), []).append(float(loss))
    return {shape: sum(losses) / len(losses) for shape, losses in found.items()}


def verdict(record: ShapeRecord) -> str:
    """Say whether the predicted shape has the lowest measured loss of those that were trained."""
    if record.chosen.measured_loss is None:
        return "The predicted shape was not trained, so that nothing can be said about it."
    rivals = [one for one in record.neighbours if one.measured_loss is not None]
    if not rivals:
        return "None of its neighbours was trained, so that nothing can be said about the predicted shape."
    ours = record.chosen.measured_loss
    better = sorted((one for one in rivals if one.measured_loss < ours), key=lambda one: one.measured_loss or 0.0)  # type: ignore[operator]
    if not better:
        second = min(one.measured_loss for one in rivals if one.measured_loss is not None)
        return (
            f"The predicted shape wins: its loss of {ours:.4f} is the lowest of {len(rivals) + 1} trained shapes; the "
            f"next is {second:.4f}."
        )
    named = ", ".join(f"{one.name} ({one.measured_loss:.4f})" for one in better)
    return (
        f"The predicted shape does not win: its loss is {ours:.4f}, and {len(better)} of {len(rivals)} neighbours "
        f"{'has' if len(better) == 1 else 'have'} a lower one: {named}."
    )
