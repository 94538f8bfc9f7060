"""Reading of items into frames that are ready for the network; runs in worker processes without torch.

Every item gives facts and frames, or a failure with a code: ``read_item`` does not raise for a bad file.
"""

import hashlib
import io
import lzma
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from pydicom.dataset import Dataset

from usvit.data.audit import quality
from usvit.data.io import (
    HEAD_BYTES,
    IN_MEMORY,
    MIN_SIDE,
    BadImage,
    Box,
    DicomFile,
    PictureFile,
    UInt8,
    kind_of,
    refusing,
)
from usvit.data.transforms import cropped
from usvit.errors import UsvitError
from usvit.files import file_state, open_regular
from usvit.scoring.items import FAILURES, Failure, Frame, ItemFacts, ReadSettings, ScoringItem
from usvit.scoring.reading.prepare import Prepare

Policy = Literal["all", "middle", "every", "top"]

MANY_BAD = 1000
"""Number of bad frames in a row after which the rest of a file fails as a whole: a header may claim billions."""
_CHUNK = 1 << 20
_DAMAGED = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError, KeyError, RuntimeError, ValueError)
"""Exceptions for a member of an archive that is damaged, missing, or compressed by an unsupported method."""


def parse_frames(text: str) -> tuple[Policy, int]:
    """Parse the frame policy ``all``, ``middle``, ``every:K`` or ``top:K`` into its name and K (else 1).

    Raises:
        UsvitError: the text is none of these, or K is not a positive integer.
    """
    name, colon, number = text.strip().partition(":")
    if name in ("all", "middle") and not colon:
        return name, 1  # type: ignore[return-value]
    if name in ("every", "top") and number.isascii() and number.isdecimal() and 0 < int(number) < 1_000_000_000:
        return name, int(number)  # type: ignore[return-value]
    raise UsvitError(
        f"Unknown frame policy '{text}'. Pass all, middle, every:K (each K-th frame, such as every:10) or top:K (the K "
        "best by quality, such as top:3)."
    )


def read_item(item: ScoringItem, settings: ReadSettings) -> Iterator[ItemFacts | Frame | Failure | None]:
    """Read one item: its facts, then the chosen frames in order, each ready for the network.

    Only one whole frame is in memory at a time. A frame that cannot be read gives a ``Failure`` with its number, and
    reading continues. An item that cannot be opened gives a single ``Failure``.

    Args:
        item: item returned by ``discover``.
        settings: settings of the job.

    Yields:
        ``ItemFacts`` first, then a ``Frame`` or ``Failure`` for each chosen frame; or a single ``Failure``. None
        reports progress while frames are compared (``top:K``). A bad file raises no exception.
    """
    if item.problem is not None:
        yield Failure(item.problem)
        return
    try:
        with _opened(item, settings) as opened:
            yield opened.facts
            yield from _frames(item, opened, settings)
    except Exception as error:
        yield _failure(error, item.frame)


def file_sha256_of(item: ScoringItem, settings: ReadSettings) -> str | None:
    """Return the SHA-256 of the current bytes of an item; None if they cannot be read."""
    try:
        with _content(item, settings) as content:
            return content.sha256
    except BadImage:
        return None


@contextmanager
def open_item(item: ScoringItem, settings: ReadSettings, file_sha256: str | None = None) -> Iterator["Opened"]:
    """Open an item, and read its header.

    Args:
        item: item returned by ``discover``; its file may have been replaced since.
        settings: settings of the job.
        file_sha256: hash of the bytes that it must have; None: any.

    Raises:
        BadImage: the bytes have changed (``changed_since_scoring``), or the item cannot be read.
    """
    with refusing(Path(item.location)), _opened(item, settings, file_sha256) as opened:
        yield opened


@dataclass(frozen=True)
class Opened:
    """An item whose header has been read."""

    head: bytes
    """The first ``HEAD_BYTES`` bytes."""
    facts: ItemFacts
    header: Dataset | None
    """Header of a DICOM file, without its pixels; None for other images."""
    tissue: Box | None
    whole_frame: Callable[[int], UInt8]

    def view(self, number: int, crop: str) -> UInt8:
        """Return the part of a frame that the network sees, in full resolution, (h, w, 3) uint8.

        This is the tissue region if the header describes one and ``crop`` asks for it.
        """
        return cropped(self.whole_frame(number), self.tissue, crop)

    def region(self, crop: str) -> Box | None:
        """Return the place of ``view`` in a frame of a DICOM file; None if it is the whole frame."""
        if crop == "whole" or self.tissue is None or self.header is None:
            return None
        columns, rows = int(self.header.Columns), int(self.header.Rows)
        left, top, right, bottom = self.tissue
        box = max(left, 0), max(top, 0), min(right, columns), min(bottom, rows)
        return box if min(box[2] - box[0], box[3] - box[1]) >= MIN_SIDE else None


