"""Images in folders: one folder per class (ImageFolder's layout), or any tree of images without labels."""

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from usvit.data.datasets import Indices, StringArray, UpstreamDataset, subfolders
from usvit.data.io import STILL_SUFFIXES, BadImage, PictureFile, refusing
from usvit.errors import UsvitError
from usvit.files import open_regular


def rgb(source: Path | bytes, name: Path | None = None) -> Image.Image:
    """Decode one image to RGB as ``usvit.data.io.decoding`` does.

    The pixels are those of ``usvit.data.io.decoding.read_image`` (a camera's rotation is applied, transparency
    dropped), so that hashes of the same picture are equal upstream and downstream.

    Args:
        source: a file, or its bytes.
        name: name for error messages if the source is bytes.

    Returns:
        An image of mode RGB.

    Raises:
        BadImage: The file is missing, damaged, too large, or not an image.
    """
    path = source if isinstance(source, Path) else name or Path("image")
    with refusing(path):
        if isinstance(source, Path):
            with open_regular(source, limit=_MOST_BYTES) as file:
                data = file.read()
        else:
            data = source
        if not data:
            raise BadImage(path, "the file is empty", "truncated")
        with PictureFile(data, path) as picture:
            return Image.fromarray(picture.frame())


_MOST_BYTES = 1_000_000_000
"""Upper bound of the size of an image file."""
_LISTING_THREADS = 16
"""Folders listed in parallel; on a network drive each listing waits."""
_MASK = re.compile(r"_mask(_\d+)?$")
_SPLIT_FOLDERS = frozenset({"train", "training", "val", "valid", "validation", "test", "testing"})


class FileSource(UpstreamDataset):
    """Image files below one folder.

    Args:
        name: name for the record.
        root: the folder.
        files: (N,) path of each image relative to ``root``, with '/'.
        classes, targets, multi, levels: see ``UpstreamDataset``.
    """

    def __init__(
        self,
        name: str,
        root: Path,
        files: Iterable[str],
        classes: Iterable[str],
        targets: Sequence[int] | Indices,
        *,
        multi: Sequence[Sequence[int]] | None = None,
        levels: dict[str, tuple[str, ...]] | None = None,
    ):
        super().__init__(name, classes, np.asarray(targets, dtype=np.int64))
        self.root, self.files, self.multi, self.levels = root, StringArray(files), multi, levels or {}

    def image(self, index: int) -> Image.Image:
        return rgb(self.root / self.files[index])

    def image_name(self, index: int) -> str:
        return str(self.files[index])

    def listing(self) -> Iterable[NDArray[Any]]:
        return self.files.blocks()


def list_images(folder: Path) -> list[str]:
    """List the image files at any depth below a folder, relative to it with '/', sorted; hidden files are left out.

    Links to folders are followed, except those that lead back into their own tree.
    """
    found: list[str] = []
    _walk(folder, "", found, (folder.stat().st_dev, folder.stat().st_ino), ())
    return sorted(found)


def _walk(folder: Path, prefix: str, found: list[str], me: tuple[int, int], above: tuple[tuple[int, int], ...]) -> None:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith((".", "__MACOSX")):
                continue
            if entry.is_dir():
                status = Path(entry.path).stat()
                inner = (status.st_dev, status.st_ino)
                if inner not in (*above, me):
                    _walk(Path(entry.path), f"{prefix}{entry.name}/", found, inner, (*above, me))
            elif os.path.splitext(entry.name)[1].lower() in STILL_SUFFIXES:  # noqa: PTH122 - millions of names
                found.append(prefix + entry.name)


def class_folders(
    name: str,
    root: Path,
    classes: Sequence[str],
    *,
    names: Sequence[str] | None = None,
) -> FileSource:
    """List the images of some class folders, folder by folder; files may lie deeper.

    Args:
        name: name for the record.
        root: the folder that holds the class folders.
        classes: names of the class folders in the order of the labels.
        names: class names; by default the names of the folders.

    Raises:
        UsvitError: There are no images.
    """
    with reading(root), ThreadPoolExecutor(_LISTING_THREADS) as pool:
        listed = list(pool.map(lambda label: list_images(root / label), classes))
    counts = [len(files) for files in listed]
    if not sum(counts):
        raise UsvitError(
            f"There are no images in {root}: none of its {len(classes)} class folders contains files that end in "
            f"{', '.join(sorted(STILL_SUFFIXES))}."
        )
    files = (f"{label}/{file}" for label, inner in zip(classes, listed, strict=True) for file in inner)
    return FileSource(name, root, files, names or classes, np.repeat(np.arange(len(classes)), counts))


