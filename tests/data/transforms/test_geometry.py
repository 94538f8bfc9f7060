import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.conftest import speckle
from usvit.data.transforms.geometry import CELLS, LESION_KEPT, View, ViewBounds, lesion_cells

SIZE = 128
seeds = st.integers(0, 2**63 - 1)


def rgb(grey: np.ndarray) -> np.ndarray:
    return np.stack([grey.astype(np.uint8)] * 3, axis=2)


@st.composite
def masks(draw) -> np.ndarray:
    """One to three rectangles and ellipses of any size and place, at the edges too: L-shapes, far-apart lesions."""
    mask = np.zeros((SIZE, SIZE), np.uint8)
    for _ in range(draw(st.integers(1, 3))):
        x, y = draw(st.integers(0, SIZE - 1)), draw(st.integers(0, SIZE - 1))
        width, height = draw(st.integers(3, SIZE)), draw(st.integers(3, SIZE))
        if draw(st.booleans()):
            mask[y : y + height, x : x + width] = 1
        else:
            cv2.ellipse(mask, (x, y), (width // 2, height // 2), draw(st.integers(0, 90)), 0, 360, 1, -1)
    return mask.astype(bool)


views = st.builds(
    View,
    side=st.floats(0.5, 1),
    degrees=st.floats(-30, 30),
    right=st.floats(-0.3, 0.3),
    down=st.floats(-0.3, 0.3),
    mirrored=st.booleans(),
)
bounds = st.builds(
    ViewBounds,
    min_side=st.floats(0.5, 1),
    degrees=st.floats(0, 30),
    right=st.floats(0, 0.3),
    down=st.floats(0, 0.3),
    flip=st.sampled_from([0.0, 0.5, 1.0]),
)


def share_in_window(view: View, mask: np.ndarray) -> float:
    """The oracle: the lesion's pixels one by one, turned as complex numbers; mirroring does not change what is seen."""
    rows, columns = np.nonzero(mask)
    pixels = (columns + 0.5) / SIZE - 0.5 + 1j * ((rows + 0.5) / SIZE - 0.5)
    seen = (pixels - complex(view.right, view.down)) * np.exp(-1j * np.radians(view.degrees)) / view.side
    return float(((abs(seen.real) <= 0.5) & (abs(seen.imag) <= 0.5)).mean())


@pytest.mark.slow
@given(masks(), bounds, seeds)
def test_no_view_cuts_more_of_a_lesion_away_than_the_bound(mask, bounds, seed):
    assert LESION_KEPT >= 0.9
    view = bounds.draw(np.random.default_rng(seed), lesion_cells(mask))
    # A share of 1/255 is lost where a cell's share is rounded up.
    assert share_in_window(view, mask) >= LESION_KEPT - 0.005


@pytest.mark.slow
@given(masks(), views)
def test_the_share_that_is_shown_is_never_overstated(mask, view):
    assert view.shown(lesion_cells(mask)) <= share_in_window(view, mask) + 0.005


@pytest.mark.slow
@given(masks(), views)
@settings(max_examples=60)
def test_what_the_window_shows_is_what_is_counted(mask, view):
    """The pixels of the picture, which is enlarged by 1 / side, against the geometry."""
    counted = view.of(rgb(mask * 255))[:, :, 0].astype(float).sum() / 255 * view.side**2
    assert counted == pytest.approx(share_in_window(view, mask) * mask.sum(), abs=0.02 * SIZE**2 * view.side + 30)


def test_without_the_mask_views_would_cut_a_lesion_at_the_edge_away():
    mask = np.zeros((SIZE, SIZE), bool)
    mask[:12, :12] = True
    bounds = ViewBounds(min_side=0.9, degrees=10)
    blind = [share_in_window(bounds.draw(np.random.default_rng(seed)), mask) for seed in range(200)]
    assert np.mean(np.array(blind) < 0.5) > 0.3


def test_a_lesion_in_the_middle_restricts_nothing_and_none_at_all_neither():
    mask = np.zeros((SIZE, SIZE), bool)
    mask[50:80, 50:80] = True
    bounds = ViewBounds(min_side=0.9, degrees=10, flip=0.5)
    for lesion in (lesion_cells(mask), np.zeros((CELLS, CELLS), np.uint8)):
        for seed in range(50):
            assert bounds.draw(np.random.default_rng(seed), lesion) == bounds.draw(np.random.default_rng(seed))


def test_a_lesion_as_large_as_the_image_leaves_it_whole_but_may_be_mirrored():
    whole = np.full((CELLS, CELLS), 255, np.uint8)
    bounds = ViewBounds(min_side=0.9, degrees=10, flip=0.5)
    drawn = [bounds.draw(np.random.default_rng(seed), whole) for seed in range(200)]
    assert min(view.side for view in drawn) > 0.94
    assert {view.mirrored for view in drawn} == {True, False}
    assert View() in drawn


@given(bounds, seeds)
def test_views_stay_within_their_bounds(bounds, seed):
    view = bounds.draw(np.random.default_rng(seed))
    assert bounds.min_side - 1e-9 <= view.side <= 1
    assert abs(view.degrees) <= bounds.degrees
    assert abs(view.right) <= (1 - view.side) / 2 + bounds.right + 1e-9
    assert abs(view.down) <= (1 - view.side) / 2 + bounds.down + 1e-9
    assert not view.mirrored or bounds.flip


def test_the_whole_image_is_shown_to_the_byte_and_mirrored_to_the_byte():
    image = np.stack([speckle(number, SIZE, SIZE) for number in range(3)], axis=2)
    assert (View().of(image) == image).all()
    assert (View(mirrored=True).of(image) == image[:, ::-1]).all()


def test_right_and_down_and_degrees_mean_what_they_say():
    spot = np.zeros((SIZE, SIZE), np.uint8)
    spot[60:68, 60:68] = 255

    def centre(view: View) -> np.ndarray:
        out = view.of(rgb(spot))[:, :, 0].astype(float)
        rows, columns = np.mgrid[:SIZE, :SIZE]
        return np.array([(columns * out).sum(), (rows * out).sum()]) / out.sum()

    # The window goes right and down, so that the picture goes left and up.
    assert centre(View(right=0.25)) == pytest.approx([63.5 - 32, 63.5], abs=0.1)
    assert centre(View(down=0.25)) == pytest.approx([63.5, 63.5 - 32], abs=0.1)
    # The window turns clockwise, so that what lies right of the middle comes to lie above it.
    spot = np.roll(spot, 40, axis=1)
    assert centre(View(degrees=90)) == pytest.approx([63.5, 63.5 - 40], abs=0.1)
    assert centre(View(mirrored=True)) == pytest.approx([63.5 - 40, 63.5], abs=0.1)


@given(views)
@settings(max_examples=60)
def test_every_view_is_a_similarity(view):
    """A circle of any place stays a circle, by the matrix itself."""
    matrix = view._linear()
    assert matrix.T @ matrix == pytest.approx(view.side**2 * np.eye(2), abs=1e-12)
    assert np.sign(np.linalg.det(matrix)) == (-1 if view.mirrored else 1)


@given(masks())
def test_cells_hold_the_area_of_the_lesion(mask):
    cells = lesion_cells(mask)
    step = SIZE // CELLS
    assert cells.shape == (CELLS, CELLS)
    blocks = mask.reshape(CELLS, step, CELLS, step).mean(axis=(1, 3))
    assert abs(cells / 255 - blocks).max() <= 1 / 255
    assert ((cells > 0) == (blocks > 0)).all()


@pytest.mark.parametrize("size", [32, 37, 50, 299, 331])
def test_cells_hold_the_area_at_sizes_that_they_do_not_divide(size):
    mask = np.zeros((size, size), bool)
    mask[size // 3 : size // 2, size // 4 :] = True
    assert lesion_cells(mask).sum() / 255 / CELLS**2 == pytest.approx(mask.mean(), rel=0.05)