class _FileContent:
    """The bytes of an item, opened once, so that exactly the hashed bytes are decoded.

    Files below ``IN_MEMORY`` and members of archives are read completely. A larger file is kept open, so that a new
    file under its name is never read, and is refused as soon as its size or modification time changes.

    Args:
        path: path for error messages.
        data: the bytes, or the open file.
    """

    def __init__(self, path: Path, data: bytes | io.BufferedReader):
        self.path, self.data = path, data
        self._state = self._now()
        if isinstance(data, bytes):
            self.sha256 = hashlib.sha256(data).hexdigest()
        else:
            data.seek(0)
            self.sha256 = hashlib.file_digest(data, "sha256").hexdigest()
            data.seek(0)

    def refuse_change(self) -> None:
        """Raise ``BadImage`` if the file has been written to since it was hashed."""
        if self._state != self._now():
            raise BadImage(self.path, FAILURES["changed_since_scoring"], "changed_since_scoring")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if not isinstance(self.data, bytes):
            self.data.close()

    def _now(self) -> tuple[int, int]:
        if isinstance(self.data, bytes):
            return 0, 0
        status = os.fstat(self.data.fileno())  # not ctime, which changes when another file takes over the name
        return status.st_size, status.st_mtime_ns


def _content(item: ScoringItem, settings: ReadSettings) -> _FileContent:
    path = Path(item.location)
    if item.problem is not None:
        raise BadImage(path, FAILURES[item.problem], item.problem)
    if item.member is not None:
        return _FileContent(path, _unpacked(path, item.member, settings.max_bytes))
    with refusing(path), ExitStack() as stack:
        if not path.is_file():
            path.stat()  # raises an error if it does not exist
            raise BadImage(path, "it is not a regular file", "not_an_image")
        file = stack.enter_context(open_regular(path))
        status = os.fstat(file.fileno())
        head = file.read(HEAD_BYTES)
        if not head:
            raise BadImage(path, "it holds no bytes", "empty")
        if not kind_of(head):
            raise BadImage(path, FAILURES["not_an_image"], "not_an_image")
        if status.st_size > settings.max_bytes:
            raise BadImage(path, f"it has {status.st_size} bytes", "too_large")
        if status.st_size <= IN_MEMORY:
            file.seek(0)
            return _FileContent(path, file.read())
        content = _FileContent(path, file)
        stack.pop_all()
        return content


@contextmanager
def _opened(item: ScoringItem, settings: ReadSettings, file_sha256: str | None = None) -> Iterator[Opened]:
    path = Path(item.location)
    with ExitStack() as stack:
        content = stack.enter_context(_content(item, settings))
        if file_sha256 is not None and content.sha256 != file_sha256:
            raise BadImage(path, FAILURES["changed_since_scoring"], "changed_since_scoring")
        data = content.data
        if isinstance(data, bytes):
            head = data[:HEAD_BYTES]
        else:
            head = data.read(HEAD_BYTES)
            data.seek(0)

        def unchanged(frame: Callable[[int], UInt8]) -> Callable[[int], UInt8]:
            def decode(number: int) -> UInt8:
                pixels = frame(number)
                content.refuse_change()
                return pixels

            return decode

        kind = kind_of(head)
        if kind == "dicom":
            dicom = stack.enter_context(DicomFile(data, settings.max_bytes, path))
            says = dicom.facts
            facts = ItemFacts(
                kind="dicom",
                file_sha256=content.sha256,
                n_frames=says.frames,
                pixel_spacing_mm=says.pixel_spacing_mm,
                flags=(*says.regions.flags, *(("burned_in",) if says.burned_in else ()), *dicom.flags),
                instance=says.sop_instance_uid,
                study=says.study_instance_uid,
                patient=says.patient_id,
                device=says.device or "",
                sides=says.sides,
                study_date=says.study_date,
            )
            yield Opened(head, facts, dicom.header, says.regions.tissue, unchanged(dicom.frame))
        elif kind == "picture":
            picture = stack.enter_context(PictureFile(data, path))
            facts = ItemFacts("picture", content.sha256, picture.n_frames, None, picture.flags, "", "", "", "")
            yield Opened(head, facts, None, None, unchanged(picture.frame))
        else:
            raise BadImage(path, FAILURES["not_an_image"], "not_an_image")


