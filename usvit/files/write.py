"""Writing files so that a reader never sees half of one, and no other file is ever written.

A file is filled under a random name in its own folder, flushed to the disk, and renamed; a run that is killed leaves
the old file or the new one, never a mixture. The folder may come from a stranger (an unpacked archive), so nothing in
it is trusted. The temporary file is always a new one (``O_EXCL``, ``O_NOFOLLOW``), created and renamed through a
handle of the folder, which cannot be exchanged in between. A symbolic link in place of the file itself is replaced, and
what it led to stays as it is. ``folder_within`` says which links among the folders are followed.

On a system without ``dir_fd`` (Windows) the same is done by path; there, whoever can write to the folder while usvit
writes could still exchange it.
"""

import contextlib
import errno
import fnmatch
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import filelock
import pandas as pd

from usvit.errors import UsvitError

# A file where a folder should be, or the reverse, gives EEXIST, ENOTDIR or EISDIR.
_NOT_WRITABLE = (errno.ENOENT, errno.EACCES, errno.EROFS, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.EISDIR)
_BY_HANDLE = {os.open, os.mkdir, os.rename, os.unlink} <= os.supports_dir_fd
"""Whether the system takes names relative to the handle of a folder."""
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_PARTIAL = ".*.partial*"
"""Pattern of the temporary names."""
_RANDOM = re.compile("[0-9a-f]{32}")
"""How they end."""


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full or read-only disk into an error that says what to do.

    Raises:
        UsvitError: no space is left, or the folder cannot be written.
    """
    try:
        yield
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        if number in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error):  # safetensors' own error
            raise UsvitError(
                f"No space left on the disk while writing {path}. Nothing that was finished is lost: "
                "free some space and give the same command again to resume."
            ) from error
        if number == errno.EFBIG or "File too large" in str(error):
            raise UsvitError(
                f"{path} grows beyond what this process may write (ulimit -f) or what the file system can hold in one "
                "file. Nothing that was finished is lost: raise the limit (ulimit -f unlimited), or choose another "
                "--out, and give the same command again."
            ) from error
        if number in _NOT_WRITABLE:
            raise UsvitError(
                f"Cannot write {path}: {os.strerror(number)}. Choose another folder with --out."
            ) from error
        raise


@contextmanager
def atomic(path: Path, *, root: Path | None = None, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Write a file under a temporary name, and give it its own name at the end.

    Args:
        path: the file to write; its folder is made where missing.
        root: the folder that nothing may be written outside of, a parent of ``path``: below it, symbolic links
            among the folders are refused (``folder_within``). None: the file's own folder is the user's choice.
        mode: its permissions, less the umask.

    Yields:
        The temporary file, open for reading and writing in binary. Its ``name`` is not meant to be opened again.

    Raises:
        UsvitError: the disk is full or cannot be written, or a folder is a symbolic link; ``path`` is as it was.
    """
    with disk_errors(path), folder_within(path.parent, root) as folder:
        name = f".{path.name[:40]}.partial-{secrets.token_hex(16)}"
        try:
            handle = folder.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode)
            with open(handle, "w+b") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            folder.replace(name, path.name)
        finally:
            with contextlib.suppress(FileNotFoundError):
                folder.unlink(name)


def write_atomic(
    path: Path, write: Callable[[BinaryIO], object], *, root: Path | None = None, mode: int = 0o666
) -> None:
    """Let ``write`` fill a temporary file, then give it the name ``path``; arguments and errors as ``atomic``."""
    with atomic(path, root=root, mode=mode) as file:
        write(file)


def write_bytes(path: Path, content: bytes, *, root: Path | None = None, mode: int = 0o666) -> None:
    write_atomic(path, lambda file: file.write(content), root=root, mode=mode)


def write_text(path: Path, text: str, *, root: Path | None = None, mode: int = 0o666) -> None:
    write_bytes(path, text.encode("utf-8"), root=root, mode=mode)


