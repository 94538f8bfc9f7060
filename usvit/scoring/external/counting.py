"""Unit of analysis of an external test: images (frames), or one row per file, exam or patient."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from usvit.config.evaluation import ScoredUnit
from usvit.errors import unknown
from usvit.records import ImagesPerUnit, UnitRecord
from usvit.scoring.external.scored_set import ScoredSet
from usvit.scoring.items import PRIVATE_COLUMNS

DATASET = "external"


def predictions_of(
    rows: pd.DataFrame, scored: ScoredSet, unit: ScoredUnit, pooling: str, more: Sequence[str]
) -> tuple[pd.DataFrame, list[str], UnitRecord | None]:
    """Convert the labelled rows of a scored set to a predictions table, of images or of larger units.

    Args:
        rows: see ``LabelledSet.rows``.
        scored: the scored set.
        unit: unit of a row. Rows without the id of an exam (or patient) are pooled by the next smaller unit.
        pooling: see ``evaluate_scores``. A unit with images of several labels has the positive class if one of them
            does, else the first class that occurs; it is unusual if one of them is.
        more: columns to keep; a unit has a value if all its images share it.

    Returns:
        A predictions table with ``calibrated`` (of the positive class) and ``unusual`` (yes or no), messages, and
        what a row is (None for images).
    """
    absent = [name for name in more if name not in rows]
    if absent:
        raise unknown("column", absent[0], [str(name) for name in rows if name not in PRIVATE_COLUMNS])
    prob = [f"prob_{name}" for name in scored.classes]
    said: list[str] = []
    key = {
        "image": rows["item_id"] + "#" + rows["frame"].astype(str),
        "file": rows["item_id"],
        "exam": rows["study_id"].mask(rows["study_id"] == "", "file:" + rows["item_id"]),
        "patient": rows["group_id"],
    }
    if unit not in key:
        raise unknown("unit", unit, key)
    if pooling not in ("mean", "max"):
        raise unknown("pooling", pooling, ["mean", "max"])
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
    if unit == "image":
        return base, said, None
    # Sorted so that the first row of a unit has the highest probability.
    ordered = base.sort_values(["image_id", "calibrated"], ascending=[True, False], kind="stable")
    grouped = ordered.groupby("image_id", sort=True)
    found = ordered.drop_duplicates("image_id").set_index("image_id")
    if pooling == "mean":
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
        said.append(f"{mixed} of {len(found)} {unit}s have images of several labels: {rank}.")
    name = {"exam": "study_id"}.get(unit, f"{unit}_id")
    alone = int((rows[name] == "").sum()) if unit != "file" else 0
    if alone:
        said.append(f"{alone} images have no {unit} id: they were pooled by what they have, at the least by file.")
    size = found["n_images"]
    record = UnitRecord(
        unit=unit,
        pooling=pooling,
        labels="any",
        label_order=order,
        n_units=len(found),
        n_images=int(size.sum()),
        images_per_unit=ImagesPerUnit(least=int(size.min()), median=float(size.median()), most=int(size.max())),
        n_mixed=mixed,
        n_images_left_out=0,
        reason=None,
    )
    return found.reset_index()[[*base.columns, "n_images"]], said, record
