"""Write files atomically, and never outside of their folder.

A file is written under a random name in its own folder, flushed to the disk, and renamed. A run that is killed leaves
either the old file or the new one. The folder may be untrusted (an unpacked archive), so the temporary file is always a
new one (``O_EXCL``, ``O_NOFOLLOW``), which is created and renamed through a handle of the folder, so that the folder
cannot be exchanged in between. A symbolic link in place of the file is replaced, and its target does not change.
``folder_within`` documents which links among the folders are followed.

On a system without ``dir_fd`` (Windows), paths are used instead of handles; someone who can write to the folder at the
same time could still exchange it.
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

from usvit.errors import UsvitError, shortened

# A file in place of a folder, or the reverse, gives EEXIST, ENOTDIR or EISDIR.
_NOT_WRITABLE = (
    *(errno.ENOENT, errno.EACCES, errno.EROFS, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.EISDIR),
    errno.ENAMETOOLONG,
)
_BY_HANDLE = {os.open, os.mkdir, os.rename, os.unlink} <= os.supports_dir_fd
"""True if the system supports names relative to the handle of a folder."""
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)
LOCK = ".lock"
"""Lock file of a folder of results."""
_PARTIAL = ".*.partial-*"
"""Pattern of the temporary names."""
_RANDOM = re.compile("[0-9a-f]{32}")
"""Pattern of their random endings."""
_PARTIAL_PATH = re.compile(rf"(.*/)?\.([^/]+)\.partial-{_RANDOM.pattern}")
"""Pattern of a path with a temporary name, with its folder and the name of the file that is written."""


class DiskError(UsvitError):
    """A file cannot be written, because the disk is full or the folder cannot be written."""


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn the errors of a full or read-only disk into errors that say what to do.

    Raises:
        DiskError: No space is left, the file is too large, or the folder cannot be written.
    """
    try:
        yield
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else None
        if number in (errno.ENOSPC, errno.EDQUOT) or "No space left on device" in str(error):  # raised by safetensors
            raise DiskError(
                f"No space left on the disk while writing {path}. Nothing that was finished is lost: "
                "free some space and run the same command again to resume."
            ) from error
        if number == errno.EFBIG or "File too large" in str(error):
            raise DiskError(
                f"{path} exceeds the largest file that this process may write (ulimit -f) or that the file system "
                "supports. Nothing that was finished is lost: raise the limit (ulimit -f unlimited), or choose another "
                "--out, and run the same command again."
            ) from error
        if number in _NOT_WRITABLE:
            raise DiskError(
                f"Cannot write {shortened(str(path), 1000)}: {os.strerror(number)}. Choose another folder with --out."
            ) from error
        raise


