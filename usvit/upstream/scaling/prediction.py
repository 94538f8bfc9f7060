"""``usvit shape predict``: the best shape for a compute budget, as a network that can be trained."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from usvit.config.keywords import takes_settings
from usvit.errors import UsvitError
from usvit.files import alone_in, sha256_of_file
from usvit.models import find_model
from usvit.records import load_record, save_record
from usvit.upstream.config.shape import ShapePredictionSettings
from usvit.upstream.records.scaling import (
    DimensionName,
    NamedShape,
    ScalingRecord,
    ScalingValue,
    ShapeRecord,
    ShapeValue,
)
from usvit.upstream.scaling.pages import write_shape_page
from usvit.upstream.scaling.planning import setup_like, write_neighbours
from usvit.upstream.scaling.shapes import DIMENSIONS, MLP_MULTIPLE, TITLES, NetworkShape, ShapeRule
from usvit.upstream.scaling.stored_fit import StoredFit, stored_fit
from usvit.upstream.scaling.trained_shapes import Measured, read_trained, verdict

WIDEST = 4.0
"""A predicted dimension is identified if the upper end of its band is at most this multiple of the lower end."""
_NEIGHBOUR = 1.3
"""Ratio of a neighbour's dimension to the predicted one, before rounding."""
_FURTHEST = 10.0
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


@takes_settings
def predict_shape(
    fit: str | Path,
    flops: float,
    *,
    settings: ShapePredictionSettings,
    command: str = "usvit.predict_shape",
) -> ShapePrediction:
    """Predict the best shape for a compute budget and round it to a network that can be trained.

    Without ``start``, the shape is the minimum of the fitted form. With it, the paper's rule scales a small optimal
    shape: when the compute grows by a factor tau, each of K dimensions grows by tau^(s / K), because the increase is
    divided equally among them (section 3, "Scaling"). A dimension that is held does not count.

    Args:
        fit: ``scaling.json`` of ``fit_shapes``, or its folder.
        flops: Compute of the training in FLOPs, forward and backward.
        settings: See ``ShapePredictionSettings``.
        command: What the user called, for the record.

    Returns:
        The record, its file and its page, and the study's file if one was requested.

    Raises:
        UsvitError: The fit cannot be read, a value is wrong, or the data do not identify the shape.

    Example:
        >>> import tempfile, usvit
        >>> from pathlib import Path
        >>> from usvit.upstream.scaling import example_sweep
        >>> folder = Path(tempfile.mkdtemp())
        >>> _ = (folder / "sweep.csv").write_text(example_sweep())
        >>> fit = usvit.fit_shapes(folder / "sweep.csv", draws=50)
        >>> best = usvit.predict_shape(fit.path, 3e20, patch=14, heads=16)
        >>> best.record.chosen.shape["width"] % 16
        0
    """
    if not 0 < flops < math.inf:
        raise UsvitError(f"The compute is {flops:g}: give FLOPs above 0, such as --flops 3e20.")
    path = Path(fit)
    path = path / "scaling.json" if path.is_dir() else path
    record = load_record(path, ScalingRecord, "Fit a sweep first: usvit shape fit TABLE.", follow=True)
    held = settings.fixed
    if wrong := [name for name in held if name not in DIMENSIONS]:
        raise UsvitError(f"Unknown dimension '{wrong[0]}'. Known: {', '.join(DIMENSIONS)}.")
    begun = _start_of(settings.start, settings.start_flops)
    stored = stored_fit(record)
    ideal = _scaled(stored, flops, begun, held) if begun else _minimum(stored, flops, held)
    like = settings.like
    if settings.study is not None and like is None:
        raise UsvitError("--study needs --like, the study of the sweep whose settings it takes over.")
    setup = None if like is None else setup_like(like)
    network = ("model", "patch", "image_size", "heads", "head_dim")
    if setup and (given := [f"--{name.replace('_', '-')}" for name in network if getattr(settings, name) is not None]):
        raise UsvitError(f"--like takes the network from {like}: leave out {' and '.join(given)}.")
    rule = setup.rule if setup else _rule(settings)
    largest = max(ideal.values(), key=lambda one: one.value)
    if largest.value > MOST:
        raise UsvitError(
            f"At {flops:.3g} FLOPs, the extrapolated shape has a dimension of {largest.value:.3g}, and no such network "
            "can be trained. Give less compute."
        )
    chosen = rule.snap(*(ideal[name].value for name in DIMENSIONS))
    measured = {} if settings.trained is None else read_trained(settings.trained, flops)
    near = neighbours(chosen, rule, held)
    content = ShapeRecord(
        command=command,
        usvit_version=_version(),
        fit=path.name,
        fit_sha256=sha256_of_file(path),
        gflops=flops / 1e9,
        method="start" if begun else "surface",
        start=dict(zip(DIMENSIONS, begun.shape, strict=True)) if begun else None,  # type: ignore[arg-type]
        start_gflops=begun.flops / 1e9 if begun else None,
        ideal=ideal,  # type: ignore[arg-type]
        chosen=_named("predicted", chosen, rule, stored, flops, measured),
        neighbours=[_named(name, one, rule, stored, flops, measured) for name, one in near],
        others=[_printed(name, flops) for name in PRINTED],
        verdict=None,
        warnings=_warnings(record, ideal, flops),
    )
    if begun:
        content.warnings += _better_by_the_form(content)
    if settings.trained is not None:
        content.verdict = verdict(content, measured)
    folder = settings.out or path.parent
    with alone_in(folder):
        save_record(folder / "shape.json", content)
        page = write_shape_page(folder, stored, content)
    made = None
    if settings.study is not None and setup is not None:
        made = write_neighbours(settings.study, [("predicted", chosen), *near], setup, flops)
    return ShapePrediction(content, folder / "shape.json", page, made)


