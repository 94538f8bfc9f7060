"""What every set of upstream images is: images by index, the same index always the same image."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from usvit.progress import Progress


class Source(Protocol):
    """Images to learn from. Picklable: worker processes get a copy."""

    @property
    def name(self) -> str:
        """For the record; no path."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names, in the order of ``targets``; empty where images are unlabelled."""

    @property
    def targets(self) -> NDArray[np.int64]:
        """(N,) class of each image; -1 where it is unlabelled."""

    def __len__(self) -> int:
        """N; of a generated source, the images that an epoch is said to hold."""

    def image(self, index: int) -> Image.Image:
        """One picture, mode RGB.

        Raises:
            BadImage: it cannot be read; the file is named.
        """

    def order(self, generator: np.random.Generator) -> NDArray[np.int64]:
        """(N,) a permutation of the images for one epoch; shards are read one after the other."""

    def hashes(self, progress: Progress) -> list[str] | None:
        """``pixel_sha256`` of each image, of those whose pixels may stand elsewhere, too; None: made on the fly."""

    def describe(self) -> dict[str, Any]:
        """For ``run.json``: name, number of images and classes, SHA-256 of the listing; no path."""
