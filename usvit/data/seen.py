"""What a network has seen already: no image may be its test again.

Each checkpoint's passport (``model.json``) carries the pixel hashes of all images that it was
trained or tuned on, and those of the checkpoint that it began from. Lists of millions do not belong
in JSON: they lie in files beside it, sorted, 32 bytes a hash, which the passport names with their SHA-256.
Copy descriptions of the same images lie in files of their own (``usvit.data.seen_copies``): they recognise
an image that was stored again. What is missing from either record is listed as a gap.
"""

import functools
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import pandas as pd

from usvit.data.copies.compact import CompactDescriptions, SeenCopy
from usvit.data.seen_copies import (
    MAX_DESCRIBED,
    CopyFile,
    Described,
    copies_of_seen,
    described_among,
    joined,
    write_copy_file,
)
from usvit.data.seen_files import PARTS, HashFile, write_hash_file
from usvit.errors import LeakageError, UsvitError
from usvit.files import copy_file
from usvit.records import ModelRecord, read_record

LISTED_AT_MOST = 20_000
"""Hashes of one part that are listed in the passport itself (1.4 MB); more go into a file."""
FILES = "files"
"""Beside the parts in ``seen_sha256``: the list of files."""
UNHASHED = "unhashed"
"""Beside the parts, only where there are any: names of sources whose images were seen and not hashed."""
GAPS = "gaps"
"""Beside the files in ``seen_copies``: what is not on record."""
_OLD = "a model.json of an earlier usvit, which has no copy descriptions"
_SILENT = "a model.json that lists no images"

Known = Literal["copies", "hashes", "nothing"]
"""What is on record of seen images: copies of them are recognised; the very same pixels alone; or neither for sure."""


class Trained(Protocol):
    """Weights with a passport, such as ``usvit.models.weights.Weights``."""

    @property
    def unknown_training(self) -> str | None:
        """What to call weights that were trained and have no passport; None where they have one, or are random."""

    @property
    def passport(self) -> dict[str, Any] | None: ...

    @property
    def path(self) -> Path | None: ...


@dataclass(frozen=True)
class Gap:
    """Images that a network has seen and that are not, or not fully, on record."""

    part: str
    """``train``, ``val`` or ``upstream``."""
    known: Known
    """``hashes``: their pixel hashes are on record, and no descriptions. ``nothing``: perhaps not even the hashes."""
    what: str
    """The images, or the weights that learnt from them, in a few words."""

    def entry(self) -> dict[str, str]:
        """As ``model.json`` has it."""
        return {"part": self.part, "known": self.known, "what": self.what}


