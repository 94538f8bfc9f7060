"""A table of another tool beside a run: its columns are found, and the run supplies labels, groups and folds."""

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from usvit.config.evaluation import Columns
from usvit.data.datasets import with_units
from usvit.errors import UsvitError, unknown
from usvit.evaluation.evaluate_predictions import KEY, Predictions
from usvit.evaluation.foreign_tables import as_predictions, read_raw, text_of

logger = logging.getLogger(__name__)

LABELS = ("label", "y", "y_true", "truth", "target")
"""Usual names of a column of labels."""
_SAYS_PROBABILITY = {"p", "pr", "prob", "probs", "proba", "probability", "score", "pred", "prediction"}


def open_beside(path: Path, run: Predictions, columns: Columns) -> Predictions:
    """Read a table of any tool as predictions of the images that a run tested.

    Columns that ``columns`` does not name are found: images by the names of the run's images, probabilities by the
    names of the classes. Labels, groups, folds and data sets are those of the run. A column of labels or of folds in
    the table must agree with them, in whatever words.

    Args:
        path: CSV, Excel or Parquet file.
        run: predictions of the run.
        columns: the columns that the user named.

    Raises:
        UsvitError: a column is missing or ambiguous, images are missing or occur twice, or labels or folds contradict
            those of the run.
    """
    test = run.table[run.table["part"] == "test"]
    if "repeat" in test:
        raise UsvitError(
            f"{run.name} is a repeated cross-validation, and {path} has one prediction of each image. Compare the "
            "table with a run without --repeats."
        )
    raw = read_raw(path)
    if "part" in raw:
        raw = raw[[one == "test" for one in text_of(raw, "part")]].reset_index(drop=True)
    image = columns.image or image_column(raw, test, path, run.name)
    raw = raw.iloc[_rows_of_images(raw, image, test, path, run.name)].reset_index(drop=True)
    words = _agreeing(raw, columns.label, LABELS, test["label"], f"{path}: the labels", run.name)
    _agreeing(raw, columns.fold, ("fold",), test["fold"], f"{path}: the folds", run.name)
    asked = _asked(columns.prob, run.positive)
    prob = asked if len(asked) > 1 else _named_like_classes(raw, run.classes, words, asked, path)
    taken = [*KEY, *with_units(["group_id", "patient_id", "fold", "label"], test)]
    others = [one for one in raw if one not in {*taken, image}]
    whole = pd.concat([test[taken].reset_index(drop=True), raw[others]], axis=1)
    pairs = Columns(prob=tuple(f"{name}={column}" for name, column in prob.items()))
    table, said = as_predictions(whole, str(path), pairs, None, dataset=path.stem)
    shown = ", ".join(f"{name} from '{column}'" for name, column in prob.items())
    logger.info(f"{path.name}: images from column '{image}', probability of {shown}.")
    said = [f"{path.name}: labels, groups and folds are those of {run.name}.", *(f"{path.name}: {one}" for one in said)]
    return replace(run, name=path.name, table=table, record=None, warnings=said, contamination=())


def image_column(raw: pd.DataFrame, test: pd.DataFrame, path: Path, name: str) -> str:
    """Return the column that holds the names of the run's images, with or without folder and suffix."""
    wanted = set(map(stem, test["image_id"]))
    shares = {one: len(wanted & set(map(stem, text_of(raw, one)))) for one in map(str, raw)}
    best = max(shares, key=lambda one: shares[one])
    if not shares[best]:
        raise UsvitError(
            f"No column of {path} holds names of the images of {name}, such as '{test['image_id'].iloc[0]}'. Add one, "
            "as in predictions.csv or folds.csv of the run, or name it with --image."
        )
    equal = [one for one, n in shares.items() if n == shares[best]]
    if len(equal) > 1 and "image_id" not in equal:
        raise UsvitError(f"{path}: the columns {', '.join(equal)} hold names of images. Name one with --image.")
    return "image_id" if "image_id" in equal else best


def _without_suffix(name: str) -> str:
    """``images/benign (1).png`` -> ``images/benign (1)``."""
    return re.sub(r"\.(png|jpe?g|bmp|tiff?|dcm)$", "", name.replace("\\", "/"), flags=re.I)


def stem(name: str) -> str:
    """``images/benign (1).png`` -> ``benign (1)``."""
    return _without_suffix(name).rpartition("/")[2]


