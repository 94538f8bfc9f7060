"""Folds that keep groups whole and classes in proportion.

Images of one group (a patient, near-duplicates of one frame) are always in the same split; a split that would divide
them raises ``LeakageError``. Strata are class x data set, so that each fold of a union resembles the whole. Official
folds of a data set are used, not redrawn.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.config import SplitConfig
from usvit.data.splits.groups import OwnIds, stratified_groups
from usvit.errors import LeakageError, UsvitError
from usvit.files import csv_text, read_csv, sha256_of_text
from usvit.seeding import derive_seed

COLUMNS = ["dataset", "image_id", "fold", "part"]
_REPEAT = "repeat"
"""Further column of a repeated cross-validation: the repeat that a fold belongs to, from 0. Folds of all repeats are
numbered consecutively, so that the number of a fold identifies its network."""
Split = Literal["train", "val", "test"]
SPLITS: tuple[Split, ...] = ("train", "val", "test")
_KEY = ["dataset", "image_id"]


def make_folds(
    kind: Literal["cv", "train"],
    table: pd.DataFrame,
    split: SplitConfig,
    seed: int,
    own_ids: OwnIds | None = None,
    *,
    labelled: bool = True,
) -> pd.DataFrame:
    """Make the folds that the settings name: from a file, official, by data set or device, or drawn.

    Args:
        kind: ``cv`` for a cross-validation, ``train`` for one hold-out split.
        table: usable rows of a manifest (dataset, image_id, label, group_id; optionally device and official_folds).
        split: the settings.
        seed: seed of drawn folds.
        own_ids: own image ids of private data sets, which a file of folds may use.
        labelled: refuse images of a single class; False if nothing is classified.

    Returns:
        Table with ``COLUMNS``, every image once per fold, where ``part`` is train, val or test; and with ``_REPEAT`` if
        there are several repeats.

    Raises:
        LeakageError: A group would be in two splits (unless ``split.unit`` is ``image``).
        UsvitError: A class has fewer groups than there are splits, or is missing in one; the file of folds does not
            match the images; or a hold-out split is to be repeated.
    """
    if kind == "train" and split.repeats > 1:
        raise UsvitError(f"split.repeats={split.repeats} repeats a cross-validation: use 'usvit cv'.")
    if split.unit == "image":
        table = table.assign(group_id="image:" + table.dataset + ":" + table.image_id)
    if split.file is not None:
        folds = read_folds(Path(split.file))
        hide = bool(own_ids and own_ids.ids)
        if own_ids is not None and hide:
            pairs = zip(folds.dataset, folds.image_id, strict=True)
            folds["image_id"] = [own_ids.id_of(dataset, image_id) for dataset, image_id in pairs]
        check_folds(folds, table, who=f"The folds of {split.file}", hide=hide)
        if kind == "cv":
            return _repeated_file(folds, table, split)
        if folds.fold.nunique() > 1:
            raise UsvitError(
                f"{split.file} holds {folds.fold.nunique()} folds; 'usvit train' takes one. Use 'usvit cv'."
            )
        _require_numbers(folds.fold, f"The folds of {split.file}")
        return folds
    if labelled and table.label.nunique() < 2:
        raise UsvitError(f"All images are of the class '{table.label.iloc[0]}': there is nothing to classify.")
    if kind == "train":
        if split.scheme not in ("auto", "drawn"):
            raise UsvitError(f"split.scheme={split.scheme} needs several folds: use 'usvit cv'.")
        return hold_out(table, split, seed)
    # The first repeat is the cross-validation that is made without repeats.
    seeds = [seed, *(derive_seed(seed, "repeat", repeat) for repeat in range(1, split.repeats))]
    return _numbered_through([cross_validation(table, split, one) for one in seeds])


def n_repeats(folds: pd.DataFrame) -> int:
    """Count the complete cross-validations that the folds make up."""
    return int(folds[_REPEAT].nunique()) if _REPEAT in folds else 1


def repeat_of(folds: pd.DataFrame, fold: int) -> int:
    """Tell which of the complete cross-validations a fold belongs to, counted from 0."""
    return int(folds.loc[folds.fold == fold, _REPEAT].iloc[0]) if _REPEAT in folds else 0


def cross_validation(table: pd.DataFrame, split: SplitConfig, seed: int) -> pd.DataFrame:
    """Make k folds, each with a test split and the remaining images divided into training and inner validation.

    Args, Returns, Raises: see ``make_folds``. Each image is in the test split of exactly one fold.
    """
    if split.scheme in ("by_dataset", "by_device"):
        test_fold = _fold_by(table, split.scheme.removeprefix("by_"))
    else:
        _require_groups(table, max(split.folds, len(SPLITS)), f"{split.folds} folds")
        official = _official_folds(table, split)
        advice = "Draw them again (split.scheme=drawn), or trust the authors' patients (data.near_duplicates=ignore). "
        _refuse_crossing(table, official, f"the official {split.folds} folds", advice)
        test_fold = _assign(table, [1 / split.folds] * split.folds, derive_seed(seed, "test"), official)
    val = split.val_fraction / (1 - split.test_fraction)
    folds = []
    for fold in range(test_fold.max() + 1):
        part = np.full(len(table), "test", dtype=object)
        rest = np.flatnonzero(test_fold != fold)
        part[rest] = _train_or_val(table.iloc[rest], val, derive_seed(seed, "val", fold))
        folds.append(_fold_rows(table, fold, part))
    # A data set or a device may lack a class; it is tested on the classes that it has.
    return _checked(pd.concat(folds, ignore_index=True), table, SPLITS if _is_drawn(split) else SPLITS[:2])


def hold_out(table: pd.DataFrame, split: SplitConfig, seed: int) -> pd.DataFrame:
    """Make one split into training, inner validation and test (70/15/15 by default), as fold 0.

    Args, Returns, Raises: see ``make_folds``.
    """
    _require_groups(table, len(SPLITS), "a training, a validation and a test split")
    fractions = [1 - split.val_fraction - split.test_fraction, split.val_fraction, split.test_fraction]
    part = np.array(SPLITS, dtype=object)[_assign(table, fractions, derive_seed(seed, "test"))]
    return _checked(_fold_rows(table, 0, part), table, SPLITS)


def check_folds(folds: pd.DataFrame, table: pd.DataFrame, who: str = "The folds", *, hide: bool = False) -> None:
    """Check that folds do not leak and that each covers all images exactly once.

    Args:
        folds: table with ``COLUMNS``.
        table: columns dataset, image_id, group_id of all images.
        who: name of the folds for error messages.
        hide: do not quote unknown image ids, which may name a patient.

    Raises:
        LeakageError: A group is in two splits of a fold; the error names it.
        UsvitError: An image is unknown, missing, or listed twice in a fold, or a split is empty.
    """
    joined = folds.merge(table[[*_KEY, "group_id"]], on=_KEY, how="left")
    if joined.group_id.isna().any():
        unknown = joined[joined.group_id.isna()]
        raise UsvitError(
            f"{who} name {len(unknown.drop_duplicates(_KEY))} images that are not in the data, such as "
            + (f"the one in row {unknown.index[0] + 2}." if hide else f"'{unknown.image_id.iloc[0]}' of ")
            + ("" if hide else f"'{unknown.dataset.iloc[0]}'.")
        )
    for fold, rows in joined.groupby("fold"):
        if rows.duplicated(_KEY).any():
            raise UsvitError(
                f"{who} list the image '{rows[rows.duplicated(_KEY)].image_id.iloc[0]}' twice in fold {fold}."
            )
        if len(rows) != len(table):
            listed = set(zip(rows.dataset, rows.image_id, strict=True))
            missed = next(pair for pair in zip(table.dataset, table.image_id, strict=True) if pair not in listed)
            raise UsvitError(
                f"{who} miss {len(table) - len(rows)} images in fold {fold}, such as '{missed[1]}' of '{missed[0]}'."
            )
        if empty := [part for part in SPLITS if not (rows.part == part).any()]:
            raise UsvitError(f"{who} leave the {empty[0]} split of fold {fold} empty.")
        if crossing := _crossing(rows):
            raise LeakageError(
                f"{who} leak: {len(crossing)} groups are in two splits of fold {fold}: {', '.join(crossing[:5])}. "
                "Images of one patient, or near-duplicates of one image, must stay together."
            )


def leaking_groups(folds: pd.DataFrame, table: pd.DataFrame) -> list[str]:
    """Return the groups that are in two splits of any fold: none, unless ``split.unit`` is ``image``.

    Args:
        folds: table with ``COLUMNS``.
        table: columns dataset, image_id, group_id.
    """
    joined = folds.merge(table[[*_KEY, "group_id"]], on=_KEY)
    return sorted({group for _, rows in joined.groupby("fold") for group in _crossing(rows)})


def rows_of_split(folds: pd.DataFrame, table: pd.DataFrame, part: str, fold: int = 0) -> NDArray[np.int64]:
    """Return the images of one split of a fold.

    Args:
        folds: table with ``COLUMNS``.
        table: columns dataset, image_id of all images.
        part: the split: train, val or test.
        fold: number of the fold.

    Returns:
        (n,) rows of the table, ascending.
    """
    listed = folds.loc[(folds.fold == fold) & (folds.part == part), _KEY]
    return np.flatnonzero(pd.MultiIndex.from_frame(table[_KEY]).isin(pd.MultiIndex.from_frame(listed)))


def read_folds(path: Path) -> pd.DataFrame:
    """Read a file of folds; ids are text.

    Raises:
        UsvitError: The file cannot be read, lacks a column, has another split than train, val and test, or a fold that
            belongs to several repeats.
    """
    folds = read_csv(path, text=("dataset", "image_id", "part"), follow=True, what="file of folds")
    if missing := [column for column in COLUMNS if column not in folds]:
        raise UsvitError(f"The folds {path} have no column '{missing[0]}'; needed are {', '.join(COLUMNS)}.")
    if strange := sorted(set(folds.part) - set(SPLITS)):
        raise UsvitError(f"The folds {path} hold the split '{strange[0]}'; it must be one of {', '.join(SPLITS)}.")
    if folds.empty or not pd.api.types.is_integer_dtype(folds.fold):
        raise UsvitError(f"The folds {path} need rows, and whole numbers in the column 'fold'.")
    if _REPEAT not in folds:
        return folds[COLUMNS]
    if not pd.api.types.is_integer_dtype(folds[_REPEAT]) or (folds.groupby("fold")[_REPEAT].nunique() > 1).any():
        raise UsvitError(
            f"The folds {path} need whole numbers in the column 'repeat', and one repeat for each fold: folds are "
            "numbered consecutively, 0 to 14 for three repeats of five folds."
        )
    _require_numbers(folds[_REPEAT], f"The repeats of {path}")
    return folds[[*COLUMNS, _REPEAT]]


def folds_sha256(folds: pd.DataFrame) -> str:
    """Return the SHA-256 of the CSV text of the folds."""
    return sha256_of_text(csv_text(folds))


def _repeated_file(folds: pd.DataFrame, table: pd.DataFrame, split: SplitConfig) -> pd.DataFrame:
    """Repeat the folds of a file as often as the settings say.

    A file of one cross-validation is repeated unchanged: the repeats then differ only in their training.
    """
    there = n_repeats(folds)
    if there > 1 and split.repeats not in (1, there):
        raise UsvitError(
            f"{split.file} holds {there} repeats, and split.repeats is {split.repeats}. Leave out split.repeats."
        )
    keys = [_REPEAT, *_KEY] if there > 1 else _KEY
    tested = folds[folds.part == "test"]
    if len(tested) != there * len(table) or tested.duplicated(keys).any():
        raise UsvitError(
            f"The folds of {split.file} do not test every image exactly once, as a cross-validation must. "
            "Use 'usvit train'."
        )
    _require_numbers(folds.fold, f"The folds of {split.file}")
    return folds if there > 1 else _numbered_through([folds] * split.repeats)


def _numbered_through(repeats: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Put the folds of several cross-validations into one table, numbered 0, 1, 2, ... consecutively."""
    if len(repeats) == 1:
        return repeats[0]
    numbered, first = [], 0
    for number, folds in enumerate(repeats):
        numbered.append(folds.assign(fold=folds.fold + first, repeat=number))
        first += folds.fold.nunique()
    return pd.concat(numbered, ignore_index=True)


