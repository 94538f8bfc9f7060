"""BI-RADS categories as tables write them."""

import numpy as np
import pytest

from usvit.errors import UsvitError
from usvit.evaluation.birads import DIVIDED, UNDIVIDED, categories_of, category_of, levels_on, scale_of


@pytest.mark.parametrize(
    ("text", "category"),
    [
        *[(one, one) for one in ("0", "1", "2", "3", "4", "4a", "4b", "4c", "5", "6", "")],
        *[("4A", "4a"), (" 4 b ", "4b"), ("BI-RADS 4C", "4c"), ("birads:3", "3"), ("BIRADS-5", "5"), ("3.0", "3")],
        *[
            ("IV", "4"),
            ("ivb", "4b"),
            ("V", "5"),
            ("vi", "6"),
            ("i", "1"),
            ("III", "3"),
            ("nan", ""),
            ("Category 2", "2"),
        ],
        *[
            (one, None)
            for one in ("7", "4d", "3a", "c", "-1", "4ab", "44", "3.5", "4.5a", "iiii", "benign", "4-5", "?")
        ],
    ],
)
def test_a_text_is_one_category_or_none(text, category):
    assert category_of(text) == category


def test_two_readers_in_one_column_and_a_cell_with_one():
    found = categories_of(["4a/4B", "3/", None, "2"], "birads", list("abcd"))
    assert {name: one.tolist() for name, one in found.items()} == {
        "birads, reader 1": ["4a", "3", "", "2"],
        "birads, reader 2": ["4b", "", "", ""],
    }


def test_a_wrong_cell_is_counted_and_its_image_named_but_the_cell_is_not_shown():
    with pytest.raises(UsvitError, match="2 of 3 cells are no BI-RADS category, such as that of image 'b'") as error:
        categories_of(["3", "Anna Schmidt", "4a/c"], "birads", list("abc"))
    assert "Anna" not in str(error.value)
    with pytest.raises(UsvitError, match="has no BI-RADS category of an image"):
        categories_of(["", None], "birads", list("ab"))


def test_an_undivided_4_of_one_reader_makes_4_one_category_for_all():
    divided, undivided = np.array(["3", "4a", "5", "0", ""], object), np.array(["2", "4", "6", "4c", "1"], object)
    assert scale_of([divided]) == DIVIDED
    assert scale_of([divided, undivided]) == UNDIVIDED
    assert levels_on(DIVIDED, divided).tolist() == [2, 3, 6, -1, -1]
    assert levels_on(UNDIVIDED, divided).tolist() == [2, 3, 4, -1, -1]
    assert levels_on(UNDIVIDED, undivided).tolist() == [1, 3, -1, 3, 0]
