"""Pairs of images that may be copies: those with landmarks that look alike and are arranged alike.

Parts of the hashes are sorted, which brings equal ones together: no image is compared with all others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from usvit.data.copies.description import BITS, CHANGES, SCALE_STEPS, Description, UInt64

TABLES = 8
"""Different choices of bits of the hash; landmarks meet that agree in all bits of one choice."""
MIN_KEY_BITS = 16
MAX_KEY_BITS = 26
EXTRA_BITS = 9
"""So many bits are chosen: ``EXTRA_BITS`` more than the number of images has. Chance meetings an image are then nearly
as many in a small set as in a large one, and the time grows no faster than the set."""
MAX_BITS = 10
"""Bits in which the whole hashes of one landmark may differ, of 48. Of different landmarks 1 in 3,000 pairs do."""
MAX_REST = 0.28
"""Share of the bits that were not chosen, in which landmarks that meet may differ: 9 bits in small sets and 7 in large
ones, whose landmarks meet in more bits. With one number for all, chance would pass more often in large sets."""
MAX_NEIGHBOURS = 12
"""Equal keys with which each one is compared. Without a bound, one key shared by all images would compare all with
all. Copies stay connected: each is compared with the next ones, and those with the next."""
MAX_EQUAL = 64
"""Equal keys of an index with which each key of another image is compared."""
MAX_TURN = 0.45
"""Radians by which two landmarks of a copy may be turned differently: directions are found to about a tenth of that."""
MAX_SCALE_RATIO = 1.5
"""By which two landmarks of a copy may be scaled differently; pictures are also stretched along one axis."""

Int32 = NDArray[np.int32]
Hits = tuple[Int32, Int32, NDArray[np.uint8]]
"""(n,) landmarks of one image, (n,) those of another that look alike, and (n,) the changes by which they do."""
Float64 = NDArray[np.float64]


@dataclass(frozen=True)
class Candidate:
    """Images ``first`` and ``second`` share landmarks once one of them is changed as ``CHANGES[change]``."""

    first: int
    second: int
    first_square: bool
    """The landmarks are those of the image stretched to a square."""
    second_square: bool
    change: int


class Landmarks:
    """The landmarks of all images in one row, with the view of each: 2 i of image i as it is, 2 i + 1 as a square."""

    def __init__(self, descriptions: Sequence[Description]):
        counts = [count for each in descriptions for count in (len(each.hashes) - each.n_square, each.n_square)]
        self.views = len(counts)
        self.view = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        self.hash = np.concatenate([np.zeros(0, np.uint64), *(each.hashes for each in descriptions)])
        self.kept = np.concatenate([np.zeros((0, 4), np.uint8), *(each.landmarks for each in descriptions)])


def find_candidates(descriptions: Sequence[Description]) -> list[Candidate]:
    """Pairs that share landmarks, in order of first, second and the rest."""
    landmarks = Landmarks(descriptions)
    bits = _key_bits(len(descriptions))
    hits = [hit for table in range(TABLES) for hit in _meetings(landmarks, table, bits)]
    a, b, change = _joined(hits)
    swapped = landmarks.view[a] > landmarks.view[b]
    return _arranged(landmarks, np.where(swapped, b, a), landmarks, np.where(swapped, a, b), change)


def find_candidates_between(
    few: Sequence[Description], many: Sequence[Description], images: int | None = None
) -> list[Candidate]:
    """Pairs that share landmarks: ``first`` of the few, ``second`` of the many; no others.

    Args:
        few, many: the images.
        images: of both together, where the many come in portions: what is found does not depend on the portions.

    Returns:
        In order of first, second and the rest.
    """
    ours, theirs = Landmarks(few), Landmarks(many)
    bits = _key_bits(images or len(few) + len(many))
    a, b, change = _joined([_meetings_between(ours, theirs, table, bits) for table in range(TABLES)])
    return _arranged(ours, a, theirs, b, change)


def _key_bits(images: int) -> int:
    return int(np.clip(np.ceil(np.log2(max(images, 1))) + EXTRA_BITS, MIN_KEY_BITS, MAX_KEY_BITS))


def _keys(hashes: UInt64, table: int, bits: int) -> tuple[NDArray[np.uint32], NDArray[np.uint8]]:
    """(n,) equal for landmarks that agree in the chosen bits, one of them mirrored or inverted or not; and (n,) of
    each the change that leads to its key: two with equal keys agree by the one's change after the other's."""
    # Low frequencies are the most reliable, and chosen the more often.
    weights = 1 / (12 + np.arange(BITS))
    chosen = np.random.default_rng(table).choice(BITS, bits, replace=False, p=weights / weights.sum())
    mask = np.uint64(sum(1 << int(bit) for bit in chosen))
    smallest, change = ((hashes ^ CHANGES[0]) & mask) * _SPREAD, np.zeros(len(hashes), np.uint8)
    for number in range(1, len(CHANGES)):
        value = ((hashes ^ CHANGES[number]) & mask) * _SPREAD
        change[value < smallest] = number
        np.minimum(smallest, value, out=smallest)
    return np.asarray(smallest * _SPREAD >> np.uint64(32), dtype=np.uint32), change


_SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2**64 / golden ratio (Knuth 6.4); the product runs over, as it may


def _sorted(keys: NDArray[np.uint32]) -> tuple[NDArray[np.uint32], Int32]:
    """Keys in order, and where each was; equal ones stay in order. Enough for 16 million images."""
    both = np.sort(keys.astype(np.uint64) << np.uint64(32) | np.arange(len(keys), dtype=np.uint64))
    return (both >> np.uint64(32)).astype(np.uint32), (both & np.uint64(2**32 - 1)).astype(np.int32)


def _meetings(landmarks: Landmarks, table: int, bits: int) -> Iterator[Hits]:
    """Landmarks of different images that look alike: each with the next ``MAX_NEIGHBOURS`` of its key."""
    keys, change = _keys(landmarks.hash, table, bits)
    keys, order = _sorted(keys)
    hashes, change, image = landmarks.hash[order], change[order], landmarks.view[order] // 2  # neighbours lie together
    here = np.arange(len(keys), dtype=np.int32)
    for step in range(1, MAX_NEIGHBOURS + 1):
        here = here[here + step < len(keys)]
        here = here[keys[here] == keys[here + step]]
        there = here + step
        by = change[here] ^ change[there]
        alike = (image[here] != image[there]) & _alike(hashes[here], hashes[there], by, bits)
        yield order[here[alike]], order[there[alike]], by[alike]


def _meetings_between(ours: Landmarks, theirs: Landmarks, table: int, bits: int) -> Hits:
    """Landmarks of ours and theirs that look alike: each of theirs with the first ``MAX_EQUAL`` of its key."""
    keys, change = _keys(ours.hash, table, bits)
    keys, order = _sorted(keys)
    present = np.zeros(2**22, dtype=np.bool_)
    present[keys >> np.uint32(10)] = True  # a quick look before the search: most keys are in no image of the few
    others, other_change = _keys(theirs.hash, table, bits)
    where = np.flatnonzero(present[others >> np.uint32(10)]).astype(np.int32)
    low = np.searchsorted(keys, others[where], side="left")
    count = np.minimum(np.searchsorted(keys, others[where], side="right") - low, MAX_EQUAL)
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    a, b = order[np.repeat(low, count) + within], np.repeat(where, count)
    by = change[a] ^ other_change[b]
    alike = _alike(ours.hash[a], theirs.hash[b], by, bits)
    return a[alike], b[alike], by[alike]


def _alike(ours: UInt64, theirs: UInt64, change: NDArray[np.uint8], bits: int) -> NDArray[np.bool_]:
    """Which whole hashes, equal in ``bits``, agree."""
    at_most = int(np.ceil(MAX_REST * (BITS - bits)))
    return np.asarray(np.bitwise_count(ours ^ theirs ^ CHANGES[change]) <= at_most)


def _joined(hits: Sequence[Hits]) -> Hits:
    a, b, change = (np.concatenate(columns) for columns in zip(*hits, strict=True))
    return a, b, change


def changed(kept: NDArray[np.uint8], change: NDArray[np.integer] | int) -> Float64:
    """(..., 4) x, y, logarithm of the scale, and direction in radians, in the mirrored or inverted picture.

    Args:
        kept: (..., 4) as ``Description.landmarks``.
        change: place in ``CHANGES``, one or (...,). Mirrored: x becomes -x; where the picture ends does not matter.
    """
    mirrored, inverted = np.asarray(change) % 2 == 1, np.asarray(change) >= 2
    found = kept.astype(np.float64)
    found[..., 2] *= np.log(2) / SCALE_STEPS
    found[..., 3] *= 2 * np.pi / 256
    found[..., 0] = np.where(mirrored, -found[..., 0], found[..., 0])
    found[..., 3] = np.where(mirrored, np.pi - found[..., 3], found[..., 3]) + np.pi * inverted
    return found


def consistent(a: Float64, b: Float64, other_a: Float64, other_b: Float64) -> NDArray[np.bool_]:
    """Does the transform that lays landmark a on b also lay ``other_a`` on ``other_b``, roughly?

    Args:
        a, b, other_a, other_b: (..., 4) as ``changed``, broadcast against each other.
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
        & (np.abs((turned + np.pi) % (2 * np.pi) - np.pi) < MAX_TURN)
    )


def _arranged(ours: Landmarks, a: Int32, theirs: Landmarks, b: Int32, change: NDArray[np.uint8]) -> list[Candidate]:
    """Pairs of images with two hits that agree on how one is laid over the other."""
    code = (ours.view[a].astype(np.int64) * theirs.views + theirs.view[b]) * len(CHANGES) + change
    order = np.argsort(code)
    same = code[order][1:] == code[order][:-1]  # most pairs of images have one hit, by chance
    several = order[np.append(same, False) | np.append(False, same)] if len(order) else order
    code, a, b, change = code[several], a[several], b[several], change[several]
    landmark = a.astype(np.int64) * max(1, len(theirs.hash)) + b
    order = np.lexsort((landmark, code))
    once = np.ones(len(order), dtype=np.bool_)  # the tables find the same hits several times
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
    return sorted((Candidate(*each) for each in found), key=lambda each: (each.first, each.second))
