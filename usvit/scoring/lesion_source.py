"""Segmenters of ``usvit transfer --how segment``, which mark the lesion for networks that do not mark it themselves."""

from pathlib import Path
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from usvit.data.splits import SeenImages
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError
from usvit.plugins import segmenter_loader


class LesionSegmenter(Protocol):
    """The networks of a segmentation, which a plug-in loads (``Plugin.segmenters``)."""

    @property
    def name(self) -> str:
        """Network and head."""
        ...

    @property
    def sha256(self) -> str:
        """Hash of all their weights."""
        ...

    @property
    def n_networks(self) -> int: ...

    @property
    def preprocessing(self) -> Preprocessing: ...

    @property
    def seen(self) -> SeenImages:
        """All images that they, or their initial weights, were trained on."""
        ...

    def maps(self, pixels: torch.Tensor) -> NDArray[np.float32]:
        """Return the probability that a pixel belongs to the lesion, (B, S, S), for images (B, S, S, 3) uint8."""
        ...


def load_lesion_segmenter(run: Path, crop: str, device: str) -> LesionSegmenter:
    """Load the segmenter of ``--seg-from``.

    Args:
        run: Folder of the segmentation, or of one of its folds.
        crop: Crop of the networks that score (``Preprocessing``).
        device: ``auto``, ``cpu`` or ``cuda``.

    Raises:
        UsvitError: The folder is not a segmentation of lesions, or its crop is another.
    """
    loader = segmenter_loader()
    if loader is None:
        raise UsvitError(
            "--seg-from needs usvit.upstream, which loads segmenters, and it is not installed: reinstall usvit."
        )
    segmenter: LesionSegmenter = loader(run, device=device)
    if segmenter.preprocessing.crop != crop:
        raise UsvitError(
            f"The segmenter {run} sees images with input.crop={segmenter.preprocessing.crop}, and the model with "
            f"{crop}: each image is cut once for both. Choose a model and a segmenter of the same input.crop."
        )
    return segmenter
