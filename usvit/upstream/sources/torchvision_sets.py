"""Labelled data sets that are read with torchvision because usvit has no reader for them: ``torchvision:SVHN``."""

from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from usvit.data.datasets import Indices, UpstreamDataset, given_root
from usvit.data.io import BadImage
from usvit.errors import UsvitError, unknown
from usvit.upstream.sources.catalog import TORCHVISION as PREFIX

ALL = "all"
"""Name of the only split of a data set without splits."""
SPLITS: dict[str, dict[str, dict[str, object]]] = {
    **{
        name: {"train": {"train": True}, "test": {"train": False}}
        for name in ("FashionMNIST", "KMNIST", "MNIST", "QMNIST", "USPS")
    },
    **{
        name: {split: {"split": split} for split in splits}
        for name, splits in {
            "CLEVRClassification": ("train", "val"),
            "Country211": ("train", "valid", "test"),
            "DTD": ("train", "val", "test"),
            "FER2013": ("train", "test"),
            "FGVCAircraft": ("train", "val", "trainval", "test"),
            "GTSRB": ("train", "test"),
            "Imagenette": ("train", "val"),
            "RenderedSST2": ("train", "val", "test"),
            "STL10": ("train", "test", "unlabeled"),
            "SVHN": ("train", "test", "extra"),
        }.items()
    },
    "Places365": {"train": {"split": "train-standard"}, "val": {"split": "val"}},
    **{name: {ALL: {}} for name in ("Caltech101", "Caltech256", "EuroSAT", "SEMEION", "SUN397")},
}
"""torchvision class -> split -> constructor arguments. None of these classes reads pickles."""


class _TorchvisionSource(UpstreamDataset):
    """One split of a data set of torchvision.

    Args:
        name: ``torchvision:SVHN``.
        dataset: torchvision dataset of pairs (image, class).
    """

    def __init__(self, name: str, dataset: Any):
        targets = _targets(dataset)
        known = getattr(dataset, "classes", None) or getattr(dataset, "categories", None)
        labelled = bool((targets >= 0).all())
        classes = list(map(str, known)) if known else [str(label) for label in range(int(targets.max()) + 1)]
        super().__init__(name, classes if labelled else [], targets)
        self._dataset = dataset

    def image(self, index: int) -> Image.Image:
        try:
            return self._dataset[int(index)][0].convert("RGB")
        except (OSError, ValueError) as error:
            raise BadImage(Path(self.image_name(index)), str(error)) from error


def open_torchvision(name: str, roots: dict[str, Path], split: str) -> _TorchvisionSource:
    """Open a data set that torchvision has stored on disk; nothing is downloaded.

    Args:
        name: ``torchvision:`` and a key of ``SPLITS``.
        roots: name (or class) -> ``root`` of the torchvision class; the key "" holds the folder for all.
        split: one of the splits in ``SPLITS``.

    Raises:
        UsvitError: There is no such class or split, no folder was given, or torchvision does not find its files there.
    """
    from torchvision import datasets

    kind = name.removeprefix(PREFIX)
    if kind not in SPLITS:
        raise unknown("data set of torchvision", kind, SPLITS, f"These are read: {', '.join(SPLITS)}.")
    if split not in SPLITS[kind]:
        raise unknown(f"split of {name}", split, SPLITS[kind], f"Its splits: {', '.join(SPLITS[kind])}.")
    root = given_root(roots, name, kind)
    if root is None:
        raise UsvitError(f"The folder of {name} is not known: pass --data-root {name}=DIR, torchvision's 'root'.")
    try:
        return _TorchvisionSource(name, getattr(datasets, kind)(str(root), **SPLITS[kind][split]))
    except (OSError, RuntimeError, ValueError, ModuleNotFoundError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(
            f"torchvision cannot read {kind} in {root}: {reason}\n"
            f"Download it with torchvision.datasets.{kind} into this folder; usvit does not download it."
        ) from error


def _targets(dataset: Any) -> Indices:
    """Return (N,) int64 classes from the attribute that holds them; no image is decoded."""
    for attribute in ("targets", "labels", "_labels", "y"):
        if (found := getattr(dataset, attribute, None)) is not None:
            return np.asarray([int(label) for label in found], dtype=np.int64)
    pairs = dataset._samples if hasattr(dataset, "_samples") else dataset.samples
    return np.asarray([int(pair[1]) for pair in pairs], dtype=np.int64)
