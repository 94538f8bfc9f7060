import pandas as pd
import pytest

from usvit.data.datasets.units import (
    SIDES,
    UNIT_COLUMNS,
    common_level,
    contradiction,
    count_units,
    disagreeing_lesions,
    side_of,
    units_in,
    with_units,
)

CLASSES = ("normal", "benign", "malignant")


def table(*rows: tuple[str | None, ...], dataset: str = "d") -> pd.DataFrame:
    """Rows of (patient, lesion, side, exam, label)."""
    names = ["patient_id", "lesion_id", "side", "exam_id", "label"]
    found = pd.DataFrame(rows, columns=names, dtype=object)
    return found.assign(dataset=dataset, image_id=[f"i{number}" for number in range(len(rows))])


def test_words_of_sides_in_any_case_with_spaces_or_a_point():
    assert [side_of(word) for word in ("LINKS", " l. ", "gauche", "Left", "sinistra")] == ["left"] * 5
    assert [side_of(word) for word in ("R", "re.", "Droite", "d", "derecha")] == ["right"] * 5
    assert [side_of(word) for word in ("", "both", "b", "lr", "0", "links/rechts")] == [None] * 6
    assert not {*SIDES["left"]} & {*SIDES["right"]}


@pytest.mark.parametrize(
    ("rows", "says", "places"),
    [
        (
            [("P", "L", None, None, "b"), ("Q", "M", None, None, "b"), ("Q", "L", None, None, "b")],
            "two patients",
            (0, 2),
        ),
        ([("P", "L", "left", None, "b"), ("P", "L", None, None, "b"), ("P", "L", "right", None, "b")], "sides", (0, 2)),
        ([("P", None, None, "E", "b"), (None, None, None, "E", "b"), ("Q", None, None, "E", "b")], "one exam", (0, 2)),
        ([("P", "L", None, None, "b"), (None, "M", None, None, "b")], "a lesion but no patient", (1, 1)),
    ],
)
def test_contradicting_units_name_both_images(rows, says, places):
    found = contradiction(table(*rows))
    assert found is not None and says in found.said
    assert (found.first, found.second) == places
    shifted = table(*rows).set_index(pd.Index([7] * len(rows)))  # the index of a table does not matter
    assert contradiction(shifted) == found


@pytest.mark.parametrize(
    "rows",
    [
        [("P", "L", "left", "E", "b")],
        [("P", "L", "left", "E", "b"), ("P", "L", None, "F", "b")],  # a missing side, and a lesion in two exams
        [("P", None, "left", "E", "b"), (None, None, "right", "E", "m")],  # a patient that is missing once
        [("P", "L", "left", "E", "b"), ("P", "M", "right", "E", "m")],
    ],
)
def test_units_that_do_not_contradict_each_other(rows):
    assert contradiction(table(*rows)) is None


def test_equal_ids_of_two_data_sets_are_different_units():
    both = pd.concat([table(("P", "L", "left", "E", "b")), table(("Q", "L", "right", "E", "b"), dataset="other")])
    assert contradiction(both) is None
    assert count_units(both, ("b",), "b")["lesion"].n == 2


def test_a_table_without_units_has_nothing_to_contradict_or_count():
    plain = table(("P", None, None, None, "benign")).drop(columns=[*UNIT_COLUMNS])
    assert contradiction(plain) is None and units_in(plain) == ["patient"]
    assert count_units(plain.assign(patient_id=None), CLASSES, "malignant") is None
    assert disagreeing_lesions(plain) == []


def test_counts_by_class_with_missing_ids_and_several_labels():
    rows = table(
        ("P", "L", "left", "E", "benign"),
        ("P", "L", "left", "E", "malignant"),
        ("P", "M", "right", "F", "normal"),
        ("P", "M", "right", "F", "benign"),
        ("Q", None, "left", None, "normal"),
        (None, None, None, None, "malignant"),
    )
    found = count_units(rows, CLASSES, "malignant")
    assert [(unit, one.n, one.several_labels, one.images_without) for unit, one in found.items()] == [
        ("lesion", 2, 2, 2),
        ("breast", 3, 2, 1),
        ("exam", 2, 2, 2),
        ("patient", 2, 1, 1),
    ]
    assert found["lesion"].classes == {"normal": 1, "benign": 0, "malignant": 1}  # the first of the classes
    assert found["patient"].classes == {"normal": 1, "benign": 0, "malignant": 1}
    assert disagreeing_lesions(rows) == [[0, 1], [2, 3]]


def test_a_breast_needs_patient_and_side():
    assert units_in(table((None, None, "left", None, "b"), ("P", None, None, None, "b"))) == ["patient"]


@pytest.mark.parametrize(
    ("stated", "drop", "level"),
    [
        (["image"], None, "image"),
        (["lesion"], None, "lesion"),
        (["image", "patient"], None, "patient"),
        (["lesion", "breast"], None, "breast"),
        (["lesion"], "lesion_id", "image"),
        (["patient", "image"], "patient_id", "exam"),  # the next finer unit that all images have
        (["breast"], "side", "lesion"),
        ([], None, "image"),
    ],
)
def test_the_level_of_a_union_is_the_coarsest_that_all_images_have(stated, drop, level):
    rows = table(("P", "L", "left", "E", "b"), ("Q", "M", "left", "F", "b"))
    if drop:
        rows.loc[1, drop] = None
    assert common_level(stated, rows) == level


def test_columns_of_units_follow_that_of_the_patient():
    assert with_units(["a", "patient_id", "b"], {"exam_id", "lesion_id", "x"}) == [
        *("a", "patient_id", "lesion_id", "exam_id", "b")
    ]