def _rule(settings: ShapePredictionSettings) -> ShapeRule:
    given: dict[str, Any] = {name: getattr(settings, name) for name in ("model", "image_size", "heads", "head_dim")}
    vit = () if settings.patch is None else (("patch", settings.patch),)
    return ShapeRule(vit=vit, **{name: value for name, value in given.items() if value is not None})


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


def _minimum(fit: StoredFit, flops: float, held: Mapping[str, float]) -> dict[str, ShapeValue]:
    """Return the minimum of the fitted form, with bands."""
    best = fit.surface.optimum(flops / 1e9)
    drawn = np.array([one.optimum(flops / 1e9) for one in fit.draws])
    found: dict[str, ShapeValue] = {}
    lost = []
    for place, one in enumerate(fit.record.dimensions):
        if one.name in held:
            continue
        undefined = not np.isfinite(best[place]) or np.isfinite(drawn[:, place]).mean() < 0.975
        low, high = (np.nan, np.nan) if undefined else fit.band(drawn[:, place])
        if undefined:
            lost.append(f"the {TITLES[one.name]} has no optimum ({one.exponent.reason or 'in some bootstrap draws'})")
        elif high > WIDEST * low:
            lost.append(f"the {TITLES[one.name]} is only known to lie between {low:.3g} and {high:.3g}")
        else:
            found[one.name] = _value(one.values, float(best[place]), float(low), float(high))
    if lost:
        raise UsvitError(
            f"The fit does not identify the best shape at {flops:.3g} FLOPs: {'; '.join(lost)}. Nothing is predicted. "
            "Extend the sweep, or hold a dimension with --fix, such as --fix mlp=1536."
        )
    return _complete(fit.record, found, held)


