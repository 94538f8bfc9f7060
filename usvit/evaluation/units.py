"""Aggregation of predictions from one row per image to one row per lesion, breast, exam or patient.

The result is a predictions table, so that everything that is computed from the predictions of images is computed from
those of units by the same code: figures, thresholds, calibration, subgroups and paired tests.
"""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import softmax

from usvit.config import Unit
from usvit.config.evaluation import UnitSettings
from usvit.data.datasets import UNIT_COLUMNS, UNIT_KEYS
from usvit.errors import UsvitError, unknown
from usvit.evaluation.foreign_tables import with_columns
from usvit.evaluation.prediction_arrays import rows_of
from usvit.evaluation.predictions import check_units, classes_of, first_repeat, repeats_of
from usvit.evaluation.recalibration import Temperature
from usvit.metrics.calibration_statistics import LOWEST_PROB
from usvit.records import ImagesPerUnit, UnitRecord
from usvit.wording import plural

Index = NDArray[np.int64]


def with_unit_columns(table: pd.DataFrame, manifest: pd.DataFrame | None, *more: str) -> pd.DataFrame:
    """Return a predictions table with the columns of lesion, side and exam, and ``more``, of a manifest."""
    names = [name for name in (*UNIT_COLUMNS, *more) if manifest is not None and name in manifest and name not in table]
    return table if manifest is None or not names else with_columns(table, manifest, {name: name for name in names})


def settings_of(record: UnitRecord) -> UnitSettings:
    """Return the settings that a record of units was made with."""
    return UnitSettings.model_validate({"unit": record.unit, "pooling": record.pooling, "unit_labels": record.labels})


def refuse_missing_units(rows: pd.DataFrame, settings: UnitSettings, classes: Sequence[str], positive: str) -> None:
    """Raise UsvitError if the images of a manifest do not give the unit, before anything is trained on them."""
    if not settings.of_images:
        plain = settings.model_copy(update={"pooling": "mean"})  # attention does not exist yet
        units_of(rows.assign(fold=0, part="test", **{f"prob_{name}": 1.0 for name in classes}), plain, positive)


def calibrated_units(
    rows: pd.DataFrame, settings: UnitSettings, positive: str, temperature: float | None
) -> tuple[pd.DataFrame, UnitRecord]:
    """Return the units of the predictions of one model, pooled from the calibrated probabilities of their images.

    ``usvit score`` pools calibrated probabilities, so that its thresholds are chosen on these.

    Args:
        rows: predictions of one fold and one split.
        settings, positive: as in ``units_of``.
        temperature: divisor of the logits; None for 1.
    """
    tested = rows.drop(columns="repeat", errors="ignore").assign(part="test")
    own = rows_of(tested, "test")
    prob = np.exp(Temperature(temperature or 1.0).log_prob(own.scores))
    scaled = tested.assign(**{f"prob_{name}": prob[:, k] for k, name in enumerate(own.classes)})
    return units_of(scaled.drop(columns=[f"logit_{name}" for name in own.classes], errors="ignore"), settings, positive)


