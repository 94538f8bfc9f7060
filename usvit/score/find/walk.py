"""Folders and globs walked in one order on every machine, through links but never in circles.

``os.walk`` and ``glob`` go round in a loop of links until a path is too long, keep no order, and say nothing of what
they cannot read.
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
"""Device and inode: what a file or folder is, whatever it is called."""

MAGIC = re.compile(r"[*?\[]")
"""What makes a glob of a text."""


MAX_NATURAL = 4096
"""Characters of a name whose numbers are sorted as numbers: as many as a path may have on Linux."""


@dataclass(frozen=True)
class Found:
    """Something that is no folder, or a folder that cannot be walked."""

    name: str
    """Relative to where the walk began, with forward slashes."""
    path: str
    problem: str | None = None
    """A code of ``records.FAILURES``."""


class Pattern:
    """The parts of a glob, met one name at a time, so that a folder in which nothing can match is not listed.

    ``*``, ``?`` and ``[...]`` stand for characters of one name, hidden ones too; ``**`` for any number of folders. What
    lies in a folder that matches, matches. Case counts on every system.
    """

    def __init__(self, parts: Sequence[str]):
        self._parts = [None if part == "**" else re.compile(fnmatch.translate(part)) for part in parts]
        self.start = self._with_skips({0})
        """Positions in the pattern before the first name."""

    def after(self, state: frozenset[int], name: str) -> frozenset[int]:
        """Positions after one more name; empty: nothing below it can match."""
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
        """``**`` may stand for no folder at all."""
        for position in sorted(positions):
            while position < len(self._parts) and self._parts[position] is None:
                position += 1
                positions.add(position)
        return frozenset(positions)


EVERYTHING = Pattern(())


@dataclass(frozen=True)
class _Folder:
    """One that is being walked."""

    entries: Iterator[os.DirEntry[str]]
    prefix: str
    state: frozenset[int]
    identity: Identity
    linked: bool
    """Whether a link was followed on the way."""


class Walk:
    """Walks over several folders, which know of each other.

    Args:
        roots: folders that are walked as a whole. A link to a folder in one of them is not followed, for what it
            holds comes under its own name.
        exclude: a folder to leave out, wherever it is met.
    """

    def __init__(self, roots: Sequence[str] = (), exclude: Path | None = None):
        self._roots = [os.path.realpath(root) for root in roots]
        self._left_out = None if exclude is None else os.path.realpath(exclude)
        self._walked: set[tuple[Identity, frozenset[int]]] = set()

    def below(self, root: str, pattern: Pattern = EVERYTHING) -> Iterator[Found]:
        """Everything below a folder that is no folder itself, in natural order of names, folder by folder.

        Symbolic links are followed. One that leads to a folder above it, be it in the input or beyond, is found with
        the problem ``loop``; a folder outside of ``roots`` to which several links lead is walked through the first one
        only. What is neither a file nor a folder (a pipe, a socket, a device) is found with ``not_an_image``, a folder
        that cannot be listed with ``unreadable``, a link to nothing with ``not_found``. Nothing is opened. Memory grows
        with the largest folder and the depth, not with the number of files.

        Args:
            root: where to begin, absolute.
            pattern: what to find.
        """
        above: set[Identity] = set()
        stack: list[_Folder] = []
        if self._is_left_out(root):
            return
        begun = self._enter(root, "", pattern.start, above, linked=False)
        if isinstance(begun, Found):
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
                    yield Found(name, entry.path, problem_of(error))
                continue
            if not stat.S_ISDIR(status.st_mode):
                if matched:
                    yield Found(name, entry.path, None if stat.S_ISREG(status.st_mode) else "not_an_image")
                continue
            identity, link = (status.st_dev, status.st_ino), entry.is_symlink()
            if self._is_left_out(entry.path):
                continue
            if identity in above or (link and _leads_above(entry.path)):
                if matched:
                    yield Found(name, entry.path, "loop")
                continue
            if link and self._comes_anyway(entry.path):
                continue
            linked = link or folder.linked
            if linked or pattern is not EVERYTHING:
                if (identity, state) in self._walked:
                    continue
                self._walked.add((identity, state))
            inner = self._enter(entry.path, f"{name}/", state, above, linked=linked)
            if isinstance(inner, Found):
                yield inner
            else:
                stack.append(inner)

    def _enter(
        self, path: str, prefix: str, state: frozenset[int], above: set[Identity], *, linked: bool
    ) -> _Folder | Found:
        try:
            with os.scandir(path) as listing:
                entries = sorted(listing, key=lambda entry: natural(entry.name))
            identity = identity_of(path)
        except OSError as error:
            return Found(prefix.removesuffix("/"), path, problem_of(error))
        above.add(identity)
        return _Folder(iter(entries), prefix, state, identity, linked)

    def _is_left_out(self, path: str) -> bool:
        return self._left_out is not None and is_inside(os.path.realpath(path), self._left_out)

    def _comes_anyway(self, path: str) -> bool:
        target = os.path.realpath(path)
        return any(is_inside(target, root) for root in self._roots)


def natural(name: str) -> tuple[list[Any], str]:
    """Sorting key: ``IM2`` before ``IM10``, by code points else; no two names are equal."""
    if len(name) > MAX_NATURAL:  # no file system has it, but an archive may have thousands
        return [name], name
    parts: list[Any] = re.split("([0-9]+)", name)
    for index in range(1, len(parts), 2):
        digits = parts[index].lstrip("0")
        parts[index] = (len(digits), digits)  # never int(): a name in an archive may have 65,535 digits
    return parts, name


def is_inside(path: str, folder: str) -> bool:
    """Whether a real path is a folder's own or lies below it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def identity_of(path: str, *, follow: bool = True) -> Identity:
    status = os.stat(path, follow_symlinks=follow)
    return status.st_dev, status.st_ino


def is_folder(path: Path) -> bool:
    """As ``Path.is_dir``, which raises where a folder above may not be entered."""
    try:
        return path.is_dir()
    except OSError:
        return False


def _leads_above(link: str) -> bool:
    """Whether a link to a folder leads to one in which the link itself lies, in the input or above it."""
    return is_inside(os.path.realpath(Path(link).parent), os.path.realpath(link))


def problem_of(error: OSError | ValueError) -> str:
    """The code of ``records.FAILURES`` for a path that cannot be looked at."""
    number = error.errno if isinstance(error, OSError) else errno.ENOENT  # ValueError: a NUL in the path
    if number in (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG):
        return "not_found"
    return "loop" if number == errno.ELOOP else "unreadable"
