"""Repeatability of a network's scores: repeats that the predictions contain, and images before and after a change."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from usvit.errors import UsvitError, unknown
from usvit.evaluation.decisions import KEY, Decided, decided_of
from usvit.evaluation.evaluate_predictions import Predictions
from usvit.evaluation.foreign_tables import with_columns
from usvit.evaluation.predictions import first_repeat
from usvit.metrics.calibration_statistics import log_odds
from usvit.metrics.checks import group_codes
from usvit.metrics.repeatability import flip_rate, paired_repeats, unordered_repeats
from usvit.records import AgreementScales, ChangeRecord, FlipRecord, LeftOutRepeats, RepeatsRecord

_COPIES = "copies:"
"""Start of a group_id that stands for near-duplicates of one frame, not for a patient."""
MIN_GROUPS = 3
"""Fewest groups with repeats; from fewer, no variance between groups can be estimated."""
Codes = NDArray[np.int64]


@dataclass(frozen=True)
class ScorePairs:
    """Pairs of scores of one thing, for a figure.

    Attributes:
        first, second: (n,) probability of the positive class of each pair.
    """

    first: NDArray[np.float64]
    second: NDArray[np.float64]


def repeats_section(found: Predictions, column: str | None = None) -> tuple[RepeatsRecord, ScorePairs]:
    """Measure how far the scores of repeats in a predictions table differ.

    Repeats are images of part test with equal values of a column, all scored by one network. If the images of a set
    were tested in different folds, the set is left out: its scores come from different networks, and each of these was
    trained or selected with the other repeats. Splits that keep groups whole have no such set.

    Args:
        found: the predictions; of a repeated cross-validation, the first repeat is used.
        column: column of the table or its manifest whose equal values name the repeats of one thing. None takes the
            groups of near-duplicates in group_id.

    Returns:
        The section ``repeats`` of repeatability.json, and its pairs.

    Raises:
        UsvitError: there is no such column; fewer than ``MIN_GROUPS`` groups have repeats.
    """
    table = found.table.sort_values(KEY, kind="stable")
    decided = decided_of(table, found.positive, found.classes)
    table = first_repeat(table)
    test = table[table["part"] == "test"].reset_index(drop=True)
    names = _set_names(found, test, column)
    used, left_out = _usable(test, names)
    code, n_sets = group_codes(names[used], len(used)) if len(used) else (np.zeros(0, np.int64), 0)
    group = _groups_of_sets(test["group_id"].to_numpy(object)[used], code, n_sets)
    n_groups = len(np.unique(group))
    if n_groups < MIN_GROUPS:
        raise UsvitError(_too_few(found, column, n_groups, left_out))
    k = decided.rows.index(decided.positive)
    prob, odds = decided.rows.prob[used, k], log_odds(decided.rows.scores, k)[used]
    first, second = _pairs(code)
    patients = test["patient_id"].to_numpy(object)[used]
    section = RepeatsRecord(
        column=column or "group_id",
        only_copies=column is None,
        n_sets=n_sets,
        n_images=len(used),
        n_pairs=len(first),
        n_groups=n_groups,
        n_patients=None if pd.isna(patients).any() else len(set(zip(test["dataset"][used], patients, strict=True))),
        largest_set=int(np.bincount(code).max()),
        n_identical=_n_identical(found, test, used, first, second),
        left_out=left_out,
        scales=AgreementScales(
            probability=unordered_repeats(prob, code, group), logit=unordered_repeats(odds, code, group)
        ),
        flips=[
            _flips(rule, called[used][first] != called[used][second], group[first])
            for rule, called in decided.called.items()
        ],
        undecided=decided.reasons,
    )
    return section, ScorePairs(prob[first], prob[second])


def change_section(
    before: Decided, after: Decided, *, change: str, strength: str, left_out: list[LeftOutRepeats]
) -> ChangeRecord:
    """Measure how far the scores of images differ from those of the same images after one change.

    Args:
        before, after: the same n images in the same order, decided by the same networks at the same thresholds.
        change, strength: name of the change.
        left_out: images that did not allow the change.
    """
    k, rows = before.rows.index(before.positive), before.rows
    scales, flips, reason = None, [], None
    if rows.n_groups < MIN_GROUPS:
        reason = f"{rows.n_groups} groups have an image that allows the change; {MIN_GROUPS} are needed"
    else:
        scales = AgreementScales(
            probability=paired_repeats(rows.prob[:, k], after.rows.prob[:, k], rows.group),
            logit=paired_repeats(log_odds(rows.scores, k), log_odds(after.rows.scores, k), rows.group),
        )
        flips = [_changed(rule, called, after.called[rule], rows.group) for rule, called in before.called.items()]
    return ChangeRecord(
        change=change,
        strength=strength,
        n_images=len(after.rows),
        n_groups=rows.n_groups,
        left_out=left_out,
        scales=scales,
        flips=flips,
        reason=reason,
    )


def _changed(rule: str, before: NDArray[np.bool_], after: NDArray[np.bool_], group: NDArray[Any]) -> FlipRecord:
    directions = {"n_to_positive": int((~before & after).sum()), "n_to_negative": int((before & ~after).sum())}
    return _flips(rule, before != after, group).model_copy(update=directions)


def most_flips(changes: Sequence[ChangeRecord], row: str = "image") -> dict[str, str]:
    """Return for each rule the change with the highest flip rate, in words; a rule that nothing flips is left out."""
    worst: dict[str, tuple[float, str]] = {}
    for one in changes:
        for flip in one.flips:
            rate = flip.rate.value or 0.0
            words = f"{one.change} {one.strength}: {flip.n_flips} of {flip.n_pairs} {row}s"
            if rate > worst.get(flip.rule, (0.0, ""))[0]:
                worst[flip.rule] = (rate, words)
    return {rule: words for rule, (_, words) in worst.items()}


def _set_names(found: Predictions, test: pd.DataFrame, column: str | None) -> NDArray[np.object_]:
    """Return (n,) the name of what each image repeats; None for an image that belongs to no set."""
    if column is None:
        groups = test["group_id"].astype(str)
        return groups.where(groups.str.startswith(_COPIES), None).to_numpy(object)
    if column in test:
        cells = test[column]
    elif found.columns is not None and column in found.columns:
        cells = with_columns(test[KEY], found.columns, {column: column})[column]
    else:
        known = {*map(str, test.columns), *(() if found.columns is None else map(str, found.columns))}
        raise unknown("column", column, known)
    # Ids, of a lesion or a patient, are unique within their data set; groups may join several data sets.
    within = [""] * len(test) if column == "group_id" else test["dataset"].astype(str) + "\n"
    absent = cells.isna() | (cells.astype(str) == "")
    return (within + cells.astype(str)).where(~absent, None).to_numpy(object)


def _usable(test: pd.DataFrame, names: NDArray[np.object_]) -> tuple[Codes, list[LeftOutRepeats]]:
    """Return the rows of the sets that one network scored, and what is left out with its reason."""
    rows = pd.DataFrame({"name": names, "fold": test["fold"].to_numpy(), "row": np.arange(len(test))})
    sets = rows.dropna(subset="name").groupby("name", sort=False)
    size, folds = sets["row"].transform("size"), sets["fold"].transform("nunique")
    alone, across = size.index[size == 1], size.index[(size > 1) & (folds > 1)]
    left_out = []
    if len(alone):
        left_out.append(
            LeftOutRepeats(
                n=len(alone),
                reason="images whose partner is not in the table",
                example=_example(test, int(alone[0])),
            )
        )
    if len(across):
        count = rows.loc[across].groupby("name").size()
        left_out.append(
            LeftOutRepeats(
                n=int((count * (count - 1) // 2).sum()),
                reason=f"pairs of {len(count)} sets whose images were tested in different folds, so that the scores "
                "come from different networks and a network may have been trained on a repeat",
                example=_example(test, int(across[0])),
            )
        )
    used = size.index[(size > 1) & (folds == 1)].to_numpy(np.int64)
    return np.sort(used), left_out


def _example(test: pd.DataFrame, row: int) -> str:
    return f"{test['dataset'][row]}/{test['image_id'][row]}"


def _groups_of_sets(group_id: NDArray[np.object_], code: Codes, n_sets: int) -> Codes:
    """Return (n,) the group of each image, where the groups of one set are joined, so that a set lies in one group."""
    if not len(code):
        return code
    groups, n_groups = group_codes(group_id, len(code))
    size = n_sets + n_groups
    graph = coo_array((np.ones(len(code)), (code, n_sets + groups)), shape=(size, size))
    return connected_components(graph, directed=False)[1][code].astype(np.int64)


def _pairs(code: Codes) -> tuple[Codes, Codes]:
    """Return the indices (p,) of the first and second image of all pairs within a set."""
    order = np.argsort(code, kind="stable")
    first, second = [], []
    for members in np.split(order, np.cumsum(np.bincount(code))[:-1]):
        a, b = np.triu_indices(len(members), 1)
        first.append(members[a])
        second.append(members[b])
    return np.concatenate(first), np.concatenate(second)


def _n_identical(found: Predictions, test: pd.DataFrame, used: Codes, first: Codes, second: Codes) -> int | None:
    if found.columns is None or "sha256" not in found.columns:
        return None
    hashes = with_columns(test[KEY], found.columns, {"sha256": "sha256"})["sha256"].to_numpy(object)[used]
    return int((hashes[first] == hashes[second]).sum())


def _flips(rule: str, flipped: NDArray[np.bool_], group: NDArray[Any]) -> FlipRecord:
    return FlipRecord(rule=rule, n_pairs=len(flipped), n_flips=int(flipped.sum()), rate=flip_rate(flipped, group))


def _too_few(found: Predictions, column: str | None, n_groups: int, left_out: list[LeftOutRepeats]) -> str:
    what = f"with equal values of the column '{column}'" if column else "that are near-duplicates of one frame"
    more = "".join(f" Left out: {one.n} {one.reason}, such as {one.example}." for one in left_out)
    advice = (
        "Name the column that says what the repeats show, such as a lesion's id, with --repeats COLUMN; usvit retest "
        "needs no repeats, since it changes the images of a run itself."
    )
    return (
        f"{found.name} has {n_groups} groups with several test images {what}; repeatability needs at least "
        f"{MIN_GROUPS}.{more} {advice}"
    )