def units_of(table: pd.DataFrame, settings: UnitSettings, positive: str) -> tuple[pd.DataFrame, UnitRecord]:
    """Aggregate every prediction of splits test and val to one row per unit, model and split.

    With all repeats and with the inner validation rows, the result gives a headline whose interval is valid under
    cross-validation, and thresholds that are chosen at the unit. If each unit has one image, it gives the same bytes as
    the images.

    Args:
        table: n rows of a predictions table with the columns that identify the unit. Images without these are left
            out.
        settings: unit, pooling and label rule; the unit is not ``image``.
        positive: a class of the table.

    Returns:
        A predictions table in the order in which the units first occur, with the name of the unit as image_id and the
        number of images as n_images; and what was done. Groups that share a unit become one. Another column has a
        value if all images of the unit share it.

    Raises:
        UsvitError: the table does not have the columns or no tested image has a value; a lesion or an exam has
            several patients or sides; images of a unit were tested in several folds of one repeat; a unit has several
            labels and the rule refuses it; ``positive`` is not a class.

    Example:
        >>> table = pd.DataFrame({
        ...     "image_id": ["a", "b", "c"], "group_id": ["1", "1", "2"], "patient_id": ["1", "1", "2"],
        ...     "dataset": "d", "fold": 0, "part": "test", "label": ["yes", "yes", "no"],
        ...     "prob_no": [0.5, 0.25, 0.75], "prob_yes": [0.5, 0.75, 0.25],
        ... })
        >>> units, record = units_of(table, UnitSettings(unit="patient"), "yes")
        >>> units["prob_yes"].tolist(), record.n_units
        ([0.625, 0.25], 2)
    """
    classes, unit = classes_of(table), settings.unit
    if unit is None or unit == "image":
        raise ValueError("images are not pooled: the unit must be a larger one")
    if positive not in classes:
        raise unknown("positive class", positive, classes)
    known = identified(table, settings)
    _refuse_unidentified(table, unit, known)
    rows = table[known & table["part"].isin(["test", "val"]).to_numpy()].reset_index(drop=True)
    keys = list(UNIT_KEYS[unit])
    check_units(rows, "The predictions")
    _refuse_several_models(rows[rows["part"] == "test"], unit)

    code = rows.groupby([*keys, "fold", "part"], sort=False).ngroup().to_numpy(np.int64)
    prob = rows[[f"prob_{name}" for name in classes]].to_numpy(np.float64)  # (n, K)
    k = classes.index(positive)
    # The rows of a unit follow each other, the highest probability first and equal ones in the order of their names.
    order = np.lexsort((rows["image_id"].astype(str).to_numpy(), -prob[:, k], code))
    rows, prob = rows.iloc[order], prob[order]
    start = np.flatnonzero(np.diff(code[order], prepend=-1))
    size = np.diff(np.append(start, len(rows)))
    if settings.pooling == "attention":
        pooled = _attended(rows, prob, start)
    else:
        pooled = pooled_prob(prob, start, settings.pooling, k)

    ranked = [positive, *(name for name in classes if name != positive)]
    rank = pd.Index(ranked).get_indexer_for(pd.Index(rows["label"])).astype(np.int64)
    mixed = np.maximum.reduceat(rank, start) != np.minimum.reduceat(rank, start)
    _refuse_labels(rows, mixed, settings)
    found = _shared(rows, start)
    found["image_id"] = _names(rows.iloc[start], unit)
    found["group_id"] = _groups(rows, np.repeat(np.arange(len(start)), size))[start]
    found["label"] = [ranked[one] for one in np.minimum.reduceat(rank, start)]
    for number, name in enumerate(classes):
        found[f"prob_{name}"] = pooled[:, number]
        if f"logit_{name}" in rows:  # a single image keeps its own logits, so that no figure changes
            own = rows[f"logit_{name}"].to_numpy(np.float64)[start]
            found[f"logit_{name}"] = np.where(size == 1, own, np.log(np.maximum(pooled[:, number], LOWEST_PROB)))
    found["n_images"] = size
    once, tested = first_repeat(table), first_repeat(found)
    tested = tested[tested["part"] == "test"]
    in_test = (found["part"] == "test").to_numpy() & np.isin(repeats_of(found), repeats_of(tested))
    n_images = int(tested["n_images"].sum())
    n_out = int((once["part"] == "test").sum()) - n_images
    missing = ", ".join(name for name in keys if name != "dataset")
    record = UnitRecord(
        unit=unit,
        pooling=settings.pooling,
        labels=settings.unit_labels,
        label_order=ranked,
        n_units=len(tested),
        n_images=n_images,
        images_per_unit=ImagesPerUnit(
            least=int(tested["n_images"].min()),
            median=float(tested["n_images"].median()),
            most=int(tested["n_images"].max()),
        ),
        n_mixed=int(mixed[in_test].sum()),
        n_images_left_out=n_out,
        reason=f"{plural(n_out, 'image')} without {missing}" if n_out else None,
    )
    return found, record


