"""``usvit shape plan``: the networks of a sweep of shapes as a study's file."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from usvit.config import build, merge, nested
from usvit.config.keywords import takes_settings
from usvit.config.run import flattened
from usvit.errors import UsvitError
from usvit.files import write_text
from usvit.plain_yaml import read_yaml
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.config.shape import ShapePlanSettings
from usvit.upstream.config.sweep import read_recipe, settings_for
from usvit.upstream.scaling.shapes import DIMENSIONS, NetworkShape, ShapeRule
from usvit.upstream.scaling.sweeps import (
    FEWEST,
    SweepCell,
    Values,
    cells_of,
    check_cells,
    grid,
    star,
    star_values,
)

_MOST_CPU_SECONDS = 30 * 86_400.0
"""A sweep that takes longer on one thread of a CPU is estimated for an H200."""
MAX_CELLS = 10_000
PLANNED = frozenset(
    (
        *(f"model.{key}" for key in ("name", "vit.width", "vit.depth", "vit.mlp", "vit.heads")),
        *(f"train.{key}" for key in ("steps", "epochs", "eval_every")),
        *(f"optim.{key}" for key in ("warmup_steps", "warmup_epochs")),
    )
)
"""Settings that the sweep gives to each training, so that they cannot be set for all."""


@dataclass(frozen=True)
class ShapePlan:
    """A sweep of shapes."""

    path: Path
    """The study's file, for ``usvit study``."""
    cells: tuple[SweepCell, ...]
    left_out: tuple[SweepCell, ...]
    """Networks that a budget trains for too few or too many steps."""
    seconds: float
    """Estimated time of all trainings."""
    where: str
    """What the estimate holds for."""
    warnings: tuple[str, ...]
    """What keeps a fit of this sweep alone from being possible."""


@takes_settings
def plan_shapes(
    budgets: Sequence[float],
    *,
    settings: ShapePlanSettings,
    overrides: Mapping[str, Any] | None = None,
    **training: Any,
) -> ShapePlan:
    """Plan a star sweep, a grid sweep or both, and write them as a study that ``usvit study`` runs.

    A star sweep varies one dimension at a time around a large network; a grid sweep crosses the values of all three
    (Alabdulmohsin et al. 2023, section 3). Every network is trained once for each budget, for as many steps as its
    FLOPs allow. The study's ``study.csv`` is the table that ``fit_shapes`` reads.

    Args:
        budgets: Compute of each training in FLOPs, forward and backward (6 for each MAC). A fit needs three.
        settings: See ``ShapePlanSettings``.
        overrides: Settings, by dotted key, of all trainings: ``{"model.vit.patch": 8}``.
        **training: The same settings with double underscores for dots: ``source__size=2000``.

    Returns:
        The file, the networks with their steps, and the estimated time.

    Raises:
        UsvitError: A value, name or setting is wrong, the file exists, or no network can be trained with a budget.

    Example:
        >>> import tempfile, usvit
        >>> folder = tempfile.mkdtemp()
        >>> plan = usvit.plan_shapes([1e12, 2e12, 4e12], out=f"{folder}/sweep.yaml", center=(128, 8, 256),
        ...     widths=[32, 48, 64], depths=[2, 3, 4], mlps=[32, 64, 128], head_dim=16,
        ...     model__vit__patch=8, model__image_size=32)
        >>> len(plan.cells), str(plan.cells[0].shape), plan.cells[0].steps
        (27, 'w32-d8-m256', 859)
        >>> study = usvit.run_study(plan.path, dry_run=True)
        >>> len(study.record.runs)
        27
    """
    path = settings.out
    _check_out(path)
    several = zip(DIMENSIONS, (settings.widths, settings.depths, settings.mlps), strict=True)
    given: Values = {name: values for name, values in several if values is not None}
    grid_values = settings.grid_values or {}
    grid_compute = settings.grid_budgets if settings.grid_budgets is not None else (min(budgets, default=0.0),)
    _check_numbers([*budgets, *grid_compute], settings.center, [*given.values(), *grid_values.values()])
    changes = nested({**training, **(overrides or {})})
    if taken := [key for key, _ in flattened(changes) if key in PLANNED]:
        raise UsvitError(f"The sweep gives {taken[0]} to each training itself. Leave it out of the settings.")
    setup = _setup(settings.recipe, settings.model, changes, settings.heads, settings.head_dim, settings.warmup)
    rule, batch_size = setup.rule, setup.config.train.batch_size
    middle = rule.snap(*settings.center)
    of_star = star_values(middle, given, rule)
    made: list[SweepCell] = []
    left_out: list[SweepCell] = []
    parts = {
        "star": (list(star(middle, of_star)), list(budgets)),
        "grid": (list(grid({**of_star, **grid_values}, rule)), list(grid_compute)),
    }
    for part, (shapes, compute) in parts.items():
        if settings.sweep not in (part, "both"):
            continue
        more, lost = cells_of(shapes, compute, rule, batch_size, settings.min_steps, settings.max_steps)
        check_cells(more, lost, settings.min_steps, settings.max_steps)
        made += more
        left_out += lost
    if len(made) > MAX_CELLS:
        raise UsvitError(
            f"The sweep has {len(made):,} trainings, more than {MAX_CELLS:,}. Give fewer values or budgets."
        )
    made = _once(made)
    seconds, where = _estimate(made, rule, batch_size)
    n_shapes = len({cell.shape for cell in made})
    comment = f"A sweep of {n_shapes} shapes of {settings.model}, written by usvit shape plan."
    title = f"Shapes: {len(made)} trainings of {n_shapes} networks around {middle}"
    write_text(path, _study(settings.name or path.stem, title, made, left_out, setup, comment))
    _check_study(path)
    return ShapePlan(path, tuple(made), tuple(left_out), seconds, where, tuple(_warnings(made)))


