"""Folds that keep groups whole and classes in proportion.

Images of one group (a patient, a cluster of copies) always go together; a split that would
part them raises ``LeakageError``. Strata are class x data set, so that each fold of a union
resembles the whole.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from usvit.config import SplitConfig
from usvit.errors import LeakageError, UsvitError
from usvit.files import csv_text, sha256_of_text
from usvit.seeding import derive_seed

COLUMNS = ["dataset", "image_id", "fold", "part"]
PARTS = ("train", "val", "test")


def deal(
    groups: ArrayLike,
    strata: ArrayLike,
    fractions: Sequence[float],
    seed: int,
    *,
    classes: ArrayLike | None = None,
) -> NDArray[np.int64]:
    """Deal whole groups into parts of given sizes, every stratum in proportion.

    Groups are shuffled, then dealt from the one with the most uneven class counts to the
    least, each to the part where the shares of the strata stay most alike. With equal
    fractions this is scikit-learn's ``StratifiedGroupKFold``; unequal ones serve hold-outs.
    A class that has just enough groups left for the parts that still lack it goes to those:
    where every group is of one class, a class of k groups reaches all of k parts.

    Args:
        groups: (n,) the group of each image.
        strata: (n,) the stratum of each image.
        fractions: (k,) share of each part, summing to 1.
        seed: of the shuffle.
        classes: (n,) the class of each image, none of which a part should lack; by default the strata.

    Returns:
        (n,) the part of each image, in [0, k).
    """
    share = np.asarray(fractions, dtype=np.float64)
    _, group_of = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    counts = _counts(group_of, strata)  # (groups, strata)
    holds = _counts(group_of, strata if classes is None else classes) > 0  # (groups, classes)
    wanted = share[:, None] * counts.sum(axis=0)  # (k, strata)

    shuffled = np.random.default_rng(seed).permutation(len(counts))
    order = shuffled[np.argsort(-counts[shuffled].std(axis=1), kind="stable")]
    dealt = np.zeros_like(wanted)
    lacks = np.ones((len(share), holds.shape[1]), dtype=bool)
    left = holds.sum(axis=0)
    part_of = np.zeros(len(counts), dtype=np.int64)
    one_more = np.eye(len(share))[:, :, None]
    for group in order:
        scarce = holds[group] & (left <= lacks.sum(axis=0))
        allowed = np.flatnonzero(lacks[:, scarce].all(axis=1)) if scarce.any() else np.arange(len(share))
        allowed = allowed if len(allowed) else np.flatnonzero(lacks[:, scarce].any(axis=1))
        # Alike in every stratum first; among equals the part that is emptiest for its size.
        unlike = ((dealt + one_more * counts[group]) / wanted).std(axis=1).mean(axis=1).round(9)
        fullness = (dealt.sum(axis=1) + counts[group].sum()) / share
        best = min(allowed, key=lambda part: (unlike[part], fullness[part]))
        dealt[best] += counts[group]
        lacks[best] &= ~holds[group]
        left -= holds[group]
        part_of[group] = best
    return part_of[group_of]


def _counts(group_of: NDArray[np.int64], kinds: ArrayLike) -> NDArray[np.float64]:
    """(groups, kinds) images of each kind in each group."""
    _, kind_of = np.unique(np.asarray(kinds, dtype=str), return_inverse=True)
    counts = np.zeros((group_of.max() + 1, kind_of.max() + 1))
    np.add.at(counts, (group_of, kind_of), 1)
    return counts


def cross_validation(table: pd.DataFrame, split: SplitConfig, seed: int) -> pd.DataFrame:
    """k folds; in each, one part is the test, and the rest is divided into training and inner validation.

    Args:
        table: usable rows of a manifest (dataset, image_id, label, group_id).
        split: number of folds and the proportion of validation to training.
        seed: of the deal; another seed gives other folds.

    Returns:
        ``COLUMNS``, every image once a fold: ``part`` is train, val or test, and each image
        is in the test part of exactly one fold.

    Raises:
        UsvitError: a class has fewer groups than folds, or is missing from a part.
    """
    _require_groups(table, max(split.folds, len(PARTS)), f"{split.folds} folds")
    test_fold = _deal(table, [1 / split.folds] * split.folds, derive_seed(seed, "test"))
    val = split.val_fraction / (1 - split.test_fraction)
    folds = []
    for fold in range(split.folds):
        part = np.full(len(table), "test", dtype=object)
        rest = np.flatnonzero(test_fold != fold)
        part[rest] = _train_or_val(table.iloc[rest], val, derive_seed(seed, "val", fold))
        folds.append(_fold_rows(table, fold, part))
    return _checked(pd.concat(folds, ignore_index=True), table)


def hold_out(table: pd.DataFrame, split: SplitConfig, seed: int) -> pd.DataFrame:
    """One division into training, inner validation and test (70/15/15 by default), as fold 0.

    Args, Returns, Raises: as ``cross_validation``.
    """
    _require_groups(table, len(PARTS), "a training, a validation and a test part")
    fractions = [1 - split.val_fraction - split.test_fraction, split.val_fraction, split.test_fraction]
    part = np.array(PARTS, dtype=object)[_deal(table, fractions, derive_seed(seed, "test"))]
    return _checked(_fold_rows(table, 0, part), table)


def check_folds(folds: pd.DataFrame, table: pd.DataFrame) -> None:
    """Refuse folds that leak, or that do not cover the images exactly.

    Raises:
        LeakageError: a group stands in two parts of a fold; it is named.
        UsvitError: an image is unknown, missing, or listed twice in a fold.
    """
    joined = folds.merge(table[["dataset", "image_id", "group_id"]], on=["dataset", "image_id"], how="left")
    if joined.group_id.isna().any():
        raise UsvitError(f"The folds name an unknown image: '{joined[joined.group_id.isna()].image_id.iloc[0]}'.")
    for fold, rows in joined.groupby("fold"):
        if rows.duplicated(["dataset", "image_id"]).any() or len(rows) != len(table):
            raise UsvitError(f"Fold {fold} lists {len(rows)} images, some twice or not at all; there are {len(table)}.")
        parts = rows.groupby("group_id").part.nunique()
        if (parts > 1).any():
            crossing = sorted(parts[parts > 1].index)
            raise LeakageError(
                f"{len(crossing)} groups would stand in two parts of fold {fold}: {', '.join(crossing[:5])}. "
                "Images of one patient, or copies of one image, must stay together."
            )


def read_folds(path: Path) -> pd.DataFrame:
    """A frozen ``folds.csv``, ids as text."""
    return pd.read_csv(path, dtype={"dataset": str, "image_id": str, "part": str}, keep_default_na=False)


def folds_sha256(folds: pd.DataFrame) -> str:
    """Hash of the folds' CSV text."""
    return sha256_of_text(csv_text(folds))