@dataclass(frozen=True)
class Seen:
    """The images that a network has seen: ``sha256 in seen``, and ``copies_among`` for copies of them."""

    listed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Part -> the hashes that the passport itself lists."""
    files: tuple[HashFile, ...] = ()
    unhashed: tuple[str, ...] = ()
    """Sources of which it has seen images that are not on record (``source.hashes: false``), its own or of a network
    that it began from: what is not in here may have been seen all the same."""
    described: tuple[CopyFile, ...] = ()
    """Files of the copy descriptions of the same images."""
    gaps: tuple[Gap, ...] = ()
    """What neither ``described`` nor, perhaps, the hashes hold."""

    def __contains__(self, sha256: object) -> bool:
        return any(sha256 in hashes for hashes in self.listed.values()) or any(sha256 in file for file in self.files)

    def __len__(self) -> int:
        """Hashes on record; one in two places counts twice."""
        return sum(map(len, self.listed.values())) + sum(map(len, self.files))

    @property
    def known(self) -> Known:
        """The least that is on record of any of its images."""
        if self.unhashed or any(gap.known == "nothing" for gap in self.gaps):
            return "nothing"
        return "hashes" if self.gaps else "copies"

    @functools.cached_property
    def descriptions(self) -> CompactDescriptions:
        """Of all images that have one, each once.

        Raises:
            UsvitError: a file cannot be read or is damaged.
        """
        return CompactDescriptions.join(_read_copies(file) for file in self.described)

    def copies_among(self, tested: Described) -> dict[str, SeenCopy]:
        """Images that are copies of seen ones: pixel hash of the tested image -> the copy."""
        return copies_of_seen(tested, self.descriptions) if self.described and tested else {}

    def of_parts(self, *parts: str) -> "Seen":
        """What was seen in some of the parts (``train``, ``val``, ``upstream``); ``unhashed`` counts as upstream."""
        return Seen(
            {part: hashes for part, hashes in self.listed.items() if part in parts},
            tuple(file for file in self.files if file.part in parts),
            self.unhashed if "upstream" in parts else (),
            tuple(file for file in self.described if file.part in parts),
            tuple(gap for gap in self.gaps if gap.part in parts),
        )

    def without_descriptions(self) -> "Seen":
        """The same images, of which only the very same pixels can be recognised: the descriptions become gaps."""
        left_out = (
            Gap(file.part, "hashes", f"{file.count} images, whose copy descriptions an export left out")
            for file in self.described
        )
        return replace(self, described=(), gaps=tuple(dict.fromkeys((*self.gaps, *left_out))))

    def copy_files(self, folder: Path) -> None:
        """Copy the files to where another passport will lie that names them.

        Raises:
            UsvitError: the disk is full or cannot be written.
        """
        for path in (*(file.path for file in self.files), *(file.path for file in self.described)):
            copy = folder / path.name  # after its content: what is there already is the same
            if not copy.exists():
                copy_file(path, copy)


def seen_by(passport: Mapping[str, Any], folder: Path | None = None) -> Seen:
    """Every image that a passport's network has seen, pre-training included.

    A passport without ``seen_copies`` is of an earlier usvit: all its parts have a gap.

    Args:
        passport: the content of ``model.json``.
        folder: where it lies; needed where it names files.

    Raises:
        UsvitError: a file that it names is missing or is another one.
    """
    told = passport.get("seen_sha256") or {}
    if not isinstance(told, dict) or not all(isinstance(hashes, list) for hashes in told.values()):
        raise UsvitError("A passport's 'seen_sha256' is damaged: it holds no lists of hashes. Copy model.json again.")
    listed = {part: frozenset(map(str, hashes)) for part, hashes in told.items() if part not in (FILES, UNHASHED)}
    files = tuple(HashFile.checked(entry, folder) for entry in told.get(FILES, []))
    unhashed = tuple(map(str, told.get(UNHASHED, [])))
    if "seen_copies" not in passport:
        what = _OLD if "seen_sha256" in passport else _SILENT
        return Seen(listed, files, unhashed, (), tuple(Gap(part, "nothing", what) for part in PARTS))
    copies = passport["seen_copies"]
    if not isinstance(copies, dict) or not all(isinstance(copies.get(key, []), list) for key in (FILES, GAPS)):
        raise UsvitError("A passport's 'seen_copies' is damaged: it holds no lists. Copy model.json again.")
    described = tuple(CopyFile.checked(entry, folder) for entry in copies.get(FILES, []))
    return Seen(listed, files, unhashed, described, tuple(map(_gap, copies.get(GAPS, []))))


def seen_by_weights(weights: Trained) -> Seen:
    """``seen_by`` for weights and the passport beside them; without one a gap, unless they are random."""
    if weights.passport is None:
        unknown = weights.unknown_training
        return Seen() if unknown is None else Seen(gaps=(Gap("upstream", "nothing", unknown),))
    return seen_by(weights.passport, None if weights.path is None else weights.path.parent)


def write_seen(
    folder: Path,
    parts: Mapping[str, Sequence[str]],
    before: Trained | None = None,
    *others: Trained,
    unhashed: Iterable[str] = (),
    described: Described | None = None,
    name: str = "the images",
) -> dict[str, Any]:
    """What a new passport says of the images that its network has seen; long lists are written to files in ``folder``.

    Args:
        folder: where the passport will lie.
        parts: ``train`` and ``val`` -> pixel hashes, in hexadecimal digits.
        before: the weights that the training began from: all that they have seen becomes the part ``upstream``. Files
            of theirs are copied.
        others: what else it learnt from (a tokenizer, a teacher): what they have seen counts alike.
        unhashed: names of sources that it learnt from and whose images are not in ``parts``, though they have hashes.
        described: copy descriptions of the images in ``parts``; those that are not in here are a gap, and so is a part
            of more than ``MAX_DESCRIBED`` images.
        name: what the images of ``parts`` are called where they are a gap.

    Returns:
        ``seen_sha256``: ``train``, ``val`` and ``upstream`` -> hashes, and, only where there are any, ``files`` and
        ``unhashed``; ``seen_copies``: ``files`` of descriptions and ``gaps``.

    Raises:
        UsvitError: a file of ``before`` is missing or another one, or the disk is full.
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
    return {"seen_sha256": record, "seen_copies": copies}


def together(seen: Iterable[Seen]) -> Seen:
    """What several have seen; a file that two name counts once."""
    listed: dict[str, frozenset[str]] = {}
    files: dict[tuple[str, str], HashFile] = {}
    described: dict[tuple[str, str], CopyFile] = {}
    unhashed: set[str] = set()
    gaps: dict[Gap, None] = {}
    for one in seen:
        unhashed |= set(one.unhashed)
        described |= {(file.part, file.sha256): file for file in one.described}
        gaps |= dict.fromkeys(one.gaps)
        listed |= {part: listed.get(part, frozenset()) | hashes for part, hashes in one.listed.items()}
        files |= {(file.part, file.sha256): file for file in one.files}
    return Seen(listed, tuple(files.values()), tuple(sorted(unhashed)), tuple(described.values()), tuple(gaps))


