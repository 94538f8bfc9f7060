"""From a source to training batches: decoded, cut and augmented where the batch is made."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from usvit.data.images import BadImage, UInt8
from usvit.data.sources.source import Source
from usvit.data.stream import Batch
from usvit.errors import UsvitError
from usvit.seeding import derive_seed

View = Callable[[Image.Image, int], UInt8]
"""From a picture and a seed to (S, S, 3) uint8."""


class UnusableImage(UsvitError):
    """An image of a running training cannot be used; its text survives a worker process.

    PyTorch raises again what a worker raised, from one text: the worker's traceback, which ends with the message.
    """

    def __init__(self, text: str):
        super().__init__(text.rpartition(f"{type(self).__name__}: ")[2].strip())


class ViewExamples:
    """Examples of ``usvit.data.stream``: views of a source's images.

    Args:
        source: the images.
        views: makes one view; picklable.
        count: views of each image that belong together (Grafit's T).
    """

    def __init__(self, source: Source, views: View, count: int = 1):
        self.source, self.views, self.count = source, views, count

    def __len__(self) -> int:
        return len(self.source)

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        return self.source.order(generator)

    def batch(self, items: Sequence[tuple[int, int]]) -> Batch:
        """Some examples.

        Args:
            items: (image, seed) of each of B examples.

        Returns:
            ``images`` (B, S, S, 3) uint8, or (B, T, S, S, 3) with T = ``count`` views of more than one; ``targets``
            (B,) int64, -1 where unlabelled; ``seeds`` (B,) int64; ``index`` (B,) int64, which image of the source.

        Raises:
            UsvitError: an image cannot be read; the file is named.
        """
        index = np.array([at for at, _ in items], dtype=np.int64)
        times = Counter(index.tolist())
        decoded: dict[int, Image.Image] = {}  # of those that come again: repeated augmentation
        images = []
        for at, seed in items:
            picture = decoded.get(at) or self._decoded(at)
            times[at] -= 1
            if times[at]:
                decoded[at] = picture
            else:
                decoded.pop(at, None)
            images.append(self._views(picture, seed))
        return {
            "images": torch.from_numpy(np.stack(images)),
            "targets": torch.from_numpy(self.source.targets[index]),
            "seeds": torch.tensor([seed for _, seed in items], dtype=torch.int64),
            "index": torch.from_numpy(index),
        }

    def _views(self, picture: Image.Image, seed: int) -> UInt8:
        if self.count == 1:
            return self.views(picture, seed)
        return np.stack([self.views(picture, derive_seed(seed, "view", view)) for view in range(self.count)])

    def _decoded(self, index: int) -> Image.Image:
        try:
            return self.source.image(index)
        except BadImage as error:
            raise UnusableImage(unusable(error.path, error.reason)) from error
        except UsvitError as error:
            raise UnusableImage(str(error)) from error


@contextmanager
def readable() -> Iterator[None]:
    """An image that cannot be read stops a training with words that fit one.

    Raises:
        UnusableImage: for ``BadImage``.
    """
    try:
        yield
    except BadImage as error:
        raise UnusableImage(unusable(error.path, error.reason)) from error


def unusable(path: Path, reason: str) -> str:
    """What to say of an image that a training cannot read."""
    return (
        f"Cannot learn from the image {path}: {reason}. Put a whole copy in its place and give the same command again: "
        "it goes on from the last checkpoint. To leave it out, remove the file and begin again."
    )