def _scaled(fit: StoredFit, flops: float, start: Start, held: Mapping[str, float]) -> dict[str, ShapeValue]:
    """Return a small optimal shape, scaled by the exponents."""
    free = [(place, one) for place, one in enumerate(fit.record.dimensions) if one.name not in held]
    if lost := [one for _, one in free if one.exponent.value is None]:
        said = "; ".join(f"{TITLES[one.name]}: {one.exponent.reason}" for one in lost)
        raise UsvitError(
            f"The data do not identify the exponents that scale the start. {said}. Extend the sweep, or hold a "
            "dimension with --fix, such as --fix mlp=1536."
        )
    drawn = np.array([one.exponents for one in fit.draws])
    found: dict[str, ShapeValue] = {}
    for place, one in free:
        begun = start.shape[DIMENSIONS.index(one.name)]
        value, *ends = (
            begun * grown(float(exponent), flops / start.flops, len(free))
            for exponent in (fit.surface.exponents[place], *fit.band(drawn[:, place]))
        )
        found[one.name] = _value(one.values, value, min(ends), max(ends))
    return _complete(fit.record, found, held)


def grown(exponent: float, factor: float, dimensions: int) -> float:
    """Return the factor by which a dimension grows when the compute grows by ``factor``: tau^(s_k / K)."""
    return float(factor ** (exponent / dimensions))


def _value(values: Sequence[float], value: float, low: float, high: float) -> ShapeValue:
    return ShapeValue(value=value, ci95=(low, high), inside=min(values) <= value <= max(values), fixed=False)


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
        how = "far outside" if flops / 1e9 > _FURTHEST * high else "outside"
        said.append(
            f"The compute is {how} the sweep's, {low * 1e9:.3g} to {high * 1e9:.3g} FLOPs: the shape is extrapolated."
        )
    outside = [TITLES[name] for name, one in ideal.items() if not one.inside]
    if outside:
        said.append(f"Outside the values of the sweep, and so extrapolated: {', '.join(outside)}.")
    return said


def _better_by_the_form(record: ShapeRecord) -> list[str]:
    """Warn if the fitted form predicts a lower loss for a neighbour of a shape that the paper's rule chose."""
    ours = record.chosen.predicted_loss.value
    better = [
        one.name
        for one in record.neighbours
        if ours is not None and one.predicted_loss.value is not None and one.predicted_loss.value < ours
    ]
    if not better:
        return []
    return [
        f"The fitted form predicts a lower loss for {', '.join(better)}: by its minimum, each dimension grows with the "
        "compute to the power s; by the paper's rule, to the power s divided by the number of dimensions."
    ]


def neighbours(chosen: NetworkShape, rule: ShapeRule, held: Mapping[str, float]) -> list[tuple[str, NetworkShape]]:
    """Return shapes that differ in one dimension by a factor of about 1.3, as in the paper's Figure 6."""
    found = []
    for name in DIMENSIONS:
        if name in held:
            continue
        for word, factor in (("less", 1 / _NEIGHBOUR), ("more", _NEIGHBOUR)):
            wanted = {one: getattr(chosen, one) * (factor if one == name else 1.0) for one in DIMENSIONS}
            near = rule.snap(**wanted)
            if near == chosen:  # rounding took the change back: go one step further
                step = {"width": rule.width_multiple, "depth": 1, "mlp": MLP_MULTIPLE}[name]
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
    fit: StoredFit,
    flops: float,
    measured: Measured,
) -> NamedShape:
    cost = rule.cost(shape)
    return NamedShape(
        name=name,
        shape=_as_record(shape),
        heads=rule.n_heads(shape),
        params=cost.params,
        macs=cost.macs,
        images=flops / rule.flops(shape),
        predicted_loss=_loss(fit, shape, flops),
        measured_loss=float(np.mean(measured[shape])) if shape in measured else None,
    )


def _as_record(shape: NetworkShape) -> dict[DimensionName, int]:
    return {"width": shape.width, "depth": shape.depth, "mlp": shape.mlp}


def _loss(fit: StoredFit, shape: NetworkShape, flops: float) -> ScalingValue:
    values = [float(getattr(shape, one.name)) for one in fit.record.dimensions]
    low, high = fit.band([one.loss(values, flops / 1e9) for one in fit.draws])
    return ScalingValue(value=float(fit.surface.loss(values, flops / 1e9)), ci95=(float(low), float(high)), reason=None)


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