def _train_or_val(table: pd.DataFrame, val: float, seed: int) -> NDArray[np.object_]:
    return np.array(["train", "val"], dtype=object)[_deal(table, [1 - val, val], seed)]


def _deal(table: pd.DataFrame, fractions: Sequence[float], seed: int) -> NDArray[np.int64]:
    """Strata are class x data set, but a part may lack a stratum, never a class."""
    return deal(table.group_id, table.label + "/" + table.dataset, fractions, seed, classes=table.label)


def _fold_rows(table: pd.DataFrame, fold: int, part: NDArray[np.object_]) -> pd.DataFrame:
    return table[["dataset", "image_id"]].assign(fold=fold, part=part)[COLUMNS]


def _require_groups(table: pd.DataFrame, needed: int, purpose: str) -> None:
    per_class = table.groupby("label").group_id.nunique()
    if len(per_class) < 2:
        raise UsvitError(f"All images are of the class '{per_class.index[0]}': there is nothing to classify.")
    if per_class.min() < needed:
        label = per_class.idxmin()
        raise UsvitError(
            f"The class '{label}' has {per_class.min()} groups (patients, or sets of copies), too few for {purpose}: "
            f"{needed} are needed. Add images{' or lower split.folds' if 'folds' in purpose else ''}."
        )


def _checked(folds: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    check_folds(folds, table)
    labels = folds.merge(table[["dataset", "image_id", "label"]], on=["dataset", "image_id"])
    every_part = pd.MultiIndex.from_product([sorted(folds.fold.unique()), PARTS])
    present = labels.groupby(["fold", "part"]).label.nunique().reindex(every_part, fill_value=0)
    if (present < table.label.nunique()).any():
        fold, part = present.index[int(np.argmin(present.to_numpy()))]
        raise UsvitError(
            f"Fold {fold} would have no image of some class in its {part} part: too few groups (patients) hold that "
            "class. Add images, change split.folds or split.val_fraction, or try another data.split_seed."
        )
    return folds
