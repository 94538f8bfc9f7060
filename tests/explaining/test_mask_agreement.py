"""Maps against masks, worked by hand."""

import numpy as np
import pytest

from usvit.explaining.mask_agreement import (
    MaskScore,
    centre_pointing,
    clustered_mean,
    is_blank,
    pointing,
    score,
    share_in_mask,
    summary,
)
from usvit.metrics.intervals import undefined

MAP = np.array([[0.0, 1.0, 2.0], [0.0, 5.0, 1.0], [0.0, 0.0, 1.0]])


def mask_of(*cells, shape=(3, 3)):
    mask = np.zeros(shape, dtype=bool)
    for cell in cells:
        mask[cell] = True
    return mask


@pytest.mark.parametrize(
    ("cells", "hit", "share"),
    [
        ([(1, 1)], 1.0, 0.5),
        ([(0, 2), (1, 2)], 0.0, 0.3),
        ([(0, 0)], 0.0, 0.0),
        ([(row, column) for row in range(3) for column in range(3)], 1.0, 1.0),
    ],
)
def test_pointing_and_share_by_hand(cells, hit, share):
    assert pointing(MAP, mask_of(*cells)) == hit
    assert share_in_mask(MAP, mask_of(*cells)) == pytest.approx(share)


def test_tied_maxima_count_by_their_share():
    tied = np.array([[3.0, 3.0], [3.0, 0.0]])
    assert pointing(tied, mask_of((0, 0), shape=(2, 2))) == pytest.approx(1 / 3)


def test_what_speaks_against_the_class_counts_as_nothing():
    signed = np.array([[2.0, -5.0], [2.0, 0.0]])
    assert share_in_mask(signed, mask_of((0, 0), (0, 1), shape=(2, 2))) == 0.5
    assert share_in_mask(-np.abs(MAP), mask_of((0, 0))) is None


@pytest.mark.parametrize("flat", [np.zeros((3, 3)), np.full((3, 3), 0.7), np.full((3, 3), 0.7) + 1e-9 * MAP])
def test_a_blank_map_points_nowhere(flat):
    assert is_blank(flat) and pointing(flat, mask_of((1, 1))) is None and share_in_mask(flat, mask_of((1, 1))) is None


def test_scores_do_not_depend_on_the_maps_scale():
    mask = mask_of((1, 1), (0, 2))
    assert score(MAP, mask, "g") == score(MAP * 1e-7, mask, "g") and not is_blank(MAP * 1e-12)


def test_the_middle_of_even_and_odd_images():
    assert centre_pointing(mask_of((1, 1))) == 1 and centre_pointing(mask_of((0, 0))) == 0
    assert centre_pointing(mask_of((1, 1), (1, 2), shape=(4, 4))) == 0.5


def test_area_is_the_share_of_the_image():
    one = score(MAP, mask_of((1, 1), (0, 0), (0, 1)), "g")
    assert one.area == pytest.approx(1 / 3) and (one.pointing, one.centre) == (1, 1)


def case(group, hit, share, area=0.1, centre=1.0):
    return MaskScore(group, area, centre, hit, share)


def test_summary_counts_images_and_groups_and_leaves_blank_maps_out():
    found = summary([case("a", 1.0, 0.4), case("a", 0.0, 0.2), case("b", 1.0, 0.6), case("c", None, None)])
    assert (found.n_images, found.n_groups, found.n_blank) == (3, 2, 1)
    assert found.pointing.value == pytest.approx(2 / 3) and found.share.value == pytest.approx(0.4)
    assert found.area.value == pytest.approx(0.1) and found.centre.value == 1
    assert found.pointing.n_groups == 2 and "2 groups only" in found.pointing.warning
    assert summary([]) is None
    assert summary([case("c", None, None)]).pointing == undefined("every map is blank", 0)


def test_intervals_widen_when_images_are_copies_within_their_patient():
    rng = np.random.default_rng(0)
    values, group = rng.uniform(size=60), np.arange(60)
    alone = clustered_mean(values, group).ci95
    copied = clustered_mean(np.repeat(values, 4), np.repeat(group, 4)).ci95
    as_if_independent = clustered_mean(np.repeat(values, 4), np.arange(240)).ci95
    assert np.allclose(alone, copied) and np.ptp(as_if_independent) < 0.6 * np.ptp(copied)


def test_the_interval_of_independent_values_is_about_the_normal_one():
    values = np.random.default_rng(1).uniform(size=200)
    low, high = clustered_mean(values, np.arange(200)).ci95
    half = 1.96 * values.std(ddof=1) / 200**0.5
    assert low == pytest.approx(values.mean() - half, abs=0.006) and high == pytest.approx(
        values.mean() + half, abs=0.006
    )
