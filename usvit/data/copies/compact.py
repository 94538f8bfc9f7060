"""What is kept of images to recognise copies of them later, without their pixels (interim: landmark hashes alone)."""

import struct
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from usvit.data.copies import Copy
from usvit.data.copies.candidates import Index, find_candidates
from usvit.data.copies.description import PATCH_SIDES, SIDE, Description
from usvit.data.copies.verify import _fit_landmarks, _matches
from usvit.errors import UsvitError

_MAGIC = b"usvitcd0"
_MIN_AGREEING = 14


@dataclass(frozen=True)
class CompactDescriptions:
    """What is kept of n images to recognise copies of them later, without their pixels."""

    images: tuple[Description, ...] = ()

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> "CompactDescriptions":
        return CompactDescriptions((self.images[index],))

    @classmethod
    def of(cls, descriptions: Sequence[Description]) -> "CompactDescriptions":
        blank = np.zeros((0, 0), dtype=np.uint8)
        return cls(tuple(replace(one, thumbnail=blank) for one in descriptions))

    @classmethod
    def join(cls, several: Iterable["CompactDescriptions"]) -> "CompactDescriptions":
        found: dict[str, Description] = {}
        for one in several:
            for image in one.images:
                found.setdefault(image.sha256, image)
        return cls(tuple(found.values()))

    def to_bytes(self) -> bytes:
        parts = [_MAGIC, struct.pack("<I", len(self.images))]
        for one in self.images:
            parts += [bytes.fromhex(one.sha256), struct.pack("<B", len(one.landmarks)), one.landmarks.tobytes()]
            parts.append(one.hashes.astype("<u4").tobytes())
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, content: bytes) -> "CompactDescriptions":
        try:
            if content[:8] != _MAGIC:
                raise ValueError("it is of another kind")
            (n,), at, images = struct.unpack_from("<I", content, 8), 12, []
            if n * 33 > len(content):
                raise ValueError("it is cut")
            for _ in range(n):
                sha256, k = content[at : at + 32].hex(), content[at + 32]
                at += 33
                landmarks = np.frombuffer(content, np.uint8, 2 * k, at).reshape(k, 2)
                at += 2 * k
                hashes = np.frombuffer(content, "<u4", k * len(PATCH_SIDES), at).reshape(k, len(PATCH_SIDES))
                at += 4 * k * len(PATCH_SIDES)
                if (landmarks >= SIDE).any():
                    raise ValueError("a landmark lies outside")
                images.append(Description(sha256, np.zeros((0, 0), np.uint8), landmarks, hashes.astype(np.uint32)))
            if at != len(content):
                raise ValueError("it has more bytes than images")
        except (ValueError, IndexError, struct.error) as error:
            raise UsvitError(f"Copy descriptions are damaged ({error}).") from error
        return cls(tuple(images))


@dataclass(frozen=True)
class SeenCopy:
    """A tested image that is a copy of a seen one; both by their numbers."""

    tested: int
    seen: int
    kind: str
    similarity: float


def find_seen_copies(tested: CompactDescriptions, seen: CompactDescriptions) -> list[SeenCopy]:
    """Every tested image that has a copy among the seen."""
    by_hash: dict[str, int] = {}
    for number, one in enumerate(seen.images):
        by_hash.setdefault(one.sha256, number)
    found = {
        k: SeenCopy(k, by_hash[one.sha256], "identical", 1.0)
        for k, one in enumerate(tested.images)
        if one.sha256 in by_hash
    }
    for candidate in Index(seen.images).candidates(tested.images):
        if candidate.second not in found and _agree(
            seen.images[candidate.first], tested.images[candidate.second], candidate.flipped
        ):
            kind = "flipped" if candidate.flipped else "same frame"
            found[candidate.second] = SeenCopy(candidate.second, candidate.first, kind, 0.9)
    return [found[k] for k in sorted(found)]


def find_copies_among(images: CompactDescriptions) -> list[Copy]:
    """Pairs of copies."""
    same: defaultdict[str, list[int]] = defaultdict(list)
    for number, one in enumerate(images.images):
        same[one.sha256].append(number)
    found = {(many[0], other): Copy(many[0], other, 1.0, "identical") for many in same.values() for other in many[1:]}
    for one in find_candidates(images.images):
        if (one.first, one.second) not in found and _agree(images.images[one.first], images.images[one.second], one.flipped):
            kind = "flipped" if one.flipped else "same frame"
            found[one.first, one.second] = Copy(one.first, one.second, 0.9, kind)
    return [found[pair] for pair in sorted(found)]


def _agree(first: Description, second: Description, flipped: bool) -> bool:
    crop = _fit_landmarks(first, second, flipped)
    if crop is None:
        return False
    a, b = _matches(first, second, flipped)
    good = (np.abs(crop[:, 0] * a + crop[:, 1] - b) < 2.0).all(axis=1)
    return len(np.unique(a[good], axis=0)) >= _MIN_AGREEING
