import pandas as pd
import pytest

from usvit.data.datasets.cards import DataCard, load_card
from usvit.data.datasets.manifest import MASK_SEPARATOR
from usvit.data.datasets.preparation import check_against_card, count


def card(**changes: object) -> DataCard:
    settings = load_card("busi").model_dump() | {"name": "d", "classes": {"benign": 3, "malignant": 2}, "n_masks": None}
    return DataCard.model_validate(settings | changes)


def table(labels: str = "bbbmm", dataset: str = "d") -> pd.DataFrame:
    return pd.DataFrame(
        {
            "dataset": dataset,
            "label": [{"b": "benign", "m": "malignant", "n": "normal"}[letter] for letter in labels],
            "mask_path": MASK_SEPARATOR.join(["a.png", "b.png"]),
            "patient_id": [f"p{number // 2}" for number in range(len(labels))],
        }
    )


def test_what_agrees_gives_no_entry():
    assert check_against_card(table(), card(n_masks=10, n_patients=3)) == []


@pytest.mark.parametrize(
    ("labels", "entries"),
    [
        ("bbmm", ["benign: card 3, found 2"]),
        ("bbbbmmm", ["benign: card 3, found 4", "malignant: card 2, found 3"]),
        ("bbb", ["malignant: card 2, found 0"]),
        ("", ["benign: card 3, found 0", "malignant: card 2, found 0"]),
    ],
)
def test_each_difference_is_named_with_both_numbers(labels, entries):
    assert check_against_card(table(labels), card()) == entries


def test_several_masks_of_an_image_count_each_and_absent_ones_do_not():
    rows = table()
    rows.loc[0, "mask_path"] = None
    assert check_against_card(rows, card(n_masks=10)) == ["masks: card 10, found 8"]


def test_patients_are_counted_once():
    rows = table()
    rows.loc[0, "patient_id"] = None
    assert check_against_card(rows, card(n_patients=4)) == ["patients: card 4, found 3"]


def test_what_the_card_leaves_open_is_not_compared():
    assert check_against_card(table("bm"), card(classes={"benign": None, "malignant": None})) == []
    assert check_against_card(table("bmn"), card(classes={}, positive_class=None)) == []


def test_only_the_card_s_own_data_set_counts():
    rows = pd.concat([table(), table("bbbbb", dataset="other")])
    assert check_against_card(rows, card()) == []
    assert count(rows, card()).images == 5


def test_images_that_were_left_out_for_a_reason_are_part_of_the_release():
    rows = table().assign(exclude_reason=["a copy", None, None, None, None])
    assert check_against_card(rows, card()) == []


def test_classes_keep_the_card_s_order_and_foreign_ones_follow():
    found = count(table("mbn"), card(classes={"malignant": 1, "benign": 1}))
    assert list(found.classes.items()) == [("malignant", 1), ("benign", 1), ("normal", 1)]
