"""The answers of a reader study: a table with one row for each reader, modality and case."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import pandas as pd

from usvit.config.reader_study import ReaderStudySettings
from usvit.errors import UsvitError, unknown
from usvit.evaluation.foreign_tables import read_raw
from usvit.wording import listed, plural

_USUAL = {
    "reader": ("reader", "reader_id", "readerID"),
    "modality": ("modality", "modalityID", "treatment", "test"),
    "case": ("case", "case_id", "caseID", "image_id"),
    "patient": ("patient_id", "patient"),
    "truth": ("truth", "label"),
    "rating": ("rating", "score"),
    "seconds": ("seconds",),
    "position": ("position",),
    "session": ("session",),
    "repeat": ("repeat",),
}
"""What a column holds -> its usual names, in usvit, iMRMC and MRMCaov."""
_OPTIONAL = ("modality", "patient", "truth", "seconds", "position", "session", "repeat")
_FINISHED, _TRAINING = "answered_at", "training"
"""Columns of ``usvit review``: empty if a reading is not finished; 1 if the reader was shown the reference after it."""
_TRUTH = "truth"
"""Reader of the rows that hold the reference in a table without a column for it, as iMRMC writes them; also ``-1``."""
_MODEL = "model"
"""Reader whose ratings are those of a model, as ``usvit review export`` writes them."""
_POSITIVE = ("1", "1.0", "malignant", "true", "positive")
_NEGATIVE = ("0", "0.0", "false", "negative", "benign", "-1")
_YES, _NO = ("1", "1.0", "true"), ("0", "0.0", "false", "")
_ALONE = (
    "There is no column of patients: every case counts as a patient of its own. If patients have several cases, the "
    "intervals are too narrow; name the column with --patient."
)


@dataclass(frozen=True)
class ReaderAnswers:
    """Ratings of the same n cases by the same readers in each modality.

    Attributes:
        cases: n names.
        positive: (n,) bool.
        group: (n,) str, the patient of each case.
        ratings: modality -> reader -> (n,) float64.
        model: ratings of the model, (n,) float64; None without one.
        model_name: the reader that is the model; None without one.
        warnings: for the user.
        seconds: as ratings, the time of each reading; NaN where it is not known; None without any.
        place: as ratings, 0 for the first and 1 for the last reading of the reader's session; None without positions.
        session: as ratings, (n,) str; empty texts without sessions.
        again: as ratings, the second ratings by the same reader; NaN where there is none; empty without any.
        left_out: number of rows that no figure uses, by reason.
    """

    cases: list[str]
    positive: np.ndarray
    group: np.ndarray
    ratings: Mapping[str, Mapping[str, np.ndarray]]
    model: np.ndarray | None
    model_name: str | None
    warnings: list[str]
    seconds: Mapping[str, Mapping[str, np.ndarray]] | None = None
    place: Mapping[str, Mapping[str, np.ndarray]] | None = None
    session: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    again: Mapping[str, Mapping[str, np.ndarray]] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)

    @property
    def readers(self) -> list[str]:
        return [*next(iter(self.ratings.values()))]


def read_answers(path: Path, settings: ReaderStudySettings) -> ReaderAnswers:
    """Read a table of answers (CSV, Excel or Parquet).

    Args:
        path: the table, in long form; also that of iMRMC (the reference in rows of the reader ``truth``) and
            of MRMCaov, and ``readings.csv`` of ``usvit review``, whose training cases and unfinished readings are
            left out.
        settings: names of the columns.

    Raises:
        UsvitError: the file is no table; a column is absent; a cell is empty, or not a finite number; a case has two
            references, two patients, or two ratings by one reader in one modality; the design is not crossed: a reader
            has not rated all cases in all modalities; or there is no positive or no negative case.
    """
    raw = read_raw(path)
    names = {what: _column(raw, what, getattr(settings, what), path) for what in _USUAL}
    table = pd.DataFrame({what: _texts(raw[name]) for what, name in names.items() if name is not None})
    table, left_out = _used(table, raw, path)
    if "modality" not in table:
        table["modality"] = "reading"
    for what in ("reader", "case", "rating"):
        empty = np.flatnonzero(table[what] == "")
        if len(empty):
            raise UsvitError(f"{path}: column '{names[what]}' is empty in row {table.index[empty[0]] + 2}.")
    is_truth = table["reader"].str.lower().isin([_TRUTH, "-1"]) & ("truth" not in table)
    if "truth" not in table:
        table = _with_truth(table, is_truth, path)
    rows = table[~is_truth].reset_index(drop=True)
    is_repeat = _flagged(rows, "repeat", names["repeat"] or "repeat", path)
    repeats, rows = rows[is_repeat], rows[~is_repeat].reset_index(drop=True)
    if rows.empty:
        raise UsvitError(f"{path} has no row of a reader.")
    positive = _positive(_one_each(rows, "truth", names["truth"] or "truth", path), settings.positive, path)
    cases = [*positive]
    said = [] if "patient" in table else [_ALONE]
    group = cases if "patient" not in table else [*_one_each(rows, "patient", str(names["patient"]), path).values()]
    readers = sorted(set(rows["reader"]))
    if settings.model is not None and settings.model not in readers:
        raise unknown("reader", settings.model, readers)
    named = settings.model or (_MODEL if _MODEL in readers and len(readers) > 1 else None)
    is_model = rows["reader"] == named
    model = None if named is None else _model(rows[is_model], cases, named, path)
    ratings = _crossed(rows[~is_model], cases, path)
    truth = np.array([*positive.values()])
    if truth.all() or not truth.any():
        raise UsvitError(
            f"{path}: all {len(truth)} cases are {'positive' if truth.all() else 'negative'}: none to tell apart."
        )
    found = ReaderAnswers(cases, truth, np.array(group, dtype=object), ratings, model, named, said, left_out=left_out)
    return _with_courses(found, rows[~is_model], repeats, settings, path)


def _used(table: pd.DataFrame, raw: pd.DataFrame, path: Path) -> tuple[pd.DataFrame, dict[str, int]]:
    """Leave out the readings of training cases and those that are not finished; count them."""
    training = (
        _flagged(pd.DataFrame({_TRAINING: _texts(raw[_TRAINING])}), _TRAINING, _TRAINING, path)
        if (_TRAINING in raw)
        else np.zeros(len(raw), dtype=bool)
    )
    open_ = np.array([not one for one in _texts(raw[_FINISHED])]) if _FINISHED in raw else np.zeros(len(raw), bool)
    counts = {"training": int(training.sum()), "unfinished": int((open_ & ~training).sum())}
    return table[~training & ~open_], counts


def _flagged(rows: pd.DataFrame, what: str, name: str, path: Path) -> np.ndarray:
    """Return (n,) bool of a column of 0 and 1; without the column, none."""
    if what not in rows:
        return np.zeros(len(rows), dtype=bool)
    yes, no = rows[what].str.lower().isin(_YES), rows[what].str.lower().isin(_NO)
    odd = np.flatnonzero(~yes & ~no)
    if len(odd):
        raise UsvitError(f"{path}: column '{name}' holds '{rows[what].iloc[odd[0]]}': it must hold 0 or 1.")
    return yes.to_numpy(dtype=bool)


def _with_courses(
    found: ReaderAnswers, rows: pd.DataFrame, repeats: pd.DataFrame, settings: ReaderStudySettings, path: Path
) -> ReaderAnswers:
    """Add times, places in the session and second ratings, each as an array over cases like the ratings."""

    def arrays(table: pd.DataFrame, values: Sequence[object], empty: object) -> dict[str, dict[str, np.ndarray]]:
        own = dict(zip(zip(table["modality"], table["reader"], table["case"], strict=True), values, strict=True))
        return {
            modality: {
                reader: np.array([own.get((modality, reader, case), empty) for case in found.cases])
                for reader in readers
            }
            for modality, readers in found.ratings.items()
        }

    changes: dict[str, object] = {}
    session = rows["session"] if "session" in rows else rows["case"].map(lambda _: "")
    changes["session"] = arrays(rows, session.tolist(), "")
    for what in ("seconds", "position"):
        if what not in rows:
            continue
        numbers = pd.to_numeric(rows[what], errors="coerce").to_numpy(dtype=np.float64)
        good = np.isfinite(numbers) & (numbers > 0 if what == "seconds" else True)
        if not (good.any() if what == "seconds" else good.all()):
            odd = rows.iloc[int(np.flatnonzero(~good)[0])]
            where = f"reader {odd['reader']} has '{odd[what]}' for case '{odd['case']}'"
            if getattr(settings, what) is not None:
                raise UsvitError(f"{path}: column '{getattr(settings, what)}' must hold numbers, but {where}.")
            found.warnings.append(f"The column {what} is not used: it must hold numbers, but {where}.")
        elif what == "seconds":
            changes["seconds"] = arrays(rows, np.where(good, numbers, np.nan).tolist(), np.nan)
        else:
            sittings = pd.Series(numbers).groupby([rows["reader"].to_numpy(), session.to_numpy()])
            first, last = sittings.transform("min").to_numpy(), sittings.transform("max").to_numpy()
            place = (numbers - first) / np.where(last > first, last - first, 1.0)
            changes["place"] = arrays(rows, place.tolist(), np.nan)
    if len(repeats):
        changes["again"] = _again(repeats, arrays, path)
    return replace(found, **changes)  # type: ignore[arg-type]


def _again(
    repeats: pd.DataFrame,
    arrays: Callable[[pd.DataFrame, Sequence[object], object], dict[str, dict[str, np.ndarray]]],
    path: Path,
) -> dict[str, dict[str, np.ndarray]]:
    keys = repeats[["modality", "reader", "case"]]
    if keys.duplicated().any():
        modality, reader, case = keys[keys.duplicated()].iloc[0]
        raise UsvitError(f"{path}: reader {reader} has two repeats of case '{case}' in {modality}: keep one.")
    numbers = pd.to_numeric(repeats["rating"], errors="coerce").to_numpy(dtype=np.float64)
    if not np.isfinite(numbers).all():
        odd = repeats.iloc[int(np.flatnonzero(~np.isfinite(numbers))[0])]
        raise UsvitError(
            f"{path}: the rating of the repeat of case '{odd['case']}' by reader {odd['reader']} is not a number."
        )
    return arrays(repeats, numbers.tolist(), np.nan)


def _column(raw: pd.DataFrame, what: str, asked: str | None, path: Path) -> str | None:
    if asked is not None:
        if asked not in raw:
            raise unknown("column", asked, map(str, raw.columns))
        return asked
    found = next((name for name in _USUAL[what] if name in raw), None)
    if found is None and what not in _OPTIONAL:
        raise UsvitError(
            f"{path} has no column {listed(_USUAL[what])}: name that of the {what} with --{what}. Its columns are "
            f"{listed(map(str, raw.columns))}."
        )
    return found


def _texts(column: pd.Series) -> list[str]:
    return ["" if value is None or value != value else str(value).strip() for value in column.tolist()]


def _with_truth(table: pd.DataFrame, is_truth: pd.Series, path: Path) -> pd.DataFrame:
    """Take the reference from the rows of the reader ``truth``."""
    if not is_truth.any():
        raise UsvitError(
            f"{path} has no column {listed(_USUAL['truth'])}, and no row of a reader named {_TRUTH}: name the column "
            "of the reference with --truth."
        )
    known = dict(zip(table.loc[is_truth, "case"], table.loc[is_truth, "rating"], strict=True))
    if is_truth.sum() != len(known):
        raise UsvitError(f"{path}: a case has two rows of the reader {_TRUTH}.")
    return table.assign(truth=[known.get(case, "") for case in table["case"]])


def _one_each(rows: pd.DataFrame, what: str, name: str, path: Path) -> dict[str, str]:
    """Return the value of each case, in the order of the table; each has one."""
    found: dict[str, str] = {}
    for case, value in zip(rows["case"], rows[what], strict=True):
        if not value:
            raise UsvitError(f"{path}: column '{name}' is empty for case '{case}'.")
        if found.setdefault(case, value) != value:
            raise UsvitError(f"{path}: case '{case}' has two values in column '{name}'.")
    return found


def _positive(truth: Mapping[str, str], asked: str | None, path: Path) -> dict[str, bool]:
    words = sorted(set(truth.values()))
    if asked is not None:
        if asked not in words:
            raise unknown("class", asked, words)
        return {case: word == asked for case, word in truth.items()}
    known = [word for word in words if word.lower() in (*_POSITIVE, *_NEGATIVE)]
    if len(known) < len(words):
        odd = next(word for word in words if word not in known)
        raise UsvitError(f"{path}: the reference '{odd}' is not known: name the positive class with --positive.")
    return {case: word.lower() in _POSITIVE for case, word in truth.items()}


def _numbers(rows: pd.DataFrame, cases: list[str], where: str, path: Path) -> np.ndarray:
    """Return the (n,) ratings of one reader in one modality."""
    twice = rows["case"][rows["case"].duplicated()].tolist()
    if twice:
        raise UsvitError(f"{path}: {where} has two ratings of case '{twice[0]}'.")
    own = dict(zip(rows["case"], rows["rating"], strict=True))
    lacking = [case for case in cases if case not in own]
    if lacking:
        raise UsvitError(
            f"{path}: {where} has no rating of {plural(len(lacking), 'case')}, such as '{lacking[0]}'. Each reader "
            "must have rated each case in each modality: leave out the readers, or the cases, that are not complete."
        )
    found = np.full(len(cases), np.nan)
    for k, case in enumerate(cases):
        with contextlib.suppress(ValueError):
            found[k] = float(own[case])
        if not np.isfinite(found[k]):
            raise UsvitError(f"{path}: the rating of case '{case}' by {where} is not a finite number.")
    return found


def _model(rows: pd.DataFrame, cases: list[str], name: str, path: Path) -> np.ndarray:
    if rows["modality"].nunique() > 1:
        raise UsvitError(
            f"{path}: the model {name} has ratings in {listed(sorted(set(rows['modality'])))}. Keep those of one "
            "modality: it is compared with the readers of each."
        )
    return _numbers(rows, cases, f"reader {name}", path)


def _crossed(rows: pd.DataFrame, cases: list[str], path: Path) -> dict[str, dict[str, np.ndarray]]:
    readers, modalities = [*dict.fromkeys(rows["reader"])], [*dict.fromkeys(rows["modality"])]
    if not readers:
        raise UsvitError(f"{path} has no row of a reader besides the model.")
    found: dict[str, dict[str, np.ndarray]] = {}
    for modality in modalities:
        for reader in readers:
            own = rows[(rows["modality"] == modality) & (rows["reader"] == reader)]
            where = f"reader {reader}" + (f" in {modality}" if len(modalities) > 1 else "")
            found.setdefault(modality, {})[reader] = _numbers(own, cases, where, path)
    return found