def _require_numbers(column: pd.Series, what: str) -> None:
    numbers = sorted(map(int, column.unique()))
    if numbers != list(range(len(numbers))):
        shown = ", ".join(map(str, numbers[:5])) + (", ..." if len(numbers) > 5 else "")
        raise UsvitError(f"{what} are numbered {shown}: number them 0, 1, 2, ... without a gap.")


def _is_drawn(split: SplitConfig) -> bool:
    return split.scheme not in ("by_dataset", "by_device")


def _official_folds(table: pd.DataFrame, split: SplitConfig) -> NDArray[np.int64]:
    """Return (n,) the official test fold of each image, -1 if there is none or official folds are not wanted."""
    nowhere = np.full(len(table), -1)
    if split.scheme == "drawn" or "official_folds" not in table:
        found, numbers = nowhere, set()
    else:
        texts = [
            dict(pair.split(":") for pair in str(text).split()) if isinstance(text, str) else {}
            for text in table.official_folds
        ]
        found = np.array([int(folds.get(str(split.folds), -1)) for folds in texts])
        numbers = {int(number) for folds in texts for number in folds}
    if split.scheme == "official" and (found < 0).all():
        have = f"they have {' and '.join(map(str, sorted(numbers)))}" if numbers else "they have none"
        raise UsvitError(
            f"No official {split.folds} folds come with these images: {have}. Change split.folds or split.scheme."
        )
    return found


