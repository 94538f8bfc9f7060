"""Ids that say nothing of a person, stable for who has the key, and the private table that leads back.

A pseudonym is an HMAC-SHA256 under a secret key that is the user's: without the key nobody can tell which id belongs to
whom, not even by trying all patient numbers of a hospital, as with a plain hash (ISO 25237; DICOM PS3.15 E.1).
"""

import contextlib
import csv
import hashlib
import hmac
import io
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import platformdirs

from usvit.errors import UsvitError
from usvit.files import atomic, is_partial_of

KEY_BYTES = 32
LINK_COLUMNS = ("item_id", "name", "path")

_PADDING = re.compile(r"\A[\s\0]+|[\s\0]+\Z")
_KEY_FILE = re.compile(rb"[0-9a-fA-F]{64}\s*")


class Named(Protocol):
    """What a link table leads to: an item of scoring, an image of a data set."""

    @property
    def name(self) -> str:
        """What its id is made of: a path relative to the input or data root, with forward slashes."""

    @property
    def location(self) -> str:
        """The file, or the archive that holds it."""


class Pseudonyms:
    """Pseudonyms under one key: 16 hexadecimal digits, of which the first is a letter; "" for "".

    The letter keeps a spreadsheet, and a reader of CSV, from taking ``1234567890123456`` or ``12e3456789012345`` for a
    number. That leaves 62.6 bits: of 140,000 jobs of 10 million files each, one has two files of one id (the birthday
    bound).

    What names a file, an instance, a study and a patient is kept apart: the same text gives four different ids.
    """

    def __init__(self, key: bytes, warning: str | None = None):
        """Take 32 secret bytes.

        Args:
            key: of ``KEY_BYTES``.
            warning: what ``of_key`` has to say to the user.
        """
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key has {len(key)} bytes, not {KEY_BYTES}")
        self._key = key
        self.warning = warning
        """A sentence that the user should see, such as that others can read the key."""

    @classmethod
    def of_key(cls, path: Path) -> Self:
        """With the key in a file, which is made (readable by its owner alone) where there is none.

        An existing file is never changed, and of several processes that make it at once all get the same key.

        Args:
            path: 64 hexadecimal digits and a line feed.

        Raises:
            UsvitError: it holds anything else, is no file, cannot be read, or cannot be made.
        """
        try:
            key, mode = _read_key(path)
        except FileNotFoundError:
            _make_key(path)
            try:
                key, mode = _read_key(path)
            except FileNotFoundError as error:
                raise UsvitError(f"The key file {path} is a link to nothing. Pass another with --key.") from error
        warning = None
        if os.name == "posix" and mode & 0o077:
            warning = f"Others on this machine may use the key file {path} (mode {mode:03o}): chmod 600 makes it yours."
        return cls(key, warning)

    @property
    def fingerprint(self) -> str:
        """Tells keys apart and reveals none; the same key has the same one everywhere."""
        return self._short("fingerprint", b"usvit")

    def item(self, name: str) -> str:
        """Of a name (``Named.name``), by its bytes on the disk: spaces count, and so does what is no UTF-8."""
        return self._short("item", _bytes(name)) if name else ""

    def instance(self, uid: str) -> str:
        """Of a SOPInstanceUID; DICOM's padding does not count, here and below."""
        return self._of("instance", uid)

    def study(self, uid: str) -> str:
        """Of a StudyInstanceUID, or of what a table of inputs calls the study."""
        return self._of("study", uid)

    def patient(self, patient_id: str) -> str:
        """Of a PatientID."""
        return self._of("patient", patient_id)

    def uid(self, uid: str) -> str:
        """Another UID for a UID: ``2.25.`` and a UUID as a number of at most 39 digits; "" for "".

        Source: DICOM PS3.5 B.2; RFC 9562, 5.8 (version 8: 122 bits of the maker's own).
        """
        bare = _PADDING.sub("", uid)
        if not bare:
            return ""
        number = int.from_bytes(self._digest("uid", _bytes(bare))[:16], "big")
        number = number & ~(0xF << 76) | 8 << 76  # version
        number = number & ~(0b11 << 62) | 0b10 << 62  # variant
        return f"2.25.{number}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}(fingerprint={self.fingerprint!r})"

    def _of(self, domain: str, text: str) -> str:
        bare = _PADDING.sub("", text)
        return self._short(domain, _bytes(bare)) if bare else ""

    def _short(self, domain: str, content: bytes) -> str:
        digest = self._digest(domain, content)
        return "abcdef"[digest[-1] % 6] + digest.hex()[:15]

    def _digest(self, domain: str, content: bytes) -> bytes:
        # A domain holds no NUL: no two pairs of domain and content are the same bytes.
        return hmac.digest(self._key, domain.encode() + b"\0" + content, hashlib.sha256)


@contextmanager
def for_the_owner_alone() -> Iterator[None]:
    """Make all files and folders that this process creates meanwhile readable by their owner alone (600, 700).

    By the file mode mask, which is the process's: a file is never there with another mode, whichever library makes it.
    """
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def default_key_path() -> Path:
    """Where the user's key lies: ``USVIT_KEY``, else ``pseudonym.key`` in the system's folder for settings."""
    given = os.environ.get("USVIT_KEY")
    return Path(given) if given else Path(platformdirs.user_config_dir("usvit", appauthor=False)) / "pseudonym.key"


def refuse_inside(path: Path, folder: Path, what: str) -> None:
    """Keep what is private out of what will be handed on.

    Raises:
        UsvitError: ``path`` is, or would come to lie, in ``folder``; links are followed.
    """
    real, inside = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    if real.is_relative_to(inside):
        raise UsvitError(
            f"{what} {path} would lie in the output folder {folder}, which others may get to see: it tells which id "
            "is whose. Choose a place outside."
        )


