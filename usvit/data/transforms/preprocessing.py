"""Conversion of an image to the input of the network; its settings are stored with the weights."""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from usvit.data.io import MIN_SIDE, Box, UInt8

if TYPE_CHECKING:
    import torch

    from usvit.records import PreprocessingRecord

Pixels = TypeVar("Pixels", UInt8, NDArray[np.bool_])

CROPS = ("tissue", "whole")


@dataclass(frozen=True)
class Preprocessing:
    """Settings of the conversion of an image to the input of the network; stored with the weights in ``model.json``."""

    image_size: int
    """Side of the square input in pixels."""
    resize: str
    """``squash`` stretches to the square; ``pad`` keeps the aspect ratio and adds black borders."""
    mean: tuple[float, float, float]
    """Mean of each channel, for values in [0, 1]."""
    std: tuple[float, float, float]
    """Standard deviation of each channel, for values in [0, 1]."""
    crop: str = "tissue"
    """``tissue`` cuts a DICOM frame to the 2-D tissue region if its header describes one, and uses all other images
    whole; ``whole`` uses all images whole."""

    @classmethod
    def of_record(cls, record: "PreprocessingRecord") -> Self:
        """Return the settings in the model metadata."""
        (red, green, blue), (of_red, of_green, of_blue) = record.mean, record.std
        return cls(record.image_size, record.resize, (red, green, blue), (of_red, of_green, of_blue), record.crop)

    def record(self) -> "PreprocessingRecord":
        """Return the entry of the model metadata."""
        from usvit.records import PreprocessingRecord

        return PreprocessingRecord.model_validate(vars(self) | {"mean": list(self.mean), "std": list(self.std)})

    def resized(self, image: UInt8, tissue: Box | None = None) -> UInt8:
        """Crop and resize a whole frame to the square of the network, for training and scoring alike.

        Args:
            image: (H, W, 3) uint8.
            tissue: Tissue region from the header of the file (``usvit.data.io.decode``).

        Returns:
            (image_size, image_size, 3) uint8, bicubic with antialiasing.
        """
        return self._fitted(Image.fromarray(cropped(image, tissue, self.crop)))

    def resized_mask(self, mask: NDArray[np.bool_], tissue: Box | None = None) -> NDArray[np.bool_]:
        """Crop and resize a mask, (H, W) bool, as ``resized`` does; return (image_size, image_size) bool."""
        return self._fitted(Image.fromarray(cropped(mask, tissue, self.crop).astype(np.uint8) * 255)) > 127

    def resized_labels(self, labels: UInt8, tissue: Box | None = None, outside: int = 0) -> UInt8:
        """Crop and resize labels, (H, W) uint8, as ``resized`` does, by the nearest pixel.

        Args:
            labels: (H, W) uint8.
            tissue: As for ``resized``.
            outside: Label of the borders that ``pad`` adds.

        Returns:
            (image_size, image_size) uint8.
        """
        picture = Image.fromarray(cropped(labels, tissue, self.crop))
        return self._fitted(picture, Image.Resampling.NEAREST, outside)

    def restored(
        self, values: NDArray[np.float32], shape: tuple[int, int], tissue: Box | None = None
    ) -> NDArray[np.float32]:
        """Map values of the network's square back to the whole frame, the inverse of ``resized``.

        Args:
            values: (image_size, image_size) float32.
            shape: (H, W) of the frame.
            tissue: As for ``resized``.

        Returns:
            (H, W) float32, bilinear; 0 outside the part of the frame that the network sees.
        """
        frame = np.zeros(shape, dtype=np.float32)
        rows, columns = used_part(shape, tissue, self.crop)
        height, width = frame[rows, columns].shape
        box = (0, 0, self.image_size, self.image_size)
        if self.resize == "pad":
            fitted = ImageOps.contain(Image.new("1", (width, height)), (self.image_size, self.image_size))
            left, top = (round((self.image_size - side) * 0.5) for side in fitted.size)  # as ImageOps.pad
            box = (left, top, left + fitted.width, top + fitted.height)
        picture = Image.fromarray(values).resize((width, height), Image.Resampling.BILINEAR, box)
        frame[rows, columns] = np.asarray(picture)
        return frame

    def _fitted(
        self, picture: Image.Image, method: Image.Resampling = Image.Resampling.BICUBIC, color: int = 0
    ) -> UInt8:
        size = (self.image_size, self.image_size)
        if self.resize == "pad":
            return np.asarray(ImageOps.pad(picture, size, method, color=color))  # 0 is black in any mode
        return np.asarray(picture.resize(size, method))

    def normalised(self, batch: "torch.Tensor") -> "torch.Tensor":
        """Normalise a batch: (B, S, S, 3) uint8 to (B, 3, S, S) float32 on the same device."""
        # On a GPU the constants are kept, because each copy would wait for it; on a CPU this may be part of an export.
        constant = _kept if batch.is_cuda else _constant
        mean, std = constant(tuple(self.mean), batch.device), constant(tuple(self.std), batch.device)
        return batch.permute(0, 3, 1, 2).float().div_(255).sub_(mean).div_(std)


def _constant(values: tuple[float, ...], device: "torch.device") -> "torch.Tensor":
    """Return (1, 3, 1, 1) on the device."""
    import torch  # imported here because processes that only read images do not need torch

    return torch.tensor(values, device=device).view(1, 3, 1, 1)


@functools.cache
def _kept(values: tuple[float, ...], device: "torch.device") -> "torch.Tensor":
    import torch

    with torch.inference_mode(False):  # a tensor of inference mode could not take part in a training
        return _constant(values, device)


def cropped(frame: Pixels, tissue: Box | None, crop: str) -> Pixels:
    """Cut a frame, or a mask of its shape, to the part that is used.

    Args:
        frame: (H, W) or (H, W, 3).
        tissue: Region that its header describes. The whole frame is used if it is None or leaves a side of less than
            ``MIN_SIDE`` pixels.
        crop: One of ``CROPS``.

    Returns:
        (h, w) or (h, w, 3); contiguous if it was cut.
    """
    rows, columns = used_part((frame.shape[0], frame.shape[1]), tissue, crop)
    part = frame[rows, columns]
    return frame if part.shape == frame.shape else np.ascontiguousarray(part)


def used_part(shape: tuple[int, int], tissue: Box | None, crop: str) -> tuple[slice, slice]:
    """Return the rows and columns of a frame of ``shape`` (H, W) that ``cropped`` keeps."""
    whole = slice(0, shape[0]), slice(0, shape[1])
    if crop == "whole" or tissue is None:
        return whole
    left, top, right, bottom = tissue
    rows = slice(max(top, 0), min(max(bottom, 0), shape[0]))
    columns = slice(max(left, 0), min(max(right, 0), shape[1]))
    return whole if min(rows.stop - rows.start, columns.stop - columns.start) < MIN_SIDE else (rows, columns)


@dataclass(frozen=True)
class CentreSquare(Preprocessing):
    """What a transfer shows its network, as ``test_view``: the central square of the image, its short side resized."""

    test_crop: float = 1.0
    """Part of the short side that the square has, in (0, 1]."""

    def _fitted(
        self, picture: Image.Image, method: Image.Resampling = Image.Resampling.BICUBIC, color: int = 0
    ) -> UInt8:
        side, size = int(self.image_size / self.test_crop), self.image_size
        short = min(picture.size)
        resized = picture.resize((int(side * picture.width / short), int(side * picture.height / short)), method)
        left, top = (round((length - size) / 2) for length in resized.size)
        return np.asarray(resized.crop((left, top, left + size, top + size)))