def _unpacked(path: Path, member: str, max_bytes: int) -> bytes:
    """Return the bytes of a member. Its declared size is not trusted, and unpacking stops if it is not an image."""
    with refusing(path):
        status = path.stat()
    try:
        archive = _archive(path, file_state(status))
        info = archive.getinfo(member)
        if info.flag_bits & 1:
            raise BadImage(path, "the member is encrypted", "archive")
        unpacked = io.BytesIO()
        with archive.open(info) as packed:
            while chunk := packed.read(_CHUNK):
                if not unpacked.tell() and not kind_of(chunk[:HEAD_BYTES]):
                    raise BadImage(path, FAILURES["not_an_image"], "not_an_image")
                unpacked.write(chunk)
                if unpacked.tell() > max_bytes:
                    raise BadImage(path, "it unpacks to too many bytes", "too_large")
    except _DAMAGED as error:
        raise BadImage(path, f"the archive is damaged ({error})", "archive") from error
    except OSError as error:  # bz2 reports damaged data without an errno
        code = "archive" if error.errno is None else "unreadable"
        raise BadImage(path, f"the archive cannot be read ({error})", code) from error
    if not unpacked.tell():
        raise BadImage(path, "it holds no bytes", "empty")
    return unpacked.getvalue()


@lru_cache(maxsize=1)
def _archive(path: Path, state: tuple[int, ...]) -> zipfile.ZipFile:
    """Open an archive and keep it open, because its items are read one after the other and its index may be long."""
    return zipfile.ZipFile(open_regular(path))


def _frames(item: ScoringItem, opened: Opened, settings: ReadSettings) -> Iterator[Frame | Failure | None]:
    """Yield the chosen frames and their failures; the failure of an only frame is that of the whole item."""
    prepare = Prepare(settings)
    bad_in_a_row = 0
    for number in _chosen(item, opened, settings):
        if number is None:
            yield None
            continue
        try:
            frame = prepare(number, opened.whole_frame(number), opened.tissue, opened.facts.flags)
        except Exception as error:
            bad_in_a_row += 1
            yield _failure(error, item.frame if opened.facts.n_frames == 1 else number)
            if bad_in_a_row == MANY_BAD:
                yield Failure("damaged", None, f"{MANY_BAD} frames in a row cannot be read; the others were not tried")
                return
        else:
            bad_in_a_row = 0
            yield frame


def _chosen(item: ScoringItem, opened: Opened, settings: ReadSettings) -> Iterator[int | None]:
    if item.frame is not None:
        yield item.frame
        return
    policy, k = parse_frames(settings.frames)
    n = opened.facts.n_frames
    if policy == "top" and k < n:
        yield from _best(opened, k, settings.crop)
    elif policy == "middle":
        yield n // 2
    else:
        yield from range(0, n, k if policy == "every" else 1)


def _best(opened: Opened, k: int, crop: str) -> Iterator[int | None]:
    """Yield the ``k`` best frames by quality (the earlier of equal ones) and unreadable frames, in order.

    The loop is decoded once to compare the frames, and the chosen frames are decoded again, so that only one frame is
    in memory at a time.
    """
    found: list[tuple[float, int]] = []
    bad: list[int] = []
    for number in range(opened.facts.n_frames):
        try:
            found.append((-quality(opened.view(number, crop)), number))
        except Exception:  # reported when the frame is read again
            bad.append(number)
            if len(bad) == MANY_BAD and not found:
                break
        yield None
    yield from sorted([number for _, number in sorted(found)[:k]] + bad)


def _failure(error: Exception, frame: int | None) -> Failure:
    if isinstance(error, BadImage):
        return Failure(error.code, frame, error.reason)
    if isinstance(error, MemoryError):
        return Failure("crashed", frame, "memory ran out")
    if isinstance(error, OSError) and error.errno is not None:
        code = "not_found" if isinstance(error, FileNotFoundError) else "unreadable"
        return Failure(code, frame, os.strerror(error.errno))
    return Failure("damaged", frame, f"{type(error).__name__}: {error}")