def _fold_by(table: pd.DataFrame, column: str) -> NDArray[np.int64]:
    """Return (n,) the test fold of each image, where each data set (or device) is the test split of one fold."""
    what = {"dataset": "data set", "device": "device"}[column]
    values = table[column] if column in table else pd.Series([None] * len(table))
    if values.isna().any():
        raise UsvitError(
            f"split.scheme=by_{column} needs the {what} of every image; {int(values.isna().sum())} have none, "
            f"such as '{table.image_id[values.isna().to_numpy()].iloc[0]}'."
        )
    names, fold = np.unique(values.to_numpy(dtype=str), return_inverse=True)
    if len(names) < 2:
        raise UsvitError(f"split.scheme=by_{column} needs two {what}s or more, but there is only '{names[0]}'.")
    _refuse_crossing(table, fold, f"leaving one {what} out", "Leave out the near-duplicates (--keep-list). ")
    return fold


def _refuse_crossing(table: pd.DataFrame, fold: NDArray[np.int64], what: str, advice: str) -> None:
    given = table.assign(fold=fold)[fold >= 0]
    parts = given.groupby("group_id").fold.nunique()
    if crossing := sorted(parts[parts > 1].index):
        raise LeakageError(
            f"{len(crossing)} groups would be in two splits under {what}: {', '.join(crossing[:5])}. {advice}"
            "Images of one patient, or near-duplicates of one image, must stay together."
        )