@contextmanager
def atomic(path: Path, *, root: Path | None = None, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Write a file under a temporary name, and rename it at the end.

    Args:
        path: The file to write; missing folders are created.
        root: Parent folder of ``path`` outside of which nothing may be written: symbolic links among the folders below
            it are refused (``folder_within``). None if the user chose the folder of the file.
        mode: Permissions of the file, reduced by the umask.

    Yields:
        The temporary file, open for reading and writing in binary. Do not open its ``name`` again.

    Raises:
        UsvitError: The disk is full or cannot be written, or a folder is a symbolic link; ``path`` does not change.
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
    """Let ``write`` fill a temporary file, then rename it. Other arguments and errors are those of ``atomic``."""
    with atomic(path, root=root, mode=mode) as file:
        write(file)


def write_bytes(path: Path, content: bytes, *, root: Path | None = None, mode: int = 0o666) -> None:
    """Write bytes. Arguments and errors are those of ``atomic``."""
    write_atomic(path, lambda file: file.write(content), root=root, mode=mode)


def write_text(path: Path, text: str, *, root: Path | None = None, mode: int = 0o666) -> None:
    """Write text in UTF-8. Arguments are those of ``atomic``.

    Raises:
        UsvitError: As ``atomic``, or the text holds a name that is not UTF-8.
    """
    try:
        content = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise UsvitError(
            f"Cannot write {path}: it would hold the name of a file or folder that is not valid UTF-8. Rename it."
        ) from error
    write_bytes(path, content, root=root, mode=mode)


def write_json(path: Path, value: Any, *, root: Path | None = None, mode: int = 0o666) -> None:
    """Write standard JSON; NaN and infinity raise a ValueError."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_text(path, text, root=root, mode=mode)


def append_text(path: Path, text: str) -> None:
    """Append text to a file, which is created if missing; symbolic links are refused.

    Raises:
        UsvitError: The disk is full, or the path is a link or not a regular file.
    """
    with disk_errors(path):
        refuse_link(path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | _NOFOLLOW | _CLOEXEC | _BINARY | getattr(os, "O_NONBLOCK", 0)
        handle = os.open(path, flags, 0o666)
        with open(handle, "ab") as file:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise UsvitError(f"Cannot write {path}: it is not a regular file. Remove it.")
            file.write(text.encode("utf-8"))


def make_folder(path: Path, root: Path | None = None) -> None:
    """Create a folder if missing, as ``folder_within`` does."""
    with disk_errors(path), folder_within(path, root):
        pass


def is_partial_of(name: str, path: Path) -> bool:
    """Return whether ``atomic`` may have used this name for a temporary file of ``path``."""
    start = f".{path.name[:40]}.partial-"
    return name.startswith(start) and _RANDOM.fullmatch(name[len(start) :]) is not None


def without_partial_ending(path: str) -> str:
    """Return the path of the file that ``atomic`` writes under this temporary name; another path is unchanged.

    Args:
        path: Path with ``/``. The names of the files that are written have at most 40 characters.
    """
    temporary = _PARTIAL_PATH.fullmatch(path)
    return path if temporary is None else f"{temporary[1] or ''}{temporary[2]}"


@contextmanager
def for_the_owner_alone(private: bool = True) -> Iterator[None]:
    """Make files and folders that are created in the block readable only by their owner (600, 700).

    It sets the umask of the process, so that files never exist with another mode, whichever library creates them.

    Args:
        private: False to change nothing.
    """
    if not private:
        yield
        return
    before = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(before)


def clear_partials(folder: Path) -> None:
    """Remove temporary files that killed writers have left in a folder."""
    for leftover in folder.glob(_PARTIAL):
        if not leftover.is_dir() or leftover.is_symlink():
            leftover.unlink(missing_ok=True)


@contextmanager
def locked(path: Path, taken: str) -> Iterator[None]:
    """Hold a lock file while the block runs. Locking empties the file, so links are refused.

    Args:
        path: The lock file; it is created if missing.
        taken: Error text if another process holds the lock.

    Raises:
        UsvitError: Another process holds the lock, the file is a link, or the folder cannot be written.
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


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder of results, so that the files of two commands are never mixed.

    The folder is created if missing. At the end, the lock file is removed, and so is the folder if it is empty.

    Raises:
        UsvitError: Another process writes into the folder, or it cannot be written.
    """
    make_folder(folder)
    path = folder / LOCK
    with locked(path, f"Another process is working on {folder}. Wait for it, or choose another --out."):
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                folder.rmdir()  # empty after an error


class Folder:
    """Handle of a folder; names refer to this folder even if its path is exchanged."""

    def __init__(self, path: Path, handle: int | None):
        self._path, self._handle = path, handle

    def open(self, name: str, flags: int, mode: int) -> int:
        return os.open(self._of(name), flags | _NOFOLLOW | _CLOEXEC | _BINARY, mode, dir_fd=self._handle)

    def replace(self, name: str, new: str) -> None:
        """Rename a file; a link with the new name is replaced, not followed."""
        os.replace(self._of(name), self._of(new), src_dir_fd=self._handle, dst_dir_fd=self._handle)

    def move(self, name: str, target: "Folder") -> None:
        """Move a file into another folder of the same file system, under the same name."""
        os.rename(self._of(name), target._of(name), src_dir_fd=self._handle, dst_dir_fd=target._handle)

    def unlink(self, name: str) -> None:
        os.unlink(self._of(name), dir_fd=self._handle)

    def _of(self, name: str) -> str | Path:
        return name if self._handle is not None else self._path / name


@contextmanager
def folder_within(path: Path, root: Path | None = None) -> Iterator[Folder]:
    """Open a folder such that no link leads out of the root.

    The user named the root, which may be, or lie below, a link to a larger disk. Folders below the root may come from
    an archive, so that a link among them could lead anywhere; such links are refused.

    Args:
        path: The folder; it is created if missing.
        root: The folder itself or a parent of it; None for the folder itself.

    Raises:
        UsvitError: A folder below the root is a symbolic link.
        OSError: The folder cannot be created or opened.
        ValueError: The folder is not below the root.
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
    """Refuse a folder of results that contains a symbolic link to a folder, since writes could go anywhere.

    The root itself may be a link, because the user named it.

    Raises:
        UsvitError: The folder contains such a link.
    """
    for folder, names, _ in os.walk(root):
        for name in names:
            refuse_link(Path(folder, name))


def refuse_link(path: Path) -> None:
    """Refuse a symbolic link, and a file with several hard links."""
    try:
        status = path.lstat()
    except OSError:
        return
    if stat.S_ISLNK(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink > 1):
        raise UsvitError(
            f"{path} is a link, which could lead to any of your files, so nothing is written to it. "
            "Remove the link and run the same command again."
        )


def copy_file(source: Path, target: Path) -> None:
    """Copy the content of a file atomically."""
    with open(source, "rb") as content:
        write_atomic(target, lambda file: shutil.copyfileobj(content, file))


def copy_folder(source: Path, target: Path, but: tuple[str, ...] = ()) -> None:
    """Copy the files of a folder without subfolders, except those that match a pattern in ``but``; overwrite others."""
    for path in sorted(source.iterdir()):
        if not any(fnmatch.fnmatchcase(path.name, pattern) for pattern in but):
            copy_file(path, target / path.name)


def no_follow(path: str, flags: int) -> int:
    """Open a file that must not be a symbolic link; an ``opener`` for ``open``."""
    return os.open(path, flags | _NOFOLLOW | _CLOEXEC, 0o666)
