"""The predictions table: one row per image, from which every figure can be computed.

The key of an image is (dataset, image_id). The classes of a table and their order are those of its ``prob_<class>``
columns. A repeated cross-validation has a column ``repeat`` and tests each image once per repeat; ``fold`` is numbered
through all repeats, so it alone identifies the model. The split of a row is in the column ``part``.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from usvit.data.datasets import SIDES, UNIT_COLUMNS, contradiction, with_units
from usvit.errors import UsvitError, unknown
from usvit.files import read_csv
from usvit.records.run import MAX_FOLDS

_ROW_COLUMNS = ("image_id", "group_id", "patient_id", "dataset")
COLUMNS = (*_ROW_COLUMNS, "fold", "part", "label")
PARTS = ("train", "val", "test")
SUM_TOLERANCE = 1e-6  # probabilities written with six decimals by other tools still pass


def predictions_table(
    rows: pd.DataFrame,
    logits: np.ndarray,
    *,
    classes: Sequence[str],
    fold: int,
    part: str | Sequence[str],
    repeat: int | None = None,
    view_score: np.ndarray | None = None,
) -> pd.DataFrame:
    """Create the predictions table of one fold.

    Args:
        rows: n rows of the manifest, with image_id, group_id, patient_id, dataset and label, and those of
            ``UNIT_COLUMNS`` that the images have.
        logits: (n, K) float, the network's outputs before the softmax.
        classes: K names, in the order of the logits.
        fold: the fold whose model predicted; 0 in a hold-out.
        part: the split "train", "val" or "test", for all rows or one for each.
        repeat: the complete cross-validation that the fold belongs to, counted from 0; None if there is only one;
            the table then has no such column.
        view_score: (n,) float, whose softmax over the images of a unit is the weight of each (``loss.attention``);
            None if the network pools no views.

    Returns:
        n rows: ``COLUMNS`` (``UNIT_COLUMNS`` after the patient, and ``repeat`` after the fold), then logit_<class> and
        prob_<class> in the order of the classes, and ``view_score``, all float64. The softmax is computed in float64,
        so figures depend on the table only.

    Raises:
        UsvitError: a logit is not finite, or a label is not one of the classes.
        ValueError: the shapes do not fit together.
    """
    logits = np.asarray(logits, dtype=np.float64)
    if logits.shape != (len(rows), len(classes)):
        raise ValueError(f"logits have shape {logits.shape}, expected {(len(rows), len(classes))}")
    with np.errstate(invalid="ignore"):  # a logit that is not finite is refused below
        power = np.exp(logits - logits.max(axis=1, keepdims=True))
        prob = power / power.sum(axis=1, keepdims=True)

    columns: dict[str, object] = {name: rows[name].to_numpy() for name in with_units(_ROW_COLUMNS, rows)}
    columns |= {"fold": fold} if repeat is None else {"fold": fold, "repeat": repeat}
    columns |= {"part": part if isinstance(part, str) else list(part), "label": rows["label"].to_numpy()}
    columns |= {f"logit_{name}": logits[:, k] for k, name in enumerate(classes)}
    columns |= {f"prob_{name}": prob[:, k] for k, name in enumerate(classes)}
    columns |= {} if view_score is None else {"view_score": view_score}
    table = pd.DataFrame(columns)
    check_predictions(table, f"The predictions of fold {fold}")
    return table


def read_predictions(path: str | Path) -> pd.DataFrame:
    """Read a predictions table that usvit or another tool wrote.

    Ids and labels remain text ('000001', 'normal', 'NA'); an empty id of a unit is a missing value. Numbers are read
    bit for bit as they were written. The logit columns are optional; no metric needs them.

    Raises:
        UsvitError: the file is absent or not a CSV file, or ``check_predictions`` refuses it.
    """
    path = Path(path)
    table = read_csv(path, what="predictions table")
    _require_columns(table, str(path))

    for name in ("patient_id", *UNIT_COLUMNS):
        if name in table:
            table[name] = table[name].where(table[name] != "", None)
    for name in table.columns:
        if name.startswith(("logit_", "prob_")) or name == "view_score":
            table[name] = numbers_of(table, table[name], name, str(path))
    for name in ("fold", "repeat"):
        if name in table:
            table[name] = whole_numbers_of(table, table[name], name, str(path))
    check_predictions(table, str(path))
    return table


def classes_of(table: pd.DataFrame) -> list[str]:
    """Return the class names of a predictions table, in the order of its prob_<class> columns."""
    return [name.removeprefix("prob_") for name in table.columns if name.startswith("prob_")]


_CHECKED: ContextVar[dict[int, pd.DataFrame] | None] = ContextVar("_CHECKED", default=None)


@contextmanager
def checked_once() -> Iterator[None]:
    """Let ``check_predictions`` check each table once, for a caller under which no table is changed in place.

    The sections of ``metrics.json`` check the same table fifty times otherwise, a fifth of the time of a small run.
    """
    token = _CHECKED.set({} if _CHECKED.get() is None else _CHECKED.get())
    try:
        yield
    finally:
        _CHECKED.reset(token)


def check_predictions(table: pd.DataFrame, source: str) -> None:
    """Validate a predictions table.

    Args:
        table: the rows, of any splits and folds.
        source: name of the table in error texts, such as its file name.

    Raises:
        UsvitError: a column is missing; a logit or probability is not finite; probabilities lie
            outside [0, 1] or do not sum to one within ``SUM_TOLERANCE``; an id is empty; a split or
            label is unknown; a repeat is not an integer or a fold belongs to two repeats; an image is predicted
            twice in split test (of one repeat, if there are several); a side is neither left nor right, or units
            contradict each other (``usvit.data.datasets.units.contradiction``).
    """
    checked = _CHECKED.get()
    if checked is not None and checked.get(id(table)) is table:
        return
    _require_columns(table, source)
    classes = classes_of(table)
    for name in ("image_id", "group_id", "dataset", "label"):
        column = table[name].to_numpy(object)
        _refuse(table, np.where(pd.isna(column), "", column) == "", source, f"column '{name}' is empty")
    part = table["part"].to_numpy(object)
    other = pd.Index(PARTS).get_indexer_for(pd.Index(part)) < 0
    _refuse(table, other, source, "column 'part' must be train, val or test")

    strange = table["label"].to_numpy(object)[pd.Index(classes).get_indexer_for(pd.Index(table["label"])) < 0]
    if len(strange):
        raise unknown("label", str(strange[0]), classes, f"{source} has no column 'prob_{strange[0]}'.")
    numbers = {name: table[name].to_numpy(np.float64) for name in table.columns if name.startswith(("logit_", "prob_"))}
    for name, column in numbers.items():
        _refuse(table, ~np.isfinite(column), source, f"column '{name}' is not finite")
    prob = np.stack([numbers[f"prob_{name}"] for name in classes]).T
    _refuse(table, ((prob < 0) | (prob > 1)).any(axis=1), source, "a probability lies outside 0 to 1")
    # The sum's own rounding (1e-12 is generous) must not decide at the tolerance's edge.
    off = np.abs(prob.sum(axis=1) - 1) > SUM_TOLERANCE + 1e-12
    _refuse(table, off, source, f"the probabilities do not sum to 1 (within {SUM_TOLERANCE:g})")

    check_units(table, source)

    where, key = "part test", ["dataset", "image_id"]
    if "repeat" in table:
        repeat = repeats_of(table)
        _refuse(table, (repeat < 0) | (repeat != np.floor(repeat)), source, "column 'repeat' must count from 0")
        several = pd.Series(repeat, table.index).groupby(table["fold"]).transform("nunique") > 1
        _refuse(table, several, source, "a fold belongs to two repeats; number the folds of all repeats consecutively")
        where, key = "part test of one repeat", [*key, "repeat"]
    test = table.loc[part == "test", key]
    _refuse(test, test.duplicated(), source, f"the image is predicted twice in {where}")
    if checked is not None:
        checked[id(table)] = table  # kept, so that no other table gets its id


def check_units(table: pd.DataFrame, source: str) -> None:
    """Raise UsvitError if a side is not known, or the units of two images contradict each other.

    Args:
        table: the rows.
        source: name of the table in error texts.
    """
    if "side" in table:
        strange = table["side"].notna() & ~table["side"].isin([*SIDES])
        _refuse(table, strange, source, f"column 'side' must be {' or '.join(SIDES)}, or empty")
    if wrong := contradiction(table):
        images = table["image_id"].iloc[[wrong.first, wrong.second]].tolist()
        one = wrong.first == wrong.second
        named = f"the image '{images[0]}'" if one else f"the images '{images[0]}' and '{images[1]}'"
        raise UsvitError(f"{source}: {named} {wrong.said}.")


def repeats_of(table: pd.DataFrame) -> np.ndarray:
    """Return the (n,) repeat of each row; all 0 in a table without that column."""
    return table["repeat"].to_numpy() if "repeat" in table else np.zeros(len(table), np.int64)


def first_repeat(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the lowest repeat, with each tested image once; the table itself if it has one repeat.

    Sections that need each image once use these rows: operating points, calibration, subgroups, patients, decision
    curve, confusion matrix and pooled figures.
    """
    repeat = repeats_of(table)
    return table[repeat == repeat.min()] if len(table) and repeat.min() < repeat.max() else table


