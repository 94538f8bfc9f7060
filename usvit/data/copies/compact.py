"""Descriptions of many images as bytes, which models carry: what they saw is recognised later, without its pixels."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from usvit.data.copies.description import BITS, LANDMARKS, SQUARE_LANDMARKS, Description
from usvit.data.copies.find import Copy, find_copies, find_copies_between
from usvit.errors import UsvitError
from usvit.progress import NoProgress

_MAGIC = b"usvitcd1"
"""The digit counts up whenever descriptions of two versions can no longer be compared."""
_HASH_BYTES = BITS // 8
_HEAD_BYTES = 34
_LANDMARK_BYTES = 4 + _HASH_BYTES
MAX_BYTES = 2**31
"""Of 1.6 million images."""


@dataclass(frozen=True)
class CompactDescriptions:
    """What is kept of n images to recognise copies of them later, without their pixels."""

    images: tuple[Description, ...] = ()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> "CompactDescriptions":
        """One image's own, so that it can travel with its row."""
        return CompactDescriptions((self.images[index],))

    @classmethod
    def of(cls, descriptions: Sequence[Description]) -> "CompactDescriptions":
        """Take the descriptions as they are: they hold no pixels."""
        return cls(tuple(descriptions))

    @classmethod
    def join(cls, several: Iterable["CompactDescriptions"]) -> "CompactDescriptions":
        """All images of several, those with equal pixels once, in the order of first appearance."""
        found: dict[str, Description] = {}
        for one in several:
            for image in one.images:
                found.setdefault(image.sha256, image)
        return cls(tuple(found.values()))

    def to_bytes(self) -> bytes:
        """Write them; the same images in the same order give the same bytes.

        Format, little endian: ``usvitcd1``, the number n of images (uint32); for each image the 32 bytes of its pixel
        hash, its number of landmarks, and how many of them are of the square (2 uint8); then of all landmarks x, y,
        scale and direction (4 uint8 each), and of all landmarks the hash (6 bytes each).
        """
        heads = b"".join(bytes.fromhex(one.sha256) + bytes([len(one.hashes), one.n_square]) for one in self.images)
        places = b"".join(one.landmarks.tobytes() for one in self.images)
        hashes = np.concatenate([np.zeros(0, np.uint64), *(one.hashes for one in self.images)]).astype("<u8")
        short = hashes.view(np.uint8).reshape(-1, 8)[:, :_HASH_BYTES].tobytes()
        return _MAGIC + struct.pack("<I", len(self.images)) + heads + places + short

    @classmethod
    def from_bytes(cls, content: bytes) -> "CompactDescriptions":
        """Read what ``to_bytes`` wrote.

        Raises:
            UsvitError: it is something else, of another version, cut or too long. Nothing larger than a few times the
                content is made of it.
        """
        start = len(_MAGIC) + 4
        if content[: len(_MAGIC) - 1] != _MAGIC[:-1] or len(content) < start:
            raise UsvitError("Copy descriptions are damaged: they do not begin as such. Take the model's file again.")
        if content[: len(_MAGIC)] != _MAGIC:
            raise UsvitError("Copy descriptions are of another version of usvit, and cannot be compared.")
        (n,) = struct.unpack_from("<I", content, len(_MAGIC))
        if len(content) > MAX_BYTES or start + _HEAD_BYTES * n > len(content):
            raise UsvitError(f"Copy descriptions are damaged: {len(content)} bytes for {n} images.")
        heads = np.frombuffer(content, np.uint8, _HEAD_BYTES * n, start).reshape(n, _HEAD_BYTES)
        counts = heads[:, 32].astype(np.int64)
        total, places = int(counts.sum()), start + _HEAD_BYTES * n
        squares = heads[:, 33].astype(np.int64)
        sane = (squares <= SQUARE_LANDMARKS).all() and ((counts - squares >= 0) & (counts - squares <= LANDMARKS)).all()
        if not sane or places + _LANDMARK_BYTES * total != len(content):
            raise UsvitError(f"Copy descriptions are damaged: {len(content)} bytes for {total} landmarks.")
        landmarks = np.frombuffer(content, np.uint8, 4 * total, places).reshape(total, 4)
        hashes = np.zeros((total, 8), np.uint8)
        hashes[:, :_HASH_BYTES] = np.frombuffer(content, np.uint8, _HASH_BYTES * total, places + 4 * total).reshape(
            total, _HASH_BYTES
        )
        whole = hashes.view("<u8").reshape(total).astype(np.uint64)
        ends = np.cumsum(counts)
        return cls(
            tuple(
                Description(
                    head[:32].tobytes().hex(), landmarks[end - count : end], whole[end - count : end], int(head[33])
                )
                for head, end, count in zip(heads, ends, counts, strict=True)
            )
        )


@dataclass(frozen=True)
class SeenCopy:
    """A tested image that is a copy of a seen one; both by their numbers."""

    tested: int
    seen: int
    kind: str
    """One of ``usvit.data.copies.find.KINDS``."""
    similarity: float
    """As ``Copy.similarity``."""


def find_seen_copies(tested: CompactDescriptions, seen: CompactDescriptions) -> list[SeenCopy]:
    """Every tested image that has a copy among the seen, with its most similar one, in order of the tested."""
    pixels: dict[str, int] = {}
    for number, image in enumerate(seen.images):
        pixels.setdefault(image.sha256, number)
    best = {
        number: SeenCopy(number, pixels[image.sha256], "identical", 1.0)
        for number, image in enumerate(tested.images)
        if image.sha256 in pixels
    }
    rest = [number for number in range(len(tested)) if number not in best]
    for copy in find_copies_between([tested.images[number] for number in rest], seen.images):
        number = rest[copy.first]
        if number not in best or copy.similarity > best[number].similarity:
            best[number] = SeenCopy(number, copy.second, copy.kind, copy.similarity)
    return [best[number] for number in sorted(best)]


def find_copies_among(images: CompactDescriptions) -> list[Copy]:
    """Pairs of copies, as ``find_copies`` finds them."""
    return find_copies(images.images, NoProgress())
