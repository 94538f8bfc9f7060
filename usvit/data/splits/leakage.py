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
from typing import Literal, Protocol

from usvit.data.near_duplicates import CompactDescriptions, SeenNearDuplicate
from usvit.data.splits.contamination import unlisted
from usvit.data.splits.seen_files import (
    MAX_DESCRIBED,
    PARTS,
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
from usvit.records import ModelMetadata, SeenCollectionRecord, SeenGap, SeenHashes, load_record
from usvit.records.seen_images import SeenCopies, SeenRecord, SeenSplit

LISTED_AT_MOST = 20_000
"""Maximum number of hashes of one split in the metadata itself (1.4 MB); longer lists go into a file."""
Known = Literal["copies", "hashes", "nothing"]
"""Record of seen images: near-duplicates are recognised, or only identical pixels, or neither with certainty."""


class Trained(Protocol):
    """Interface of weights with metadata, such as ``usvit.models.weights.Weights``."""

    @property
    def unknown_training(self) -> str | None:
        """Name of trained weights without metadata; None if they have metadata or are random."""

    @property
    def collections(self) -> tuple[SeenCollectionRecord, ...]:
        """Published lists of the data sets of foundation weights; empty for other weights without metadata."""

    @property
    def metadata(self) -> ModelMetadata | None: ...

    @property
    def path(self) -> Path | None: ...


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
    gaps: tuple[SeenGap, ...] = ()
    """Images that are missing in ``described`` and possibly in the hashes."""
    collections: tuple[SeenCollectionRecord, ...] = ()
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
            SeenGap(
                part=file.part,
                known="hashes",
                what=f"{file.count} images, whose near-duplicate descriptions an export left out",
            )
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
    lists = told.model_dump(exclude={"files", "unhashed"}, exclude_none=True)
    listed = {part: frozenset(hashes) for part, hashes in lists.items()}
    files = tuple(HashFile.checked(entry, folder) for entry in told.files or ())
    unhashed = tuple(told.unhashed or ())
    collections = tuple(metadata.seen_collections or ())
    described = tuple(CopyFile.checked(entry, folder) for entry in copies.files)
    gaps = tuple(copies.gaps)
    return SeenImages(listed, files, unhashed, described, gaps, collections)


def seen_by_weights(weights: Trained) -> SeenImages:
    """Return ``seen_by`` of the metadata of weights; trained weights without metadata are a gap.

    Foundation weights have no metadata; what is published of their data sets is in ``collections``.
    """
    if weights.metadata is None:
        unknown = weights.unknown_training
        gaps = () if unknown is None else (SeenGap(part="upstream", known="nothing", what=unknown),)
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
) -> SeenRecord:
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
        The entries of the metadata.

    Raises:
        UsvitError: A file of ``before`` is missing or has other content, or the disk is full.
    """
    earlier = together(seen_by_weights(weights) for weights in (before, *others) if weights is not None)
    inherited = passed_on(earlier)
    listed = {"train": [], "val": [], **parts, "upstream": inherited.seen_sha256.upstream}
    files, copies = list(inherited.seen_sha256.files or []), list(inherited.seen_copies.files)
    gaps = list(inherited.seen_copies.gaps)
    for part in PARTS:
        own, missing = described_among(described or {}, parts.get(part, []))
        if len(own) > MAX_DESCRIBED:
            own, missing = {}, len(own)
        if own:
            copies.append(write_copy_file(folder, part, joined(own)))
        if missing:
            gaps.append(SeenGap(part=part, known="hashes", what=f"{missing} of {name}"))
        if len(listed[part]) > LISTED_AT_MOST:
            files.append(write_hash_file(folder, part, listed[part]))
            listed[part] = []
    earlier.copy_files(folder)
    hashes = {part: list(its) for part, its in listed.items()}
    unknown = sorted({*earlier.unhashed, *unhashed})
    return SeenRecord(
        seen_sha256=SeenHashes(**hashes, files=files or None, unhashed=unknown or None),
        seen_copies=SeenCopies(files=copies, gaps=gaps),
        seen_collections=inherited.seen_collections,
    )


def together(seen: Iterable[SeenImages]) -> SeenImages:
    """Return the union of several records; a file that two of them name counts once."""
    listed: dict[str, frozenset[str]] = {}
    files: dict[tuple[str, str], HashFile] = {}
    described: dict[tuple[str, str], CopyFile] = {}
    unhashed: set[str] = set()
    gaps: dict[SeenGap, None] = {}
    collections: list[SeenCollectionRecord] = []
    for one in seen:
        collections += [each for each in one.collections if each not in collections]
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


def passed_on(seen: SeenImages) -> SeenRecord:
    """Return the entries of the metadata of a network that starts from this one: everything becomes ``upstream``."""
    files = {file.sha256: file.record("upstream") for file in seen.files}
    copies = {file.sha256: file.record("upstream") for file in seen.described}
    gaps = dict.fromkeys(gap.model_copy(update={"part": "upstream"}) for gap in seen.gaps)
    return SeenRecord(
        seen_sha256=SeenHashes(
            train=[],
            val=[],
            upstream=sorted({sha256 for hashes in seen.listed.values() for sha256 in hashes}),
            files=list(files.values()) or None,
            unhashed=list(seen.unhashed) or None,
        ),
        seen_copies=SeenCopies(files=list(copies.values()), gaps=list(gaps)),
        seen_collections=list(seen.collections) or None,
    )


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
def _copies(path: Path, part: SeenSplit, count: int, sha256: str) -> CompactDescriptions:
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
