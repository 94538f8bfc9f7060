"""Unit of analysis of an external test: frames, or one row per item, study or patient."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from usvit.config.evaluation import RollUp, Unit
from usvit.errors import unknown
from usvit.scoring.external.scored_set import ScoredSet
from usvit.scoring.items import PRIVATE_COLUMNS

DATASET = "external"


def predictions_of(
    rows: pd.DataFrame, scored: ScoredSet, unit: Unit, roll_up: RollUp, more: Sequence[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Convert the labelled rows of a scored set to a predictions table, of frames or rolled up.

    Args:
        rows: see ``LabelledSet.rows``.
        scored: the scored set.
        unit: unit of a row. Rows without a study (or patient) id are rolled up by the next smaller unit.
        roll_up: see ``evaluate_scores``. A unit with images of several labels has the positive class if one of them
            does, else the first class that occurs; it is unusual if one of them is.
        more: columns to keep; a rolled-up row has a value if all its images share it.

    Returns:
        A predictions table with ``calibrated`` (of the positive class) and ``unusual`` (yes or no), and messages.
    """
    absent = [name for name in more if name not in rows]
    if absent:
        raise unknown("column", absent[0], [str(name) for name in rows if name not in PRIVATE_COLUMNS])
    prob = [f"prob_{name}" for name in scored.classes]
    said: list[str] = []
    key = {
        "frame": rows["item_id"] + "#" + rows["frame"].astype(str),
        "item": rows["item_id"],
        "study": rows["study_id"].mask(rows["study_id"] == "", "file:" + rows["item_id"]),
        "patient": rows["group_id"],
    }
    if unit not in key:
        raise unknown("unit", unit, key)
    if roll_up not in ("mean", "max"):
        raise unknown("roll-up", roll_up, ["mean", "max"])
    base = pd.DataFrame(
        {
            "image_id": key[unit].to_numpy(),
            "group_id": rows["group_id"].to_numpy(),
            "patient_id": [one or None for one in rows["patient_id"]],
            "dataset": DATASET,
            "fold": 0,
            "part": "test",
            "label": rows["label"].to_numpy(),
            **{name: rows[name].to_numpy() for name in prob},
            "calibrated": rows[f"calibrated_{scored.positive}"].to_numpy(),
            "unusual": np.where(rows["unusual"], "yes", "no"),
            **{name: rows[name].to_numpy() for name in dict.fromkeys(more) if name != "unusual"},
        }
    )
    if unit == "frame":
        return base, said
    # Sorted so that the first row of a unit has the highest probability.
    ordered = base.sort_values(["image_id", "calibrated"], ascending=[True, False], kind="stable")
    grouped = ordered.groupby("image_id", sort=True)
    found = ordered.drop_duplicates("image_id").set_index("image_id")
    if roll_up == "mean":
        # The mean over files of their means, as in tables.rollup, so that the test evaluates the figures of
        # patients.csv.
        own = ordered.assign(item=rows["item_id"].to_numpy()[ordered.index])
        by_file = own.groupby(["image_id", "item"], sort=True)[[*prob, "calibrated"]].mean()
        found[[*prob, "calibrated"]] = by_file.groupby("image_id").mean()
    order = [scored.positive, *(name for name in scored.classes if name != scored.positive)]
    first = ordered["label"].map(order.index).groupby(ordered["image_id"]).min()
    found["label"] = [order[k] for k in first.reindex(found.index)]
    found["unusual"] = grouped["unusual"].max()  # yes comes after no
    for name in (*(one for one in dict.fromkeys(more) if one != "unusual"), "patient_id"):
        found[name] = found[name].where(grouped[name].nunique(dropna=False) == 1, None)
    found["n_images"] = grouped.size()
    mixed = int((grouped["label"].nunique() > 1).sum())
    if mixed:
        rank = " before ".join(f"'{name}'" for name in order)
        said.append(f"{mixed} of {len(found)} {_plural(unit)} have images of several labels: {rank}.")
    alone = int((rows[f"{unit}_id"] == "").sum()) if unit != "item" else 0
    if alone:
        said.append(f"{alone} images have no {unit} id: they were rolled up by what they have, at the least by file.")
    return found.reset_index()[[*base.columns, "n_images"]], said


def _plural(unit: str) -> str:
    return {"study": "studies"}.get(unit, f"{unit}s")
