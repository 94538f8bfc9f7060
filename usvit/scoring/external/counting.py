"""Unit of analysis of an external test: images (frames), or one row per file, lesion, breast, exam or patient."""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from usvit.config.evaluation import ScoredUnit
from usvit.errors import UsvitError, unknown
from usvit.evaluation import check_units
from usvit.records import ImagesPerUnit, UnitRecord
from usvit.scoring.external.scored_set import ScoredSet
from usvit.scoring.items import PRIVATE_COLUMNS
from usvit.wording import plural

DATASET = "external"
_NEEDED = {"lesion": ("lesion_id",), "breast": ("patient_id", "side")}
"""Unit of which an image may show none -> columns that identify it; images without a value are left out."""


def predictions_of(
    rows: pd.DataFrame, scored: ScoredSet, unit: ScoredUnit, pooling: str, more: Sequence[str]
) -> tuple[pd.DataFrame, list[str], UnitRecord | None]:
    """Convert the labelled rows of a scored set to a predictions table, of images or of larger units.

    Args:
        rows: see ``LabelledSet.rows``.
        scored: the scored set.
        unit: unit of a row. Rows without the id of an exam (or patient) are pooled by the next smaller unit; those
            without a lesion or a breast are left out.
        pooling: see ``evaluate_scores``. A unit with images of several labels has the positive class if one of them
            does, else the first class that occurs; it is unusual if one of them is.
        more: columns to keep; a unit has a value if all its images share it.

    Returns:
        A predictions table with ``calibrated`` (of the positive class) and ``unusual`` (yes or no), messages, and
        what a row is (None for images). Units are in the order of their names.

    Raises:
        UsvitError: a column, the unit or the pooling is unknown, no image states the unit, or a lesion has two patients
            or sides.
    """
    absent = [name for name in more if name not in rows]
    if absent:
        raise unknown("column", absent[0], [str(name) for name in rows if name not in PRIVATE_COLUMNS])
    prob = [f"prob_{name}" for name in scored.classes]
    said: list[str] = []
    if pooling not in ("mean", "max"):
        raise unknown("pooling", pooling, ["mean", "max"])
    key, ids = _names_of(rows, unit), [name for name in ("patient_id", "lesion_id") if name in rows]
    base = pd.DataFrame(
        {
            "image_id": key.to_numpy(),
            "group_id": rows["group_id"].to_numpy(),
            **{name: [one or None for one in rows[name]] for name in ids},
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
    n_out = int((key == "").sum())
    # Sorted so that the first row of a unit has the highest probability.
    ordered = base[base["image_id"] != ""].sort_values(
        ["image_id", "calibrated"], ascending=[True, False], kind="stable"
    )
    grouped = ordered.groupby("image_id", sort=True)
    found = ordered.drop_duplicates("image_id").set_index("image_id")
    if pooling == "mean":
        pool = pooled_by(rows, unit, pooling)
        for name in (*prob, "calibrated"):
            found[name] = pool(base[name].to_numpy(np.float64))
    order = [scored.positive, *(name for name in scored.classes if name != scored.positive)]
    first = ordered["label"].map(order.index).groupby(ordered["image_id"]).min()
    found["label"] = [order[k] for k in first.reindex(found.index)]
    found["unusual"] = grouped["unusual"].max()  # yes comes after no
    for name in (*(one for one in dict.fromkeys(more) if one != "unusual"), *ids):
        found[name] = found[name].where(grouped[name].nunique(dropna=False) == 1, None)
    found["n_images"] = grouped.size()
    mixed = int((grouped["label"].nunique() > 1).sum())
    if mixed:
        rank = " before ".join(f"'{name}'" for name in order)
        said.append(f"{mixed} of {len(found)} {unit}s have images of several labels: {rank}.")
    if unit in ("exam", "patient") and (
        alone := int((rows["study_id" if unit == "exam" else "patient_id"] == "").sum())
    ):
        said.append(f"{alone} images have no {unit} id: they were pooled by what they have, at the least by file.")
    reason = f"{plural(n_out, 'image')} without {' or '.join(_NEEDED[unit])}" if n_out else None
    if reason:
        said.append(f"Left out: {reason}, which name no {unit}.")
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
        n_images_left_out=n_out,
        reason=reason,
    )
    return found.reset_index()[[*base.columns, "n_images"]], said, record


def pooled_by(rows: pd.DataFrame, unit: ScoredUnit, pooling: str) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function that pools (n,) values of the images to (m,) of their units, as in ``patients.csv``.

    A mean is that of the files of the means of their frames. The units are those of ``predictions_of``, in its order.
    """
    names = _names_of(rows, unit).to_numpy(object)
    known = names != ""
    code, units = pd.factorize(names[known], sort=True)
    file, _ = pd.factorize(pd.MultiIndex.from_arrays([code, rows["item_id"].to_numpy(object)[known]]))
    of_file = np.zeros(file.max() + 1, np.int64)
    of_file[file] = code

    def mean(values: np.ndarray) -> np.ndarray:
        by_file = np.bincount(file, values[known]) / np.bincount(file)
        return np.asarray(np.bincount(of_file, by_file) / np.bincount(of_file))

    def highest(values: np.ndarray) -> np.ndarray:
        found = np.full(len(units), -np.inf)
        np.maximum.at(found, code, values[known])
        return found

    return mean if pooling == "mean" else highest


def _names_of(rows: pd.DataFrame, unit: ScoredUnit) -> pd.Series:
    """Return the name of the unit of each row; "" if an image states no lesion or breast."""
    if unit in _NEEDED:
        ids = rows.reindex(columns=["item_id", "patient_id", "lesion_id", "side"], fill_value="")
        known = (ids[[*_NEEDED[unit]]] != "").all(axis=1)
        if not known.any():
            absent = " and ".join(name.removesuffix("_id") for name in _NEEDED[unit])
            raise UsvitError(
                f"There are no figures of the unit {unit}: no labelled image states its {absent}. Name the columns of "
                "the label table that do with --lesion, --side or --patient, or choose another unit with --unit."
            )
        stated = ids.where(ids != "", None).rename(columns={"item_id": "image_id"})
        check_units(stated.assign(dataset=DATASET), "The labelled images")
        return ids[[*_NEEDED[unit]]].agg("/".join, axis=1).where(known, "")
    keys = {
        "image": rows["item_id"] + "#" + rows["frame"].astype(str),
        "file": rows["item_id"],
        "exam": rows["study_id"].mask(rows["study_id"] == "", "file:" + rows["item_id"]),
        "patient": rows["group_id"],
    }
    if unit not in keys:
        raise unknown("unit", unit, [*keys, *_NEEDED])
    return keys[unit]
