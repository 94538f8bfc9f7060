"""The folder that a command writes: nothing foreign in it is changed, and two processes never write into it at once.

Every command that writes a folder describes it as an ``OutputFolder``. The class refuses a folder that holds anything
else, keeps other processes out with a lock, and writes a folder that must be complete or absent beside its place first.
What makes an earlier call the same one, which is resumed, is for the command to say: it reads the record.
"""

import contextlib
import errno
import math
import os
import secrets
import shutil
import time
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from usvit.errors import UsvitError
from usvit.files.write import (
    LOCK,
    disk_errors,
    for_the_owner_alone,
    locked,
    make_folder,
    refuse_linked_folders,
    without_partial_ending,
)

ABANDONED_AFTER_S = 3600
"""Seconds after which a hidden partial folder that has not changed belongs to a process that was killed."""


class TakenFolder(UsvitError):
    """Another process has written to the folder in the meantime."""


@dataclass(frozen=True)
class OutputFolder:
    """A folder that a command writes.

    Attributes:
        path: The folder.
        what: What it holds, for errors, such as ``a run``.
        record: File that says what the folder holds, such as ``run.json``. If it exists, the folder may have any other
            files, because users and other commands add theirs; the command compares the record with its own. Empty if
            each call replaces the files of the last one.
        files: Names of other files that a call may find, from an earlier call or from one that was killed. A pattern
            may be used (``fold-*/predictions.csv``), and the name of a subfolder stands for everything in it.
        instead: How the user names another folder, for errors.
    """

    path: Path
    what: str
    record: str = ""
    files: Collection[str] = ()
    instead: str = "choose another folder with --out"

    def has_record(self) -> bool:
        """Return whether an earlier call has written its record. Errors are those of ``refuse_other_files``."""
        self.refuse_other_files()
        return bool(self.record) and (self.path / self.record).is_file()

    def refuse_other_files(self) -> None:
        """Refuse a folder with other files than this command writes.

        Raises:
            UsvitError: The folder has such files and no record, is a file, or cannot be read. Nothing is changed.
        """
        advice = f"Nothing was changed: {self.instead}."
        with disk_errors(self.path):
            if self.record and (self.path / self.record).is_file():
                return
            if self.path.exists() and not self.path.is_dir():
                raise UsvitError(f"{self.path} is a file, so it is not {self.what} of usvit. {advice}")
            entries = self.path.iterdir() if self.path.is_dir() else ()
            foreign = sorted(entry.name for entry in entries if not self._is_own(entry))
        if foreign:
            raise UsvitError(
                f"{self.path} is not empty and is not {self.what} of usvit: it holds other files, such as "
                f"{foreign[0]}. {advice}"
            )

    def _is_own(self, entry: Path) -> bool:
        name = without_partial_ending(entry.relative_to(self.path).as_posix())
        if any(fnmatchcase(name, own) for own in (LOCK, self.record, *self.files)):
            return True
        return entry.is_dir() and not entry.is_symlink() and all(map(self._is_own, entry.iterdir()))

    @contextmanager
    def opened(self, *, private: bool = False, verb: str = "working on") -> Iterator[None]:
        """Create the folder, and keep other processes out of it while the block runs.

        Args:
            private: Whether only the owner may read what is written.
            verb: What another process is doing with the folder, for the error.

        Raises:
            UsvitError: As ``refuse_other_files``; another process has the lock; the folder contains a link to a folder,
                or cannot be written.
        """
        self.refuse_other_files()  # before anything is written
        is_new = not self.path.exists()
        lock = self.path / LOCK
        with for_the_owner_alone(private):
            make_folder(self.path)
            refuse_linked_folders(self.path)
            with locked(lock, f"Another process is {verb} {self.path}. Wait for it, or {self.instead}."):
                try:
                    self.refuse_other_files()  # another process may have written in between
                    self._clear_temporary_files()
                    yield
                finally:
                    with contextlib.suppress(OSError):
                        lock.unlink()
                        if is_new:
                            self.path.rmdir()  # succeeds only if the block has written nothing

    def _clear_temporary_files(self) -> None:
        """Remove what a killed process left while it wrote one of the files."""
        for entry in self.path.iterdir():
            if without_partial_ending(entry.name) != entry.name and entry.is_file() and self._is_own(entry):
                entry.unlink()

    @contextmanager
    def staged(self, *, private: bool = False, replaces: Collection[str] = ()) -> Iterator[Path]:
        """Yield a hidden folder that takes this one's place if the block succeeds, and is deleted if it fails.

        Args:
            private: Whether only the owner may read what is written.
            replaces: Files of an earlier call that are replaced one by one if the folder is not empty; others are kept.

        Raises:
            TakenFolder: Another process has written to the folder in the meantime.
            UsvitError: The disk is full or cannot be written.
        """
        out = self.path.absolute()
        prefix = f".{out.name}.partial-"
        partial = out.with_name(prefix + secrets.token_hex(16))
        with disk_errors(self.path), for_the_owner_alone(private):
            try:
                partial.mkdir(parents=True)
                _clear_abandoned(out.parent, prefix)
                yield partial
                _put(partial, out, replaces)
            finally:
                shutil.rmtree(partial, ignore_errors=True)


def _put(partial: Path, out: Path, replaces: Collection[str]) -> None:
    if replaces and out.is_dir() and any(out.iterdir()):
        for name in replaces:
            (partial / name).replace(out / name)
        return
    try:
        if out.is_dir():
            out.rmdir()  # it was empty when it was checked
        os.replace(partial, out)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            raise TakenFolder(
                f"Another process has written to {out}, so it is not empty any more. Nothing was changed: choose "
                "another folder with --out."
            ) from error
        raise


def _clear_abandoned(parent: Path, prefix: str) -> None:
    """Remove partial folders that killed processes have left."""
    oldest = time.time() - ABANDONED_AFTER_S
    for leftover in parent.iterdir():
        if leftover.name.startswith(prefix) and leftover.is_dir() and _last_changed(leftover) < oldest:
            shutil.rmtree(leftover, ignore_errors=True)


def _last_changed(folder: Path) -> float:
    # The time of a folder changes when a file is added, so the first level is enough.
    try:
        return max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:  # it was removed meanwhile, so its owner is still running
        return math.inf
