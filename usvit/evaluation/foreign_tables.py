"""Conversion of any tool's CSV or Parquet table, whose columns the user names, to a predictions table."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.special import softmax

from usvit.config.evaluation import Columns
from usvit.data.datasets import SIDE_WORDS, UNIT_COLUMNS, read_private_sheet, side_of, with_units
from usvit.errors import UsvitError, unknown
from usvit.evaluation.predictions import (
    COLUMNS,
    PARTS,
    SUM_TOLERANCE,
    check_predictions,
    numbers_of,
    whole_numbers_of,
)
from usvit.files import read_csv, read_parquet

_ROUNDED = (2, 3, 4, 5, 6)
"""Decimals to which another tool may have rounded probabilities."""
_EVERY_IMAGE_ALONE = (
    "There is no column of groups: every image counts as its own patient. If patients have several images, the "
    "intervals are too narrow; name the column with --group or --patient."
)


def read_raw(path: Path) -> pd.DataFrame:
    """Read a CSV (``.tsv`` with tabs), Excel or Parquet file with all its columns; cells of CSV and Excel remain text.

    Raises:
        UsvitError: the file is absent, is not such a table, has no row, or has two columns of one name.
    """
    if path.is_dir():
        raise UsvitError(f"{path} is a folder but not a run directory: it has no run.json.")
    if path.suffix.lower() in (".parquet", ".pq"):
        table = read_parquet(path, follow=True, what="predictions table")
    elif path.suffix.lower() == ".xlsx":
        table = read_private_sheet(path, f"The predictions table {path}").rows.reset_index(drop=True)
    else:
        separator = "\t" if path.suffix.lower() in (".tsv", ".tab") else ","
        # Read the header as a row, because pandas would rename a duplicate column.
        cells = read_csv(path, follow=True, what="predictions table", separator=separator, header=False)
        table = cells.iloc[1:].reset_index(drop=True).set_axis(cells.iloc[0].tolist(), axis=1)
    double = table.columns[table.columns.duplicated()]
    if len(double):
        raise UsvitError(f"{path} has two columns '{double[0]}'.")
    if table.empty:
        raise UsvitError(f"{path} has no row: there is nothing to measure.")
    return table


def as_predictions(
    raw: pd.DataFrame, source: str, columns: Columns, positive: str | None, *, dataset: str
) -> tuple[pd.DataFrame, list[str]]:
    """Convert a table of any tool to a predictions table.

    Args:
        raw: the table from ``read_raw``.
        source: name of the table in error texts.
        columns: names of the columns.
        positive: the positive class; required if ``columns.prob`` is one column.
        dataset: name of the data set if the table has no column for it.

    Returns:
        The validated table and warnings for the user. Other columns of ``raw`` are kept for subgroups.

    Raises:
        UsvitError: a column does not exist (the nearest is named); labels and probabilities do not fit
            together; folds are missing; and as ``check_predictions``.
    """
    said = []
    label = text_of(raw, _pick(raw, columns.label, "label", "--label", source))
    table: dict[str, object] = {}
    image = _optional(raw, columns.image, "image_id", source)
    table["image_id"] = [f"row {row + 1}" for row in range(len(raw))] if image is None else text_of(raw, image)
    patient = _optional(raw, columns.patient, "patient_id", source)
    group = _optional(raw, columns.group, "group_id", source)
    named = _optional(raw, None, "dataset", source)
    table["dataset"] = [dataset] * len(raw) if named is None else text_of(raw, named)
    if group is not None:
        table["group_id"] = text_of(raw, group)
    elif patient is not None:
        # A patient's number identifies the patient only within its data set.
        pairs = zip(table["dataset"], text_of(raw, patient), range(len(raw)), strict=True)  # type: ignore[call-overload]
        table["group_id"] = [f"patient:{name}:{one}" if one else f"row:{row + 1}" for name, one, row in pairs]
    else:
        said.append(_EVERY_IMAGE_ALONE)
        table["group_id"] = [f"row:{row + 1}" for row in range(len(raw))]
    table["patient_id"] = [one or None for one in text_of(raw, patient)] if patient is not None else None
    base = pd.DataFrame({"image_id": table["image_id"]})
    for name, asked in zip(UNIT_COLUMNS, (columns.lesion, columns.side, columns.exam), strict=True):
        if (column := _optional(raw, asked, name, source)) is not None:
            cells = text_of(raw, column)
            values = _sides(base, cells, column, source) if name == "side" else [one or None for one in cells]
            table |= {name: values} if any(values) else {}
    fold = _optional(raw, columns.fold, "fold", source)
    table["fold"] = np.zeros(len(raw), np.int64) if fold is None else _folds(base, raw, fold, source)
    if "repeat" in raw:
        table["repeat"] = whole_numbers_of(base, raw["repeat"], "repeat", source)
    table["part"] = text_of(raw, "part") if "part" in raw else "test"
    table["label"] = label
    _refuse_empty(base, label, source, columns.label or "label")
    prob, rounding = _without_rounding(_probabilities(base, raw, label, columns.prob, positive, source))
    said += [rounding] if rounding else []
    found = pd.DataFrame(table)
    named_columns = [name for name in (*with_units(COLUMNS[:-2], found), "repeat", *COLUMNS[-2:]) if name in table]
    found = found[named_columns].assign(**{f"prob_{name}": value for name, value in prob.items()})
    logits = {name: f"logit_{name}" for name in prob}
    if not columns.prob and set(logits.values()) <= set(raw.columns):
        scores = np.stack([numbers_of(base, raw[one], one, source) for one in logits.values()], axis=1)
        if np.abs(softmax(scores, axis=1) - np.stack(list(prob.values()), axis=1)).max() <= 1e-5:
            for k, one in enumerate(logits.values()):
                found.insert(len(named_columns) + k, one, scores[:, k])
        else:
            said.append(
                "The softmax of the columns logit_<class> does not equal the probabilities: these columns are ignored."
            )
    others = [name for name in raw.columns if name not in found and not str(name).startswith(("prob_", "logit_"))]
    check_predictions(found, source)
    _refuse_missing_folds(found, source)
    return found.assign(**{name: raw[name] for name in others}), said


def positive_of(classes: Sequence[str], positive: str | None) -> str:
    """Return the positive class: the requested one, or 'malignant' if that is a class.

    Raises:
        UsvitError: it is not a class; or none was given and no class is named malignant.
    """
    if positive is not None:
        if positive not in classes:
            raise unknown("positive class", positive, classes)
        return positive
    if "malignant" in classes:
        return "malignant"
    raise UsvitError(f"No positive class was given. Name it with --positive, one of {', '.join(classes)}.")


def _pick(raw: pd.DataFrame, asked: str | None, usual: str, option: str, source: str) -> str:
    name = asked or usual
    if name in raw:
        return name
    if asked is None:
        shown = ", ".join(map(str, raw.columns[:12])) + (", ..." if len(raw.columns) > 12 else "")
        raise UsvitError(f"{source} has no column '{usual}'. Name it with {option}; there are {shown}.")
    raise unknown("column", asked, map(str, raw.columns), f"It was asked for in {source}.")


def _optional(raw: pd.DataFrame, asked: str | None, usual: str, source: str) -> str | None:
    if asked is None and usual not in raw:
        return None
    return _pick(raw, asked, usual, "", source)


def text_of(raw: pd.DataFrame, name: str) -> list[str]:
    """Return the cells of a column as text, empty if missing; 1.0 (an integer in a column with gaps) becomes 1."""
    return [_cell(value) for value in raw[name].tolist()]


def _cell(value: object) -> str:
    if value is None or value is pd.NA or value != value:
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)


def _probabilities(
    base: pd.DataFrame,
    raw: pd.DataFrame,
    label: list[str],
    asked: Sequence[str],
    positive: str | None,
    source: str,
) -> dict[str, np.ndarray]:
    """Return class -> (n,) float64 probabilities."""
    if not asked:
        own = [str(name) for name in raw.columns if str(name).startswith("prob_")]
        if len(own) < 2:
            shown = ", ".join(map(str, raw.columns[:12])) + (", ..." if len(raw.columns) > 12 else "")
            raise UsvitError(
                f"{source} has no columns prob_<class>. Name them with --prob CLASS=COLUMN for each class, "
                f"or with --prob COLUMN for that of the --positive class; there are {shown}."
            )
        return {name.removeprefix("prob_"): numbers_of(base, raw[name], name, source) for name in own}
    if len(asked) == 1 and (asked[0] in raw or "=" not in asked[0]):
        column = _pick(raw, asked[0], "", "--prob", source)
        classes = sorted(set(label))
        if positive is None:
            raise UsvitError(f"--prob {column} needs a class: name it with --positive, one of {', '.join(classes)}.")
        if positive not in classes:
            raise unknown("positive class", positive, classes, f"Column of labels in {source}.")
        if len(classes) != 2:
            raise UsvitError(
                f"One column of probabilities describes two classes, but the labels of {source} are "
                f"{', '.join(classes[:12])}. Give --prob CLASS=COLUMN for each class."
            )
        other = next(name for name in classes if name != positive)
        value = numbers_of(base, raw[column], column, source)
        return {other: 1 - value, positive: value}
    columns: dict[str, str] = {}
    for one in asked:
        name, equals, column = one.partition("=")
        if not equals or not name or not column:
            raise UsvitError(f"--prob {one}: expected CLASS=COLUMN, such as malignant=p_malignant.")
        if name in columns:
            raise UsvitError(f"--prob names the class '{name}' twice.")
        columns[name] = _pick(raw, column, "", "--prob", source)
    if len(columns) < 2:
        raise UsvitError("--prob CLASS=COLUMN is needed for each of at least two classes.")
    return {name: numbers_of(base, raw[column], column, source) for name, column in columns.items()}


def _without_rounding(prob: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], str]:
    """Divide rounded probabilities by their sum, if it differs from 1 by no more than their rounding can explain.

    K numbers with d decimals may sum to 1 within K / 2 units of the last decimal. Anything else is left as it is, and
    refused later.

    Returns:
        The probabilities, and a sentence for the user; empty if nothing was changed.
    """
    numbers = np.stack(list(prob.values()), axis=1)
    total = numbers.sum(axis=1)
    off = float(np.abs(total - 1).max())
    if off <= SUM_TOLERANCE:
        return prob, ""
    decimals = next((d for d in _ROUNDED if np.abs(numbers - numbers.round(d)).max() < 1e-9), None)
    if decimals is None or off > len(prob) / 2 * 10.0**-decimals + 1e-9:
        return prob, ""
    said = (
        f"Probabilities are rounded to {decimals} decimals and sum to 1 within {off:.2g}; each was divided by the sum."
    )
    return {name: value / total for name, value in prob.items()}, said


def _sides(base: pd.DataFrame, cells: Sequence[str], name: str, source: str) -> list[str | None]:
    sides = [side_of(cell) for cell in cells]
    for row, (cell, side) in enumerate(zip(cells, sides, strict=True)):
        if cell and side is None:
            raise UsvitError(
                f"{source}: column '{name}' holds a side that is not known, in row {row + 1}, image "
                f"'{base['image_id'][row]}'. Known are {SIDE_WORDS}. Leave the cell empty if it is unknown."
            )
    return sides


def _folds(base: pd.DataFrame, raw: pd.DataFrame, name: str, source: str) -> np.ndarray:
    fold = numbers_of(base, raw[name], name, source)
    if (fold != np.floor(fold)).any() or (fold < 0).any():
        raise UsvitError(f"{source}: column '{name}' must hold whole numbers of folds, such as 0 to 4.")
    return fold.astype(np.int64)


def _refuse_missing_folds(table: pd.DataFrame, source: str) -> None:
    """Check that the folds of tested images, counted from 0 (or from 1 by other tools), have no gap."""
    folds = sorted(set(table.loc[table["part"] == PARTS[2], "fold"].tolist()))
    if not folds:
        raise UsvitError(f"{source} has no row of part test: there is nothing to measure.")
    missing = sorted(set(range(1 if folds[0] == 1 else 0, folds[-1] + 1)) - set(folds))
    if missing and len(folds) > 1:
        raise UsvitError(
            f"{source}: missing folds: {', '.join(map(str, missing))}. Pooled figures need each image's prediction."
        )


def _refuse_empty(base: pd.DataFrame, label: list[str], source: str, name: str) -> None:
    for row, one in enumerate(label):
        if not one:
            raise UsvitError(f"{source}: column '{name}' is empty, in row {row + 1}, image '{base['image_id'][row]}'.")


def with_columns(table: pd.DataFrame, beside: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Add columns to a table of images; existing columns are kept.

    Args:
        table: with dataset and image_id.
        beside: one row per image, with dataset and image_id.
        names: name in ``beside`` -> new name.
    """
    key = ["dataset", "image_id"]
    wanted = {old: new for old, new in names.items() if old in beside and new not in table}
    found = beside[[*key, *wanted]].rename(columns=wanted).astype(dict.fromkeys(key, str))
    return table.merge(found, on=key, how="left", validate="many_to_one")
