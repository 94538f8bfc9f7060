"""Which copy is kept."""

import numpy as np
import pandas as pd

from usvit.data.audit.keep_list import COLUMNS, keep_list


def table_of(labels, datasets=None):
    n = len(labels)
    return pd.DataFrame({
        "dataset": datasets or ["a"] * n, "image_id": [f"i{k}" for k in range(n)], "label": labels,
        "sha256": [f"{15 - k:x}" * 64 for k in range(n)],
    })  # fmt: skip


def kept(labels, cluster, marks=None, area=None):
    n = len(labels)
    rows = keep_list(table_of(labels), np.array(cluster), marks or [0] * n, area or [100] * n)
    return rows.image_id[rows.keep == "true"].tolist()


def test_images_without_copies_are_all_kept():
    rows = keep_list(table_of(["b", "m"]), np.array([0, 1]), [3, 0], [1, 1])
    assert list(rows.columns) == COLUMNS
    assert rows.keep.tolist() == ["true", "true"]
    assert rows.reason.tolist() == rows.cluster.tolist() == ["", ""]


def test_of_copies_the_one_with_the_fewest_marks_then_the_largest_then_the_first_is_kept():
    assert kept(["b"] * 3, [0, 0, 0], marks=[2, 1, 1], area=[900, 100, 200]) == ["i2"]
    assert kept(["b"] * 3, [0, 0, 0], marks=[1, 1, 1], area=[100, 200, 200]) == ["i1"]
    assert kept(["b"] * 3, [0, 0, 0]) == ["i0"]


def test_copies_that_contradict_each_other_are_all_dropped_and_the_reason_said():
    rows = keep_list(table_of(["b", "m", "b", "n"]), np.array([0, 0, 0, 1]), [0] * 4, [1] * 4)
    assert rows.keep.tolist() == ["false"] * 3 + ["true"]
    assert rows.reason[1] == "its near-duplicates are labelled b and m"


def test_a_dropped_copy_names_the_one_that_stays_and_a_cluster_its_smallest_hash():
    rows = keep_list(table_of(["b", "b"], ["x", "y"]), np.array([4, 4]), [1, 0], [1, 1])
    assert rows.reason.tolist() == ["near-duplicate of i1 of y", "the cleanest of 2 near-duplicates"]
    assert set(rows.cluster) == {"copies:" + "e" * 12}
