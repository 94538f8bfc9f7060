"""Find candidate pairs of near-duplicates: images with landmarks that look alike and are arranged alike.

Parts of the hashes are sorted, which brings equal ones together, so that no image is compared with all others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usvit.data.near_duplicates.description import BITS, CHANGES, SCALE_STEPS, Description, UInt64

TABLES = 8
"""Number of selections of bits of the hash. Two landmarks are compared if they agree in all bits of one selection."""
_MIN_KEY_BITS = 16
_MAX_KEY_BITS = 26
_EXTRA_BITS = 9
"""The number of selected bits is log2 of the number of images plus ``_EXTRA_BITS``, between the two bounds above. The
number of chance agreements per image is then nearly independent of the size of the set, and the time grows no faster
than the set."""
MAX_BITS = 10
"""Bits of 48 in which the whole hashes of one landmark may differ. 1 in 3,000 pairs of different landmarks passes."""
_MAX_REST = 0.28
"""Share of the bits outside the selection in which two compared landmarks may differ: 9 bits in small sets and 7 in
large ones, where more bits are selected. With one fixed number, more chance agreements would pass in large sets."""
MAX_NEIGHBOURS = 12
"""Number of equal keys with which each key is compared. Without a bound, one key that all images share would cause all
images to be compared with all others. Near-duplicates stay connected: each is compared with the next ones, and those
with the next."""
_MAX_EQUAL = 64
"""Number of equal keys of the few images with which each key of the many is compared."""
_MAX_TURN = 0.45
"""Radians by which the rotation of two landmarks may differ; directions are found to about a tenth of that."""
MAX_SCALE_RATIO = 1.5
"""Factor by which the scaling of two landmarks may differ, since pictures are also stretched along one axis."""

_Int32 = NDArray[np.int32]
_Hits = tuple[_Int32, _Int32, NDArray[np.uint8]]
"""(n,) landmarks of one image, (n,) similar landmarks of another, and (n,) the change between the two."""
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class CandidatePair:
    """Two images that share landmarks after ``CHANGES[change]`` is applied to one of them."""

    first: int
    second: int
    first_stretched: bool
    """True if the landmarks belong to the stretched image."""
    second_stretched: bool
    change: int


class Landmarks:
    """Landmarks of all images in one array; view 2 i is the original image i, and view 2 i + 1 the stretched one."""

    def __init__(self, descriptions: Sequence[Description]):
        counts = [count for each in descriptions for count in (len(each.hashes) - each.n_stretched, each.n_stretched)]
        self.views = len(counts)
        self.view = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        self.hash = np.concatenate([np.zeros(0, np.uint64), *(each.hashes for each in descriptions)])
        self.kept = np.concatenate([np.zeros((0, 4), np.uint8), *(each.landmarks for each in descriptions)])


def find_candidates(descriptions: Sequence[Description]) -> list[CandidatePair]:
    """Find pairs of images that share landmarks, ordered by first and second."""
    landmarks = Landmarks(descriptions)
    bits = _key_bits(len(descriptions))
    hits = [hit for table in range(TABLES) for hit in _meetings(landmarks, table, bits)]
    a, b, change = _joined(hits)
    swapped = landmarks.view[a] > landmarks.view[b]
    return _arranged(landmarks, np.where(swapped, b, a), landmarks, np.where(swapped, a, b), change)


def find_candidates_between(
    few: Sequence[Description], many: Sequence[Description], images: int | None = None
) -> list[CandidatePair]:
    """Find pairs that share landmarks between two sets of images, but not within a set.

    Args:
        few: Images to which ``first`` refers.
        many: Images to which ``second`` refers.
        images: Number of images in both sets together, if ``many`` is only a portion of its set; with it, the result
            does not depend on the portions.

    Returns:
        The pairs, ordered by first and second.
    """
    ours, theirs = Landmarks(few), Landmarks(many)
    bits = _key_bits(images or len(few) + len(many))
    a, b, change = _joined([_meetings_between(ours, theirs, table, bits) for table in range(TABLES)])
    return _arranged(ours, a, theirs, b, change)


def _key_bits(images: int) -> int:
    return int(np.clip(np.ceil(np.log2(max(images, 1))) + _EXTRA_BITS, _MIN_KEY_BITS, _MAX_KEY_BITS))


def _keys(hashes: UInt64, table: int, bits: int) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """Return (n,) keys and (n,) the change that gives each key.

    Keys are equal if the landmarks agree in the selected bits, possibly after one of them is mirrored or inverted. Two
    landmarks with equal keys agree after the changes of both are applied.
    """
    # Low frequencies are the most reliable, so they are selected more often.
    weights = 1 / (12 + np.arange(BITS))
    chosen = np.random.default_rng(table).choice(BITS, bits, replace=False, p=weights / weights.sum())
    mask = np.uint64(sum(1 << int(bit) for bit in chosen))
    smallest, change = ((hashes ^ CHANGES[0]) & mask) * _SPREAD, np.zeros(len(hashes), np.uint8)
    for number in range(1, len(CHANGES)):
        value = ((hashes ^ CHANGES[number]) & mask) * _SPREAD
        change[value < smallest] = number
        np.minimum(smallest, value, out=smallest)
    return np.asarray(smallest * _SPREAD >> np.uint64(32), dtype=np.uint32), change


_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio (Knuth 6.4); integer multiplication wraps around


def _sorted(keys: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], _Int32]:
    """Sort keys stably; return them and the place where each was. Places have 32 bits: enough for 16 million images."""
    both = np.sort(keys.astype(np.uint64) << np.uint64(32) | np.arange(len(keys), dtype=np.uint64))
    return (both >> np.uint64(32)).astype(np.uint32), (both & np.uint64(2**32 - 1)).astype(np.int32)


def _meetings(landmarks: Landmarks, table: int, bits: int) -> Iterator[_Hits]:
    """Yield similar landmarks of different images; each is compared with the next ``MAX_NEIGHBOURS`` of its key."""
    keys, change = _keys(landmarks.hash, table, bits)
    keys, order = _sorted(keys)
    hashes, change, image = (
        landmarks.hash[order],
        change[order],
        landmarks.view[order] // 2,
    )  # sorted by key, so that equal keys are adjacent
    here = np.arange(len(keys), dtype=np.int32)
    for step in range(1, MAX_NEIGHBOURS + 1):
        here = here[here + step < len(keys)]
        here = here[keys[here] == keys[here + step]]
        there = here + step
        by = change[here] ^ change[there]
        alike = (image[here] != image[there]) & _alike(hashes[here], hashes[there], by, bits)
        yield order[here[alike]], order[there[alike]], by[alike]


def _meetings_between(ours: Landmarks, theirs: Landmarks, table: int, bits: int) -> _Hits:
    """Return similar landmarks of two sets; each of theirs is compared with the first ``_MAX_EQUAL`` of its key."""
    keys, change = _keys(ours.hash, table, bits)
    keys, order = _sorted(keys)
    present = np.zeros(2**22, dtype=np.bool_)
    present[keys >> np.uint32(10)] = True  # a fast filter before the search: most keys occur in none of the few images
    others, other_change = _keys(theirs.hash, table, bits)
    where = np.flatnonzero(present[others >> np.uint32(10)]).astype(np.int32)
    low = np.searchsorted(keys, others[where], side="left")
    count = np.minimum(np.searchsorted(keys, others[where], side="right") - low, _MAX_EQUAL)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    a, b = order[np.repeat(low, count) + within], np.repeat(where, count)
    by = change[a] ^ other_change[b]
    alike = _alike(ours.hash[a], theirs.hash[b], by, bits)
    return a[alike], b[alike], by[alike]


def _alike(ours: UInt64, theirs: UInt64, change: NDArray[np.uint8], bits: int) -> NDArray[np.bool_]:
    """Return (n,) bool, True if the whole hashes agree, given that they are equal in ``bits`` bits."""
    at_most = int(np.ceil(_MAX_REST * (BITS - bits)))
    return np.asarray(np.bitwise_count(ours ^ theirs ^ CHANGES[change]) <= at_most)


def _joined(hits: Sequence[_Hits]) -> _Hits:
    a, b, change = (np.concatenate(columns) for columns in zip(*hits, strict=True))
    return a, b, change


def changed(kept: NDArray[np.uint8], change: NDArray[np.integer] | int) -> Float64:
    """Apply a change to landmarks.

    Args:
        kept: (..., 4) as ``Description.landmarks``.
        change: Index into ``CHANGES``, one or (...,). Mirroring turns x into -x; the width of the picture is not
            needed.

    Returns:
        (..., 4) x, y, logarithm of the scale, and direction in radians, in the mirrored or inverted picture.
    """
    mirrored, inverted = np.asarray(change) % 2 == 1, np.asarray(change) >= 2
    found = kept.astype(np.float64)
    found[..., 2] *= np.log(2) / SCALE_STEPS
    found[..., 3] *= 2 * np.pi / 256
    found[..., 0] = np.where(mirrored, -found[..., 0], found[..., 0])
    found[..., 3] = np.where(mirrored, np.pi - found[..., 3], found[..., 3]) + np.pi * inverted
    return found


def consistent(a: Float64, b: Float64, other_a: Float64, other_b: Float64) -> NDArray[np.bool_]:
    """Return whether the transform that maps landmark ``a`` to ``b`` also maps ``other_a`` roughly to ``other_b``.

    Args:
        a, b, other_a, other_b: (..., 4) as returned by ``changed``, broadcast against each other.
    """
    growth, turn = b[..., 2] - a[..., 2], b[..., 3] - a[..., 3]
    scale = np.exp(growth)
    along, across = scale * np.cos(turn), scale * np.sin(turn)
    dx, dy = other_a[..., 0] - a[..., 0], other_a[..., 1] - a[..., 1]
    error_x = along * dx - across * dy + b[..., 0] - other_b[..., 0]
    error_y = across * dx + along * dy + b[..., 1] - other_b[..., 1]
    turned = other_b[..., 3] - other_a[..., 3] - turn
    return np.asarray(
        (np.hypot(error_x, error_y) <= (6 + 0.25 * np.hypot(dx, dy)) * np.maximum(scale, 0.5))
        & (np.abs(other_b[..., 2] - other_a[..., 2] - growth) < np.log(MAX_SCALE_RATIO))
        & (np.abs((turned + np.pi) % (2 * np.pi) - np.pi) < _MAX_TURN)
    )


def _arranged(
    ours: Landmarks, a: _Int32, theirs: Landmarks, b: _Int32, change: NDArray[np.uint8]
) -> list[CandidatePair]:
    """Return pairs of images with two hits that agree on one transform between the images."""
    code = (ours.view[a].astype(np.int64) * theirs.views + theirs.view[b]) * len(CHANGES) + change
    order = np.argsort(code)
    same = code[order][1:] == code[order][:-1]  # most pairs of images have a single hit, by chance
    several = order[np.append(same, False) | np.append(False, same)] if len(order) else order
    code, a, b, change = code[several], a[several], b[several], change[several]
    landmark = a.astype(np.int64) * max(1, len(theirs.hash)) + b
    order = np.lexsort((landmark, code))
    once = np.ones(len(order), dtype=np.bool_)  # several tables find the same hit
    once[1:] = (code[order][1:] != code[order][:-1]) | (landmark[order][1:] != landmark[order][:-1])
    order = order[once]
    code, a, b, change = code[order], a[order], b[order], change[order]
    here = np.arange(len(code))
    agreeing: list[NDArray[np.int64]] = []
    for step in range(1, MAX_NEIGHBOURS + 1):
        here = here[here + step < len(code)]
        here = here[code[here] == code[here + step]]
        there = here + step
        first, second = ours.kept[a[here]], ours.kept[a[there]]
        apart = (np.abs(first[:, :2].astype(int) - second[:, :2]).max(axis=1, initial=0) > 3) & (b[here] != b[there])
        one, two = here[apart], there[apart]
        fits = consistent(
            changed(ours.kept[a[one]], 0), changed(theirs.kept[b[one]], change[one]),
            changed(ours.kept[a[two]], 0), changed(theirs.kept[b[two]], change[two]),
        )  # fmt: skip
        agreeing.append(code[one[fits]])
    codes = np.unique(np.concatenate([np.zeros(0, np.int64), *agreeing]))
    pairs, change = codes // len(CHANGES), codes % len(CHANGES)
    first, second = pairs // max(1, theirs.views), pairs % max(1, theirs.views)
    columns = (first // 2, second // 2, first % 2 == 1, second % 2 == 1, change)
    found = zip(*(column.tolist() for column in columns), strict=True)
    return sorted((CandidatePair(*each) for each in found), key=lambda each: (each.first, each.second))
