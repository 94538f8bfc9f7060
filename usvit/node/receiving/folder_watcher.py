"""Watched folders: another way in for images, beside DICOM associations.

A file that has settled is first moved to a random place in ``.usvit/taking`` of the watched folder, where no exporter
writes, and then copied from there. What is deleted is therefore exactly what was copied, even if an exporter writes a
new file with the same name meanwhile. A file that was moved and not taken in, because the service was killed, is taken
in at the next start. A DICOM file that is refused is moved to ``.usvit/refused/<reason>-<ticket>``.
"""

import contextlib
import errno
import logging
import os
import secrets
import stat
import time
from pathlib import Path
from typing import BinaryIO

from usvit.data.io import HEAD_BYTES, kind_of
from usvit.errors import UsvitError
from usvit.files import folder_within, regular_file
from usvit.node.config.settings import WatchedFolderConfig
from usvit.node.receiving.instance_store import InstanceStore, Outcome

logger = logging.getLogger(__name__)

_MOST_A_ROUND = 200
"""Number of files that are taken in at once, so that the other work of the supervisor is not kept waiting."""
_PRIVATE = ".usvit"
"""Folder of the node in a watched folder."""
_CHUNK = 1 << 20
_DONE = (Outcome.STORED, Outcome.DUPLICATE)
_State = tuple[int, int, int]
"""Inode, size and time of a file."""


class FolderWatcher:
    """Takes in the DICOM files of one folder and the folders in it.

    A file is taken in when it has not changed for ``settle_seconds``. Files that are no DICOM files stay where they
    are; links, pipes and devices are not looked at. Links among the folders are not followed.

    Args:
        settings: the folder and its settings.
        store: takes in the instances.
    """

    def __init__(self, settings: WatchedFolderConfig, store: InstanceStore):
        self._settings, self._store = settings, store
        self._seen: dict[Path, tuple[_State, float]] = {}
        """File -> its state, and when it was first seen."""
        self._finished: dict[Path, _State] = {}
        """Files that stay, with the state in which they were looked at."""

    def look(self) -> int:
        """Take in the files that have settled, and return the number of new instances."""
        now, taken, found = time.monotonic(), 0, set()
        for path, state in self._files():
            found.add(path)
            if self._finished.get(path) == state:
                continue
            before, since = self._seen.get(path, (None, now))
            if before != state:
                self._seen[path] = (state, now)
                since = now
            if now - since < self._settings.settle_seconds or taken >= _MOST_A_ROUND:
                continue
            outcome = self._take(path, state)
            if outcome is Outcome.FULL:
                break  # try again later
            taken += outcome is Outcome.STORED
        for known in (self._seen, self._finished):
            for path in known.keys() - found:
                del known[path]
        return taken

    def _files(self) -> list[tuple[Path, _State]]:
        """Return the regular files with their states; those that were moved already come first."""
        moved, others = list[tuple[Path, _State]](), list[tuple[Path, _State]]()
        taking = self._settings.path / _PRIVATE / "taking"
        for folder, folders, names in os.walk(self._settings.path):
            here = Path(folder)
            if here == self._settings.path / _PRIVATE:
                folders[:] = ["taking"] if "taking" in folders else []
                continue
            for name in names:
                with contextlib.suppress(OSError):
                    status = (here / name).lstat()
                    if stat.S_ISREG(status.st_mode):
                        (moved if here.parent == taking else others).append((here / name, _state(status)))
        return sorted(moved) + sorted(others)

    def _take(self, path: Path, state: _State) -> Outcome | None:
        """Take in a settled file; None if it stays where it is, or has changed and must settle again."""
        moved = self._is_moved(path)
        if not moved and not self._looks_right(path):
            self._finished[path] = state
            return None
        if not self._store.has_room(min(state[1], self._store.max_bytes)):
            return Outcome.FULL
        if not moved and not self._settings.keep:
            place = self._move(path, "taking", secrets.token_hex(8))
            self._seen.pop(path, None)
            if place is not None:
                path, moved = place, True
        outcome = self._copied(path, state)
        if outcome is None or outcome is Outcome.FULL:
            return outcome
        if not moved:
            self._finished[path] = state
        elif outcome in _DONE:
            with contextlib.suppress(OSError):
                path.unlink()
            _tidy(path.parent)
        else:
            self._set_aside(path, state, outcome)
        return outcome

    def _copied(self, path: Path, settled: _State) -> Outcome | None:
        """Copy a file into the store; None if it is not what had settled, or was written to meanwhile."""
        try:
            source = regular_file(path)
        except UsvitError:  # a link, a pipe or a folder was put in its place
            return Outcome.INVALID
        partial = self._store.partial()
        with source:
            if _state(os.fstat(source.fileno())) != settled:
                return None
            if settled[1] > self._store.max_bytes:
                return Outcome.TOO_LARGE
            if not self._store.has_room(settled[1]):
                return Outcome.FULL
            try:
                readable = _copy(source, partial, settled[1])
            except OSError as error:
                partial.unlink(missing_ok=True)
                if error.errno in (errno.ENOSPC, errno.EDQUOT):
                    return Outcome.FULL
                raise
            if not readable or _state(os.fstat(source.fileno())) != settled:
                partial.unlink()
                return None if readable else Outcome.INVALID
        return self._store.take(partial, source="folder").outcome

    def _looks_right(self, path: Path) -> bool:
        """Return whether a file begins like a DICOM file."""
        try:
            with regular_file(path) as file:
                return kind_of(file.read(HEAD_BYTES)) == "dicom"
        except (OSError, UsvitError):
            return False

    def _is_moved(self, path: Path) -> bool:
        return path.is_relative_to(self._settings.path / _PRIVATE)

    def _move(self, path: Path, to: str, ticket: str) -> Path | None:
        """Move a file into ``.usvit/<to>/<ticket>``, without following links; None if that is not possible."""
        top = self._settings.path
        place = top / _PRIVATE / to / ticket
        try:
            with folder_within(path.parent, top) as source, folder_within(place, top) as target:
                source.move(path.name, target)
        except (OSError, UsvitError):  # gone meanwhile, a folder that only others may write, another file system
            _tidy(place)
            return None
        return place / path.name

    def _set_aside(self, path: Path, state: _State, outcome: Outcome) -> None:
        ticket = path.parent.name
        if self._move(path, "refused", f"{outcome.value}-{ticket}") is None:
            self._finished[path] = state
            return
        _tidy(path.parent)
        self._store.tell_set_aside(outcome.value, ticket)
        logger.warning(f"A file was set aside in {self._settings.path / _PRIVATE / 'refused'} ({outcome.value}).")


def _tidy(place: Path) -> None:
    """Remove ``.usvit/<to>/<ticket>`` as far as its folders are empty and no links."""
    with contextlib.suppress(OSError):
        for folder in (place, *place.parents[:2]):
            folder.rmdir()


def _state(status: os.stat_result) -> _State:
    return status.st_ino, status.st_size, status.st_mtime_ns


def _copy(source: BinaryIO, target: Path, n_bytes: int) -> bool:
    """Copy at most ``n_bytes`` into a new file; return False if the source cannot be read.

    Raises:
        OSError: the target cannot be written.
    """
    with open(target, "xb") as copy:
        while n_bytes > 0:
            try:
                chunk = source.read(min(n_bytes, _CHUNK))
            except OSError:
                return False
            if not chunk:
                return True
            copy.write(chunk)
            n_bytes -= len(chunk)
    return True
