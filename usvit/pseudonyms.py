"""Pseudonyms, which are stable for a key, and the private table that maps them back to files.

A pseudonym is an HMAC-SHA256 under a secret key of the user. Without the key, nobody can find out which id belongs to
whom. With a plain hash, this would be possible by trying all patient numbers of a hospital (ISO 25237; DICOM PS3.15
E.1).
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
from usvit.files import atomic, is_partial_of, open_regular

KEY_BYTES = 32
LINK_COLUMNS = ("item_id", "name", "path")

_PADDING = re.compile(r"\A[\s\0]+|[\s\0]+\Z")
_KEY_FILE = re.compile(rb"[0-9a-fA-F]{64}\s*")


class _PseudonymousName(Protocol):
    """An entry of a link table: an item of scoring or an image of a data set."""

    @property
    def name(self) -> str:
        """Text from which the id is made: a path relative to the input or data root, with forward slashes."""

    @property
    def location(self) -> str:
        """Path of the file, or of the archive that contains it."""


class Pseudonyms:
    """Makes pseudonyms under one key: 16 hexadecimal digits, of which the first is a letter; "" for "".

    The letter keeps spreadsheets and CSV readers from reading ``1234567890123456`` or ``12e3456789012345`` as a number.
    62.6 bits remain: of 140,000 jobs of 10 million files each, one has two files with the same id (birthday bound).

    Files, instances, studies, lesions and patients have separate domains: the same text gives five different ids.
    """

    def __init__(self, key: bytes, warning: str | None = None):
        """Set the key.

        Args:
            key: Secret of ``KEY_BYTES`` bytes.
            warning: Warning of ``of_key`` for the user.
        """
        if len(key) != KEY_BYTES:
            raise ValueError(f"the key has {len(key)} bytes, not {KEY_BYTES}")
        self._key = key
        self.warning = warning
        """A warning for the user, such as that others can read the key; None without one."""

    @classmethod
    def of_key(cls, path: Path) -> Self:
        """Make pseudonyms under the key in a file, which is created (readable only by its owner) if missing.

        An existing file is never changed. If several processes create it at the same time, all get the same key.

        Args:
            path: File with 64 hexadecimal digits and a line feed.

        Raises:
            UsvitError: The file has other content, is not a file, or cannot be read or created.
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
        """Id of the key, which does not reveal it; the same on every machine."""
        return self._short("fingerprint", b"usvit")

    def item(self, name: str) -> str:
        """Return the pseudonym of a ``PseudonymousName.name``, by its bytes on the disk, including non-UTF-8 bytes."""
        return self._short("item", _bytes(name)) if name else ""

    def instance(self, uid: str) -> str:
        """Return the pseudonym of a SOPInstanceUID; DICOM padding is ignored, here and below."""
        return self._of("instance", uid)

    def study(self, uid: str) -> str:
        """Return the pseudonym of a StudyInstanceUID, or of the study or exam in a table."""
        return self._of("study", uid)

    def lesion(self, lesion_id: str) -> str:
        """Return the pseudonym of a lesion in a table."""
        return self._of("lesion", lesion_id)

    def patient(self, patient_id: str) -> str:
        """Return the pseudonym of a PatientID."""
        return self._of("patient", patient_id)

    def uid(self, uid: str) -> str:
        """Return a pseudonymous UID: ``2.25.`` and a UUID as a number of at most 39 digits; "" for "".

        Source: DICOM PS3.5 B.2; RFC 9562, 5.8 (version 8: 122 custom bits).
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
        # A domain contains no NUL, so that different pairs of domain and content give different bytes.
        return hmac.digest(self._key, domain.encode() + b"\0" + content, hashlib.sha256)


def default_key_path() -> Path:
    """Return the path of the user's key: ``USVIT_KEY``, else ``pseudonym.key`` in the user's configuration folder."""
    given = os.environ.get("USVIT_KEY")
    return Path(given) if given else Path(platformdirs.user_config_dir("usvit", appauthor=False)) / "pseudonym.key"


def refuse_inside(path: Path, folder: Path, what: str) -> None:
    """Refuse to write a private file into a folder that may be shared.

    Raises:
        UsvitError: ``path`` is in ``folder``; links are followed.
    """
    real, inside = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    if real.is_relative_to(inside):
        raise UsvitError(
            f"{what} {path} would be in the output folder {folder}, which others may see, but it reveals which id "
            "belongs to whom. Choose a path outside of it."
        )


class LinkTable:
    """Writes the user's private table from pseudonyms to files; a context manager, in which ``add`` is called per item.

    The table is CSV with the columns ``LINK_COLUMNS`` and all cells quoted; names are the bytes on the disk, UTF-8 or
    not. A name that a spreadsheet would run as a formula is prefixed with ``./``, which leads to the same file. The
    file appears when the context ends without an error, and only its owner can read it.

    Args:
        path: The file; only an earlier link table is replaced.
        pseudonyms: Makes the ids.
        out: Output folder, in which the file must not be; None without one.

    Raises:
        UsvitError: The file is in the output folder, would replace another file, or cannot be written.
    """

    def __init__(self, path: Path, pseudonyms: Pseudonyms, *, out: Path | None = None):
        self._path, self._pseudonyms, self._out = path, pseudonyms, out

    def __enter__(self) -> Self:
        if self._out is not None:
            refuse_inside(self._path, self._out, "The link table")
        _refuse_replacing(self._path)
        with _named_link_table_errors(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            for one in self._path.parent.iterdir():  # left by a job that was killed; it identifies patients
                if is_partial_of(one.name, self._path):
                    one.unlink(missing_ok=True)
            self._written = atomic(self._path, mode=0o600)
            file = io.TextIOWrapper(self._written.__enter__(), "utf-8", "surrogateescape", newline="")
        self._file = file
        self._rows = csv.writer(self._file, quoting=csv.QUOTE_ALL, lineterminator="\n")
        self._rows.writerow(LINK_COLUMNS)
        return self

    def add(self, item: _PseudonymousName) -> None:
        with _named_link_table_errors(self._path):
            self._rows.writerows(link_rows([item], self._pseudonyms))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            try:
                with _named_link_table_errors(self._path):
                    self._file.flush()
            except UsvitError as unwritten:
                self._give_up(unwritten)
                raise
            with _named_link_table_errors(self._path):
                self._written.__exit__(None, None, None)
        else:
            self._give_up(_NotWrittenError())  # the error of the job does not concern this file

    def _give_up(self, why: Exception) -> None:
        with contextlib.suppress(type(why), OSError, UsvitError):  # such as a full disk, which was reported before
            self._written.__exit__(type(why), why, None)


def link_rows(items: Iterable[_PseudonymousName], pseudonyms: Pseudonyms) -> Iterator[tuple[str, str, str]]:
    """Yield ``LINK_COLUMNS`` of each item: its id, its name, and the file or archive on this machine."""
    for item in items:
        name = f"./{item.name}" if item.name.startswith(("=", "+", "-", "@", "\t", "\r", "\n")) else item.name
        yield pseudonyms.item(item.name), name, item.location


@contextmanager
def _named_link_table_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (OSError, UsvitError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        raise UsvitError(
            f"The link table {path} cannot be written: {os.strerror(cause.errno or 0)}. Make room, or choose another "
            "path with --link, and run the same command again to continue."
        ) from error


class _NotWrittenError(Exception):
    """The table is not complete; its temporary file is removed."""


def _refuse_replacing(path: Path) -> None:
    header = ",".join(f'"{name}"' for name in LINK_COLUMNS).encode()
    with _named_link_table_errors(path):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            return
        if stat.S_ISREG(mode):
            with open_regular(path) as file:
                if file.read(len(header)) == header:
                    return
    raise UsvitError(f"The link table {path} would replace another file. Choose another name with --link.")


def _read_key(path: Path) -> tuple[bytes, int]:
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):  # reading a pipe would wait
            raise UsvitError(f"The key {path} is not a file. Pass another with --key, or set USVIT_KEY.")
        with open_regular(path) as file:
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
            f"The key file {path} {what}. Restore it from a backup, because another key gives other ids. If no "
            "results depend on it, delete it, and a new one is made."
        )
    key = bytes.fromhex(content.split()[0].decode())
    if _is_weak(key):
        raise UsvitError(
            f"The key file {path} holds no secret: its bytes repeat or count up, so that anybody could guess them and "
            "undo all pseudonyms. Delete it, and a random key is made; ids under the old key were not protected."
        )
    return key, stat.S_IMODE(status.st_mode)


def _is_weak(key: bytes) -> bool:
    """Return whether a key was typed, not drawn; 32 random bytes have at most 11 different values once in 10^24."""
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
    """Create the key on a file system without hard links (FAT, some network drives) by one write of 65 bytes."""
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
    except OSError:  # a full disk must not leave half a key
        path.unlink(missing_ok=True)
        raise


def _bytes(text: str) -> bytes:
    try:
        return os.fsencode(text)
    except UnicodeEncodeError:  # a name in an archive, on a system without UTF-8
        return text.encode("utf-8", "surrogatepass")
