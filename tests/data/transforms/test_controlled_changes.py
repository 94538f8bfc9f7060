"""Controlled changes: each does what its name says, and nothing is drawn."""

import numpy as np
import pytest

from usvit.data.burned_in import has_calipers, has_text
from usvit.data.transforms import CHANGES
from usvit.data.transforms.controlled_changes import (
    add_calipers,
    add_text,
    crop,
    depth,
    gain,
    jpeg,
    remove_marks,
    resize,
)

EVERY = [one for several in CHANGES.values() for one in several]


@pytest.fixture(scope="module")
def image():
    rng = np.random.default_rng(0)
    grey = np.clip(rng.normal(90, 12, (300, 400)), 1, 180).astype(np.uint8)
    grey[:, :20] = 0
    return np.repeat(grey[:, :, None], 3, axis=2)


@pytest.fixture(scope="module")
def mask():
    rows, columns = np.mgrid[:300, :400]
    return ((columns - 200) / 90) ** 2 + ((rows - 150) / 40) ** 2 < 1


@pytest.mark.parametrize("change", EVERY, ids=lambda one: f"{one.name} {one.strength}")
def test_a_change_is_repeatable_and_leaves_its_input_alone(image, mask, change):
    before = image.copy()
    marked = add_text(image, "top left") if change.name == "marks-off" else image
    first, again = change.apply(marked, mask), change.apply(marked.copy(), mask)
    assert first.dtype == np.uint8 and first.ndim == 3
    assert np.array_equal(first, again) and np.array_equal(image, before)
    assert first.shape != marked.shape or not np.array_equal(first, marked)


def test_names_and_strengths_are_unique():
    assert len({(one.name, one.strength) for one in EVERY}) == len(EVERY)
    assert all(name == one.name for name, several in CHANGES.items() for one in several)


def test_gain_moves_grey_levels_by_decibels_and_keeps_black(image):
    louder = gain(image, 6)
    assert (louder[:, 20:].astype(int) - image[:, 20:] == round(255 * 6 / 60)).all()
    assert (louder[:, :20] == 0).all() and (gain(image, 0) == image).all()


@pytest.mark.parametrize("factor", [0.85, 1.3])
def test_depth_keeps_the_probe_and_scales_about_it(factor):
    picture = np.zeros((200, 200, 3), np.uint8)
    picture[96:104, 96:104] = 255  # at half the depth, in the middle
    rows, columns = np.nonzero(depth(picture, factor)[:, :, 0] > 100)
    assert rows.mean() == pytest.approx(100 / factor, abs=1.5)
    assert columns.mean() == pytest.approx(99.5, abs=1.5)


def test_crop_cuts_all_sides(image):
    assert crop(image, 0.1).shape == (240, 320, 3)
    assert np.array_equal(crop(image, 0.1), image[30:270, 40:360])


def test_stronger_compression_and_coarser_grids_differ_more(image):
    for function, weak, strong in ((jpeg, 90, 40), (resize, 0.75, 0.25)):
        error = [np.abs(function(image, one).astype(float) - image).mean() for one in (weak, strong)]
        assert 0 < error[0] < error[1]


def test_marks_are_drawn_where_an_audit_finds_them_and_removed_again(image, mask):
    assert not has_text(image) and not has_calipers(image)
    assert remove_marks(image) is None
    for corner in ("top left", "bottom right"):
        written = add_text(image, corner)
        assert has_text(written) and not has_text(remove_marks(written))
    measured = add_calipers(image, mask, 2)
    assert has_calipers(measured) and not has_calipers(remove_marks(measured))


def test_calipers_stand_at_the_ends_of_the_longest_diameter(image, mask):
    rows, columns = np.nonzero((add_calipers(image, mask, 1) != image).any(axis=2))
    assert rows.mean() == pytest.approx(150, abs=3)
    assert columns.min() == pytest.approx(111 - 5, abs=2) and columns.max() == pytest.approx(289 + 5, abs=2)
    assert add_calipers(image, None, 1) is None
    assert add_calipers(image, np.zeros_like(mask), 2) is None
