"""Watched folders: another way in for images, beside DICOM associations."""

import contextlib
import errno
import logging
import os
import shutil
import stat
import time
from pathlib import Path

from usvit.config.node import WatchedFolderConfig
from usvit.data.io import HEAD_BYTES, kind_of
from usvit.node.receiving.instance_store import InstanceStore, Outcome

logger = logging.getLogger(__name__)

MOST_A_ROUND = 200
"""Number of files that are taken in at once, so that the other work of the supervisor is not kept waiting."""


class FolderWatcher:
    """Takes in the DICOM files of one folder and the folders in it.

    A file is taken in when its size and time have not changed for ``settle_seconds``. Files that are no DICOM files, or
    that cannot be taken in, stay where they are. Symbolic links are not followed.

    Args:
        settings: the folder and its settings.
        store: takes in the instances.
    """

    def __init__(self, settings: WatchedFolderConfig, store: InstanceStore):
        self._settings, self._store = settings, store
        self._seen: dict[str, tuple[tuple[int, int], float]] = {}
        """File -> its size and time, and when they were first seen."""
        self._finished: dict[str, tuple[int, int]] = {}
        """Files that stay, with the size and time with which they were looked at."""

    def look(self) -> int:
        """Take in the files that have settled, and return the number of new instances."""
        now, taken, found = time.monotonic(), 0, set()
        for path, state in self._files():
            name = str(path)
            found.add(name)
            if self._finished.get(name) == state:
                continue
            before, since = self._seen.get(name, (None, now))
            if before != state:
                self._seen[name] = (state, now)
                since = now
            if now - since < self._settings.settle_seconds or taken >= MOST_A_ROUND:
                continue
            outcome = self._take(path)
            if outcome is Outcome.FULL:
                break  # try again later
            taken += outcome is Outcome.STORED
            self._seen.pop(name, None)
            if outcome in (Outcome.STORED, Outcome.DUPLICATE) and not self._settings.keep:
                with contextlib.suppress(OSError):
                    path.unlink()
            else:
                self._finished[name] = state
        for known in (self._seen, self._finished):
            for name in known.keys() - found:
                del known[name]
        return taken

    def _files(self) -> list[tuple[Path, tuple[int, int]]]:
        found = []
        for folder, _, names in os.walk(self._settings.path):
            for name in names:
                path = Path(folder, name)
                with contextlib.suppress(OSError):
                    status = path.lstat()
                    if stat.S_ISREG(status.st_mode):
                        found.append((path, (status.st_size, status.st_mtime_ns)))
        return sorted(found)

    def _take(self, path: Path) -> Outcome:
        partial = self._store.partial()
        try:
            with open(path, "rb") as source:
                if kind_of(source.read(HEAD_BYTES)) != "dicom":
                    return Outcome.INVALID
                source.seek(0)
                with open(partial, "xb") as copy:
                    shutil.copyfileobj(source, copy, 1 << 20)
        except OSError as error:
            partial.unlink(missing_ok=True)
            if error.errno in (errno.ENOSPC, errno.EDQUOT):
                return Outcome.FULL
            return Outcome.INVALID
        return self._store.take(partial, source="folder").outcome
