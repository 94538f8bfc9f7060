"""Data sets as a map-style ``torch.utils.data.Dataset`` of images and class numbers, for use outside usvit's runs."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from torch.utils.data import Dataset

from usvit.arguments import checked_arguments
from usvit.config import DataConfig, SplitConfig
from usvit.data.datasets import DataRoot, Manifest, ManifestSource, datasets_of, open_manifest, roots_from
from usvit.data.io import UInt8
from usvit.data.splits import SPLITS, make_folds, rows_of_split
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError, unknown
from usvit.progress import Progress, shown_progress
from usvit.representation import Summarised

_STANDARDISED = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))


class ManifestDataset(Summarised, Dataset[tuple[Any, int]]):
    """Images of a manifest: item ``i`` is ``(image, label)``.

    Files are decoded when an item is read, in worker processes too; nothing is kept in memory.

    Args:
        manifest: the images.
        rows: (N,) rows of ``manifest.usable`` to use, in this order; None for all.
        preprocessing: crop and resize each image; None leaves images at their own size.
        transform: function of a (H, W, 3) uint8 array in RGB, applied last; None returns the array.

    Attributes:
        classes: class names; a label is an index into them.
        targets: (N,) int64 label of each image.
        table: the N rows of the manifest, with the columns of ``usvit.data.datasets.manifest.COLUMNS``. Paths are
            relative to the root of the data set; those of a private data set may name patients.
    """

    def __init__(
        self,
        manifest: Manifest,
        rows: np.ndarray | None = None,
        preprocessing: Preprocessing | None = None,
        transform: Callable[[UInt8], Any] | None = None,
    ):
        usable = manifest.usable
        chosen = np.arange(len(usable)) if rows is None else np.asarray(rows, dtype=np.int64)
        self.table: pd.DataFrame = usable.iloc[chosen].reset_index(drop=True)
        crop = "tissue" if preprocessing is None else preprocessing.crop
        self._images = ManifestSource(manifest, chosen, crop=crop, labelled=True, memory_gb=0)
        self.classes, self.targets = self._images.classes, self._images.targets
        self.preprocessing, self.transform = preprocessing, transform

    def __len__(self) -> int:
        return len(self.targets)

    def _facts(self) -> dict[str, object]:
        counts = np.bincount(self.targets, minlength=len(self.classes))
        return {
            "datasets": sorted(set(self.table.dataset)),
            "images": len(self),
            "classes": {name: int(count) for name, count in zip(self.classes, counts, strict=True)},
        }

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """Return image and label.

        Raises:
            UsvitError: The file is missing or damaged, or its pixels changed since the manifest was made.
        """
        image = np.array(self._images[index])  # writable, as torch needs it
        if self.preprocessing is not None:
            image = np.array(self.preprocessing.resized(image))
        return (image if self.transform is None else self.transform(image)), int(self.targets[index])


@checked_arguments
def load_dataset(
    name_or_manifest: str | Path,
    *,
    data_root: DataRoot = None,
    split: str | None = None,
    fold: int | None = None,
    folds_file: str | Path | None = None,
    seed: int = 0,
    image_size: int | None = None,
    resize: str = "squash",
    transform: Callable[[UInt8], Any] | None = None,
    progress: Progress | None = None,
    **data: Any,
) -> ManifestDataset:
    """Load a data set, or one split of it, as a ``torch.utils.data.Dataset``.

    Splits are those of ``usvit cv`` and ``usvit train`` with default settings: images of one patient, and
    near-duplicates, are always in the same split.

    Args:
        name_or_manifest: name or path of a data card, several joined by '+' (``busi+b``), or a manifest file that
            ``usvit data prepare`` wrote (``.parquet``).
        data_root: folder of the images, or a mapping from data set to folder. By default the environment variable
            ``USVIT_DATA``; a manifest knows its own folders, and ``phantom`` needs none.
        split: ``train``, ``val`` or ``test``; None for all images.
        fold: fold of the cross-validation, from 0. None with a split means one hold-out split.
        folds_file: CSV file of folds (``usvit data split``) to use instead of newly drawn ones.
        seed: seed of the folds.
        image_size: side in pixels to which images are resized; None leaves images at their own size.
        resize: ``squash`` to the square, or ``pad`` with black, which keeps the aspect ratio.
        transform: function of a (H, W, 3) uint8 array in RGB that returns the image of an item.
        progress: shown while files are checked. Default: a bar in a terminal, lines in a notebook.
        **data: further fields of ``usvit.config.DataConfig``, such as ``classes`` or ``keep_list``.

    Returns:
        A dataset of ``(image, label)``.

    Raises:
        UsvitError: The data set is unknown or cannot be read, or there is no such split or fold.

    Example:
        >>> import usvit
        >>> train = usvit.load_dataset("phantom", split="train", fold=0, image_size=64)
        >>> image, label = train[0]
        >>> image.shape, image.dtype, train.classes[label] in train.classes
        ((64, 64, 3), dtype('uint8'), True)
    """
    roots = roots_from(data_root)
    if str(name_or_manifest).endswith(".parquet"):
        path = Path(name_or_manifest)
        config = DataConfig(dataset=datasets_of(path), manifest=str(path), **data)
    else:
        config = DataConfig(dataset=str(name_or_manifest), **data)
    manifest = open_manifest(config, roots, shown_progress(progress))
    rows = None
    if split is not None:
        rows = _rows(manifest, split, fold, folds_file, seed)
    elif fold is not None or folds_file is not None:
        raise UsvitError("load_dataset got a fold but no split: pass split='train', 'val' or 'test'.")
    preprocessing = None if image_size is None else Preprocessing(image_size, resize, *_STANDARDISED)
    return ManifestDataset(manifest, rows, preprocessing, transform)


def _rows(manifest: Manifest, split: str, fold: int | None, folds_file: str | Path | None, seed: int) -> np.ndarray:
    if split not in SPLITS:
        raise unknown("split", split, SPLITS)
    settings = SplitConfig(file=None if folds_file is None else str(folds_file))
    folds = make_folds("train" if fold is None else "cv", manifest.usable, settings, seed, manifest.own_ids)
    if fold is not None and fold not in set(folds.fold):
        raise UsvitError(f"There is no fold {fold}: the folds are 0 to {folds.fold.max()}.")
    return rows_of_split(folds, manifest.usable, split, fold or 0)
