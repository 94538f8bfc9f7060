"""Images that a network has seen, which must not be its test images.

The metadata of each checkpoint (``model.json``) has the pixel hashes of all images that it was trained or tuned on, and
those of its initial weights. Long lists are in separate files beside it, sorted, 32 bytes per hash, which the metadata
names with their SHA-256.
Near-duplicate descriptions of the same images are in further files (``usvit.data.splits.seen_files``), which recognise
an image that was stored again. Images that are missing in either record are listed as gaps.
Of a foundation model, the published list of its data sets takes the place of hashes (``contamination``).
"""

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from usvit.data.near_duplicates import CompactDescriptions, SeenNearDuplicate
from usvit.data.splits.contamination import SeenCollection, unlisted
from usvit.data.splits.seen_files import (
    MAX_DESCRIBED,
    CopyFile,
    Described,
    HashFile,
    copies_of_seen,
    described_among,
    joined,
    write_copy_file,
    write_hash_file,
)
from usvit.files import copy_file
from usvit.records import ModelMetadata, load_record

LISTED_AT_MOST = 20_000
"""Maximum number of hashes of one split in the metadata itself (1.4 MB); longer lists go into a file."""
FILES = "files"
"""Key beside the splits in ``seen_sha256``: the list of files."""
UNHASHED = "unhashed"
"""Optional key beside the splits: names of sources whose images were seen but not hashed."""
GAPS = "gaps"
"""Key beside the files in ``seen_copies``: images that are not on record."""
COLLECTIONS = "seen_collections"
"""Optional key of ``model.json``: published lists of the data sets of foundation models (``contamination``)."""

Known = Literal["copies", "hashes", "nothing"]
"""Record of seen images: near-duplicates are recognised, or only identical pixels, or neither with certainty."""


class Trained(Protocol):
    """Interface of weights with metadata, such as ``usvit.models.weights.Weights``."""

    @property
    def unknown_training(self) -> str | None:
        """Name of trained weights without metadata; None if they have metadata or are random."""

    @property
    def collections(self) -> tuple[SeenCollection, ...]:
        """Published lists of the data sets of foundation weights; empty for other weights without metadata."""

    @property
    def metadata(self) -> ModelMetadata | None: ...

    @property
    def path(self) -> Path | None: ...


@dataclass(frozen=True)
class Gap:
    """Images that a network has seen and that are not, or not completely, on record."""

    part: str
    """``train``, ``val`` or ``upstream``."""
    known: Known
    """``hashes`` if pixel hashes but no descriptions are on record; ``nothing`` if even hashes may be missing."""
    what: str
    """Short description of the images, or of the weights that learned from them."""

    def entry(self) -> dict[str, str]:
        """Return the entry for ``model.json``."""
        return {"part": self.part, "known": self.known, "what": self.what}


