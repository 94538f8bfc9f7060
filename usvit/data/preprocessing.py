"""How an image becomes the network's input: one value that travels with the weights."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from usvit.data.images import UInt8

if TYPE_CHECKING:
    import torch


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

    def resized(self, image: UInt8) -> UInt8:
        """(H, W, 3) uint8 -> (image_size, image_size, 3) uint8, bicubic with antialiasing."""
        return self._fitted(Image.fromarray(image))

    def resized_mask(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """(H, W) bool -> (image_size, image_size) bool, where the same pixels go as in ``resized``."""
        return self._fitted(Image.fromarray(mask.astype(np.uint8) * 255)) > 127

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