def passed_on(seen: Seen) -> dict[str, Any]:
    """What the passport of whatever begins from what has seen this says of it, all as the part ``upstream``.

    Returns:
        ``seen_sha256`` with ``upstream``, and ``files`` and ``unhashed`` if any; ``seen_copies``.
    """
    listed = {sha256 for hashes in seen.listed.values() for sha256 in hashes}
    files = {file.sha256: replace(file, part="upstream").entry() for file in seen.files}
    unhashed = {UNHASHED: list(seen.unhashed)} if seen.unhashed else {}
    copies = {file.sha256: replace(file, part="upstream").entry() for file in seen.described}
    gaps = dict.fromkeys(replace(gap, part="upstream") for gap in seen.gaps)
    return {
        "seen_sha256": {"upstream": sorted(listed)} | ({FILES: list(files.values())} if files else {}) | unhashed,
        "seen_copies": {FILES: list(copies.values()), GAPS: [gap.entry() for gap in gaps]},
    }


def unrecorded(seen: Seen, who: str) -> str | None:
    """What to tell whoever tests a network of whose images some are not on record; None where all are.

    Args:
        seen: by the network.
        who: the network: ``The network of --weights RUN``.
    """
    if not seen.unhashed:
        if not seen.gaps or not len(seen):
            return None
        what = "; ".join(dict.fromkeys(gap.what for gap in seen.gaps))
        return (
            f"{who} has seen images of which there are no copy descriptions ({what}). Of these, test images with the "
            "very same pixels are recognised, and copies with other pixels are not."
        )
    return (
        f"{who} has learnt from {' and '.join(seen.unhashed)} with source.hashes=false: which images these were is "
        "not on record, so nobody can tell whether test images are among them."
    )


def _read_copies(file: CopyFile) -> CompactDescriptions:
    return _copies(file.path, file.part, file.count, file.sha256)


@functools.lru_cache(maxsize=16)
def _copies(path: Path, part: str, count: int, sha256: str) -> CompactDescriptions:
    """Kept: one run asks for the same file several times, and its SHA-256 is checked each time that it is opened."""
    return CopyFile(path, part, count, sha256).read()


def _gap(entry: Any) -> Gap:
    try:
        part, known, what = (entry[key] for key in ("part", "known", "what"))
        sound = part in PARTS and known in ("hashes", "nothing") and isinstance(what, str)
    except (TypeError, KeyError):
        sound = False
    if not sound:
        raise UsvitError(f"A passport's 'seen_copies' names a gap in an unknown way ({entry!r:.200}). Update usvit.")
    return Gap(part, known, what)


def passport_beside(weights: Path) -> dict[str, Any] | None:
    """The passport of a weights file: ``model.json`` in its folder; None where there is none.

    Raises:
        UsvitError: it is there and cannot be read, or a file of hashes that it names is missing or another one.
    """
    path = weights.with_name("model.json")
    if not path.is_file():
        return None
    passport = read_record(path, ModelRecord)
    seen_by(passport, path.parent)
    return passport


def refuse_seen(
    tested: pd.DataFrame,
    seen: Container[str],
    who: str,
    without: str = "leave these images out (--keep-list)",
    copies: Mapping[str, SeenCopy] | None = None,
) -> None:
    """Refuse to test a network on images that it has seen, on copies of them, or on others of their groups.

    Args:
        tested: columns image_id, group_id, sha256.
        seen: pixel hashes (``seen_by``).
        who: the network, for the error.
        without: how the caller tests on the others alone.
        copies: pixel hashes of tested images that are copies of seen ones (``Seen.copies_among``).

    Raises:
        LeakageError: naming the groups.
    """
    copied = {sha256 for sha256 in copies or {} if sha256 not in seen}
    at = [sha256 in seen or sha256 in copied for sha256 in tested.sha256]
    groups = sorted(set(tested.group_id[at]))
    if groups:
        count = int(tested.group_id.isin(groups).sum())
        stored_again = int(tested.sha256.isin(list(copied)).sum())
        how = f"; {stored_again} of them are copies with other pixels" if stored_again else ""
        raise LeakageError(
            f"{who} has seen images of {len(groups)} groups ({count} images{how}) that would be its test: "
            f"{', '.join(groups[:5])}{', ...' if len(groups) > 5 else ''}. Begin from other weights, or "
            f"{without}."
        )
