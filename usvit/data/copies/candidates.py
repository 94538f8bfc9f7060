"""Pairs of images that may be copies: those with equally hashed landmarks, arranged alike.

Sorting the hashes brings equal ones together: no image is compared with all others.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usvit.data.copies.description import SIDE, Description, mirrored

MIN_VOTES = 2
"""Landmarks with an equal hash that a candidate pair shares. In BUSI, five times as many pairs as there are copies
share one by chance."""
MAX_SHIFT = 24
"""Pixels of the thumbnail, a quarter of its side, that a landmark may have moved by cropping."""
MAX_STRETCH = 0.5
"""Share by which the distance of two landmarks may have changed; a sector image cut to its middle reaches 0.4."""
MAX_ERROR = 3
"""Pixels of the thumbnail by which that distance may be wrong besides: landmarks lie on whole pixels."""
MAX_NEIGHBOURS = 16
"""Equal hashes with which each one is compared. Without a bound, one hash shared by all images would compare
all with all. Copies stay connected: each is compared with the next ones, and those with the next."""
MAX_EQUAL = 256
"""Equal hashes of an index with which each hash of another image is compared."""

Int32 = NDArray[np.int32]


@dataclass(frozen=True)
class Candidate:
    """Images ``first`` < ``second`` share landmarks; ``flipped``: once one of them is mirrored."""

    first: int
    second: int
    flipped: bool


def find_candidates(descriptions: Sequence[Description]) -> list[Candidate]:
    """Pairs with at least ``MIN_VOTES`` common landmarks, in order of (first, second, flipped)."""
    landmarks = _Landmarks(descriptions)
    found = [
        Candidate(first, second, flipped)
        for flipped in (False, True)
        for first, second in _alike(landmarks, *_equal_landmarks(landmarks, flipped), flipped)
    ]
    return sorted(found, key=lambda candidate: (candidate.first, candidate.second, candidate.flipped))


class Index:
    """The hashes of a few images, in order, for comparing very many others with them, some at a time.

    Args:
        descriptions: the few.
    """

    def __init__(self, descriptions: Sequence[Description]):
        self.descriptions = list(descriptions)
        hashes = _Landmarks(descriptions).hash
        self._order = np.argsort(hashes, kind="stable").astype(np.int32)
        self._hashes = hashes[self._order]

    def candidates(self, others: Sequence[Description]) -> list[Candidate]:
        """Pairs with at least ``MIN_VOTES`` common landmarks: ``first`` of the index, ``second`` of ``others``.

        The others are not compared among themselves. In order of (second, first, flipped).
        """
        few = len(self.descriptions)
        landmarks = _Landmarks([*self.descriptions, *others])
        start = len(self._hashes)
        found = []
        for flipped in (False, True):
            keys = mirrored(landmarks.hash[start:]) if flipped else landmarks.hash[start:]
            low = np.searchsorted(self._hashes, keys, side="left")
            count = np.minimum(np.searchsorted(self._hashes, keys, side="right") - low, MAX_EQUAL)
            within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            a = self._order[np.repeat(low, count) + within]
            b = (start + np.repeat(np.arange(len(keys)), count)).astype(np.int32)
            found += [Candidate(first, second - few, flipped) for first, second in _alike(landmarks, a, b, flipped)]
        return sorted(found, key=lambda candidate: (candidate.second, candidate.first, candidate.flipped))


def equal_pairs(keys: NDArray[np.unsignedinteger]) -> tuple[Int32, Int32]:
    """Positions of equal keys, each with the next ``MAX_NEIGHBOURS``: all pairs where no more than that are equal."""
    order = np.argsort(keys, kind="stable").astype(np.int32)  # enough for 6 million images
    ordered = keys[order]
    firsts, seconds = [], []
    here = np.arange(len(keys), dtype=np.int32)
    for step in range(1, MAX_NEIGHBOURS + 1):
        here = here[here + step < len(keys)]
        here = here[ordered[here] == ordered[here + step]]
        firsts.append(order[here])
        seconds.append(order[here + step])
    return np.concatenate(firsts), np.concatenate(seconds)


class _Landmarks:
    """The hashes of all images in one row, with the image and the place of each."""

    def __init__(self, descriptions: Sequence[Description]):
        counts = [description.hashes.size for description in descriptions]
        self.images = len(descriptions)
        self.image = np.repeat(np.arange(len(descriptions), dtype=np.int32), counts)
        self.hash = np.concatenate([np.zeros(0, np.uint32), *(each.hashes.ravel() for each in descriptions)])
        places = [np.repeat(each.landmarks, each.hashes.shape[1], axis=0) for each in descriptions]
        self.place = np.concatenate([np.zeros((0, 2), np.int16), *places]).astype(np.int16)  # (m, 2) x, y


def _equal_landmarks(landmarks: _Landmarks, flipped: bool) -> tuple[Int32, Int32]:
    """Positions of landmarks with equal hashes: plain with plain, or plain with mirrored."""
    if not flipped:
        return equal_pairs(landmarks.hash)
    size = len(landmarks.hash)
    a, b = equal_pairs(np.concatenate([landmarks.hash, mirrored(landmarks.hash)]))
    a, b = np.minimum(a, b), np.maximum(a, b)
    across = (a < size) & (b >= size)
    return a[across], b[across] - size


def _alike(landmarks: _Landmarks, a: Int32, b: Int32, flipped: bool) -> NDArray[np.int64]:
    """(pairs, 2) images whose common landmarks are enough, near each other, and arranged alike."""
    a, b = np.where(landmarks.image[a] < landmarks.image[b], (a, b), (b, a))
    place_a, place_b = landmarks.place[a], landmarks.place[b]
    if flipped:
        place_b = np.stack([SIDE - 1 - place_b[:, 0], place_b[:, 1]], axis=1)
    near = (np.abs(place_a - place_b) <= MAX_SHIFT).all(axis=1) & (landmarks.image[a] != landmarks.image[b])
    a, b, place_a, place_b = a[near], b[near], place_a[near], place_b[near]

    pair = landmarks.image[a].astype(np.int64) * landmarks.images + landmarks.image[b]
    # One vote for each landmark of the first image, whatever the number of patch sizes that agree.
    vote = pair * SIDE**2 + place_a[:, 1].astype(np.int64) * SIDE + place_a[:, 0]
    kept = np.unique(vote, return_index=True)[1]
    pairs, start, votes = np.unique(pair[kept], return_index=True, return_counts=True)
    enough = votes >= MIN_VOTES
    pairs, one, votes = pairs[enough], kept[start[enough]], votes[enough]
    two = kept[start[enough] + 1]
    apart_a, apart_b = place_a[two] - place_a[one], place_b[two] - place_b[one]
    arranged = (np.abs(apart_b - apart_a) <= MAX_STRETCH * np.abs(apart_a) + MAX_ERROR).all(axis=1)
    pairs = pairs[arranged | (votes > MIN_VOTES)]
    return np.stack([pairs // landmarks.images, pairs % landmarks.images], axis=1)
