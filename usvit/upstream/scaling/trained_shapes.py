"""Whether a predicted shape, once trained, beats its neighbours."""

from collections.abc import Mapping
from pathlib import Path

from usvit.errors import UsvitError
from usvit.files import read_csv
from usvit.upstream.records.scaling import ShapeRecord
from usvit.upstream.scaling.shapes import DIMENSIONS, NetworkShape
from usvit.upstream.scaling.tables import SAME_BUDGET

Measured = Mapping[NetworkShape, list[float]]
"""Losses of the trainings of each shape."""


def read_trained(table: Path, flops: float) -> dict[NetworkShape, list[float]]:
    """Read the losses of shapes that were trained with this compute from a ``study.csv``.

    Rows without a loss are left out, and so are those of another compute if the table has the column ``gflops``.

    Raises:
        UsvitError: The table cannot be read or lacks a column, or no training has this compute.
    """
    needed = [*DIMENSIONS, "loss"]
    hint = "Give the study.csv of the study that 'usvit shape predict --study' wrote."
    rows = read_csv(table, text=False, follow=True, hint=hint, needed=needed)
    if wrong := [name for name in needed if rows[name].dtype.kind not in "if"]:
        raise UsvitError(f"{table}: the column {wrong[0]} has values that are not numbers.")
    rows = rows.dropna(subset=needed)
    if "gflops" in rows:
        rows = rows[(rows["gflops"] * 1e9 / flops - 1).abs() < SAME_BUDGET]
        if rows.empty:
            raise UsvitError(f"{table}: no training has a loss and a compute within 5 % of {flops:.3g} FLOPs.")
    found: dict[NetworkShape, list[float]] = {}
    for width, depth, mlp, loss in rows[needed].itertuples(index=False):
        found.setdefault(NetworkShape(round(width), round(depth), round(mlp)), []).append(float(loss))
    return found


def verdict(record: ShapeRecord, measured: Measured) -> str:
    """Say whether the predicted shape has the lowest mean loss of those that were trained."""
    ours = record.chosen.measured_loss
    if ours is None:
        return "The predicted shape was not trained, so that nothing can be said about it."
    rivals = [(one.measured_loss, one.name) for one in record.neighbours if one.measured_loss is not None]
    if not rivals:
        return "None of its neighbours was trained, so that nothing can be said about the predicted shape."
    better = sorted(one for one in rivals if one[0] < ours)
    if better:
        named = ", ".join(f"{name} ({loss:.4f})" for loss, name in better)
        said = (
            f"The predicted shape does not win: its loss is {ours:.4f}, and {len(better)} of {len(rivals)} neighbours "
            f"{'has' if len(better) == 1 else 'have'} a lower one: {named}."
        )
    else:
        said = (
            f"The predicted shape wins: its loss of {ours:.4f} is the lowest of {len(rivals) + 1} trained shapes; the "
            f"next is {min(rivals)[0]:.4f}."
        )
    if all(len(losses) == 1 for losses in measured.values()):
        said += " Each shape was trained once, so that a small difference may be chance."
    return said
