"""Flow of images into a test, and prevalence by unit: tables in, records out."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from usvit.data.datasets import UNIT_KEYS
from usvit.evaluation.predictions import first_repeat
from usvit.metrics.proportions import clustered_share
from usvit.records import FlowStep, UnitPrevalence

_Unit = Literal["image", "lesion", "patient"]
_COUNTED: tuple[_Unit, ...] = ("lesion", "patient")


def flow_steps(table: pd.DataFrame, why: ArrayLike, *, found: str, kept: str, order: Sequence[str]) -> list[FlowStep]:
    """Count the images, lesions and patients of each step from all images to those that are kept.

    A lesion or patient counts as left out by the step that takes its last image, so that the counts add up.

    Args:
        table: n images; lesions and patients are counted if it has ``lesion_id`` and ``patient_id`` (and ``dataset``).
        why: (n,) str, why an image was left out; "" if it was kept.
        found: name of the first step, all images; "" leaves it out, to continue a flow.
        kept: name of the last step.
        order: reasons in the order in which they applied. Others follow as they occur.

    Example:
        >>> table = pd.DataFrame({"patient_id": ["a", "a", "b"]})
        >>> steps = flow_steps(table, ["", "blank", "blank"], found="found", kept="kept", order=[])
        >>> [(step.what, step.n, step.n_patients) for step in steps]
        [('found', 3, 2), ('blank', 2, 1), ('kept', 1, 1)]
    """
    reasons = np.asarray(why, dtype=object)
    units = {unit: _keys(table, unit) for unit in _COUNTED}
    left = np.ones(len(table), bool)

    def counts() -> dict[str, int]:
        found = {"n": int(left.sum())}
        for unit, keys in units.items():
            if keys is not None:
                found[f"n_{unit}s"] = int(keys[left].nunique())
        return found

    steps = [FlowStep(what=found, left_out=False, **counts())] if found else []
    present = [reason for reason in dict.fromkeys([*order, *reasons.tolist()]) if reason and (reasons == reason).any()]
    for reason in present:
        before = counts()
        left &= reasons != reason
        lost = {name: number - counts()[name] for name, number in before.items()}
        steps.append(FlowStep(what=reason, left_out=True, **lost))
    return [*steps, FlowStep(what=kept, left_out=False, **counts())]


def prevalence_by_unit(table: pd.DataFrame, positive: str) -> list[UnitPrevalence]:
    """Compute the share of the positive class per image, lesion and patient, with intervals that count groups.

    A lesion or patient is positive if one of its tested images is. Units of which no image has an id are left out.

    Args:
        table: a predictions table; its rows of part test are counted, of the first repeat.
        positive: the positive class.

    Returns:
        One entry for each unit that the table names, images first. The intervals are those of
        ``metrics.proportions.clustered_share``.
    """
    rows = first_repeat(table[table["part"] == "test"])
    hits, group = (rows["label"] == positive).to_numpy(), rows["group_id"].to_numpy(object)
    found = [_prevalence("image", hits, group, 0)]
    for unit in _COUNTED:
        keys = _keys(rows, unit)
        if keys is None or not keys.notna().any():
            continue
        each = pd.DataFrame({"hit": hits, "group": group}).groupby(keys.to_numpy(object), sort=True)
        own = each.agg({"hit": "max", "group": "first"})  # images without an id have no key, and are not counted
        without = int(keys.isna().sum())
        found.append(_prevalence(unit, own["hit"].to_numpy(bool), own["group"].to_numpy(object), without))
    return found


def _prevalence(unit: _Unit, hits: np.ndarray, group: np.ndarray, without: int) -> UnitPrevalence:
    return UnitPrevalence(
        unit=unit,
        n=len(hits),
        n_positive=int(hits.sum()),
        n_images_without_id=without,
        share=clustered_share(hits, group),
    )


def _keys(table: pd.DataFrame, unit: _Unit) -> "pd.Series[str] | None":
    """Return the unit of each image, with its data set, missing without an id; None if the table names no unit."""
    column = UNIT_KEYS[unit][-1]
    if column not in table:
        return None
    ids = table[column].where(table[column].notna() & (table[column] != ""))
    if not ids.notna().any() and len(ids):
        return None
    dataset = table["dataset"].astype(str) if "dataset" in table else ""
    return (dataset + "\0" + ids.astype(str)).where(ids.notna())
