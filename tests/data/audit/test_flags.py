"""Each flag says what it says: made where it holds, absent where it does not."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from tests.data.audit.conftest import tissue, write
from usvit.data.audit import flags
from usvit.data.io.decoding import read_image


def paint(pixels, rows, columns, colour):
    painted = pixels.copy()
    painted[rows, columns] = colour
    return painted


def boxed(pixels, colour=(150, 150, 100)):
    """A Doppler box: a frame of one pixel."""
    framed = pixels.copy()
    for line in ((60, slice(80, 280)), (200, slice(80, 281)), (slice(60, 200), 80), (slice(60, 200), 280)):
        framed[line] = colour
    return framed


def test_grey_has_no_colour_and_coloured_marks_are_no_doppler():
    clean = tissue(1)
    assert not flags.has_colour(clean)
    words = write(clean, "RT UOQ", (40, 220), ink=(240, 240, 0))
    assert flags.has_colour(words)
    assert not flags.has_doppler(words)
    assert not flags.has_doppler(write(clean, "RED", (40, 220), ink=(200, 0, 0), size=9))


@pytest.mark.parametrize("colour", [(220, 40, 10), (30, 60, 220)])
def test_flow_is_doppler(colour):
    flow = paint(tissue(2), slice(40, 50), slice(100, 112), colour)
    assert flags.has_colour(flow)
    assert flags.has_doppler(flow)


def test_an_empty_doppler_box_is_doppler_and_a_grey_frame_is_not():
    assert flags.has_doppler(boxed(tissue(3)))
    assert not flags.has_doppler(boxed(tissue(3), (200, 200, 200)))


def test_a_tinted_picture_is_coloured_but_no_doppler():
    sepia = (tissue(4) * [1.0, 0.85, 0.6]).astype(np.uint8)
    assert flags.has_colour(sepia)
    assert not flags.has_doppler(sepia)


@pytest.mark.parametrize("gap", [0, 4, 12])
def test_two_views_side_by_side_are_found_and_one_is_not(gap):
    left, right = tissue(5, mean=70), tissue(6, mean=130)
    seam = np.zeros((300, gap, 3), np.uint8)
    assert flags.is_dual_view(np.hstack([left, seam, right]))
    assert not flags.is_dual_view(left)
    assert not flags.is_dual_view(boxed(right, (200, 200, 200)))


def test_a_shadow_is_no_seam():
    depth, across = np.mgrid[:300, :400]
    shadow = 1 - 0.8 / (1 + np.exp(-(across - 200) / 6)) * (depth > 80)  # its edge is some 25 px wide
    assert not flags.is_dual_view((tissue(7, mean=120) * shadow[..., None]).astype(np.uint8))


def test_blank_is_without_contrast():
    assert flags.is_blank(np.full((50, 60, 3), 90, np.uint8))
    assert flags.is_blank((90 + tissue(8) / 25).astype(np.uint8))
    assert not flags.is_blank(tissue(8))


@pytest.mark.parametrize("level", [0, 255])
def test_a_flat_border_is_a_letterbox_even_with_text_in_it(level):
    inside = tissue(9)
    framed = np.full((400, 400, 3), level, np.uint8)
    framed[40:340] = inside
    assert flags.has_letterbox(framed)
    assert flags.has_letterbox(write(framed, "GE", (10, 10), ink=(128, 128, 128)))
    assert not flags.has_letterbox(inside)
    assert not flags.has_letterbox(framed[36:344])  # 8 of 308 rows
    assert flags.has_letterbox(np.full((30, 30, 3), level, np.uint8))


def test_masks_that_mark_nothing_and_several_masks():
    assert flags.mask_flags(0, False) == []
    assert flags.mask_flags(1, True) == []
    assert flags.mask_flags(1, False) == ["empty_mask"]
    assert flags.mask_flags(2, True) == ["several_masks"]


def test_only_what_is_far_from_the_median_is_odd():
    values = np.array([100.0] * 9 + [190, 210, 51, 49])
    assert flags.far_from_median(values, 2.0).tolist() == [False] * 10 + [True, False, True]


def test_every_flag_has_a_meaning():
    assert set(flags.PIXEL_FLAGS) < set(flags.MEANINGS)
    marked = write(paint(tissue(10), slice(40, 50), slice(100, 112), (220, 40, 10)), "LEFT", (50, 200))
    assert flags.pixel_flags(marked) == ["text", "colour", "doppler"]


def busi(real_data, image_id):
    return read_image(real_data / "Dataset_BUSI_with_GT" / image_id.split()[0] / f"{image_id}.png")


@pytest.mark.parametrize(
    ("image_id", "expected"),
    [
        ("benign (255)", ["text", "colour", "doppler"]),
        ("benign (102)", ["colour", "doppler"]),  # a faint box without flow
        ("benign (69)", ["colour"]),  # letters in colour, cut off
        ("benign (300)", ["text", "calipers"]),
        ("benign (9)", ["calipers"]),  # one cross stands on bright tissue
        ("benign (318)", ["text"]),
        ("malignant (38)", ["text"]),  # the maker's name in a corner
        ("normal (42)", []),
        ("benign (83)", []),
    ],
)
def test_real_images_get_the_flags_that_a_person_sees(real_data, image_id, expected):
    assert flags.pixel_flags(busi(real_data, image_id)) == expected


def test_real_images_set_side_by_side_are_dual_views(real_data):
    names = ["benign (40)", "malignant (11)", "benign (318)", "normal (42)", "benign (83)", "malignant (138)"]
    images = [np.asarray(Image.fromarray(busi(real_data, name)).resize((560, 470))) for name in names]
    assert not any(flags.is_dual_view(image) for image in images)
    pairs = [np.hstack([one, other]) for one, other in pairwise(images)]
    assert sum(flags.is_dual_view(pair) for pair in pairs) >= 4


@given(st.lists(st.integers(0, 255), min_size=1, max_size=50), st.floats(0, 1))
def test_a_quantile_of_sorted_values_is_numpy_s_to_the_last_bit(values, share):
    ordered = np.sort(np.uint8(values))
    assert flags._quantile(ordered, share) == np.quantile(ordered, share)
