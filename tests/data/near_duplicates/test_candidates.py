import numpy as np
import pandas as pd
import pytest

from tests.data.near_duplicates.planting import turned
from usvit.data.io.decoding import read_image
from usvit.data.near_duplicates.candidates import (
    MAX_NEIGHBOURS,
    CandidatePair,
    Landmarks,
    _meetings,
    changed,
    consistent,
    find_candidates,
    find_candidates_between,
)
from usvit.data.near_duplicates.description import CHANGES, SCALE_STEPS, Description, describe
from usvit.data.phantom import PhantomSpec, write_phantom


def described(places: list[tuple[int, int]], hashes: list[int], direction: int = 0) -> Description:
    kept = np.array([(x, y, 2 * SCALE_STEPS, direction) for x, y in places], np.uint8).reshape(-1, 4)
    return Description("", kept, np.array(hashes, np.uint64), 0)


THREE = [(30, 30), (50, 90), (120, 40)]
HASHES = [0x123456789ABC, 0xFEDCBA987654, 0x0F1E2D3C4B5A]
OTHERS = [0x77AA1155CC33, 0x2468ACE13579, 0x5A5A3C3C0FF0]


def test_images_with_equal_landmarks_arranged_alike_are_candidates():
    moved = [(x + 40, y + 60) for x, y in THREE]
    images = [described(THREE, HASHES), described(THREE, OTHERS), described(moved, HASHES)]
    assert find_candidates(images) == [CandidatePair(0, 2, False, False, 0)]
    assert find_candidates_between(images[:2], images[2:]) == [CandidatePair(0, 0, False, False, 0)]


def test_a_landmark_changed_as_a_mirror_changes_it_is_a_mirrored_candidate():
    mirror = [(255 - x, y) for x, y in THREE]
    hashes = [value ^ int(CHANGES[1]) for value in HASHES]
    assert find_candidates([described(THREE, HASHES), described(mirror, hashes, direction=128)]) == [
        CandidatePair(0, 1, False, False, 1)
    ]


def test_one_landmark_or_differently_arranged_ones_make_no_candidate():
    image = described(THREE, HASHES)
    one = described(THREE, [HASHES[0], *OTHERS[1:]])
    exchanged = described([THREE[2], THREE[1], THREE[0]], [HASHES[0], OTHERS[1], HASHES[2]])
    for other in (one, exchanged):
        assert find_candidates([image, other]) == []


def test_images_without_landmarks_are_no_candidates():
    assert find_candidates([]) == [] and find_candidates_between([], []) == []
    assert find_candidates([described([], []), described([], [])]) == []
    assert find_candidates_between([described([], [])], [described(THREE, HASHES)]) == []


def test_one_key_shared_by_all_costs_no_more_than_the_bound_and_keeps_all_connected():
    n = 5000
    found = list(_meetings(Landmarks([described([(30, 30)], [HASHES[0]])] * n), 0, 16))
    assert sum(len(first) for first, _, _ in found) <= n * MAX_NEIGHBOURS
    assert np.array_equal(found[0][0] + 1, found[0][1]) and len(found[0][0]) == n - 1


@pytest.fixture(scope="module")
def image(tmp_path_factory):
    root = write_phantom(PhantomSpec(n=3, size=256, seed=1), tmp_path_factory.mktemp("candidates") / "phantom")
    return read_image(root / pd.read_csv(root / "phantom.csv").path[0])


@pytest.mark.parametrize("change", range(4))
def test_the_changes_are_what_mirroring_and_inverting_the_pixels_does(image, change):
    """Most landmarks are found again, at the mirrored place, with the hash that the constant predicts.

    OpenCV's SIFT places landmarks a quarter of a pixel too far right and down (half a pixel of the working image),
    which costs mirrored hashes some bits: 49 % agree to 4 bits, and 94 % would with ``enable_precise_upscale=True``.
    That changes three pairs of BUSI at the bound of similarity; it belongs in the next version of the descriptions.
    """
    pixels = image[:, ::-1] if change % 2 else image
    pixels = np.ascontiguousarray(255 - pixels if change >= 2 else pixels)
    first, second = describe(image), describe(pixels)
    bits = np.bitwise_count(first.hashes[:, None] ^ (second.hashes ^ CHANGES[change]))
    assert (bits.min(axis=1) <= 6).mean() > 0.5
    wrong = np.bitwise_count(first.hashes[:, None] ^ (second.hashes ^ CHANGES[(change + 1) % 4]))
    assert (wrong.min(axis=1) <= 6).mean() < 0.2


def test_the_landmarks_of_a_turned_image_are_consistent_with_each_other(image):
    first, second = describe(image), describe(turned(image, 30, np.random.default_rng(0)))
    bits = np.bitwise_count(first.hashes[:, None] ^ second.hashes)
    i, j = np.nonzero(bits <= 2)
    a, b = changed(first.landmarks, 0)[i], changed(second.landmarks, 0)[j]
    agree = consistent(a[:, None], b[:, None], a[None], b[None])
    assert len(i) > 20 and np.median(agree.mean(axis=1)) > 0.8
