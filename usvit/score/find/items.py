"""What there is to score: every file behind ``--input``, each once, in one order on every machine.

**Names.** ``Item.name`` is what pseudonyms are made of and what the paths of a label table are compared with. With one
input it is

- of a file in a folder the path below that folder (``a/IM1``), with forward slashes on every system;
- of a file that a glob finds the path below the folder before the first ``*``, ``?`` or ``[``: ``export`` and
  ``export/**/*.dcm`` give a file the same name;
- of a file that a table or DICOMDIR lists the path from the folder in which the list lies, ``../`` included;
- of a file given as such its own name;
- of a member of an archive the archive's name, ``!`` and the member's (``a/b.zip!IM1``).

With several inputs a folder's name comes first (``export_a/a/IM1``), that of the folder before the ``*`` of a glob and
that of a list's folder likewise; two folders of one name, or two files, are an error.

A name is unique in a job. What would clash gets ``//``, which no path contains: ``a.zip!//b`` where beside the archive
lies something whose name begins with ``a.zip!``, ``IM1//3`` for frame 3 where a table asks for several frames of one
file, ``a.zip!IM1//1`` for a member that a later one of the same name hides.

**What comes.** Every file, hidden ones and those of an operating system too: what is no image is a failure with a
reason, never silence. Through a link a file comes under the link's name. A folder that is met several times comes once:
a link to a folder that is walked anyway brings nothing new; one to a folder outside comes the first time. A file that
several inputs hold comes with the first of them (which costs about 150 bytes of memory a file, with several inputs
only).

A zip archive, told by its content, is a folder of its members. A member that is encrypted, damaged or an archive itself
is a failure (``archive``); so is, as one file, an archive that is damaged or a bomb. Office documents are zip archives,
too, but no folders: each is one file.
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
from usvit.score.find import archives, listed
from usvit.score.find.walk import MAGIC, Found, Pattern, Walk, identity_of, is_folder, problem_of
from usvit.score.records import Item

_Things = Iterable[Found | listed.Listed]


@dataclass(frozen=True)
class _Input:
    """One ``--input``, looked at."""

    label: str
    """What stands before its names where there are several inputs."""
    anchor: str
    """The real folder, or file, that the label stands for."""
    things: Callable[[Walk], _Things]
    """What it holds; names are relative to the anchor."""
    single: bool = False
    """A file given as such: its label is its name."""
    whole: str | None = None
    """The folder, where all of it is walked."""


def discover(inputs: Sequence[str], exclude: Path | None = None) -> Iterator[Item]:
    """Find what there is to score; names, order and limits as the module's text says.

    Everything that is wrong with the inputs themselves is said before the first item. In a folder (and archive) the
    order is natural by name, ``IM2`` before ``IM10``; a list keeps its own; inputs follow each other as given.

    Args:
        inputs: what the user gave as ``--input``: folders, files, globs (``*``, ``?``, ``[...]``, ``**``), zip
            archives, tables (.csv, .tsv, .xlsx, .parquet with a column ``path``), DICOMDIRs.
        exclude: a folder to leave out, as the results may be written inside of an input.

    Returns:
        The items, found as they are asked for: memory grows with the largest folder or archive or list, not with their
        number. One with a ``problem`` cannot be read.

    Raises:
        UsvitError: there is no input; one does not exist, cannot be listed or, being a glob, matches nothing; two
            have one name; a table or DICOMDIR is damaged or (``listed.read_table``) wrong; no file is found at all.
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
        if path.suffix.lower() in listed.TABLE_SUFFIXES:
            rows = listed.read_table(path, _shown(text))
            return _folder(path.parent, lambda walk: rows)
        if _is_dicomdir(path):
            references = listed.read_dicomdir(path, _shown(text))
            return _folder(path.parent, lambda walk: listed.find_referenced(path.parent, references))
    return _Input(path.name, os.path.realpath(path), lambda walk: [Found(path.name, str(path))], single=True)


def _folder(path: Path, things: Callable[[Walk], _Things], whole: str | None = None) -> _Input:
    # normpath, as '..' has no name.
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
        return listed.is_dicomdir(path)
    except OSError:
        return False  # unreadable: the item will say so


def _refuse_twins(texts: list[str], inputs: list[_Input]) -> None:
    if len(inputs) == 1:
        return
    known: dict[str, tuple[str, str]] = {}
    for text, one in zip(texts, inputs, strict=True):
        other, anchor = known.setdefault(one.label, (text, one.anchor))
        if anchor != one.anchor:
            raise UsvitError(
                f"The inputs {_shown(other)} and {_shown(text)} have one name, so that their files could not be told "
                "apart. Pass the folder that holds both, or rename one."
            )


class _Discovery:
    """From things to items; remembers what inputs before the present one held."""

    def __init__(self, inputs: list[_Input], exclude: Path | None):
        self._inputs = inputs
        self._walk = Walk([one.whole for one in inputs if one.whole is not None], exclude)
        self._earlier: set[object] = set()
        self._marked: tuple[str, list[str]] = ("", [])
        self._calls = LimitedCalls(*listed.MODULES)

    def items(self) -> Iterator[Item]:
        """Every item; archives are listed in a process that ends with the last of them."""
        with self._calls:
            yield from self._items()

    def _items(self) -> Iterator[Item]:
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
                if isinstance(thing, listed.Listed):
                    item = Item(name, thing.path, None, thing.frame, thing.patient, thing.study)
                else:
                    item = Item(name, thing.path)
                yield from self._file(item, thing.problem)
            self._earlier |= present

    def _file(self, item: Item, problem: str | None) -> Iterator[Item]:
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
        """Whether beside an archive lies something that could be taken for one of its members."""
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
    """The first four bytes of a file, or why there are none; never waits, as opening a pipe would."""
    try:
        mode = os.stat(path).st_mode  # a Path a file would cost more than the look
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
    """For a message: what is no UTF-8 could not be printed."""
    return os.fsencode(text).decode("utf-8", "backslashreplace")