class LinkTable:
    """The user's private table from pseudonyms back to files; a context, in which ``add`` is called for each item.

    CSV with the columns ``LINK_COLUMNS``, every cell quoted; names are the bytes of the disk, UTF-8 or not. A name that
    a spreadsheet would run as a formula begins with ``./``, which leads to the same file. The file appears when the
    context ends without an error, readable by its owner alone.

    Args:
        path: the file; only an earlier link table is replaced.
        pseudonyms: make the ids.
        out: the output folder, in which it must not lie; None: there is none.

    Raises:
        UsvitError: on entering: it lies in the output folder, would replace another file, or cannot be written.
    """

    def __init__(self, path: Path, pseudonyms: Pseudonyms, *, out: Path | None = None):
        self._path, self._pseudonyms, self._out = path, pseudonyms, out

    def __enter__(self) -> Self:
        if self._out is not None:
            refuse_inside(self._path, self._out, "The link table")
        _refuse_replacing(self._path)
        with _told(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            for one in self._path.parent.iterdir():  # of a job that was killed: it leads to patients
                if is_partial_of(one.name, self._path):
                    one.unlink(missing_ok=True)
            self._written = atomic(self._path, mode=0o600)
            file = io.TextIOWrapper(self._written.__enter__(), "utf-8", "surrogateescape", newline="")
        self._file = file
        self._rows = csv.writer(self._file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        self._rows.writerow(LINK_COLUMNS)
        return self

    def add(self, item: Named) -> None:
        with _told(self._path):
            self._rows.writerows(link_rows([item], self._pseudonyms))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            try:
                with _told(self._path):
                    self._file.flush()
            except UsvitError as unwritten:
                self._give_up(unwritten)
                raise
            with _told(self._path):
                self._written.__exit__(None, None, None)
        else:
            self._give_up(_NotWrittenError())  # not the job's own error, which says nothing of this file

    def _give_up(self, why: Exception) -> None:
        with contextlib.suppress(type(why), OSError, UsvitError):  # such as a full disk, which was told already
            self._written.__exit__(type(why), why, None)


def link_rows(items: Iterable[Named], pseudonyms: Pseudonyms) -> Iterator[tuple[str, str, str]]:
    """``LINK_COLUMNS`` of each item: its id, its name, and the file (or archive) on this machine."""
    for item in items:
        name = f"./{item.name}" if item.name.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else item.name
        yield pseudonyms.item(item.name), name, item.location


@contextmanager
def _told(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UsvitError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        raise UsvitError(
            f"The link table {path} cannot be written: {os.strerror(cause.errno or 0)}. Make room, or choose another "
            "place with --link; the same command then goes on."
        ) from error


class _NotWrittenError(Exception):
    """The table is not finished, and its temporary file goes."""


def _refuse_replacing(path: Path) -> None:
    header = ",".join(f'"{name}"' for name in LINK_COLUMNS).encode()
    with _told(path):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            return
        if stat.S_ISREG(mode):
            with open(path, "rb") as file:
                if file.read(len(header)) == header:
                    return
    raise UsvitError(f"The link table {path} would replace another file. Choose another name with --link.")


def _read_key(path: Path) -> tuple[bytes, int]:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait
            raise UsvitError(f"The key {path} is no file. Pass another with --key, or set USVIT_KEY.")
        with open(path, "rb") as file:
            content = file.read(1000)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UsvitError(
            f"The key file {path} cannot be read: {os.strerror(error.errno or 0)}. Pass another with --key, or set "
            "USVIT_KEY."
        ) from error
    if not _KEY_FILE.fullmatch(content):
        what = "is damaged: it should hold 64 hexadecimal digits" if content else "is empty"
        raise UsvitError(
            f"The key file {path} {what}. Restore it from a backup: under another key every id is another. If no "
            "results depend on it, delete it, and a new one is made."
        )
    key = bytes.fromhex(content.split()[0].decode())
    if _is_weak(key):
        raise UsvitError(
            f"The key file {path} holds no secret: its bytes repeat or count up, so that anybody could try them and "
            "undo every pseudonym. Delete it, and a random one is made; ids under the old one were not protected."
        )
    return key, stat.S_IMODE(status.st_mode)


def _is_weak(key: bytes) -> bool:
    """Whether it was typed and not drawn: of 32 random bytes, 11 or fewer are different once in 10^24 keys."""
    steps = {(after - before) % 256 for before, after in pairwise(key)}
    return len(set(key)) < 12 or len(steps) < 3


def _make_key(path: Path) -> None:
    content = secrets.token_hex(KEY_BYTES).encode() + b"\n"
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            _write_new(temporary, content)
            os.link(temporary, path)  # fails where another process was faster
        finally:
            temporary.unlink(missing_ok=True)
    except FileExistsError:
        if path.parent.is_dir():
            return
        raise UsvitError(f"The key file {path} cannot be made: its folder is a file. Pass another --key.") from None
    except OSError as error:
        _make_key_without_links(path, content, error)


def _make_key_without_links(path: Path, content: bytes, why: OSError) -> None:
    """On a file system without hard links (FAT, some network drives): no gap but that of one write of 65 bytes."""
    try:
        _write_new(path, content)
    except FileExistsError:
        return
    except OSError as error:
        raise UsvitError(
            f"The key file {path} cannot be made: {os.strerror(error.errno or 0)}. Pass another place with --key, or "
            "set USVIT_KEY."
        ) from why


def _write_new(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(handle)
    except OSError:  # a full disk: half a key must not stay
        path.unlink(missing_ok=True)
        raise


def _bytes(text: str) -> bytes:
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:  # a name in an archive, on a system that is not in UTF-8
        return text.encode("utf-8", "surrogatepass")