def open_folder(path: Path, split: str = "train") -> FileSource:
    """Open images in class folders ``<class>/*``; the classes are the sorted names of the folders.

    Args:
        path: folder that holds the class folders, or folders ``train``, ``val``, ``test`` that hold them.
        split: one of ``train``, ``val``, ``test``.

    Raises:
        UsvitError: The folder does not exist, has no class folders, or holds images beside them or masks among them.
    """
    root = _split_folder(path, split)
    classes = [folder.name for folder in subfolders(root)]
    strays = [entry.name for entry in root.iterdir() if entry.suffix.lower() in STILL_SUFFIXES and entry.is_file()]
    if not classes:
        found = f", only images ({strays[0]}, ...): use the source 'unlabeled', or sort them" if strays else ""
        raise UsvitError(f"{root} has no class folders{found}. Expected <class>/<image>, such as cat/1.jpg.")
    if strays:
        raise UsvitError(
            f"{root} contains class folders and also {len(strays)} images without a class ({strays[0]}, ...). "
            "Move these images into a class folder, or elsewhere."
        )
    source = class_folders("folder", root, classes)
    counts = np.bincount(source.targets, minlength=len(classes))
    if empty := [label for label, count in zip(classes, counts, strict=True) if not count]:
        raise UsvitError(
            f"{len(empty)} class folders of {root} contain no images: {', '.join(empty[:5])}"
            f"{', ...' if len(empty) > 5 else ''}. Fill or remove them."
        )
    _refuse_masks(source)
    return source


def open_unlabeled(path: Path, split: str = "train") -> FileSource:
    """Open all images at any depth below a folder, without labels.

    Args:
        path: the folder, or one that holds nothing but folders ``train``, ``val``, ``test``.
        split: one of ``train``, ``val``, ``test``.

    Raises:
        UsvitError: The folder does not exist, or holds no images or masks among them.
    """
    root = _split_folder(path, split)
    with reading(root):
        files = list_images(root)
    if not files:
        raise UsvitError(f"There are no images below {root} (files that end in {', '.join(sorted(STILL_SUFFIXES))}).")
    source = FileSource("unlabeled", root, files, (), np.full(len(files), -1))
    _refuse_masks(source)
    return source


def _refuse_masks(source: FileSource) -> None:
    """Refuse masks such as ``a_mask.png`` beside ``a.png``; as a training image, a mask would reveal the label."""
    if b"_mask" not in source.files.blocks()[0].tobytes():  # fast for millions of names
        return
    stems = {os.path.splitext(name)[0]: name for name in source.files}  # noqa: PTH122
    masks = [name for stem, name in stems.items() if _MASK.search(stem) and _MASK.sub("", stem) in stems]
    if masks:
        raise UsvitError(
            f"{source.root} contains {len(masks)} masks beside their images ({masks[0]}, ...), which would be used as "
            "images. Move them elsewhere. If this is a data set that usvit knows, such as busi, pass --dataset busi "
            "(for 'usvit pretrain' also --source data), which reads only the images."
        )


def _split_folder(path: Path, split: str) -> Path:
    """Return the folder of a split: ``path/<split>`` if ``path`` is divided into splits, else ``path`` for ``train``.

    A class may be called ``train`` too. So ``path`` counts as divided if all of its folders, or at least two, are
    named like splits.

    Raises:
        UsvitError: The folder or the split does not exist; the error names the existing splits.
    """
    if not path.is_dir():
        raise UsvitError(f"There is no folder {path}. Set source.path to the folder of the images.")
    if splits := _splits_in(path):
        if split in splits:
            return path / split
        raise UsvitError(f"{path} has no folder '{split}', only {', '.join(splits)}. Set source.split or source.val.")
    if split == "train":
        return path
    instead = "" if split.startswith("test") else ", or hold some of them out with source.val_share"
    raise UsvitError(
        f"{path} is not divided into splits, so there is no '{split}': put the images into folders train and {split}"
        f"{instead}."
    )


def split_of_folder(path: Path, preferred: Sequence[str]) -> str:
    """Return the first of the preferred splits that a folder has; ``train``, the whole, if it is not divided.

    Raises:
        UsvitError: The folder is divided into other splits.
    """
    splits = _splits_in(path) if path.is_dir() else []
    chosen = next((split for split in preferred if split in splits), None if splits else "train")
    if chosen is None:
        raise UsvitError(
            f"{path} has no folder {' or '.join(preferred)}, only {', '.join(splits)}. Name the split, such as "
            f"--source folder:{splits[0]}."
        )
    return chosen


def _splits_in(path: Path) -> list[str]:
    """Return the folders of the splits that a folder is divided into; empty if it is not divided."""
    found = [folder.name for folder in subfolders(path)]
    splits = [folder for folder in found if folder in _SPLIT_FOLDERS]
    return splits if splits and (splits == found or len(splits) > 1) else []


@contextmanager
def reading(folder: Path) -> Iterator[None]:
    """Turn an ``OSError`` during the listing of a folder into a ``UsvitError`` that names the folder."""
    try:
        yield
    except OSError as error:
        raise UsvitError(
            f"Cannot read {error.filename or folder}: {error.strerror or error}. Check that it exists and is readable."
        ) from error
