"""Walk over folders and globs in the same order on every machine, following links but never in a loop.

``os.walk`` and ``glob`` follow a loop of links until the path is too long, have no defined order, and do not report
what they cannot read.
"""

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Identity = tuple[int, int]
"""Device and inode, which identify a file or folder independently of its path."""

MAGIC = re.compile(r"[*?\[]")
"""Characters that turn a path into a glob."""


_MAX_NATURAL = 4096
"""Maximum length of a name whose numbers are sorted as numbers, the maximum length of a path on Linux."""


@dataclass(frozen=True)
class FoundFile:
    """A file (or other entry that is not a folder), or a folder that cannot be walked."""

    name: str
    """Path relative to the start of the walk, with forward slashes."""
    path: str
    problem: str | None = None
    """A code of ``items.FAILURES``."""


class Pattern:
    """A glob that is matched one name at a time, so that a folder in which nothing can match is not listed.

    ``*``, ``?`` and ``[...]`` match characters of one name, also of a hidden file; ``**`` matches any number of
    folders. The contents of a matching folder match as well. Matching is case-sensitive on every system.
    """

    def __init__(self, parts: Sequence[str]):
        self._parts = [None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts]
        self.start = self._with_skips({0})
        """Positions in the pattern before the first name."""

    def after(self, state: frozenset[int], name: str) -> frozenset[int]:
        """Return the positions after one more name; empty if nothing below it can match."""
        if self.matches(state):
            return frozenset({len(self._parts)})
        positions = set()
        for position in state:
            part = self._parts[position]
            if part is None:
                positions.add(position)
            elif part.match(name):
                positions.add(position + 1)
        return self._with_skips(positions)

    def matches(self, state: frozenset[int]) -> bool:
        return len(self._parts) in state

    def _with_skips(self, positions: set[int]) -> frozenset[int]:
        """Add the positions after each ``**``, which may match no folder at all."""
        for position in sorted(positions):
            while position < len(self._parts) and self._parts[position] is None:
                position += 1
                positions.add(position)
        return frozenset(positions)


EVERYTHING = Pattern(())


@dataclass(frozen=True)
class _Folder:
    """A folder that is being walked."""

    entries: Iterator[os.DirEntry[str]]
    prefix: str
    state: frozenset[int]
    identity: Identity
    linked: bool
    """True if a link was followed on the way to it."""


class Walk:
    """Walks over several folders and visits each folder once.

    Args:
        roots: folders that are walked completely. A link to a folder inside one of them is not followed, because its
            files are found under their own names.
        exclude: folder to leave out wherever it is reached.
    """

    def __init__(self, roots: Sequence[str] = (), exclude: Path | None = None):
        self._roots = [os.path.realpath(root) for root in roots]
        self._left_out = None if exclude is None else os.path.realpath(exclude)
        self._walked: set[tuple[Identity, frozenset[int]]] = set()

    def below(self, root: str, pattern: Pattern = EVERYTHING) -> Iterator[FoundFile]:
        """Yield all entries below a folder that are not folders, in natural order of names, folder by folder.

        Symbolic links are followed. A link to a folder above it is yielded with the problem ``loop``. A folder outside
        ``roots`` that several links point to is walked through the first one only. An entry that is neither a file nor
        a folder (a pipe, a socket, a device) has the problem ``not_an_image``, a folder that cannot be listed
        ``unreadable``, and a dangling link ``not_found``. No file is opened. Memory grows with the largest folder and
        the depth, not with the number of files.

        Args:
            root: absolute path of the folder to walk.
            pattern: glob that the entries must match.
        """
        above: set[Identity] = set()
        stack: list[_Folder] = []
        if self._is_left_out(root):
            return
        begun = self._enter(root, "", pattern.start, above, linked=False)
        if isinstance(begun, FoundFile):
            yield begun
            return
        stack.append(begun)
        while stack:
            folder = stack[-1]
            entry = next(folder.entries, None)
            if entry is None:
                above.remove(stack.pop().identity)
                continue
            state = pattern.after(folder.state, entry.name)
            if not state:
                continue
            name, matched = folder.prefix + entry.name, pattern.matches(state)
            try:
                status = entry.stat()
            except (OSError, ValueError) as error:
                if matched or entry.is_dir(follow_symlinks=False):
                    yield FoundFile(name, entry.path, problem_of(error))
                continue
            if not stat.S_ISDIR(status.st_mode):
                if matched:
                    yield FoundFile(name, entry.path, None if stat.S_ISREG(status.st_mode) else "not_an_image")
                continue
            identity, link = (status.st_dev, status.st_ino), entry.is_symlink()
            if self._is_left_out(entry.path):
                continue
            if identity in above or (link and _leads_above(entry.path)):
                if matched:
                    yield FoundFile(name, entry.path, "loop")
                continue
            if link and self._comes_anyway(entry.path):
                continue
            linked = link or folder.linked
            if linked or pattern is not EVERYTHING:
                if (identity, state) in self._walked:
                    continue
                self._walked.add((identity, state))
            inner = self._enter(entry.path, f"{name}/", state, above, linked=linked)
            if isinstance(inner, FoundFile):
                yield inner
            else:
                stack.append(inner)

    def _enter(
        self, path: str, prefix: str, state: frozenset[int], above: set[Identity], *, linked: bool
    ) -> _Folder | FoundFile:
        try:
            with os.scandir(path) as listing:
                entries = sorted(listing, key=lambda entry: natural(entry.name))
            identity = identity_of(path)
        except OSError as error:
            return FoundFile(prefix.removesuffix("/"), path, problem_of(error))
        above.add(identity)
        return _Folder(iter(entries), prefix, state, identity, linked)

    def _is_left_out(self, path: str) -> bool:
        return self._left_out is not None and _is_inside(os.path.realpath(path), self._left_out)

    def _comes_anyway(self, path: str) -> bool:
        target = os.path.realpath(path)
        return any(_is_inside(target, root) for root in self._roots)


def natural(name: str) -> tuple[list[Any], str]:
    """Return a sorting key: ``IM2`` before ``IM10``, otherwise by code points; different names have different keys."""
    if len(name) > _MAX_NATURAL:  # impossible in a file system, but not in an archive
        return [name], name
    parts: list[Any] = re.split("([0-9]+)", name)
    for index in range(1, len(parts), 2):
        digits = parts[index].lstrip("0")
        parts[index] = (len(digits), digits)  # never int(): a name in an archive may have 65,535 digits
    return parts, name


def _is_inside(path: str, folder: str) -> bool:
    """Return whether a real path is the folder itself or lies below it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def identity_of(path: str, *, follow: bool = True) -> Identity:
    status = os.stat(path, follow_symlinks=follow)
    return status.st_dev, status.st_ino


def is_folder(path: Path) -> bool:
    """Like ``Path.is_dir``, but return False if a parent folder cannot be entered, instead of raising."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _leads_above(link: str) -> bool:
    """Return whether a link points to a folder that contains the link itself."""
    return _is_inside(os.path.realpath(Path(link).parent), os.path.realpath(link))


def problem_of(error: OSError | ValueError) -> str:
    """Return the code of ``items.FAILURES`` for a path that cannot be accessed."""
    number = error.errno if isinstance(error, OSError) else errno.ENOENT  # ValueError: a NUL in the path
    if number in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        return "not_found"
    return "loop" if number == errno.ELOOP else "unreadable"
