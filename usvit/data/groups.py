"""What belongs together: images of one patient, copies of one frame; and what cannot be right."""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence

import numpy as np
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from usvit.data.copies import Copy


def group_ids(table: pd.DataFrame, copies: Sequence[Copy] = ()) -> list[str]:
    """The unit that no split may divide: patient if known, else copies of one frame, else the image.

    Images of one patient, images of identical pixels and near-duplicates are joined, transitively:
    a copy of an image under another patient's id binds the two patients together.

    Args:
        table: columns dataset, image_id, patient_id (or None) and sha256.
        copies: verified pairs of near-duplicates, as row numbers of the table.

    Returns:
        One id a row: ``patient:<dataset>:<id>``, ``copies:<12 hex digits>`` (of the smallest pixel
        hash among the copies) or ``image:<dataset>:<image_id>``.
    """
    patients = [
        f"patient:{dataset}:{patient}" if isinstance(patient, str) else None
        for dataset, patient in zip(table.dataset, table.patient_id, strict=True)
    ]
    # A graph with images on one side and their patient and pixels on the other; copies are edges between images.
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
    """Patient ids that differ only by case, spaces, leading zeros or a trailing ``.0``: spreadsheets change ids so.

    Args:
        ids: as the data set has them, before they become pseudonyms; None where a patient is not known.

    Returns:
        Of each such patient the different ids, sorted; in the order of first appearance. Private: count them, do not
        write them.
    """
    written: defaultdict[str, set[str]] = defaultdict(set)
    for one in ids:
        if one is not None:
            short = re.sub(r"\s+", "", one).casefold()
            written[re.sub(r"(?<!\d)0+(?=\d)", "", re.sub(r"(?<=\d)\.0+$", "", short))].add(one)
    return [sorted(different) for different in written.values() if len(different) > 1]


def label_conflicts(table: pd.DataFrame) -> list[str | None]:
    """For each row, why it cannot be trusted: its pixels stand elsewhere under another label."""
    reasons: list[str | None] = [None] * len(table)
    for _, rows in table.groupby("sha256", sort=False):
        if rows.label.nunique() > 1:
            for index, row in rows.iterrows():
                other = rows[rows.label != row.label].iloc[0]
                reasons[int(str(index))] = (
                    f"pixel-identical to '{other.image_id}' of {other.dataset}, which is labelled {other.label}"
                )
    return reasons
