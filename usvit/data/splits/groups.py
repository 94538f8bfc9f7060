"""Groups of images that no split may divide (patients, near-duplicates), and their assignment to splits."""

import dataclasses
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from usvit.data.near_duplicates import NearDuplicate
from usvit.data.splits.exclusions import CONFLICT


def group_ids(table: pd.DataFrame, copies: Sequence[NearDuplicate] = ()) -> list[str]:
    """Return the group of each image, which no split may divide: patient, else near-duplicates, else the image.

    Images of one patient, images with identical pixels and near-duplicates are joined transitively: a near-duplicate
    with another patient id joins the two patients.

    Args:
        table: table with columns dataset, image_id, patient_id (or None) and sha256.
        copies: verified pairs of near-duplicates, as row numbers of the table.

    Returns:
        One id per row: ``patient:<dataset>:<id>``, ``copies:<12 hex digits>`` (of the smallest pixel hash in the group)
        or ``image:<dataset>:<image_id>``.
    """
    patients = [
        f"patient:{dataset}:{patient}" if isinstance(patient, str) else None
        for dataset, patient in zip(table.dataset, table.patient_id, strict=True)
    ]
    # A graph of images and their patients and pixel hashes; near-duplicates are edges between images.
    edges = [(row, key) for row, pair in enumerate(zip(patients, table.sha256, strict=True)) for key in pair if key]
    keys = {key: len(table) + number for number, key in enumerate(dict.fromkeys(key for _, key in edges))}
    ends = [(row, keys[key]) for row, key in edges] + [(copy.first, copy.second) for copy in copies]
    size = len(table) + len(keys)
    graph = coo_array((np.ones(len(ends)), np.array(ends).T), shape=(size, size))
    component = connected_components(graph, directed=False)[1][: len(table)]

    rows = pd.DataFrame({"component": component, "patient": patients, "sha256": table.sha256.to_numpy()})
    first = rows.groupby("component").agg(patient=("patient", "min"), sha256=("sha256", "min"), n=("sha256", "size"))
    alone = ("image:" + table.dataset + ":" + table.image_id).tolist()
    return [
        found.patient if isinstance(found.patient, str) else f"copies:{found.sha256[:12]}" if found.n > 1 else single
        for found, single in zip(first.loc[component].itertuples(), alone, strict=True)
    ]


def possibly_one_patient(ids: Iterable[str | None]) -> list[list[str]]:
    """Find patient ids that differ only by case, spaces, leading zeros or a trailing ``.0``, as spreadsheets cause.

    Args:
        ids: the data set's own ids, before pseudonyms; None if the patient is unknown.

    Returns:
        For each such patient the different ids, sorted, in the order of first appearance. They may be private: do not
        write them to files.
    """
    written: defaultdict[str, set[str]] = defaultdict(set)
    for one in ids:
        if one is not None:
            short = re.sub(r"\s+", "", one).casefold()
            written[re.sub(r"(?<!\d)0+(?=\d)", "", re.sub(r"(?<=\d)\.0+$", "", short))].add(one)
    return [sorted(different) for different in written.values() if len(different) > 1]


def label_conflicts(table: pd.DataFrame) -> list[str | None]:
    """Return, for each row, the conflict with an image of identical pixels and another label; None if there is none."""
    reasons: list[str | None] = [None] * len(table)
    several = table[table.sha256.duplicated(keep=False)]
    for _, rows in several.groupby("sha256", sort=False):
        if rows.label.nunique() > 1:
            for index, row in rows.iterrows():
                other = rows[rows.label != row.label].iloc[0]
                reasons[int(str(index))] = (
                    f"{CONFLICT} '{other.image_id}' of {other.dataset}, which is labelled {other.label}"
                )
    return reasons


def stratified_groups(
    groups: ArrayLike,
    strata: ArrayLike,
    fractions: Sequence[float],
    seed: int,
    *,
    classes: ArrayLike | None = None,
    fixed: NDArray[np.int64] | None = None,
) -> NDArray[np.int64]:
    """Assign whole groups to splits of given sizes, with every stratum in proportion.

    Groups are shuffled, then assigned in the order of decreasing imbalance of their strata, each to the split where the
    shares of the strata stay most alike. With equal fractions this is scikit-learn's ``StratifiedGroupKFold``; unequal
    fractions serve hold-out splits. A class with just enough remaining groups for the splits that still lack it goes to
    those splits: if every group has one class, a class of k groups reaches all k splits.

    Args:
        groups: (n,) group of each image.
        strata: (n,) stratum of each image.
        fractions: (k,) share of each split; they sum to 1.
        seed: seed of the shuffle.
        classes: (n,) class of each image, of which each split should have all; by default the strata.
        fixed: (n,) split that an image already has, or -1; the same within a group.

    Returns:
        (n,) split of each image, in [0, k).
    """
    share = np.asarray(fractions, dtype=np.float64)
    _, group_of = np.unique(np.asarray(groups, dtype=str), return_inverse=True)
    counts = _counts(group_of, strata)  # (groups, strata)
    holds = _counts(group_of, strata if classes is None else classes) > 0  # (groups, classes)
    wanted = share[:, None] * counts.sum(axis=0)  # (k, strata)

    shuffled = np.random.default_rng(seed).permutation(len(counts))
    order = shuffled[np.argsort(-counts[shuffled].std(axis=1), kind="stable")]
    given = np.full(len(counts), -1)
    if fixed is not None:
        np.maximum.at(given, group_of, fixed)
        order = np.concatenate([order[given[order] >= 0], order[given[order] < 0]])
    assigned = np.zeros_like(wanted)
    lacks = np.ones((len(share), holds.shape[1]), dtype=bool)
    left = holds.sum(axis=0)
    part_of = np.zeros(len(counts), dtype=np.int64)
    one_more = np.eye(len(share))[:, :, None]
    for group in order:
        scarce = holds[group] & (left <= lacks.sum(axis=0))
        allowed = np.flatnonzero(lacks[:, scarce].all(axis=1)) if scarce.any() else np.arange(len(share))
        allowed = allowed if len(allowed) else np.flatnonzero(lacks[:, scarce].any(axis=1))
        # First the most even strata; among equals the split that is emptiest for its size.
        unlike = ((assigned + one_more * counts[group]) / wanted).std(axis=1).mean(axis=1).round(9)
        fullness = (assigned.sum(axis=1) + counts[group].sum()) / share
        best = given[group] if given[group] >= 0 else min(allowed, key=lambda part: (unlike[part], fullness[part]))
        assigned[best] += counts[group]
        lacks[best] &= ~holds[group]
        left -= holds[group]
        part_of[group] = best
    return part_of[group_of]


def _counts(group_of: NDArray[np.int64], kinds: ArrayLike) -> NDArray[np.float64]:
    """Count the images of each kind in each group, as (groups, kinds)."""
    _, kind_of = np.unique(np.asarray(kinds, dtype=str), return_inverse=True)
    counts = np.zeros((group_of.max() + 1, kind_of.max() + 1))
    np.add.at(counts, (group_of, kind_of), 1)
    return counts


@dataclass(frozen=True)
class OwnIds:
    """Mapping from a data set's own image ids, which keep-lists and folds may use, to the ids of the manifest."""

    ids: Mapping[tuple[str, str], str] = dataclasses.field(default_factory=dict, repr=False)
    """(data set, own id of the image) -> id in the manifest."""

    def id_of(self, dataset: str, image_id: str) -> str:
        """Return the id of an image; an unknown own id is returned unchanged."""
        return self.ids.get((dataset, image_id), image_id)
