"""What the page sees of this machine: names of folders, which of them hold models, and how many files a folder has."""

import itertools
import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from usvit.desktop.records import FileKind, FolderLink, FolderListing, FoundModel, ImageFolder
from usvit.errors import UsvitError
from usvit.plugins import plugin_run_kinds
from usvit.records import RunRecord, load_record
from usvit.scoring import discover, natural

_MOST_FOLDERS = 2_000
"""Most folders that are listed."""
_MOST_SEEN, _DEEPEST = 5_000, 4
"""Most folders that are looked at for models, and how far below the one that was named."""
_MOST_FILES = 100_000
"""Most files that are counted."""


def folder_at(text: str) -> Path:
    """Return a folder of this machine.

    Raises:
        UsvitError: There is no such folder, or it cannot be listed.
    """
    path = Path(text).expanduser()
    if not text or "\0" in text or not path.is_absolute():
        raise UsvitError("Name the folder with its whole path, from the root of the disk.")
    try:
        path = path.resolve()
        with os.scandir(path):
            return path
    except (OSError, ValueError, RuntimeError) as error:
        reason = os.strerror(error.errno) if isinstance(error, OSError) and error.errno else "it is no valid path"
        raise UsvitError(f"The folder {text} cannot be opened: {reason}. Choose another folder.") from error


def list_folder(path: Path) -> FolderListing:
    """Return the names of the folders in a folder, without hidden ones, and where else one may look."""
    names = sorted((one.name for one in _folders_in(path)), key=natural)
    places = dict.fromkeys(str(one) for one in (Path.home(), Path.cwd()))
    return FolderListing(
        path=str(path),
        parent=None if path.parent == path else str(path.parent),
        folders=[FolderLink(name=name, path=str(path / name)) for name in names[:_MOST_FOLDERS]],
        left_out=max(0, len(names) - _MOST_FOLDERS),
        places=[*places],
    )


def _folders_in(path: Path | str) -> Iterator["os.DirEntry[str]"]:
    try:
        with os.scandir(path) as entries:
            for entry in entries:
                if not entry.name.startswith(".") and entry.name.isprintable() and entry.is_dir():
                    yield entry
    except OSError:
        return


def describe_images(path: Path) -> ImageFolder:
    """Count the files of a folder as ``usvit score`` finds them, by the ending of their names.

    Raises:
        UsvitError: The folder holds no file, or cannot be read.
    """
    items = [*itertools.islice(discover([str(path)]), _MOST_FILES + 1)]
    kinds = Counter(Path(item.member or item.name).suffix.lower().lstrip(".") or "no ending" for item in items)
    return ImageFolder(
        path=str(path),
        n_files=min(len(items), _MOST_FILES),
        more=len(items) > _MOST_FILES,
        kinds=[FileKind(ending=ending, n=n) for ending, n in kinds.most_common(8)],
    )


def find_models(folders: Iterable[Path]) -> list[FoundModel]:
    """Return the models below some folders: finished runs with networks.

    Args:
        folders: They are looked at in their order, to a depth of four folders.
    """
    found: dict[str, FoundModel] = {}
    waiting = [(str(folder), 0) for folder in folders]
    for path, depth in itertools.islice(_each(waiting), _MOST_SEEN):
        model = describe_model(Path(path))
        if model is not None:
            found.setdefault(model.path, model)
        elif depth < _DEEPEST:
            waiting += [(entry.path, depth + 1) for entry in _folders_in(path) if not entry.is_symlink()]
    return [*found.values()]


def _each(waiting: list[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    while waiting:
        yield waiting.pop(0)


def describe_model(path: Path) -> FoundModel | None:
    """Return what a run says about its networks; None if the folder is no finished run that has some."""
    record_file = path / "run.json"
    try:
        if not stat.S_ISREG(record_file.stat().st_mode):
            return None
        record = load_record(record_file, RunRecord)
        has_networks = (path / "ensemble.json").is_file() or any(path.glob("fold-*/model.json"))
    except (OSError, UsvitError):
        return None
    kind = plugin_run_kinds().get(record.kind)
    if record.state != "finished" or not has_networks or not (kind is None or kind.of_folds):
        return None
    data = record.data
    return FoundModel(
        path=str(path.resolve()),
        name=record.name,
        data=", ".join(data.datasets or []),
        n_images=data.n_images or 0,
        classes=[*(data.classes or [])],
    )
