"""How an image becomes the network's input: one value that travels with the weights."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from usvit.data.images import Box, UInt8

if TYPE_CHECKING:
    import torch

Pixels = TypeVar("Pixels", UInt8, NDArray[np.bool_])

MIN_SIDE = 32
"""px: a region with less of either side is no picture of tissue but a mistake of the header; nothing is cut to it."""
CROPS = ("tissue", "whole")


@dataclass(frozen=True)
class Preprocessing:
    """How an image becomes the network's input; one value that travels with the weights in ``model.json``."""

    image_size: int
    """Side of the square, in pixels."""
    resize: str
    """``squash`` to the square, or ``pad`` with black to it, keeping the aspect ratio."""
    mean: tuple[float, float, float]
    """Of each channel, on the scale [0, 1]."""
    std: tuple[float, float, float]
    crop: str = "tissue"
    """``tissue``: a DICOM frame is cut to the 2-D tissue region that its header describes, where it does so; pictures
    and all other frames are taken whole. ``whole``: so are they all. A passport that does not say means ``tissue``."""

    def resized(self, image: UInt8, tissue: Box | None = None) -> UInt8:
        """From a whole frame to the network's square; training and scoring both go through here.

        Args:
            image: (H, W, 3) uint8.
            tissue: what the file's header says of it (``usvit.data.images.decode``).

        Returns:
            (image_size, image_size, 3) uint8, bicubic with antialiasing.
        """
        return self._fitted(Image.fromarray(cropped(image, tissue, self.crop)))

    def resized_mask(self, mask: NDArray[np.bool_], tissue: Box | None = None) -> NDArray[np.bool_]:
        """(H, W) bool -> (image_size, image_size) bool, where the same pixels go as in ``resized``."""
        return self._fitted(Image.fromarray(cropped(mask, tissue, self.crop).astype(np.uint8) * 255)) > 127

    def _fitted(self, picture: Image.Image) -> UInt8:
        size = (self.image_size, self.image_size)
        if self.resize == "pad":
            return np.asarray(ImageOps.pad(picture, size, Image.Resampling.BICUBIC, color=0))  # black in any mode
        return np.asarray(picture.resize(size, Image.Resampling.BICUBIC))

    def normalised(self, batch: "torch.Tensor") -> "torch.Tensor":
        """(B, S, S, 3) uint8 -> (B, 3, S, S) float32 on the batch's device."""
        import torch  # not above: processes that only read images need none of it

        mean = torch.tensor(self.mean, device=batch.device).view(1, 3, 1, 1)
        std = torch.tensor(self.std, device=batch.device).view(1, 3, 1, 1)
        return batch.permute(0, 3, 1, 2).float().div_(255).sub_(mean).div_(std)


def cropped(frame: Pixels, tissue: Box | None, crop: str) -> Pixels:
    """The part of a frame, or of a mask of its shape, that is looked at.

    Args:
        frame: (H, W) or (H, W, 3).
        tissue: the region that its header describes; None, or one that leaves less than ``MIN_SIDE`` px: the whole.
        crop: of ``CROPS``.

    Returns:
        (h, w) or (h, w, 3), contiguous.
    """
    if crop == "whole" or tissue is None:
        return frame
    left, top, right, bottom = tissue
    part = frame[max(top, 0) : max(bottom, 0), max(left, 0) : max(right, 0)]
    return frame if min(part.shape[:2]) < MIN_SIDE else np.ascontiguousarray(part)
