"""A few training images of each class: nested, balanced, drawn by the seed."""

import numpy as np
import pytest

from usvit.data.splits import check_shots, draw_shots
from usvit.errors import UsvitError


def test_shots_are_nested_balanced_and_drawn_by_seed():
    targets = np.random.default_rng(0).permutation(np.repeat(np.arange(3), [30, 40, 50]))
    five, ten = draw_shots(targets, 5, 0, 0), draw_shots(targets, 10, 0, 0)
    assert np.bincount(targets[ten]).tolist() == [10, 10, 10]
    assert len(set(ten)) == 30 and set(five) < set(ten)
    assert draw_shots(targets, 5, 0, 0).tolist() == five.tolist()
    assert set(draw_shots(targets, 5, 0, 1)) != set(five)
    assert set(draw_shots(targets, 5, 1, 0)) != set(five)


def test_more_shots_than_images_are_refused_with_the_class_named():
    with pytest.raises(
        UsvitError, match=r"'b' has 6 training images. Set shots to no more than 6, or reduce source.val"
    ):
        check_shots(np.repeat([0, 1], [20, 6]), ["a", "b"], 7, "source.val_share")
    check_shots(np.repeat([0, 1], [20, 6]), ["a", "b"], 6, "source.val_share")
    with pytest.raises(UsvitError, match="class 'c' has 0 training images"):
        check_shots(np.array([0, 1]), ["a", "b", "c"], 1, "split.val_fraction")