def _warnings(cells: Sequence[SweepCell]) -> list[str]:
    budgets = sorted({cell.budget for cell in cells})
    if len(budgets) >= FEWEST:
        return []
    has = f"{len(budgets)} {'budget' if len(budgets) == 1 else 'budgets'}"
    return [f"This sweep has {has}, and a fit needs {FEWEST}: add others with --budget, or fit it with other sweeps."]


def _check_numbers(budgets: Sequence[float], center: Sequence[int], values: Sequence[Sequence[int]]) -> None:
    if not budgets or any(not 0 < budget < float("inf") for budget in budgets):
        raise UsvitError("Give at least one budget in FLOPs, above 0 and finite, such as --budget 1e12.")
    if len(center) != len(DIMENSIONS) or any(one < 1 for one in center):
        raise UsvitError("The centre has a width, a depth and an MLP width, all at least 1: 1968,40,6144.")
    if wrong := [one for several in values for one in several if one < 1]:
        raise UsvitError(f"Widths, depths and MLP widths are at least 1, and {wrong[0]} is not.")


def _once(cells: Sequence[SweepCell]) -> list[SweepCell]:
    """Drop networks of the grid that the star sweep trains with the same budget."""
    return list({(cell.shape, cell.steps): cell for cell in reversed(cells)}.values())[::-1]


@dataclass(frozen=True)
class _Setup:
    """What all trainings of a sweep have in common."""

    recipe: str
    settings: Mapping[str, Any]
    config: PretrainConfig
    rule: ShapeRule
    warmup: float


def _study(
    name: str, title: str, cells: Sequence[SweepCell], left_out: Sequence[SweepCell], setup: _Setup, comment: str
) -> str:
    """Return the study's file."""
    settings = merge({"optim": {"warmup_epochs": None}}, dict(setup.settings))
    step = {"run": "pretrain", "recipe": setup.recipe, "settings": settings}
    lines = [
        f"# {comment}",
        "#   usvit study FILE --out DIR",
        "#   usvit shape fit DIR/study.csv",
        "",
        f"name: {_flow(_plain(name))}",
        f"title: {_flow(title)}",
        "steps:",
        f"  train: {_flow(step)}",
        "columns:",
        *(f"  {name}: {name}" for name in DIMENSIONS),
        "  params: params",
        "  gflops: gflops",
        "  loss: val_loss",
        *(["  accuracy: val_accuracy"] if setup.config.objective == "supervised" else []),
        "rows:",
    ]
    for cell in cells:
        changed = {
            "model": {"vit": setup.rule.settings(cell.shape)},
            "train": {"steps": cell.steps, "epochs": None, "eval_every": cell.steps},
            "optim": {"warmup_steps": round(setup.warmup * cell.steps)},
        }
        lines.append(
            f"  - {_flow({'name': cell.name, 'group': cell.sweep, 'model': setup.rule.model, 'settings': changed})}"
        )
    notes = ["The compute is that of forward and backward passes, 6 FLOPs for each MAC, without the head."]
    if left_out:
        few = ", ".join(f"{cell.name} ({cell.steps:,})" for cell in left_out[:5])
        more = f", and {len(left_out) - 5} more" if len(left_out) > 5 else ""
        notes.append(f"Left out, because they would have too few or too many steps: {few}{more}.")
    lines += ["notes:", *(f"  - {_flow(note)}" for note in notes)]
    return "\n".join(lines) + "\n"


