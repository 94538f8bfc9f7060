"""Unit of analysis of an external test: images (frames), or one row per file, lesion, breast, exam or patient.

Units are pooled from their labelled images. Where ``usvit score`` pooled the same unit by attention, noisy-or or top-K,
its own result is taken: it is that of all images which it scored, and of each network by itself.
"""

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from usvit.config.evaluation import ScoredUnit
from usvit.errors import UsvitError, unknown
from usvit.evaluation import attended, check_units, pooled_prob
from usvit.files import read_csv
from usvit.records import ImagesPerUnit, UnitPointRecord, UnitRecord, refuse_changed
from usvit.scoring.calibration import LocalCalibration
from usvit.scoring.external.scored_set import ScoredSet
from usvit.scoring.items import PRIVATE_COLUMNS, UNIT_IDS, VIEW_WEIGHT
from usvit.wording import plural

DATASET = "external"
_NEEDED = {"lesion": ("lesion_id",), "breast": ("patient_id", "side")}
"""Unit of which an image may show none -> columns that identify it; images without a value are left out."""


def predictions_of(
    rows: pd.DataFrame,
    scored: ScoredSet,
    unit: ScoredUnit,
    pooling: str,
    more: Sequence[str],
    refit: LocalCalibration | None = None,
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
        refit: calibration whose probabilities are in ``calibrated``; None if they are those of the scores.

    Returns:
        A predictions table with ``calibrated`` (of the positive class) and ``unusual`` (yes or no), messages, and
        what a row is (None for images). Units are in the order of their names.

    Raises:
        UsvitError: a column, the unit or the pooling is unknown, no image states the unit, a lesion has two patients
            or sides, or the images were not scored with attention over this unit.
    """
    absent = [name for name in more if name not in rows]
    if absent:
        raise unknown("column", absent[0], [str(name) for name in rows if name not in PRIVATE_COLUMNS])
    prob = [f"prob_{name}" for name in scored.classes]
    said: list[str] = []
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
    if pooling != "max":
        pool = pooled_by(rows, scored, unit, pooling)
        found[prob] = pool(base[prob].to_numpy(np.float64))
        found["calibrated"] = pool(_images_calibrated(base, scored, refit))[:, scored.classes.index(scored.positive)]
    own = scored.unit
    if refit is None and pooling != "mean" and own and own.decides and (own.unit, own.pooling) == (unit, pooling):
        stated = _as_scored(rows, key, scored, own).reindex(found.index)
        found["calibrated"] = stated.fillna(found["calibrated"])
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


def pooled_by(
    rows: pd.DataFrame, scored: ScoredSet, unit: ScoredUnit, pooling: str
) -> Callable[[np.ndarray], np.ndarray]:
    """Return the function that pools (n, K) probabilities of the images to (m, K) of their units, as ``usvit score``.

    A mean is that of the files of the means of their frames. The units are those of ``predictions_of``, in its order.

    Raises:
        UsvitError: the images were not scored with attention over this unit.
    """
    names, k = _names_of(rows, unit).to_numpy(object), scored.classes.index(scored.positive)
    known = names != ""
    code = pd.factorize(names[known], sort=True)[0]
    file, _ = pd.factorize(pd.MultiIndex.from_arrays([code, rows["item_id"].to_numpy(object)[known]]))
    of_file = np.zeros(file.max() + 1, np.int64)
    of_file[file] = code
    score = _view_scores(rows[known], code, scored, unit) if pooling == "attention" else np.zeros(len(code))

    def mean(prob: np.ndarray) -> np.ndarray:
        by_file = [np.bincount(file, values) / np.bincount(file) for values in prob[known].T]
        return np.stack([np.bincount(of_file, values) / np.bincount(of_file) for values in by_file], axis=1)

    def pool(prob: np.ndarray) -> np.ndarray:
        order = np.lexsort((-prob[known, k], code))
        start = np.flatnonzero(np.diff(code[order], prepend=-1))
        if pooling == "attention":
            return attended(prob[known][order], score[order], start)[1]
        return pooled_prob(prob[known][order], start, pooling, k)

    return mean if pooling == "mean" else pool


def _view_scores(rows: pd.DataFrame, code: np.ndarray, scored: ScoredSet, unit: ScoredUnit) -> np.ndarray:
    """Return the (n,) logarithm of the share of each image; the images of a unit without shares are equal."""
    own = scored.unit
    if own is None or (own.unit, own.pooling) != (unit, "attention") or VIEW_WEIGHT not in rows:
        how = "without attention over the images of a breast, exam or patient"
        if own is not None and VIEW_WEIGHT in rows:
            how = f"with attention over the images of a {own.unit}"
        raise UsvitError(
            f"{scored.file} was scored {how}, so that --pooling attention has no result for the unit {unit}. "
            "Choose another --pooling, or score with a run of --unit breast, exam or patient and --pooling attention."
        )
    weight = rows[VIEW_WEIGHT].fillna(0).to_numpy(np.float64)
    weight = np.where((np.bincount(code, weight) > 0)[code], weight, 1)
    with np.errstate(divide="ignore"):
        return np.log(weight)


def _images_calibrated(base: pd.DataFrame, scored: ScoredSet, refit: LocalCalibration | None) -> np.ndarray:
    """Return the (n, K) calibrated probabilities of images; the scores have only that of the positive class."""
    if refit is not None:
        return refit.scaled(base[[f"prob_{name}" for name in scored.classes]].to_numpy(np.float64))
    positive, n_classes = base["calibrated"].to_numpy(np.float64), len(scored.classes)
    prob = np.repeat((1 - positive[:, None]) / (n_classes - 1), n_classes, axis=1)
    prob[:, scored.classes.index(scored.positive)] = positive
    return prob


def _as_scored(rows: pd.DataFrame, names: pd.Series, scored: ScoredSet, own: UnitPointRecord) -> pd.Series:
    """Return the results of units in the table of ``usvit score``; NaN for a unit that is not a row of it.

    Args:
        rows: the labelled images.
        names: the name of the unit of each.
        scored: the scored set.
        own: what pooled the units of the table.
    """
    file, column, key = scored.folder / str(own.decides), own.column(scored.positive), UNIT_IDS[own.unit]
    if scored.summary is not None:
        refuse_changed(
            scored.folder, {name: one.sha256 for name, one in scored.summary.files.items()}, "summary.json", [file.name]
        )
    if key not in rows or not file.exists():  # no image states its breast
        return pd.Series(dtype=np.float64)
    table = read_csv(file, needed=[key, column]).set_index(key)[column]
    ids = rows[key].groupby(names).agg(["first", "nunique"])
    return pd.to_numeric(ids["first"].where(ids["nunique"] == 1).map(table), errors="coerce")


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
