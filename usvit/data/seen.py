"""What a network has seen already: no image may be its test again.

Each checkpoint's passport (``model.json``) carries the pixel hashes of all images that it was
trained or tuned on, and those of the checkpoint that it began from. Lists of millions do not belong
in JSON: they lie in files beside it, sorted, 32 bytes a hash, which the passport names with their SHA-256.
"""

import functools
import mmap
import re
from bisect import bisect_left
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pandas as pd

from usvit.errors import LeakageError, UsvitError
from usvit.files import copy_file, sha256_of_file, write_bytes
from usvit.records import ModelRecord, read_record

LISTED_AT_MOST = 20_000
"""Hashes of one part that are listed in the passport itself (1.4 MB); more go into a file."""
HASH_BYTES = 32
PARTS = ("train", "val", "upstream")
FILES = "files"
"""Beside the parts in ``seen_sha256``: the list of files."""
UNHASHED = "unhashed"
"""Beside the parts, only where there are any: names of sources whose images were seen and not hashed."""
_FILE_NAME = re.compile(r"seen-[0-9a-f]{16}\.sha256")


class Trained(Protocol):
    """Weights with a passport, such as ``usvit.models.weights.Weights``."""

    @property
    def passport(self) -> dict[str, Any] | None: ...

    @property
    def path(self) -> Path | None: ...


@dataclass(frozen=True)
class HashFile:
    """A file of sorted hashes that a passport names; looked up on the disk, never held as text."""

    path: Path
    part: str
    """``train``, ``val`` or ``upstream``."""
    count: int
    sha256: str
    """Of the file."""

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> bytes:
        return bytes(self._content[index * HASH_BYTES : (index + 1) * HASH_BYTES])

    def __contains__(self, sha256: object) -> bool:
        try:
            wanted = bytes.fromhex(str(sha256))
        except ValueError:
            return False
        at = bisect_left(self, wanted)
        return at < self.count and self[at] == wanted

    @functools.cached_property
    def _content(self) -> mmap.mmap:
        with self.path.open("rb") as file:
            return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)

    def entry(self) -> dict[str, Any]:
        """As ``model.json`` names it."""
        return {"file": self.path.name, "part": self.part, "count": self.count, "sha256": self.sha256}


@dataclass(frozen=True)
class Seen:
    """The pixel hashes that a network has seen: ``sha256 in seen``."""

    listed: Mapping[str, frozenset[str]] = field(default_factory=dict)
    """Part -> the hashes that the passport itself lists."""
    files: tuple[HashFile, ...] = ()
    unhashed: tuple[str, ...] = ()
    """Sources of which it has seen images that are not on record (``source.hashes: false``), its own or of a network
    that it began from: what is not in here may have been seen all the same."""

    def __contains__(self, sha256: object) -> bool:
        return any(sha256 in hashes for hashes in self.listed.values()) or any(sha256 in file for file in self.files)

    def __len__(self) -> int:
        """Hashes on record; one in two places counts twice."""
        return sum(map(len, self.listed.values())) + sum(map(len, self.files))

    def of_parts(self, *parts: str) -> "Seen":
        """What was seen in some of the parts (``train``, ``val``, ``upstream``); ``unhashed`` counts as upstream."""
        listed = {part: hashes for part, hashes in self.listed.items() if part in parts}
        unhashed = self.unhashed if "upstream" in parts else ()
        return Seen(listed, tuple(file for file in self.files if file.part in parts), unhashed)

    def copy_files(self, folder: Path) -> None:
        """Copy the files to where another passport will lie that names them.

        Raises:
            UsvitError: the disk is full or cannot be written.
        """
        for file in self.files:
            copy = folder / file.path.name  # after its content: what is there already is the same
            if not copy.exists():
                copy_file(file.path, copy)