def _crossing(rows: pd.DataFrame) -> list[str]:
    parts = rows.groupby("group_id").part.nunique()
    return sorted(parts[parts > 1].index)


def _train_or_val(table: pd.DataFrame, val: float, seed: int) -> NDArray[np.object_]:
    return np.array(["train", "val"], dtype=object)[_assign(table, [1 - val, val], seed)]


def _assign(
    table: pd.DataFrame, fractions: Sequence[float], seed: int, fixed: NDArray[np.int64] | None = None
) -> NDArray[np.int64]:
    """Assign groups to splits; strata are class x data set, and a split may lack a stratum but not a class."""
    strata = table.label + "/" + table.dataset
    return stratified_groups(table.group_id, strata, fractions, seed, classes=table.label, fixed=fixed)


def _fold_rows(table: pd.DataFrame, fold: int, part: NDArray[np.object_]) -> pd.DataFrame:
    return table[_KEY].assign(fold=fold, part=part)[COLUMNS]


def _require_groups(table: pd.DataFrame, needed: int, purpose: str) -> None:
    per_class = table.groupby("label").group_id.nunique()
    if per_class.min() < needed:
        label = per_class.idxmin()
        raise UsvitError(
            f"The class '{label}' has {per_class.min()} groups (patients, or sets of near-duplicates), but {purpose} "
            f"need {needed}. Add images{' or lower split.folds' if 'folds' in purpose else ''}."
        )


def _checked(folds: pd.DataFrame, table: pd.DataFrame, complete: Sequence[str]) -> pd.DataFrame:
    """Return the folds after a check that none leaks and each split in ``complete`` has every class."""
    check_folds(folds, table)
    labels = folds.merge(table[[*_KEY, "label"]], on=_KEY)
    counts = labels.groupby(["fold", "part", "label"]).size()
    wanted = itertools.product(sorted(folds.fold.unique()), complete, sorted(set(table.label)))
    if absent := [key for key in wanted if key not in counts.index]:
        fold, part, label = absent[0]
        raise UsvitError(
            f"Fold {fold} would have no image of the class '{label}' in its {part} split: too few groups (patients) "
            "have this class. Add images, change split.folds or split.val_fraction, try another data.split_seed, or "
            "leave the class out (data.classes)."
        )
    return folds
