import pandas as pd
import pytest

from usvit.data.near_duplicates import NearDuplicate
from usvit.data.splits.groups import group_ids, label_conflicts, possibly_one_patient


def rows(*images: tuple[str, str | None, str]) -> pd.DataFrame:
    """A table of (image_id, patient_id, pixels), as the manifest has it before grouping."""
    table = pd.DataFrame(images, columns=["image_id", "patient_id", "sha256"])
    return table.assign(sha256=table.sha256.map(lambda pixels: pixels * 16), dataset="d")


def partition(table: pd.DataFrame) -> set[frozenset[str]]:
    """The groups as sets of image ids, whatever they are called."""
    return {frozenset(rows.image_id) for _, rows in table.assign(group=group_ids(table)).groupby("group")}


def test_images_without_patient_or_copy_stand_alone():
    table = rows(("a", None, "1"), ("b", None, "2"))
    assert group_ids(table) == ["image:d:a", "image:d:b"]


def test_pixel_identical_images_are_one_group_named_by_their_pixels():
    assert group_ids(rows(("a", None, "1"), ("b", None, "2"), ("c", None, "1"))) == [
        "copies:111111111111",
        "image:d:b",
        "copies:111111111111",
    ]


def test_copy_under_another_patient_binds_both_patients_with_all_their_images():
    table = rows(("a", "P1", "1"), ("b", "P1", "2"), ("c", "P2", "2"), ("d", "P2", "3"), ("e", "P3", "4"))
    assert partition(table) == {frozenset("abcd"), frozenset("e")}
    assert group_ids(table)[0] == "patient:d:P1"


def test_chains_of_copies_and_patients_are_joined_to_their_end():
    table = rows(*(x for n in range(30) for x in ((f"a{n}", f"P{n}", str(n)), (f"b{n}", f"P{n}", str(n + 1)))))
    assert len(partition(table)) == 1


def test_copy_without_a_patient_joins_the_patient_of_its_twin():
    assert partition(rows(("a", "P1", "1"), ("b", None, "1"), ("c", None, "2"))) == {frozenset("ab"), frozenset("c")}


def test_equal_patient_ids_of_two_data_sets_are_two_patients():
    table = rows(("a", "1", "1"), ("b", "1", "2")).assign(dataset=["d", "e"])
    assert group_ids(table) == ["patient:d:1", "patient:e:1"]


def test_near_duplicates_are_one_group_named_by_the_smallest_hash_among_them():
    table = rows(("a", None, "3"), ("b", None, "1"), ("c", None, "2"), ("d", None, "4"))
    copies = [NearDuplicate(0, 2, 0.9, "same frame"), NearDuplicate(1, 2, 0.8, "flipped")]
    assert group_ids(table, copies) == [*["copies:111111111111"] * 3, "image:d:d"]


def test_near_duplicate_of_two_patients_binds_them():
    table = rows(("a", "P1", "1"), ("b", "P2", "2"), ("c", "P2", "3"), ("d", None, "4"))
    assert (
        group_ids(table, [NearDuplicate(0, 1, 0.9, "same frame"), NearDuplicate(2, 3, 0.9, "same frame")])
        == ["patient:d:P1"] * 4
    )


def test_identical_pixels_with_one_label_are_no_conflict():
    table = pd.DataFrame({"sha256": list("aabb"), "label": list("xxxy"), "image_id": list("1234"), "dataset": "d"})
    assert [reason is None for reason in label_conflicts(table)] == [True, True, False, False]


@pytest.mark.parametrize(
    ("ids", "found"),
    [
        (["7", "07", "8.0", "8", "9"], [["07", "7"], ["8", "8.0"]]),
        (["p2", "P2", "P02", "p20"], [["P02", "P2", "p2"]]),
        (["A 1", "a1", None, "A1"], [["A 1", "A1", "a1"]]),
        (["7", "7", "70", "7.1", "7.10", "107", "17"], []),
        (["0", "00", "0.0"], [["0", "0.0", "00"]]),
        ([], []),
    ],
)
def test_ids_that_a_spreadsheet_may_have_changed_are_possibly_one_patient(ids, found):
    assert possibly_one_patient(ids) == found
