"""Named data sets on disk: where their files are expected, which splits they have, and how they are read."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from usvit.data.datasets import UpstreamDataset, folder_with_layout, given_root, subfolders
from usvit.errors import UsvitError, unknown
from usvit.files import TABLE_BYTES, Unreadable, open_regular, read_text


@dataclass(frozen=True)
class NamedSet:
    """A data set on disk. usvit downloads none of them."""

    name: str
    layout: str
    """Layout of the folder, for error messages."""
    get: str
    """Where to get the data: the name of the data set, not an address."""
    splits: tuple[str, ...]
    looks_like: Callable[[Path], bool]
    """Recognises the top folder of the data set."""
    read: Callable[[Path, str], UpstreamDataset]
    """Function of folder and split that lists the images; raises ``UsvitError``, ``OSError`` or ``Malformed``."""


class Malformed(Exception):
    """A file of a data set does not have the expected content; the message says which file and why."""


def open_named(data_set: NamedSet, roots: dict[str, Path], split: str) -> UpstreamDataset:
    """Find a data set on disk and list one of its splits.

    Args:
        data_set: the data set.
        roots: name -> folder; the key "" holds the folder for all data sets. A folder is the data set's own folder or
            its parent; by default it is ``USVIT_DATA``.
        split: official name of the split.

    Raises:
        UsvitError: There is no such split or folder, or files are missing or have another layout; the error shows the
            expected one.
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
        raise _not_the_layout(data_set, root, f"its split '{split}' contains no images")
    return source


def _find(data_set: NamedSet, roots: dict[str, Path]) -> Path:
    given = given_root(roots, data_set.name)
    if given is None:
        raise UsvitError(
            f"The folder of {data_set.name} is not known: pass --data-root {data_set.name}=DIR or set USVIT_DATA.\n"
            f"{data_set.get} Expected:\n{_indented(data_set.layout)}"
        )
    try:
        found = folder_with_layout(given, data_set.looks_like, data_set.name)
    except PermissionError as error:
        raise UsvitError(f"The data set {data_set.name} cannot be read: no permission for {error.filename}.") from error
    if found is None:
        names = [folder.name for folder in subfolders(given)]
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        raise _not_the_layout(data_set, given, f"it does not have the expected layout. Found: {shown or 'no folders'}")
    return found


def _not_the_layout(data_set: NamedSet, root: Path, reason: str) -> UsvitError:
    return UsvitError(
        f"Cannot read the data set {data_set.name} in {root}: {reason.rstrip('.')}.\n"
        f"Expected layout:\n{_indented(data_set.layout)}\n"
        f"{data_set.get} If the images are elsewhere, pass --data-root {data_set.name}=DIR or set USVIT_DATA."
    )


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())


def lines(path: Path) -> list[str]:
    """Return the non-empty lines of a text file."""
    return [line.strip() for line in text_of(path).splitlines() if line.strip()]


def text_of(path: Path) -> str:
    """Return the content of a text file of a data set.

    Raises:
        Malformed: It cannot be read or is not text.
    """
    try:
        return read_text(path, TABLE_BYTES, follow=True)
    except Unreadable as error:
        raise Malformed(f"{path.name} cannot be read: {error.reason}") from error


def json_of(path: Path) -> Any:
    """Return the content of a JSON file of a data set.

    Raises:
        Malformed: It cannot be read or is not JSON.
    """
    try:
        return json.loads(text_of(path))
    except (ValueError, RecursionError) as error:
        raise Malformed(f"{path.name} is damaged: it is not JSON ({' '.join(str(error).split())[:200]})") from error


def mat_of(path: Path) -> dict[str, Any]:
    """Return the variables of a MATLAB file of a data set.

    Raises:
        Malformed: It is damaged.
        OSError: It is missing or cannot be read.
    """
    from scipy.io import loadmat

    with open_regular(path) as file:
        try:
            content: dict[str, Any] = loadmat(file, squeeze_me=True)
        except OSError:
            raise
        except Exception as error:  # scipy raises many kinds of errors for damaged files
            raise Malformed(f"{path.name} is damaged ({error})") from error
    return content


def inside(name: str) -> str:
    """Check that a relative path stays inside the folder of the data set, and return it with '/'."""
    path = Path(name)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise Malformed(f"the path '{name[:100]}' leads out of the data set's folder")
    return path.as_posix()