def identified(table: pd.DataFrame, settings: UnitSettings) -> NDArray[np.bool_]:
    """Return which rows name their unit; none if a column is absent."""
    known = np.ones(len(table), bool)
    for name in UNIT_KEYS[settings.unit or "image"]:
        known &= (table[name].notna() & (table[name] != "")).to_numpy() if name in table else False
    return known


def _refuse_unidentified(table: pd.DataFrame, unit: Unit, known: NDArray[np.bool_]) -> None:
    absent = [name for name in UNIT_KEYS[unit] if name not in table]
    if absent or not (known & (table["part"] == "test").to_numpy()).any():
        names = ", ".join(absent or [name for name in UNIT_KEYS[unit] if name != "dataset"])
        what = "the predictions have no column" if absent else "no test image has"
        raise UsvitError(
            f"There are no figures of the unit {unit}: {what} {names}. Choose another unit with --unit, or predict "
            "images of a data set that states it."
        )


def _refuse_several_models(test: pd.DataFrame, unit: Unit) -> None:
    """Raise UsvitError if the images of a unit were tested in several folds of one repeat."""
    models = test.assign(repeat=repeats_of(test)).groupby([*UNIT_KEYS[unit], "repeat"])["fold"].unique()
    several = models[models.map(len) > 1]
    if len(several):
        folds = ", ".join(map(str, sorted(map(int, several.iloc[0]))))
        raise UsvitError(
            f"The images of {plural(len(several), unit)} were tested in several folds (of the first: {folds}), by "
            f"different models (a split by image?). Figures of the unit {unit} need folds that keep it whole."
        )


def pooled_prob(prob: NDArray[np.float64], start: Index, pooling: str, k: int) -> NDArray[np.float64]:
    """Pool the probabilities of the images of units by a rule without parameters.

    Source of noisy-or: Pearl (1988), Probabilistic Reasoning in Intelligent Systems, section 4.3.2.

    Args:
        prob: (n, K) in [0, 1], n >= 1; the images of a unit follow each other, the highest probability of class ``k``
            first.
        start: (m,) position of the first image of each unit.
        pooling: ``mean``, ``max``, ``top-K`` or ``noisy-or``.
        k: index of the positive class.

    Returns:
        (m, K) probabilities of the units; those of a single image are its own.
    """
    size = np.diff(np.append(start, len(prob)))
    if pooling == "noisy-or":
        rest = np.multiply.reduceat(1 - prob[:, k], start)  # (m,)
        others = np.delete(np.arange(prob.shape[1]), k)
        share = np.add.reduceat(prob[:, others], start)
        total = share.sum(axis=1, keepdims=True)
        found = np.zeros((len(start), prob.shape[1]))
        found[:, others] = rest[:, None] * np.divide(share, total, out=np.zeros_like(share), where=total > 0)
        found[:, k] = 1 - rest
    else:
        most = {"mean": math.inf, "max": 1}.get(pooling) or int(pooling.removeprefix("top-"))
        within = np.arange(len(prob)) - np.repeat(start, size)
        found = np.add.reduceat(prob * (within < most)[:, None], start) / np.minimum(size, most)[:, None]
    return np.asarray(np.where((size == 1)[:, None], prob[start], found))


def _attended(rows: pd.DataFrame, prob: NDArray[np.float64], start: Index) -> NDArray[np.float64]:
    """Return the (m, K) probabilities of the units, pooled by ``view_score``."""
    if "view_score" not in rows:
        raise UsvitError(
            "The predictions have no column view_score, by which the pooling 'attention' weighs the images of a unit. "
            "Choose another pooling, or train with --set loss.attention=trained and --set loss.vote=UNIT."
        )
    return attended(prob, rows["view_score"].to_numpy(np.float64), start)[1]


