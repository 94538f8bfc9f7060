import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from usvit.data.copies.candidates import MAX_NEIGHBOURS, MIN_VOTES, Candidate, equal_pairs, find_candidates
from usvit.data.copies.description import PATCH_SIDES, SIDE, Description, mirrored

keys = hnp.arrays(np.uint32, st.integers(0, 60), elements=st.integers(0, 12))


def unordered(first: np.ndarray, second: np.ndarray) -> list[tuple[int, int]]:
    return sorted((min(pair), max(pair)) for pair in zip(first.tolist(), second.tolist(), strict=True))


@settings(max_examples=100, deadline=None)
@given(keys)
def test_equal_pairs_are_those_of_brute_force_where_few_are_equal(values):
    values = np.array([v for i, v in enumerate(values) if (values[:i] == v).sum() <= MAX_NEIGHBOURS], dtype=np.uint32)
    found = unordered(*equal_pairs(values))
    assert found == [(i, j) for i in range(len(values)) for j in range(i + 1, len(values)) if values[i] == values[j]]


def test_one_key_shared_by_all_costs_no_more_than_the_bound_and_keeps_all_connected():
    n = 5000
    first, second = equal_pairs(np.zeros(n, dtype=np.uint32))
    assert len(first) <= n * MAX_NEIGHBOURS
    assert {(i, i + 1) for i in range(n - 1)} <= set(unordered(first, second))


def described(places: list[tuple[int, int]], hashes: list[int]) -> Description:
    """An image with given landmarks (x, y); the other sizes of their patches are like no other's."""
    table = np.random.default_rng(hash(tuple(hashes)) % 2**32).integers(
        0, 2**24, (len(places), len(PATCH_SIDES)), dtype=np.uint32
    )
    table[:, 0] = hashes
    return Description("", np.zeros((SIDE, SIDE), np.uint8), np.array(places, np.uint8).reshape(-1, 2), table)


THREE = [(30, 30), (50, 60), (70, 40)]


def test_images_with_equal_landmarks_at_nearly_the_same_place_are_candidates():
    moved = [(x + 5, y - 4) for x, y in THREE]
    images = [described(THREE, [1, 2, 3]), described(THREE, [4, 5, 6]), described(moved, [1, 2, 3])]
    assert find_candidates(images) == [Candidate(0, 2, False)]


def test_a_mirrored_image_is_a_flipped_candidate():
    mirror_places = [(SIDE - 1 - x, y) for x, y in THREE]
    mirror_hashes = mirrored(np.array([1, 2, 3], np.uint32)).tolist()
    assert find_candidates([described(THREE, [1, 2, 3]), described(mirror_places, mirror_hashes)]) == [
        Candidate(0, 1, True)
    ]


def test_too_few_far_or_differently_arranged_landmarks_make_no_candidate():
    image = described(THREE, [1, 2, 3])
    assert MIN_VOTES == 2
    one = described(THREE, [1, 5, 6])
    far = described([(x, y + 30) for x, y in THREE], [1, 2, 3])
    exchanged = described([(50, 48), (32, 42), (70, 40)], [1, 2, 9])
    for other in (one, far, exchanged):
        assert find_candidates([image, other]) == []


def test_images_without_landmarks_are_no_candidates():
    assert find_candidates([]) == []
    assert find_candidates([described([], []), described([], [])]) == []


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_candidates_are_those_of_brute_force(seed):
    """Few hashes, so that images share some; each at most once an image."""
    rng = np.random.default_rng(seed)
    images = []
    for _ in range(6):
        places = [tuple(place) for place in rng.permutation([(x, y) for x in (20, 40, 60) for y in (20, 45, 70)])[:4]]
        images.append(described(places, rng.permutation(12)[:4].tolist()))
    found = {(each.first, each.second) for each in find_candidates(images) if not each.flipped}
    assert found == {(i, j) for i in range(6) for j in range(i + 1, 6) if brute_force(images[i], images[j])}


def brute_force(one: Description, other: Description) -> bool:
    near = np.abs(one.landmarks[:, None].astype(int) - other.landmarks.astype(int)).max(axis=2) <= 24
    votes = np.argwhere(near & (one.hashes[:, :1] == other.hashes[:, 0]))
    if len(votes) != MIN_VOTES:
        return len(votes) > MIN_VOTES
    (i, j), (k, m) = votes
    apart, apart_in_other = (
        image.landmarks[second].astype(int) - image.landmarks[first].astype(int)
        for image, first, second in ((one, i, k), (other, j, m))
    )
    return bool((np.abs(apart_in_other - apart) <= 0.5 * np.abs(apart) + 3).all())
