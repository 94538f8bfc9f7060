"""Descriptions of many images as bytes. Models carry them, so that training images are recognised without pixels."""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from usvit.data.near_duplicates.description import BITS, LANDMARKS, SCALES, STRETCHED_LANDMARKS, Description
from usvit.data.near_duplicates.search import find_near_duplicates_between
from usvit.errors import UsvitError

_MAGIC = b"usvitcd1"
"""The digit is increased whenever descriptions of two versions can no longer be compared."""
_HASH_BYTES = BITS // 8
_HEAD_BYTES = 34
_LANDMARK_BYTES = 4 + _HASH_BYTES
MAX_BYTES = 2**31
"""Upper bound of the size in bytes; enough for 1.6 million images."""


@dataclass(frozen=True)
class CompactDescriptions:
    """Descriptions of n images, by which near-duplicates of them are recognised later without their pixels."""

    images: tuple[Description, ...] = ()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> "CompactDescriptions":
        """Return the description of one image, as a collection of one."""
        return CompactDescriptions((self.images[index],))

    @classmethod
    def of(cls, descriptions: Sequence[Description]) -> "CompactDescriptions":
        """Make a collection of descriptions, which hold no pixels."""
        return cls(tuple(descriptions))

    @classmethod
    def join(cls, several: Iterable["CompactDescriptions"]) -> "CompactDescriptions":
        """Join several collections. Images with equal pixels are kept once, in the order of their first appearance."""
        found: dict[str, Description] = {}
        for one in several:
            for image in one.images:
                found.setdefault(image.sha256, image)
        return cls(tuple(found.values()))

    def to_bytes(self) -> bytes:
        """Return the descriptions as bytes; the same images in the same order give the same bytes.

        The format is little endian: ``usvitcd1`` and the number n of images (uint32); for each image the 32 bytes of
        its pixel hash, its number of landmarks, and how many of these belong to the stretched image (2 uint8);
        then x, y, scale and direction of all landmarks (4 uint8 each), and the hashes of all landmarks
        (6 bytes each).
        """
        heads = b"".join(bytes.fromhex(one.sha256) + bytes([len(one.hashes), one.n_stretched]) for one in self.images)
        places = b"".join(one.landmarks.tobytes() for one in self.images)
        hashes = np.concatenate([np.zeros(0, np.uint64), *(one.hashes for one in self.images)]).astype("<u8")
        short = hashes.view(np.uint8).reshape(-1, 8)[:, :_HASH_BYTES].tobytes()
        return _MAGIC + struct.pack("<I", len(self.images)) + heads + places + short

    @classmethod
    def from_bytes(cls, content: bytes) -> "CompactDescriptions":
        """Read the bytes that ``to_bytes`` returned.

        At most a few times the size of the content is allocated.

        Raises:
            UsvitError: The content is something else, of another version, truncated or too long.
        """
        start = len(_MAGIC) + 4
        if content[: len(_MAGIC) - 1] != _MAGIC[:-1] or len(content) < start:
            raise UsvitError(
                "The image descriptions are damaged: they do not begin with 'usvitcd'. Get the model's file again."
            )
        if content[: len(_MAGIC)] != _MAGIC:
            raise UsvitError("The image descriptions were written by another version of usvit and cannot be compared.")
        (n,) = struct.unpack_from("<I", content, len(_MAGIC))
        if len(content) > MAX_BYTES or start + _HEAD_BYTES * n > len(content):
            raise UsvitError(f"The image descriptions are damaged: {len(content)} bytes for {n} images.")
        heads = np.frombuffer(content, np.uint8, _HEAD_BYTES * n, start).reshape(n, _HEAD_BYTES)
        counts = heads[:, 32].astype(np.int64)
        total, places = int(counts.sum()), start + _HEAD_BYTES * n
        stretched = heads[:, 33].astype(np.int64)
        upright, spare = counts - stretched, len(SCALES)  # the share of each scale is rounded: 22 + 17 + 10 of 48
        sane = (stretched <= STRETCHED_LANDMARKS + spare).all() and (
            (upright >= 0) & (upright <= LANDMARKS + spare)
        ).all()
        if not sane or places + _LANDMARK_BYTES * total != len(content):
            raise UsvitError(f"The image descriptions are damaged: {len(content)} bytes for {total} landmarks.")
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
class SeenNearDuplicate:
    """A tested image that is a near-duplicate of a seen image; both are given by their numbers."""

    tested: int
    seen: int
    kind: str
    """As ``NearDuplicate.kind``."""
    similarity: float
    """As ``NearDuplicate.similarity``."""


def find_seen_near_duplicates(tested: CompactDescriptions, seen: CompactDescriptions) -> list[SeenNearDuplicate]:
    """Find the most similar seen image of each tested image that has a near-duplicate among them.

    Args:
        tested: Images to test.
        seen: Images that were used in training.

    Returns:
        One entry for each tested image with a near-duplicate, in the order of the tested images.
    """
    pixels: dict[str, int] = {}
    for number, image in enumerate(seen.images):
        pixels.setdefault(image.sha256, number)
    best = {
        number: SeenNearDuplicate(number, pixels[image.sha256], "identical", 1.0)
        for number, image in enumerate(tested.images)
        if image.sha256 in pixels
    }
    rest = [number for number in range(len(tested)) if number not in best]
    for pair in find_near_duplicates_between([tested.images[number] for number in rest], seen.images):
        number = rest[pair.first]
        if number not in best or pair.similarity > best[number].similarity:
            best[number] = SeenNearDuplicate(number, pair.second, pair.kind, pair.similarity)
    return [best[number] for number in sorted(best)]
