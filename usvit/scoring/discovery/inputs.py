"""Discovery of every file behind ``--input``, each once and in the same order on every machine.

**Names.** Pseudonyms are made of ``ScoringItem.name``, and the paths of a label table are compared with it. With one
input, the name of a file is

- in a folder: the path below that folder (``a/IM1``), with forward slashes on every system;
- found by a glob: the path below the folder before the first ``*``, ``?`` or ``[``, so that ``export`` and
  ``export/**/*.dcm`` give a file the same name;
- listed in a table or DICOMDIR: the path relative to the folder of the list, including ``../``;
- passed directly: its own name;
- in an archive: the name of the archive, ``!`` and the name of the member (``a/b.zip!IM1``).

With several inputs, the name begins with the name of the folder (``export_a/a/IM1``): the folder that was passed, the
one before the ``*`` of a glob, or the one of a list. Two folders or two files with the same name are an error.

A name is unique in a job. Clashes are resolved by ``//``, which no path contains: ``a.zip!//b`` if something beside the
archive has a name that begins with ``a.zip!``, ``IM1//3`` for frame 3 if a table lists several frames of a file, and
``a.zip!IM1//1`` for a member that is hidden by a later one with the same name.

**Contents.** All files are found, including hidden files and system files. A file that is not an image becomes a
failure with a reason. A file behind a link has the name of the link. A folder that is reached several times is walked
once: a link to a folder inside the inputs is skipped, and a folder outside them is walked through the first link to it.
A file in several inputs belongs to the first of them (this needs about 150 bytes of memory per file, with several
inputs only).

A zip archive, recognised by its content, is treated as a folder. A member that is encrypted, damaged or itself an
archive becomes a failure (``archive``); so does, as a single file, an archive that is damaged or a decompression bomb.
Office documents are zip archives as well, but are treated as single files.
"""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path

from usvit.errors import UsvitError
from usvit.limited import LimitedCalls, LimitReached
from usvit.scoring.discovery import archives, file_lists
from usvit.scoring.discovery.folders import MAGIC, FoundFile, Pattern, Walk, identity_of, is_folder, problem_of
from usvit.scoring.items import ScoringItem

_Things = Iterable[FoundFile | file_lists.Listed]


@dataclass(frozen=True)
class _Input:
    """One ``--input``."""

    label: str
    """Prefix of its names if there are several inputs."""
    anchor: str
    """Real path of the folder or file that the label stands for."""
    things: Callable[[Walk], _Things]
    """Yields its files; their names are relative to the anchor."""
    single: bool = False
    """True if it is a single file, whose label is its name."""
    whole: str | None = None
    """The folder, if all of it is walked."""


def discover(inputs: Sequence[str], exclude: Path | None = None) -> Iterator[ScoringItem]:
    """Find the files to score; the module docstring describes names and contents.

    Wrong inputs raise before the first item is returned. Folders and archives are in natural order of names (``IM2``
    before ``IM10``), lists keep their order, and inputs are in the order in which they are passed.

    Args:
        inputs: values of ``--input``: folders, files, globs (``*``, ``?``, ``[...]``, ``**``), zip archives, tables
            (.csv, .tsv, .xlsx, .parquet with a column ``path``), DICOMDIRs.
        exclude: folder to leave out, because the results may be written inside an input.

    Returns:
        The items, found lazily: memory grows with the largest folder, archive or list, not with their number. An item
        with a ``problem`` cannot be read.

    Raises:
        UsvitError: no input was passed, an input does not exist or cannot be listed, a glob matches nothing, two inputs
            have the same name, a table or DICOMDIR is damaged or invalid (``file_lists.read_table``), or no file was
            found.
    """
    texts = list(dict.fromkeys(inputs))
    if not texts or not all(texts):
        raise UsvitError("No input was given. Pass --input with a folder, a file, a 'glob/**' or a table.")
    found = [_look_at(text) for text in texts]
    _refuse_twins(texts, found)
    items = _Discovery(found, exclude).items()
    first = next(items, None)
    if first is None:
        left_out = "" if exclude is None else " beside the output folder"
        raise UsvitError(f"There is nothing to score: no file in {', '.join(map(_shown, texts))}{left_out}.")
    return chain([first], items)


def _look_at(text: str) -> _Input:
    path = Path(text).absolute()
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        if MAGIC.search(text) and not os.path.lexists(path):
            return _glob(text)
        what = "does not exist" if problem_of(error) == "not_found" else "cannot be read"
        raise UsvitError(f"The input {_shown(text)} {what}. Check --input (and quote a glob).") from error
    if stat.S_ISDIR(status.st_mode):
        try:
            os.scandir(path).close()
        except OSError as error:
            raise UsvitError(f"The input {_shown(text)} cannot be listed: {os.strerror(error.errno or 0)}.") from error
        return _folder(path, lambda walk: walk.below(str(path)), whole=str(path))
    if stat.S_ISREG(status.st_mode):
        if path.suffix.lower() in file_lists.TABLE_SUFFIXES:
            rows = file_lists.read_table(path, _shown(text))
            return _folder(path.parent, lambda walk: rows)
        if _is_dicomdir(path):
            references = file_lists.read_dicomdir(path, _shown(text))
            return _folder(path.parent, lambda walk: file_lists.find_referenced(path.parent, references))
    return _Input(path.name, os.path.realpath(path), lambda walk: [FoundFile(path.name, str(path))], single=True)


