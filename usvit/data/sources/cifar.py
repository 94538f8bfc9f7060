"""CIFAR-10 and CIFAR-100 as Krizhevsky released them, with CIFAR-100's 20 superclasses.

Source: Krizhevsky 2009, "Learning multiple layers of features from tiny images". The releases are pickles, which can
run any code when they are read: they are read only where their MD5 is the release's, as torchvision knows it.
"""

import hashlib
import pickle
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from usvit.data.sources.base import ListedSource
from usvit.data.sources.named_set import Malformed, NamedSet


class PixelSource(ListedSource):
    """Small images that all lie in memory: ``pixels`` is (N, H, W, 3) uint8."""

    def __init__(
        self,
        name: str,
        pixels: NDArray[np.uint8],
        classes: Iterable[str],
        targets: NDArray[np.int64],
        levels: dict[str, tuple[str, ...]] | None = None,
    ):
        super().__init__(name, classes, targets)
        self.pixels, self.levels = pixels, levels or {}

    def image(self, index: int) -> Image.Image:
        return Image.fromarray(self.pixels[index])

    def listing(self) -> Iterable[NDArray[Any]]:
        return (self.pixels,)


def _read(name: str) -> Any:
    return lambda root, split: read_cifar(name, root, split)


def read_cifar(name: str, root: Path, split: str) -> PixelSource:
    """One split.

    Args:
        name: ``cifar10`` or ``cifar100``.
        root: the folder of the batches, or the one that holds it.
        split: ``train`` or ``test``.

    Raises:
        Malformed: a file is not the release's.
    """
    release, folder = _release(name), _folder(name, root)
    files = release.train_list if split == "train" else release.test_list
    batches = [_unpickled(folder / file, md5) for file, md5 in files]
    pixels = np.concatenate([batch["data"] for batch in batches]).reshape(-1, 3, 32, 32)
    labels = "labels" if name == "cifar10" else "fine_labels"
    targets = np.concatenate([np.asarray(batch[labels], dtype=np.int64) for batch in batches])
    meta = _unpickled(folder / release.meta["filename"], release.meta["md5"])
    classes = meta[release.meta["key"]]
    levels = {}
    if name == "cifar100":
        coarse = np.concatenate([np.asarray(batch["coarse_labels"], dtype=np.int64) for batch in batches])
        levels["superclass"] = _superclasses(targets, coarse, len(classes), meta["coarse_label_names"])
    return PixelSource(name, np.ascontiguousarray(pixels.transpose(0, 2, 3, 1)), classes, targets, levels)


def _superclasses(fine: Any, coarse: Any, classes: int, names: list[str]) -> tuple[str, ...]:
    of = dict(zip(fine.tolist(), coarse.tolist(), strict=True))
    if len(of) < classes or any(
        of[label] != other for label, other in zip(fine.tolist(), coarse.tolist(), strict=True)
    ):
        raise Malformed("its classes have no superclass, or several")
    return tuple(names[of[label]] for label in range(classes))


def _release(name: str) -> Any:
    from torchvision.datasets import CIFAR10, CIFAR100  # checksums of the release

    return CIFAR10 if name == "cifar10" else CIFAR100


def _folder(name: str, root: Path) -> Path:
    inner = root / ("cifar-10-batches-py" if name == "cifar10" else "cifar-100-python")
    return inner if inner.is_dir() else root


def _unpickled(path: Path, md5: str) -> dict[str, Any]:
    data = path.read_bytes()
    # The bytes that were checked are the bytes that are read: nobody exchanges the file in between.
    if hashlib.md5(data, usedforsecurity=False).hexdigest() != md5:
        raise Malformed(f"{path.name} is not the release's file (its MD5 is not {md5}); fetch it again")
    content: dict[str, Any] = pickle.loads(data, encoding="latin1")
    return content


_GET = "The python version of the release, by Alex Krizhevsky (University of Toronto)."

SETS = (
    NamedSet(
        name="cifar10",
        layout="cifar-10-batches-py/data_batch_1 to data_batch_5, test_batch, batches.meta",
        get=_GET,
        splits=("train", "test"),
        looks_like=lambda root: (_folder("cifar10", root) / "batches.meta").is_file(),
        read=_read("cifar10"),
    ),
    NamedSet(
        name="cifar100",
        layout="cifar-100-python/train, test, meta",
        get=_GET,
        splits=("train", "test"),
        looks_like=lambda root: all((_folder("cifar100", root) / file).is_file() for file in ("meta", "train", "test")),
        read=_read("cifar100"),
    ),
)