def check_complete(pooled: pd.DataFrame, expected: pd.DataFrame | Iterable[tuple[str, str]], n_folds: int = 1) -> None:
    """Check that pooled out-of-fold predictions contain each image exactly once in each repeat.

    Args:
        pooled: a predictions table; only rows of split test are checked.
        expected: the images that must be present, as a table with dataset, image_id and (of a repeated
            cross-validation) repeat, or as (dataset, image_id) pairs. Without repeats, it applies to each repeat
            of ``pooled``.
        n_folds: folds 0 ... n_folds - 1 must all be present; 1 for a hold-out. With repeats, the folds of all repeats.

    Raises:
        UsvitError: folds or images are missing, duplicate or not expected (they are named).
    """
    test = pooled[pooled["part"] == "test"]
    repeats = repeats_of(test).tolist()
    keys = list(zip(test["dataset"], test["image_id"], repeats, strict=True))
    if not isinstance(expected, pd.DataFrame):
        expected = pd.DataFrame(expected, columns=["dataset", "image_id"])
    if "repeat" in expected:
        wanted = set(zip(expected["dataset"], expected["image_id"], expected["repeat"], strict=True))
    else:
        every = sorted({*repeats}) or [0]
        wanted = {(*key, one) for key in zip(expected["dataset"], expected["image_id"], strict=True) for one in every}
    found = set(keys)
    folds = {int(fold) for fold in test["fold"]}

    wrong = []
    for title, numbers in (
        ("missing folds", set(range(n_folds)) - folds),
        ("unknown folds", folds - {*range(n_folds)}),
    ):
        if numbers:
            wrong.append(f"{title}: {', '.join(map(str, sorted(numbers)))}")
    double = {key for key, count in Counter(keys).items() if count > 1}
    in_repeat = len({repeat for *_, repeat in wanted | found}) > 1
    for title, images in (
        ("images without a prediction", wanted - found),
        ("images predicted twice", double),
        ("images that were not expected", found - wanted),
    ):
        if images:
            shown = ", ".join(
                f"{dataset}/{image}{f' in repeat {repeat}' if in_repeat else ''}"
                for dataset, image, repeat in sorted(images)[:5]
            )
            wrong.append(f"{title}: {len(images)} ({shown}{', ...' if len(images) > 5 else ''})")
    if wrong:
        raise UsvitError(f"The pooled predictions are not complete; {'; '.join(wrong)}.")


