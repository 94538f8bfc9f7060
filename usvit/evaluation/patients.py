"""Aggregation of predictions from one row per image to one row per patient."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd

from usvit.errors import UsvitError, unknown
from usvit.evaluation.predictions import classes_of, first_repeat, repeats_of

Rule = Literal["mean", "max"]


def by_patient(
    table: pd.DataFrame,
    *,
    how: Rule = "mean",
    positive: str,
    unit: Literal["group_id", "patient_id"] = "group_id",
    precedence: Sequence[str] | None = None,
) -> pd.DataFrame:
    """Aggregate a predictions table to one row per patient; metrics of the result are patient-level.

    Args:
        table: n rows of split test that ``check_predictions`` accepts.
        how: ``mean`` averages each class's probability over the patient's images; ``max`` takes the
            complete row of the image with the highest probability of ``positive`` (the first in order of image_id), so
            that the row sums to one.
        positive: a class of the table.
        unit: definition of a patient: the group (a patient, or a cluster of near-duplicates without patient ids), or
            the patient id within its data set.
        precedence: label of a patient with images of several labels: the first class of this list that any of the
            images has, such as ["malignant", "benign", "normal"]. None refuses such patients.

    Returns:
        A predictions table without logits, with the patient's name as image_id, and n_images. Rows are sorted by the
        names of the patients. A group of near-duplicates from several data sets is one row, with the data sets
        joined by "+".

    Raises:
        UsvitError: there is no row of part test; a patient has two labels and there is no precedence,
            or it does not list them; a patient's images were tested in different folds, so by
            different models; ``unit`` is patient_id and one is missing; ``positive`` is no class.
    """
    _check(table, how, positive)
    table = first_repeat(table)
    test = table[table["part"] == "test"]
    if test.empty:
        raise UsvitError("The predictions table has no row of part test: there is no patient.")
    if unit == "patient_id":
        missing = test["patient_id"].isna()
        if missing.any():
            raise UsvitError(
                f"{int(missing.sum())} images have no patient_id (first: '{test['image_id'][missing].iloc[0]}'); "
                "aggregate by group_id instead."
            )
    return _aggregated(test, ["group_id"] if unit == "group_id" else _PATIENT, how, positive, precedence)


def patients_of_models(table: pd.DataFrame, *, how: Rule, positive: str, precedence: Sequence[str]) -> pd.DataFrame:
    """Aggregate every prediction of splits test and val to one row per patient, model and split.

    With all repeats and with the inner validation rows, the result allows a headline whose interval is valid under
    cross-validation, as the table of the images does (``cross_validation_headline``).

    Args:
        table: n rows of a predictions table, each with a patient id within its data set.
        how, positive, precedence: as in ``by_patient``.

    Raises:
        UsvitError: as ``by_patient``.
    """
    _check(table, how, positive)
    return _aggregated(table[table["part"].isin(["test", "val"])], _PATIENT, how, positive, precedence)


_PATIENT = ["dataset", "patient_id"]


def _check(table: pd.DataFrame, how: str, positive: str) -> None:
    if positive not in classes_of(table):
        raise unknown("positive class", positive, classes_of(table))
    if how not in ("mean", "max"):
        raise unknown("rule for a patient's images", how, ["mean", "max"])


def _aggregated(
    table: pd.DataFrame, keys: list[str], how: Rule, positive: str, precedence: Sequence[str] | None
) -> pd.DataFrame:
    """Return one row for each patient (rows with equal ``keys``), fold and split."""
    classes = classes_of(table)
    table = table.sort_values(["dataset", "image_id"], kind="stable")
    _refuse_several_models(table[table["part"] == "test"], keys)
    model = [name for name in ("fold", "repeat", "part") if name in table]
    prob = [f"prob_{name}" for name in classes]

    # Use arrays: a thousand small tables would take seconds.
    column = {name: table[name].to_numpy(object) for name in {*keys, *model, "group_id", "label", "dataset"}}
    patient_id, numbers = table["patient_id"].to_numpy(object), table[prob].to_numpy(np.float64)  # (n, K)
    rows = []
    for at in (np.sort(one) for one in table.groupby([*keys, "fold", "part"], sort=True).indices.values()):
        first = {name: values[at[0]] for name, values in column.items()}
        name = str(first[keys[-1]])
        patients = {one for one in patient_id[at] if one is not None and one == one}
        own = numbers[at]  # (images of the patient, K)
        chosen = own.mean(axis=0) if how == "mean" else own[own[:, classes.index(positive)].argmax()]
        rows.append(
            {
                "image_id": name,
                "group_id": first["group_id"],
                "patient_id": patients.pop() if len(patients) == 1 else None,
                "dataset": "+".join(sorted(set(column["dataset"][at]))),
                **{name: first[name] for name in model},
                "label": _label(name, sorted(set(column["label"][at])), precedence),
                **dict(zip(prob, chosen.tolist(), strict=True)),
                "n_images": len(at),
            }
        )
    return pd.DataFrame(rows)


def _refuse_several_models(test: pd.DataFrame, keys: list[str]) -> None:
    """Raise UsvitError if the images of a patient were tested in several folds of one repeat."""
    models = test.assign(repeat=repeats_of(test)).groupby([*keys, "repeat"])["fold"].unique()
    several = models[models.map(len) > 1]
    if len(several):
        name, folds = several.index[0][-2], ", ".join(map(str, sorted(map(int, several.iloc[0]))))
        raise UsvitError(
            f"Images of '{name}' were tested in folds {folds}, by different models (a split by image?). A "
            "patient-level figure needs folds that keep patients whole."
        )


def _label(name: str, labels: list[str], precedence: Sequence[str] | None) -> str:
    if len(labels) == 1:
        return str(labels[0])
    if precedence is None:
        raise UsvitError(
            f"'{name}' has images labelled {', '.join(sorted(labels))}. Say which label such a patient gets, "
            "as an order of the classes (the first that any image has), or leave these images out."
        )
    for choice in precedence:
        if choice in labels and not set(labels) - set(precedence):
            return choice
    raise UsvitError(
        f"'{name}' has images labelled {', '.join(sorted(labels))}; the order {', '.join(precedence)} "
        "does not list them all."
    )