def _folder(path: Path, things: Callable[[Walk], _Things], whole: str | None = None) -> _Input:
    # normpath, because '..' has no name.
    return _Input(Path(os.path.normpath(path)).name or "root", os.path.realpath(path), things, whole=whole)


def _glob(text: str) -> _Input:
    parts = text.replace(os.sep, "/").split("/")
    first = next(index for index, part in enumerate(parts) if MAGIC.search(part))
    base = Path("/".join(parts[:first]) or ("/" if text.startswith("/") else ".")).absolute()
    pattern = Pattern([part for part in parts[first:] if part not in ("", ".")])
    if not is_folder(base) or next(iter(Walk().below(str(base), pattern)), None) is None:
        raise UsvitError(f"The input {_shown(text)} matches no file. Quote it, and use ** for folders in folders.")
    return _folder(base, lambda walk: walk.below(str(base), pattern))


def _is_dicomdir(path: Path) -> bool:
    try:
        return file_lists.is_dicomdir(path)
    except OSError:
        return False  # unreadable: reported when the item is read


def _refuse_twins(texts: list[str], inputs: list[_Input]) -> None:
    if len(inputs) == 1:
        return
    known: dict[str, tuple[str, str]] = {}
    for text, one in zip(texts, inputs, strict=True):
        other, anchor = known.setdefault(one.label, (text, one.anchor))
        if anchor != one.anchor:
            raise UsvitError(
                f"The inputs {_shown(other)} and {_shown(text)} have the same name, so that their files cannot be told "
                "apart. Pass the folder that holds both, or rename one."
            )


class _Discovery:
    """Converts files to items, and remembers the files of earlier inputs."""

    def __init__(self, inputs: list[_Input], exclude: Path | None):
        self._inputs = inputs
        self._walk = Walk([one.whole for one in inputs if one.whole is not None], exclude)
        self._earlier: set[object] = set()
        self._marked: tuple[str, list[str]] = ("", [])
        self._calls = LimitedCalls(*file_lists.MODULES)

    def items(self) -> Iterator[ScoringItem]:
        """Yield all items. Archives are listed in a process that ends after the last item."""
        with self._calls:
            yield from self._items()

    def _items(self) -> Iterator[ScoringItem]:
        several = len(self._inputs) > 1
        for one in self._inputs:
            prefix = f"{one.label}/" if several and not one.single else ""
            present: set[object] = set()
            for thing in one.things(self._walk):
                if several:
                    identity = _identity(thing.path)
                    if identity in self._earlier:
                        continue
                    present.add(identity)
                name = prefix + thing.name if thing.name else one.label
                if isinstance(thing, file_lists.Listed):
                    item = ScoringItem(name, thing.path, None, thing.frame, thing.patient, thing.study, thing.side)
                else:
                    item = ScoringItem(name, thing.path)
                yield from self._file(item, thing.problem)
            self._earlier |= present

    def _file(self, item: ScoringItem, problem: str | None) -> Iterator[ScoringItem]:
        head = b""
        if problem is None:
            head, problem = _head(item.location)
        if head != archives.MAGIC:
            yield item if problem is None else replace(item, problem=problem)
            return
        name, frames, number = item.name.partition("//")
        between = "!//" if self._begins_a_name(item.location) else "!"
        empty = True
        try:
            for members in self._calls.values(archives.member_lists, item.location):
                for member in members:
                    empty = False
                    label = f"{name}{between}{member.label}{frames}{number}"
                    yield replace(item, name=label, member=member.name, problem=member.problem)
        except (LimitReached, archives.BadArchive):
            yield replace(item, problem="archive")
        else:
            if empty:
                yield item

    def _begins_a_name(self, archive: str) -> bool:
        """Return whether a name beside an archive could be confused with one of its members."""
        folder, name = os.path.split(archive)
        if self._marked[0] != folder:
            try:
                self._marked = (folder, [one.name for one in Path(folder).iterdir() if "!" in one.name])
            except OSError:
                self._marked = (folder, [])
        return any(one.startswith(f"{name}!") for one in self._marked[1])


def _identity(path: str) -> object:
    for look in (identity_of, partial(identity_of, follow=False)):
        try:
            return look(path)
        except (OSError, ValueError):
            continue
    return path


def _head(path: str) -> tuple[bytes, str | None]:
    """Return the first four bytes of a file, or why there are none, without blocking on a pipe."""
    try:
        mode = os.stat(path).st_mode  # creating a Path for each file would cost more than the call
        if not stat.S_ISREG(mode):
            return b"", "not_found" if stat.S_ISDIR(mode) else "not_an_image"
        flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)
        file = os.open(path, flags)
        try:
            return os.read(file, len(archives.MAGIC)), None
        finally:
            os.close(file)
    except (OSError, ValueError) as error:
        return b"", problem_of(error)


def _shown(text: str) -> str:
    """Return a path for an error message, with bytes that are not UTF-8 escaped."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")