def attended(
    prob: NDArray[np.float64], score: NDArray[np.float64], start: Index
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Pool the probabilities of the views of units by attention.

    Source: Ilse et al. (2018), as in ``usvit.models.pooled_views``; the logarithm of a probability differs from its
    logit by a number that is the same for all classes.

    Args:
        prob: (n, K) in [0, 1], n >= 1; the views of a unit follow each other.
        score: (n,) score of each view, whose softmax over the views of a unit is their weights.
        start: (m,) position of the first view of each unit.

    Returns:
        (n,) weight of each view, which sum to 1 in each unit; and (m, K) probabilities of the units: softmax of the
        weighted mean of the logits. A unit with one view has exactly the probabilities of that view.
    """
    size = np.diff(np.append(start, len(prob)))
    weight = np.exp(score - np.repeat(np.maximum.reduceat(score, start), size))
    weight /= np.repeat(np.add.reduceat(weight, start), size)
    mean = np.add.reduceat(weight[:, None] * np.log(np.maximum(prob, LOWEST_PROB)), start)
    return weight, np.where((size == 1)[:, None], prob[start], softmax(mean, axis=1))


def _refuse_labels(rows: pd.DataFrame, mixed: NDArray[np.bool_], settings: UnitSettings) -> None:
    """Raise UsvitError if images disagree about a label that the rule wants to be unanimous."""
    if settings.unit_labels == "refuse" and mixed.any():
        labels = ", ".join(sorted(rows["label"].unique()))
        raise UsvitError(
            f"Some {settings.unit}s have images of several labels ({labels}), which --unit-labels refuse does not "
            "accept. Choose --unit-labels any or lesion, or correct the labels."
        )
    if settings.unit_labels != "lesion":
        return
    if "lesion_id" not in rows:
        raise UsvitError("--unit-labels lesion needs the column lesion_id, which the predictions do not have.")
    named = rows[rows["lesion_id"].notna() & (rows["lesion_id"] != "")]
    several = named.groupby(["dataset", "lesion_id"])["label"].nunique() > 1
    if several.any():
        raise UsvitError(
            f"{plural(int(several.sum()), 'lesion')} of {len(several)} have images of several labels, which "
            "--unit-labels lesion does not accept. Choose --unit-labels any, or correct the labels."
        )


def _shared(rows: pd.DataFrame, start: Index) -> pd.DataFrame:
    """Return the first row of each unit, without the values that its images do not share."""
    found = rows.iloc[start].reset_index(drop=True)
    for name in rows.columns.difference(["image_id", "group_id", "label", "dataset", "fold", "repeat", "part"]):
        if str(name).startswith(("prob_", "logit_")):
            continue
        value = pd.factorize(rows[name])[0]
        same = np.minimum.reduceat(value, start) == np.maximum.reduceat(value, start)
        if not same.all():
            found[name] = found[name].astype(object).where(same, None)
    return found


def _names(first: pd.DataFrame, unit: Unit) -> list[str]:
    columns = [first[name].astype(str) for name in UNIT_KEYS[unit] if name != "dataset"]
    return ["/".join(names) for names in zip(*columns, strict=True)]


def _groups(rows: pd.DataFrame, code: Index) -> NDArray[np.object_]:
    """Return the (n,) group of each row, where groups that share a unit are one, with the name of its first."""
    group, names = pd.factorize(rows["group_id"])
    if (pd.Series(group).groupby(code).nunique() == 1).all():
        return rows["group_id"].to_numpy(object)
    n_units = int(code.max()) + 1
    size = n_units + len(names)
    graph = coo_array((np.ones(len(code)), (code, n_units + group)), shape=(size, size))
    joined = connected_components(graph, directed=False)[1][n_units:]  # of each group
    first = dict(zip(joined[::-1], names[::-1], strict=True))
    return np.array([first[joined[one]] for one in group], dtype=object)