def seen_by(passport: Mapping[str, Any], folder: Path | None = None) -> Seen:
    """Pixel hashes of every image that a passport's network has seen, pre-training included.

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
    files = tuple(_opened(entry, folder) for entry in told.get(FILES, []))
    return Seen(listed, files, tuple(map(str, told.get(UNHASHED, []))))


def seen_by_weights(weights: Trained) -> Seen:
    """``seen_by`` for weights and the passport beside them; nothing where there is none."""
    return seen_by(weights.passport or {}, None if weights.path is None else weights.path.parent)


def write_seen(
    folder: Path,
    parts: Mapping[str, Sequence[str]],
    before: Trained | None = None,
    *others: Trained,
    unhashed: Iterable[str] = (),
) -> dict[str, Any]:
    """What a new passport says under ``seen_sha256``; long lists are written to files in ``folder``.

    Args:
        folder: where the passport will lie.
        parts: ``train`` and ``val`` -> pixel hashes, in hexadecimal digits.
        before: the weights that the training began from: all that they have seen becomes the part ``upstream``. Files
            of theirs are copied.
        others: what else it learnt from (a tokenizer, a teacher): what they have seen counts alike.
        unhashed: names of sources that it learnt from and whose images are not in ``parts``, though they have hashes.

    Returns:
        ``train``, ``val`` and ``upstream`` -> hashes, and, only where there are any, ``files`` and ``unhashed``.

    Raises:
        UsvitError: a file of ``before`` is missing or another one, or the disk is full.
    """
    earlier = together(seen_by_weights(weights) for weights in (before, *others) if weights is not None)
    known = passed_on(earlier)
    files: list[dict[str, Any]] = known.pop(FILES, [])
    unknown = sorted({*known.pop(UNHASHED, []), *unhashed})
    record: dict[str, Any] = {"train": [], "val": [], **parts, **known}
    for part, hashes in record.items():
        if len(hashes) > LISTED_AT_MOST:
            files.append(_written(folder, part, hashes))
            record[part] = []
    earlier.copy_files(folder)
    return record | ({FILES: files} if files else {}) | ({UNHASHED: unknown} if unknown else {})


def together(seen: Iterable[Seen]) -> Seen:
    """What several have seen; a file that two name counts once."""
    listed: dict[str, frozenset[str]] = {}
    files: dict[tuple[str, str], HashFile] = {}
    unhashed: set[str] = set()
    for one in seen:
        unhashed |= set(one.unhashed)
        listed |= {part: listed.get(part, frozenset()) | hashes for part, hashes in one.listed.items()}
        files |= {(file.part, file.sha256): file for file in one.files}
    return Seen(listed, tuple(files.values()), tuple(sorted(unhashed)))


def passed_on(seen: Seen) -> dict[str, Any]:
    """The part ``upstream``, and ``files`` and ``unhashed`` if any, of whatever begins from what has seen this."""
    listed = {sha256 for hashes in seen.listed.values() for sha256 in hashes}
    files = {file.sha256: replace(file, part="upstream").entry() for file in seen.files}
    unhashed = {UNHASHED: list(seen.unhashed)} if seen.unhashed else {}
    return {"upstream": sorted(listed)} | ({FILES: list(files.values())} if files else {}) | unhashed


def unrecorded(seen: Seen, who: str) -> str | None:
    """What to tell whoever tests a network of whose images some are not on record; None where all are.

    Args:
        seen: by the network.
        who: the network: ``The network of --weights RUN``.
    """
    if not seen.unhashed:
        return None
    return (
        f"{who} has learnt from {' and '.join(seen.unhashed)} with source.hashes=false: which images these were is "
        "not on record, so nobody can tell whether test images are among them."
    )


def _written(folder: Path, part: str, hashes: Iterable[str]) -> dict[str, Any]:
    """A file of hashes, named after its content, and its entry; each hash once."""
    raw = np.frombuffer(bytes.fromhex("".join(hashes)), dtype=f"S{HASH_BYTES}")
    content = np.unique(raw)  # bytes compare as the hashes' digits do
    name = folder / "seen.sha256"
    write_bytes(name, content.tobytes())
    sha256 = sha256_of_file(name)
    path = name.replace(folder / f"seen-{sha256[:16]}.sha256")
    return HashFile(path, part, len(content), sha256).entry()


def _opened(entry: Any, folder: Path | None) -> HashFile:
    try:
        name, part, count, sha256 = (entry[key] for key in ("file", "part", "count", "sha256"))
        # A plain name: a passport from elsewhere shall not make us read what lies outside its folder.
        sound = _FILE_NAME.fullmatch(name) and part in PARTS and isinstance(count, int) and count > 0
    except (TypeError, KeyError, AttributeError):
        sound = None
    if not sound:
        raise UsvitError(f"A passport's 'seen_sha256' names files in an unknown way ({entry!r:.200}). Update usvit.")
    if folder is None:
        raise UsvitError(f"The passport names the file {name} beside it, but it was given without its folder.")
    path = folder / name
    try:
        status = path.stat()
        found = _sha256(path, status.st_size, status.st_mtime_ns)
    except OSError as error:
        raise UsvitError(
            f"Cannot read {path} ({error.strerror}), which lists the images that the network of the model.json beside "
            "it has seen. Copy it again, with the rest of its folder."
        ) from error
    if found != sha256 or status.st_size != count * HASH_BYTES:
        raise UsvitError(
            f"{path} is damaged or another file: its SHA-256 is not the one in the model.json beside it. Copy it again."
        )
    return HashFile(path, part, count, sha256)


@functools.lru_cache(maxsize=256)
def _sha256(path: Path, size: int, mtime_ns: int) -> str:
    """Of a file as it is now: a passport is asked several times in one run."""
    return sha256_of_file(path)


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
    tested: pd.DataFrame, seen: Container[str], who: str, without: str = "leave these images out (--keep-list)"
) -> None:
    """Refuse to test a network on images that it has seen, or on others of their groups.

    Args:
        tested: columns image_id, group_id, sha256.
        seen: pixel hashes (``seen_by``).
        who: the network, for the error.
        without: how the caller tests on the others alone.

    Raises:
        LeakageError: naming the groups.
    """
    groups = sorted({group for group, sha256 in zip(tested.group_id, tested.sha256, strict=True) if sha256 in seen})
    if groups:
        count = int(tested.group_id.isin(groups).sum())
        raise LeakageError(
            f"{who} has seen images of {len(groups)} groups ({count} images) that would be its test: "
            f"{', '.join(groups[:5])}{', ...' if len(groups) > 5 else ''}. Begin from other weights, or "
            f"{without}."
        )
