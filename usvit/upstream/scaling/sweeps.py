"""The shapes and lengths of a star sweep and of a grid sweep (Alabdulmohsin et al. 2023, section 3)."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from usvit.errors import UsvitError
from usvit.upstream.scaling.shapes import DIMENSIONS, TITLES, NetworkShape, ShapeRule

_POINTS = 6
"""Values of each dimension of a star sweep, if none are given; the paper's MLP widths are as many."""
_RATIO = 1.25
"""Ratio of neighbouring values, if none are given ("about 20% increase in each step": section 3)."""
_BELOW_CENTRE = 2.0
"""The largest value is the centre's divided by this ("all values are much smaller than" the centre's: section 3)."""
FEWEST = 3
"""A dimension needs as many values: the fitted curve of one has three unknowns at each compute."""

Values = Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class SweepCell:
    """One network of a sweep, and the length of its training."""

    sweep: str
    """``star, <dimension>`` or ``grid``."""
    shape: NetworkShape
    budget: float
    """Requested FLOPs of the training."""
    steps: int
    step_flops: int
    """FLOPs of a step, forward and backward."""
    params: int
    """Parameters without the head."""

    @property
    def flops(self) -> float:
        """FLOPs of all steps."""
        return float(self.steps * self.step_flops)

    @property
    def name(self) -> str:
        return f"{self.shape} {self.budget:.3g}"


def star_values(centre: NetworkShape, values: Values, rule: ShapeRule) -> dict[str, list[int]]:
    """Return the values of each dimension of a star sweep, smallest first.

    Args:
        centre: The large network whose other dimensions are kept.
        values: Values of some dimensions. Default of the others: six values from half the centre's downwards.
        rule: How values are rounded.

    Raises:
        UsvitError: A dimension has fewer than three different values after rounding.
    """
    found = {}
    for place, dimension in enumerate(DIMENSIONS):
        middle = getattr(centre, dimension)
        wanted = values.get(dimension) or [middle / _BELOW_CENTRE / _RATIO**step for step in range(_POINTS)]
        shapes = [
            rule.snap(*(one if k == place else getattr(centre, name) for k, name in enumerate(DIMENSIONS)))
            for one in wanted
        ]
        found[dimension] = sorted({getattr(one, dimension) for one in shapes})
        if len(found[dimension]) < FEWEST:
            count = len(found[dimension])
            raise UsvitError(
                f"The star sweep has only {count} {'value' if count == 1 else 'different values'} of the "
                f"{TITLES[dimension]} after rounding ({', '.join(map(str, found[dimension]))}), and a fit needs "
                f"{FEWEST}. Give other values of the {TITLES[dimension]}, or a larger centre."
            )
    return found


def star(centre: NetworkShape, values: Mapping[str, Sequence[int]]) -> Iterator[tuple[str, NetworkShape]]:
    """Yield the shapes of a star sweep: those that differ from the centre in a single dimension."""
    whole = {name: getattr(centre, name) for name in DIMENSIONS}
    seen = set()
    for dimension, several in values.items():
        for one in several:
            shape = NetworkShape(**{**whole, dimension: one})
            if shape not in seen:  # the centre itself may be a value of several dimensions
                seen.add(shape)
                yield f"star, {dimension}", shape


def grid(values: Values, rule: ShapeRule) -> Iterator[tuple[str, NetworkShape]]:
    """Yield the shapes of a grid sweep: every width with every depth and every MLP width."""
    shapes = {rule.snap(*several) for several in itertools.product(*(values[name] for name in DIMENSIONS))}
    for shape in sorted(shapes):
        yield "grid", shape


def cells_of(
    shapes: Sequence[tuple[str, NetworkShape]],
    budgets: Sequence[float],
    rule: ShapeRule,
    batch_size: int,
    min_steps: int,
    max_steps: int | None,
) -> tuple[list[SweepCell], list[SweepCell]]:
    """Return the trainings of these shapes at these budgets, and those that are too short or too long to be made."""
    made: list[SweepCell] = []
    left_out: list[SweepCell] = []
    for budget in budgets:
        for sweep, shape in shapes:
            cost = rule.cost(shape)
            per_step = rule.flops(shape) * batch_size
            steps = round(budget / per_step)
            cell = SweepCell(sweep, shape, budget, steps, per_step, cost.params)
            fits = steps >= min_steps and (max_steps is None or steps <= max_steps)
            (made if fits else left_out).append(cell)
    return made, left_out


def check_cells(
    made: Sequence[SweepCell], left_out: Sequence[SweepCell], min_steps: int, max_steps: int | None
) -> None:
    """Refuse a sweep in which a budget has no network, or only one value of a dimension.

    Raises:
        UsvitError: The message names the budget, and a limit of the budgets that would do.
    """
    cells = [*made, *left_out]
    for budget in sorted({cell.budget for cell in cells}):
        for part in sorted({cell.sweep for cell in cells}):
            lost = [cell for cell in left_out if cell.budget == budget and cell.sweep == part]
            kept = [cell for cell in made if cell.budget == budget and cell.sweep == part]
            needed = 1 if part == "grid" else 2
            if len(kept) >= needed or not lost:
                continue
            longest = f" and at most {max_steps:,}" if max_steps is not None else ""
            which = "no network" if not kept else "only one network"
            step_flops = sorted(cell.step_flops for cell in (*kept, *lost))
            cheap, dear = step_flops[needed - 1], step_flops[-needed]
            limits = f"above {min_steps * cheap:.2g}"
            if max_steps is not None:
                limits = f"between {min_steps * cheap:.2g} and {max_steps * dear:.2g}"
            raise UsvitError(
                f"At the budget of {budget:.3g} FLOPs, {which} of the sweep '{part}' can be trained for at "
                f"least {min_steps:,} steps{longest}. Give budgets {limits} FLOPs, smaller networks, or other limits "
                "of the steps."
            )
