"""What a named data set is: where its files are expected, which splits it has, and how they are read."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from usvit.data.readers import subfolders
from usvit.data.roots import root_from_environment
from usvit.data.sources.base import ListedSource
from usvit.errors import UsvitError, unknown


@dataclass(frozen=True)
class NamedSet:
    """A data set on disk. usvit downloads none of them."""

    name: str
    layout: str
    """What its folder holds, for people."""
    get: str
    """Where the data come from: the data set's own name, no address."""
    splits: tuple[str, ...]
    looks_like: Callable[[Path], bool]
    """Whether a folder is the data set's own."""
    read: Callable[[Path, str], ListedSource]
    """(its folder, split) -> its images; raises ``UsvitError``, ``OSError`` or ``Malformed``."""


class Malformed(Exception):
    """A file of a data set is not what its layout says; the text says which and why."""


def open_named(data_set: NamedSet, roots: dict[str, Path], split: str) -> ListedSource:
    """Find a data set on disk and list one of its splits.

    Args:
        data_set: which.
        roots: name -> folder; the key "" holds the folder given for all. Either is the data set's own folder, or one
            that holds it; without, ``USVIT_DATA``.
        split: an official name.

    Raises:
        UsvitError: no such split; no folder; files missing or of another layout, which is shown.
    """
    if split not in data_set.splits:
        raise unknown(f"split of {data_set.name}", split, data_set.splits, f"Its splits: {', '.join(data_set.splits)}.")
    root = _find(data_set, roots)
    try:
        source = data_set.read(root, split)
    except Malformed as error:
        raise _not_the_layout(data_set, root, str(error)) from error
    except OSError as error:
        where = error.filename or root
        raise _not_the_layout(data_set, root, f"{where}: {error.strerror or error}") from error
    if not len(source):
        raise _not_the_layout(data_set, root, f"its split '{split}' holds no images")
    return source


def _find(data_set: NamedSet, roots: dict[str, Path]) -> Path:
    given = roots.get(data_set.name) or roots.get("") or root_from_environment()
    if given is None:
        raise UsvitError(
            f"Where are the images of {data_set.name}? Pass --data-root {data_set.name}=DIR or set USVIT_DATA.\n"
            f"{data_set.get} Expected:\n{_indented(data_set.layout)}"
        )
    if not given.is_dir():
        what = "is not a folder" if given.exists() else "does not exist"
        raise UsvitError(f"The data root {given} {what}. Pass --data-root DIR or set USVIT_DATA.")
    try:
        inner = subfolders(given)
        # The folder itself first, then one that is called like the data set, then whatever it holds.
        inner.sort(key=lambda folder: data_set.name.replace("_", "") not in folder.name.lower().replace("-", ""))
        found = next((folder for folder in (given, *inner) if data_set.looks_like(folder)), None)
    except PermissionError as error:
        raise UsvitError(f"The data set {data_set.name} cannot be read: no permission for {error.filename}.") from error
    if found is None:
        names = [folder.name for folder in subfolders(given)]
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise _not_the_layout(data_set, given, f"nothing in it has its layout. Found: {shown or 'no folders'}")
    return found


def _not_the_layout(data_set: NamedSet, root: Path, reason: str) -> UsvitError:
    return UsvitError(
        f"Cannot read the data set {data_set.name} in {root}: {reason.rstrip('.')}.\n"
        f"Expected layout:\n{_indented(data_set.layout)}\n"
        f"{data_set.get} If the images lie elsewhere, pass --data-root {data_set.name}=DIR or set USVIT_DATA."
    )


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def lines(path: Path) -> list[str]:
    """The lines of a list, without the empty ones."""
    try:
        return [line.strip() for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise Malformed(f"{path.name} is no text") from error


def inside(name: str) -> str:
    """A file's relative path, refused where it climbs out of the data set's folder."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise Malformed(f"the path '{name[:100]}' leads out of its folder")
    return path.as_posix()