@dataclass(frozen=True)
class SeenImages:
    """Images that a network has seen: test with ``sha256 in seen``, and with ``copies_among`` for near-duplicates."""

    listed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Split -> hashes that the metadata itself lists."""
    files: tuple[HashFile, ...] = ()
    unhashed: tuple[str, ...] = ()
    """Sources with seen images that are not on record (``source.hashes: false``), its own or those of its initial
    weights: an image that is not in this record may have been seen."""
    described: tuple[CopyFile, ...] = ()
    """Files of the near-duplicate descriptions of the same images."""
    gaps: tuple[Gap, ...] = ()
    """Images that are missing in ``described`` and possibly in the hashes."""
    collections: tuple[SeenCollection, ...] = ()
    """Published lists of the data sets of foundation models among the initial weights."""

    def __contains__(self, sha256: object) -> bool:
        return any(sha256 in hashes for hashes in self.listed.values()) or any(sha256 in file for file in self.files)

    def __len__(self) -> int:
        """Number of hashes on record; a hash in two places counts twice."""
        return sum(map(len, self.listed.values())) + sum(map(len, self.files))

    @property
    def known(self) -> Known:
        """The least complete record among its images."""
        if self.unhashed or any(gap.known == "nothing" for gap in self.gaps):
            return "nothing"
        return "hashes" if self.gaps else "copies"

    @functools.cached_property
    def descriptions(self) -> CompactDescriptions:
        """Descriptions of all images that have one, without repetitions.

        Raises:
            UsvitError: A file cannot be read or is damaged.
        """
        return CompactDescriptions.join(_read_copies(file) for file in self.described)

    def copies_among(self, tested: Described) -> dict[str, SeenNearDuplicate]:
        """Find tested images that are near-duplicates of seen ones: pixel hash of the tested image -> match."""
        return copies_of_seen(tested, self.descriptions) if self.described and tested else {}

    def of_parts(self, *parts: str) -> "SeenImages":
        """Select some of the splits; ``unhashed`` and ``collections`` belong to ``upstream``."""
        return SeenImages(
            {part: hashes for part, hashes in self.listed.items() if part in parts},
            tuple(file for file in self.files if file.part in parts),
            self.unhashed if "upstream" in parts else (),
            tuple(file for file in self.described if file.part in parts),
            tuple(gap for gap in self.gaps if gap.part in parts),
            self.collections if "upstream" in parts else (),
        )

    def without_descriptions(self) -> "SeenImages":
        """Drop the descriptions, which become gaps: only identical pixels are recognised then."""
        left_out = (
            Gap(file.part, "hashes", f"{file.count} images, whose near-duplicate descriptions an export left out")
            for file in self.described
        )
        return replace(self, described=(), gaps=tuple(dict.fromkeys((*self.gaps, *left_out))))

    def copy_files(self, folder: Path) -> None:
        """Copy the files beside another ``model.json`` that names them.

        Raises:
            UsvitError: The disk is full or not writable.
        """
        for path in (*(file.path for file in self.files), *(file.path for file in self.described)):
            copy = folder / path.name  # files are named after their content, so an existing one is the same
            if not copy.exists():
                copy_file(path, copy)


def seen_by(metadata: ModelMetadata, folder: Path | None = None) -> SeenImages:
    """Return all images that a network has seen, including pre-training.

    Args:
        metadata: the content of ``model.json``.
        folder: folder of ``model.json``; required if it names files.

    Raises:
        UsvitError: A named file is missing or has other content.
    """
    told, copies = metadata.seen_sha256, metadata.seen_copies
    lists = told.model_dump(exclude={FILES, UNHASHED}, exclude_none=True)
    listed = {part: frozenset(hashes) for part, hashes in lists.items()}
    files = tuple(HashFile.checked(entry, folder) for entry in told.files or ())
    unhashed = tuple(told.unhashed or ())
    collections = tuple(map(SeenCollection.of_record, metadata.seen_collections or ()))
    described = tuple(CopyFile.checked(entry, folder) for entry in copies.files)
    gaps = tuple(Gap(gap.part, gap.known, gap.what) for gap in copies.gaps)
    return SeenImages(listed, files, unhashed, described, gaps, collections)


def seen_by_weights(weights: Trained) -> SeenImages:
    """Return ``seen_by`` of the metadata of weights; trained weights without metadata are a gap.

    Foundation weights have no metadata; what is published of their data sets is in ``collections``.
    """
    if weights.metadata is None:
        unknown = weights.unknown_training
        gaps = () if unknown is None else (Gap("upstream", "nothing", unknown),)
        return SeenImages(gaps=gaps, collections=weights.collections)
    return seen_by(weights.metadata, None if weights.path is None else weights.path.parent)


def write_seen(
    folder: Path,
    parts: Mapping[str, Sequence[str]],
    before: Trained | None = None,
    *others: Trained,
    unhashed: Iterable[str] = (),
    described: Described | None = None,
    name: str = "the images",
) -> dict[str, Any]:
    """Make the record of seen images for a new ``model.json``; long lists are written to files in ``folder``.

    Args:
        folder: folder of the new ``model.json``.
        parts: ``train`` and ``val`` -> hexadecimal pixel hashes.
        before: initial weights of the training. All images that they have seen become the split ``upstream``, and their
            files are copied.
        others: other networks that it learned from (a tokenizer, a teacher, a source of LayerScale); their images count
            as ``upstream`` too.
        unhashed: names of sources whose images were used and are not in ``parts``, although they have hashes.
        described: near-duplicate descriptions of the images in ``parts``. Images without one are a gap, and so is a
            split of more than ``MAX_DESCRIBED`` images.
        name: name of the images of ``parts`` in a gap.

    Returns:
        ``seen_sha256``: ``train``, ``val`` and ``upstream`` -> hashes, and optionally ``files`` and ``unhashed``;
        ``seen_copies``: ``files`` of descriptions and ``gaps``; optionally ``seen_collections``.

    Raises:
        UsvitError: A file of ``before`` is missing or has other content, or the disk is full.
    """
    earlier = together(seen_by_weights(weights) for weights in (before, *others) if weights is not None)
    inherited = passed_on(earlier)
    known, copies = inherited["seen_sha256"], inherited["seen_copies"]
    files: list[dict[str, Any]] = known.pop(FILES, [])
    unknown = sorted({*known.pop(UNHASHED, []), *unhashed})
    for part, hashes in parts.items():
        own, missing = described_among(described or {}, hashes)
        if len(own) > MAX_DESCRIBED:
            own, missing = {}, len(own)
        if own:
            copies[FILES].append(write_copy_file(folder, part, joined(own)))
        if missing:
            copies[GAPS].append(Gap(part, "hashes", f"{missing} of {name}").entry())
    record: dict[str, Any] = {"train": [], "val": [], **parts, **known}
    for part, hashes in record.items():
        if len(hashes) > LISTED_AT_MOST:
            files.append(write_hash_file(folder, part, hashes))
            record[part] = []
    earlier.copy_files(folder)
    record |= ({FILES: files} if files else {}) | ({UNHASHED: unknown} if unknown else {})
    return {**inherited, "seen_sha256": record, "seen_copies": copies}


def together(seen: Iterable[SeenImages]) -> SeenImages:
    """Return the union of several records; a file that two of them name counts once."""
    listed: dict[str, frozenset[str]] = {}
    files: dict[tuple[str, str], HashFile] = {}
    described: dict[tuple[str, str], CopyFile] = {}
    unhashed: set[str] = set()
    gaps: dict[Gap, None] = {}
    collections: dict[SeenCollection, None] = {}
    for one in seen:
        collections |= dict.fromkeys(one.collections)
        unhashed |= set(one.unhashed)
        described |= {(file.part, file.sha256): file for file in one.described}
        gaps |= dict.fromkeys(one.gaps)
        listed |= {part: listed.get(part, frozenset()) | hashes for part, hashes in one.listed.items()}
        files |= {(file.part, file.sha256): file for file in one.files}
    return SeenImages(
        listed,
        tuple(files.values()),
        tuple(sorted(unhashed)),
        tuple(described.values()),
        tuple(gaps),
        tuple(collections),
    )


def passed_on(seen: SeenImages) -> dict[str, Any]:
    """Return the record for metadata of a network that starts from this one: everything becomes ``upstream``.

    Returns:
        ``seen_sha256`` with ``upstream``, and ``files`` and ``unhashed`` if any; ``seen_copies``; and
        ``seen_collections`` if any.
    """
    listed = {sha256 for hashes in seen.listed.values() for sha256 in hashes}
    files = {file.sha256: replace(file, part="upstream").entry() for file in seen.files}
    unhashed = {UNHASHED: list(seen.unhashed)} if seen.unhashed else {}
    copies = {file.sha256: replace(file, part="upstream").entry() for file in seen.described}
    gaps = dict.fromkeys(replace(gap, part="upstream") for gap in seen.gaps)
    return {
        "seen_sha256": {"upstream": sorted(listed)} | ({FILES: list(files.values())} if files else {}) | unhashed,
        "seen_copies": {FILES: list(copies.values()), GAPS: [gap.entry() for gap in gaps]},
        **({COLLECTIONS: [one.entry() for one in seen.collections]} if seen.collections else {}),
    }


def unrecorded(seen: SeenImages, who: str) -> str | None:
    """Return a warning for tests of a network with seen images that are not on record; None if all are.

    Of a foundation model nothing is on record but the list of its data sets; the warning says if there is no list.

    Args:
        seen: images that the network has seen.
        who: name of the network, such as ``The network of --weights RUN``.
    """
    unknown = unlisted(seen.collections)
    if not seen.unhashed:
        if not seen.gaps or not len(seen):
            return unknown
        what = "; ".join(dict.fromkeys(gap.what for gap in seen.gaps))
        return (
            f"{who} has seen images of which there are no near-duplicate descriptions ({what}). Test images with the "
            "same pixels as these are recognised, but near-duplicates with other pixels are not."
            f"{f' {unknown}' if unknown else ''}"
        )
    return (
        f"{who} was trained on {' and '.join(seen.unhashed)} with source.hashes=false: which images these were is "
        "not on record, so test images may be among them."
    )


def _read_copies(file: CopyFile) -> CompactDescriptions:
    return _copies(file.path, file.part, file.count, file.sha256)


@functools.lru_cache(maxsize=16)
def _copies(path: Path, part: str, count: int, sha256: str) -> CompactDescriptions:
    """Read a file of descriptions; cached, because a run needs the same file several times."""
    return CopyFile(path, part, count, sha256).read()


def load_metadata(weights: Path) -> ModelMetadata | None:
    """Read ``model.json`` in the folder of a weights file; None if there is none.

    Raises:
        UsvitError: It cannot be read, or a file of hashes that it names is missing or has other content.
    """
    path = weights.with_name("model.json")
    if not path.is_file():
        return None
    metadata = load_record(path, ModelMetadata)
    seen_by(metadata, path.parent)
    return metadata