def _setup(
    recipe: str, model: str, changes: Mapping[str, Any], heads: int | None, head_dim: int, warmup: float
) -> _Setup:
    """Build the configuration that all trainings share, and the rule by which shapes become networks."""
    config = build(PretrainConfig, settings_for(read_recipe(recipe), model), {"model": {"name": model}}, dict(changes))
    kept = config.model.vit.model_dump(exclude_none=True)
    vit = tuple((key, value) for key, value in kept.items() if key not in (*DIMENSIONS, "heads"))
    rule = ShapeRule(model, vit, config.model.image_size, heads, head_dim)
    return _Setup(recipe, changes, config, rule, warmup)


def setup_like(study: Path) -> _Setup:
    """Return the setup of a sweep from the study's file that ``plan_shapes`` wrote.

    Raises:
        UsvitError: The file is missing, or is not such a study.
    """
    where = f"The study {study}"
    try:
        content = read_yaml(study, "study")
        step, first = content["steps"]["train"], content["rows"][0]
        row = first["settings"]
        vit, steps, warmup = row["model"]["vit"], row["train"]["steps"], row["optim"]["warmup_steps"]
        settings = dict(step["settings"])
        built = [one["settings"]["model"]["vit"] for one in content["rows"]]
        same_heads = len({one["heads"] for one in built}) == 1 < len({one["width"] for one in built})
        heads, head_dim = int(vit["heads"]), int(vit["width"]) // int(vit["heads"])
        recipe, model = str(step["recipe"]), str(first["model"])
    except (KeyError, TypeError, IndexError, ValueError, AttributeError) as error:
        raise UsvitError(
            f"{where} was not written by 'usvit shape plan'. Give the file that its --out named."
        ) from error
    return _setup(recipe, model, settings, heads if same_heads else None, head_dim, warmup / steps)


def write_neighbours(path: Path, shapes: Sequence[tuple[str, NetworkShape]], setup: _Setup, flops: float) -> Path:
    """Write the study that trains a predicted shape and its neighbours with the settings of the sweep.

    Raises:
        UsvitError: The file exists, or a shape cannot be trained for a single step.
    """
    _check_out(path)
    made, left_out = cells_of(shapes, [flops], setup.rule, setup.config.train.batch_size, 1, None)
    if not any(cell.sweep == "predicted" for cell in made):
        raise UsvitError(f"{flops:.3g} FLOPs are less than one step of the predicted shape. Give more compute.")
    title = f"The predicted shape and its neighbours at {flops:.3g} FLOPs"
    comment = "A predicted shape and its neighbours, written by usvit shape predict."
    write_text(path, _study(path.stem, title, made, left_out, setup, comment))
    _check_study(path)
    return path


def _check_out(path: Path) -> None:
    if path.suffix not in (".yaml", ".yml"):
        raise UsvitError(f"The study's file is {path}: give a name that ends in .yaml.")
    if path.exists():
        raise UsvitError(f"{path} exists. Remove it, or give another file.")


def _flow(value: Any) -> str:
    """Return a value as YAML in one line; JSON is YAML."""
    return json.dumps(value, ensure_ascii=False)


def _plain(name: str) -> str:
    """Return a name that a study may have."""
    kept = "".join(one if one.isascii() and (one.isalnum() or one in "_.-") else "-" for one in name)
    return kept if kept[:1].isalnum() else f"shape-{kept}"


def _check_study(path: Path) -> None:
    """Build every run's configuration, so that a wrong setting shows before the first training."""
    from usvit.upstream.studies import run_study

    try:
        run_study(path, dry_run=True)
    except UsvitError:
        path.unlink()
        raise


def _estimate(cells: Sequence[SweepCell], rule: ShapeRule, batch_size: int) -> tuple[float, str]:
    """Return the estimated seconds of all trainings, and the machine."""
    from usvit.upstream.scaling.step_time import measure_step_time
    from usvit.upstream.studies import SUSTAINED_FLOPS

    measured = measure_step_time(rule, [cell.shape for cell in cells], batch_size)
    if measured is not None:
        seconds = sum(cell.steps * measured.seconds(cell.step_flops) for cell in cells)
        if seconds <= _MOST_CPU_SECONDS:
            return seconds, "one thread of this machine's CPU, without reading of images and evaluation"
    return sum(cell.flops for cell in cells) / SUSTAINED_FLOPS, "one H200 at 40 % of its peak"
