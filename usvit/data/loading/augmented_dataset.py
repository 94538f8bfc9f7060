"""Training batches of a source: images are decoded, cropped and augmented in the process that makes the batch."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from usvit.data.datasets import UpstreamDataset
from usvit.data.io import BadImage, UInt8
from usvit.data.loading.infinite_loader import Batch
from usvit.errors import UsvitError
from usvit.seeding import derive_seed

View = Callable[[Image.Image, int], UInt8]
"""Function of an image and a seed that returns (S, S, 3) uint8."""


class UnusableImage(UsvitError):
    """Error about an image of a running training, whose message survives a worker process.

    PyTorch raises a worker's error again with one argument, the text of the traceback, which ends with the message.
    """

    def __init__(self, text: str):
        super().__init__(text.rpartition(f"{type(self).__name__}: ")[2].strip())


class AugmentedDataset:
    """Examples for ``InfiniteLoader``: augmented views of the images of a source.

    Args:
        source: the images.
        *views: makes each of the T views of an image, which have one size; they can be pickled.
        local: makes each of the local crops of an image, which have another size (multi-crop).
    """

    def __init__(self, source: UpstreamDataset, *views: View, local: Sequence[View] = ()):
        self.source, self.views, self.local = source, views, tuple(local)

    def __len__(self) -> int:
        return len(self.source)

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        return self.source.order(generator)

    def batch(self, items: Sequence[tuple[int, int]]) -> Batch:
        """Make a batch.

        Args:
            items: (image, seed) of each of B examples.

        Returns:
            ``images`` (B, S, S, 3) uint8, or (B, T, S, S, 3) if T is above 1; ``targets`` (B,) int64, -1 if unlabelled;
            ``seeds`` (B,) int64; ``index`` (B,) int64, index of the image in the source; and, if there are local crops,
            ``local`` (B, L, s, s, 3) uint8.

        Raises:
            UsvitError: An image cannot be read; the error names the file.
        """
        index = np.array([at for at, _ in items], dtype=np.int64)
        times = Counter(index.tolist())
        decoded: dict[int, Image.Image] = {}  # images that occur again (repeated augmentation)
        images, local = [], []
        for at, seed in items:
            picture = decoded.get(at) or decoded_image(self.source, at)
            times[at] -= 1
            if times[at]:
                decoded[at] = picture
            else:
                decoded.pop(at, None)
            if len(self.views) == 1:
                images.append(self.views[0](picture, seed))
            else:
                images.append(_stacked(self.views, picture, seed, "view"))
            if self.local:
                local.append(_stacked(self.local, picture, seed, "local"))
        return {
            "images": torch.from_numpy(np.stack(images)),
            "targets": torch.from_numpy(self.source.targets[index]),
            "seeds": torch.tensor([seed for _, seed in items], dtype=torch.int64),
            "index": torch.from_numpy(index),
            **({"local": torch.from_numpy(np.stack(local))} if local else {}),
        }


def decoded_image(source: UpstreamDataset, index: int) -> Image.Image:
    """Decode an image of a running training.

    Raises:
        UnusableImage: It cannot be read; the error names the file and says how to continue.
    """
    try:
        return source.image(index)
    except BadImage as error:
        raise UnusableImage(unusable(error.path, error.reason)) from error
    except UsvitError as error:
        raise UnusableImage(str(error)) from error


def _stacked(views: Sequence[View], picture: Image.Image, seed: int, kind: str) -> UInt8:
    return np.stack([view(picture, derive_seed(seed, kind, number)) for number, view in enumerate(views)])


@contextmanager
def readable() -> Iterator[None]:
    """Turn ``BadImage`` into an error that says how to continue a training.

    Raises:
        UnusableImage: An image cannot be read.
    """
    try:
        yield
    except BadImage as error:
        raise UnusableImage(unusable(error.path, error.reason)) from error


def unusable(path: Path, reason: str) -> str:
    """Return the error message for an image that a training cannot read."""
    return (
        f"Cannot train on the image {path}: {reason}. Replace it by an intact copy and run the same command again; "
        "training continues from the last checkpoint. To leave the image out, remove the file and start a new run."
    )