def write_json(path: Path, value: Any, *, root: Path | None = None, mode: int = 0o666) -> None:
    """Write JSON that any reader accepts: NaN and infinity are refused, not written."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_text(path, text, root=root, mode=mode)


def write_csv(path: Path, table: pd.DataFrame, *, root: Path | None = None, mode: int = 0o666) -> None:
    """Write a table as CSV: the same table gives the same bytes on every system."""
    write_text(path, csv_text(table), root=root, mode=mode)


def csv_text(table: pd.DataFrame) -> str:
    return table.to_csv(index=False, lineterminator="\n")


def append_text(path: Path, text: str) -> None:
    """Add text to a file that is there or not, through no symbolic link.

    Raises:
        UsvitError: the disk is full, or the path is a link or no regular file.
    """
    with disk_errors(path):
        refuse_link(path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NOFOLLOW | _CLOEXEC | _BINARY | getattr(os, "O_NONBLOCK", 0)
        handle = os.open(path, flags, 0o666)
        with open(handle, "ab") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise UsvitError(f"Cannot write {path}: it is no regular file. Remove it.")
            file.write(text.encode("utf-8"))


def make_folder(path: Path, root: Path | None = None) -> None:
    """Make a folder where missing, as ``folder_within`` does."""
    with disk_errors(path), folder_within(path, root):
        pass


def is_partial_of(name: str, path: Path) -> bool:
    """Whether ``atomic`` could have given a temporary file of ``path`` this name."""
    start = f".{path.name[:40]}.partial-"
    return name.startswith(start) and _RANDOM.fullmatch(name[len(start) :]) is not None


def clear_partials(folder: Path) -> None:
    """Remove what writers that were killed have left in a folder."""
    for leftover in folder.glob(_PARTIAL):
        if not leftover.is_dir() or leftover.is_symlink():
            leftover.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, taken: str) -> Iterator[None]:
    """Hold a lock file, made where missing; taking it empties the file, so a link to another file is refused.

    Args:
        path: the lock's file.
        taken: what to say where another process holds it.

    Raises:
        UsvitError: another process holds it, or it is a link, or the folder cannot be written.
    """
    refuse_link(path)
    lock = filelock.FileLock(path)
    try:
        with disk_errors(path):
            lock.acquire(timeout=0)
    except filelock.Timeout as error:
        raise UsvitError(taken) from error
    try:
        yield
    finally:
        lock.release()


class Folder:
    """The handle of a folder: names in it stay names in it, whatever becomes of its path."""

    def __init__(self, path: Path, handle: int | None):
        self._path, self._handle = path, handle

    def open(self, name: str, flags: int, mode: int) -> int:
        return os.open(self._of(name), flags | _NOFOLLOW | _CLOEXEC | _BINARY, mode, dir_fd=self._handle)

    def replace(self, name: str, new: str) -> None:
        """Rename; a link of the new name is replaced and not followed."""
        os.replace(self._of(name), self._of(new), src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def unlink(self, name: str) -> None:
        os.unlink(self._of(name), dir_fd=self._handle)

    def _of(self, name: str) -> str | Path:
        return name if self._handle is not None else self._path / name


@contextmanager
def folder_within(path: Path, root: Path | None = None) -> Iterator[Folder]:
    """Open a folder, made where missing, such that no link leads out of the root.

    A root is what the user named: the user may well have made it, or a parent of it, a link to a larger disk. What lies
    below it may have come with an archive; a link there leads wherever its maker wished, and is refused.

    Args:
        path: the folder.
        root: itself or a parent of it; None: itself.

    Raises:
        UsvitError: a folder below the root is a symbolic link.
        OSError: it cannot be made or opened.
        ValueError: it is not below the root.
    """
    top = path if root is None else root
    below = path.relative_to(top).parts
    if ".." in below:
        raise ValueError(f"{path} is not below {top}")
    top.mkdir(parents=True, exist_ok=True)
    if not _BY_HANDLE:
        here = top
        for name in below:
            here = here / name
            refuse_link(here)
            here.mkdir(exist_ok=True)
        yield Folder(path, None)
        return
    flags = os.O_RDONLY | os.O_DIRECTORY | _CLOEXEC
    handle = os.open(top, flags)
    try:
        here = top
        for name in below:
            here = here / name
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, dir_fd=handle)
            try:
                deeper = os.open(name, flags | _NOFOLLOW, dir_fd=handle)
            except OSError:
                refuse_link(here)
                raise
            os.close(handle)
            handle = deeper
        yield Folder(path, handle)
    finally:
        os.close(handle)


def refuse_linked_folders(root: Path) -> None:
    """Refuse a folder of results that holds a symbolic link to a folder: what is written below might land anywhere.

    The root itself may be a link: the user named it.

    Raises:
        UsvitError: it holds one.
    """
    for folder, names, _ in os.walk(root):
        for name in names:
            refuse_link(Path(folder, name))


def refuse_link(path: Path) -> None:
    """Refuse a symbolic link, and a file that has another name, too."""
    try:
        status = path.lstat()
    except OSError:
        return
    if stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink > 1):
        raise UsvitError(
            f"{path} is a link, which could lead to any file of yours: nothing is written through it. "
            "Remove the link and give the same command again."
        )


def copy_file(source: Path, target: Path) -> None:
    """Copy a file's content, written as every file is."""
    with open(source, "rb") as content:
        write_atomic(target, lambda file: shutil.copyfileobj(content, file))


def copy_folder(source: Path, target: Path, but: tuple[str, ...] = ()) -> None:
    """Copy the files of a folder that has no folders in it, but those that match a pattern, over what is there."""
    for path in sorted(source.iterdir()):
        if not any(fnmatch.fnmatchcase(path.name, pattern) for pattern in but):
            copy_file(path, target / path.name)


def no_follow(path: str, flags: int) -> int:
    """``opener`` of ``open`` for a name that may not be a symbolic link."""
    return os.open(path, flags | _NOFOLLOW | _CLOEXEC, 0o666)