def _rows_of_images(raw: pd.DataFrame, image: str, test: pd.DataFrame, path: Path, name: str) -> list[int]:
    """Return the row of ``raw`` for each row of ``test``."""
    if image not in raw:
        raise unknown("column", image, map(str, raw.columns), f"It was named for the images of {path}.")
    ours, theirs = test["image_id"].astype(str).tolist(), text_of(raw, image)
    ways: list[tuple[list[Any], list[Any]]] = [(ours, theirs)]
    ways += [([*map(way, ours)], [*map(way, theirs)]) for way in (_without_suffix, stem)]
    if "dataset" in raw:
        sets = test["dataset"].astype(str), text_of(raw, "dataset")
        ways.insert(0, ([*zip(sets[0], ours, strict=True)], [*zip(sets[1], theirs, strict=True)]))
    ways = [(wanted, there) for wanted, there in ways if len(set(wanted)) == len(wanted)]
    if not ways:
        raise UsvitError(f"{path}: several images of {name} have one name. Add the column dataset, as in folds.csv.")
    wanted, there = min(ways, key=lambda way: len(set(way[0]) - set(way[1])))
    at = {one: row for row, one in enumerate(there)}
    absent = [one for one in wanted if one not in at]
    double = [one for one, n in Counter(there).items() if n > 1 and one in set(wanted)]
    if absent or double:
        what = f"{len(absent)} of {len(wanted)} tested images of {name} have no row" if absent else ""
        what = what or f"{len(double)} images have several rows"
        raise UsvitError(
            f"{path}, column '{image}': {what}, such as '{(absent or double)[0]}'. A paired comparison needs exactly "
            "one row for each tested image."
        )
    return [at[one] for one in wanted]


def _agreeing(
    raw: pd.DataFrame, asked: str | None, usual: Sequence[str], ours: pd.Series, what: str, name: str
) -> dict[str, str]:
    """Check that a column of the table says the same as the run, if it exists; its words may differ.

    Returns:
        Word of the table -> word of the run; empty if the table has no such column.
    """
    column = asked or next((one for one in usual if one in raw), None)
    if column is None:
        return {}
    if column not in raw:
        raise unknown("column", column, map(str, raw.columns), f"It was named for {what.rpartition(': ')[2]}.")
    pairs = pd.DataFrame({"theirs": text_of(raw, column), "ours": ours.astype(str).to_numpy()})
    distinct = pairs.drop_duplicates()
    one_to_one = not (distinct["theirs"].duplicated().any() or distinct["ours"].duplicated().any())
    same_words = set(pairs["theirs"]) <= set(pairs["ours"])
    if not one_to_one or (same_words and (pairs["theirs"] != pairs["ours"]).any() and not _shifted(pairs)):
        raise UsvitError(
            f"{what} in column '{column}' contradict those of {name}. Two models can be compared in pairs only on the "
            "same labels and folds: use those in folds.csv and predictions.csv of the run."
        )
    return dict(zip(distinct["theirs"], distinct["ours"], strict=True))


def _shifted(pairs: pd.DataFrame) -> bool:
    """Return whether numbers count from 1 in the table and from 0 in the run."""
    both = [pd.to_numeric(pairs[name], errors="coerce") for name in ("theirs", "ours")]
    return bool((both[0] - both[1] == 1).all())


def _asked(prob: Sequence[str], positive: str) -> dict[str, str]:
    """Return class -> column of ``--prob CLASS=COLUMN``, or of one ``--prob COLUMN`` for the positive class."""
    pairs = [one.partition("=") for one in prob]
    return {name if equals else positive: column if equals else name for name, equals, column in pairs}


def _named_like_classes(
    raw: pd.DataFrame, classes: Sequence[str], words: Mapping[str, str], asked: Mapping[str, str], path: Path
) -> dict[str, str]:
    """Return class -> column of its probability, by the names of the columns that hold numbers from 0 to 1.

    Of two classes, the other one has the rest, which is added to ``raw``.
    """
    numbers = [str(one) for one in raw if _is_probability(raw[one])]
    found = dict(asked)
    for name in classes if not asked else ():
        spoken = {_bare(word) for word in (name, *(word for word, own in words.items() if own == name))}
        fits = [one for one in numbers if _bare(one) in spoken]
        if len(fits) == 1:
            found[name] = fits[0]
    missing = [name for name in classes if name not in found]
    if len(classes) == 2 and len(missing) == 1:
        column = next(iter(found.values()))
        if column not in numbers:
            raise UsvitError(f"{path} has no column '{column}' of numbers from 0 to 1. It was named with --prob.")
        raw[f"1 - {column}"] = 1 - raw[column].astype(float)
        return {name: found.get(name, f"1 - {column}") for name in classes}
    if missing:
        raise UsvitError(
            f"{path} has no column whose name says that it is the probability of {', '.join(missing)}, such as "
            f"prob_{missing[0]}. Name them with --prob CLASS=COLUMN for each class; there are "
            f"{', '.join(map(str, raw.columns[:12]))}."
        )
    return {name: found[name] for name in classes}


def _bare(column: str) -> str:
    """``p_malignant``, ``P(malignant)``, ``malignant_score`` -> ``malignant``."""
    return " ".join(word for word in re.findall(r"[^\W_]+", column.casefold()) if word not in _SAYS_PROBABILITY)


def _is_probability(column: pd.Series) -> bool:
    numbers = pd.to_numeric(column, errors="coerce").to_numpy(np.float64)
    return bool(np.isfinite(numbers).all() and ((numbers >= 0) & (numbers <= 1)).all())