def numbers_of(table: pd.DataFrame, values: pd.Series, name: str, source: str) -> np.ndarray:
    """Convert a column of text or numbers to (n,) float64.

    Args:
        table: names the images of the rows in error texts.
        values: (n,) cells.
        name: name of the column in error texts.
        source: name of the table in error texts.

    Raises:
        UsvitError: a cell is not a finite number; the row and its image are named.
    """
    numbers = np.empty(len(table))
    for row, cell in enumerate(values.tolist()):
        try:
            # Python's parser is exact; the fast parser of pandas can differ in the last bit.
            numbers[row] = float(cell)
        except (TypeError, ValueError):
            numbers[row] = np.nan
    _refuse(table, ~np.isfinite(numbers), source, f"column '{name}' must hold finite numbers")
    return numbers


def whole_numbers_of(table: pd.DataFrame, values: pd.Series, name: str, source: str) -> np.ndarray:
    """Convert a column to (n,) int64; arguments as ``numbers_of``; a cell that is not an integer is an error."""
    numbers = numbers_of(table, values, name, source)
    if ((numbers != np.floor(numbers)) | (np.abs(numbers) > MAX_FOLDS)).any():
        raise UsvitError(f"{source}: column '{name}' must hold whole numbers, counted from 0.")
    return numbers.astype(np.int64)


def _require_columns(table: pd.DataFrame, source: str) -> None:
    missing = [name for name in COLUMNS if name not in table.columns]
    if missing:
        raise UsvitError(
            f"{source}: no column {', '.join(missing)}. A predictions table has {', '.join(COLUMNS)} and one "
            "prob_<class> for each class ('usvit docs files')."
        )
    classes = classes_of(table)
    if len(classes) < 2:
        raise UsvitError(f"{source}: a predictions table needs a prob_<class> column for each of at least two classes.")
    logits = [name.removeprefix("logit_") for name in table.columns if name.startswith("logit_")]
    if logits and logits != classes:
        raise UsvitError(
            f"{source}: the logit_<class> columns ({', '.join(logits)}) and the prob_<class> columns "
            f"({', '.join(classes)}) must name the same classes in the same order."
        )


def _refuse(table: pd.DataFrame, refused: ArrayLike, source: str, what: str) -> None:
    bad = np.asarray(refused, dtype=bool)
    if bad.any():
        row = int(bad.argmax())
        image, more = table["image_id"].iloc[row], int(bad.sum()) - 1
        others = f" (and {more} more)" if more else ""
        raise UsvitError(f"{source}: {what}, in row {row + 1}, image '{image}'{others}.")
