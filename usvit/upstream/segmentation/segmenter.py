"""A trained segmentation applied to new images."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from usvit.arguments import checked_arguments
from usvit.config.scoring import Device
from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.models import MAX_BYTES, SEGMENTER_FILE, load_network, read_state_dict
from usvit.records import ModelMetadata
from usvit.scoring import ImageInput
from usvit.upstream.applied_networks import AppliedNetworks, transfer_folds, transfer_settings
from usvit.upstream.config.segment import SegmentConfig
from usvit.upstream.segmentation.images import LESION
from usvit.upstream.segmentation.network import SegmentationNetwork, make_segmenter

_SEGMENTATION = ("segment", "segmentation")
THRESHOLD = 0.5
"""Mean probability of the lesion above which a pixel belongs to it."""


class Segmenter(AppliedNetworks):
    """The networks of a segmentation of lesions, whose probabilities are averaged; ``load_segmenter`` creates it.

    Example:
        See ``load_segmenter``.
    """

    def maps(self, pixels: torch.Tensor) -> NDArray[np.float32]:
        """Return the mean probability that a pixel belongs to the lesion.

        Args:
            pixels: (B, S, S, 3) uint8, resized by ``preprocessing.resized``.

        Returns:
            (B, S, S) in [0, 1].
        """
        with torch.inference_mode():
            images = self.preprocessing.normalised(pixels.to(self._device))
            each = [network(images).float().softmax(1)[:, 1] for network in self._networks]
            return np.asarray(torch.stack(each).mean(0).cpu().numpy())

    @checked_arguments
    def predict(
        self, images: ImageInput | Sequence[ImageInput], *, frame: int | None = None
    ) -> list[NDArray[np.bool_]]:
        """Predict the mask of the lesion.

        Images with the same pixels as those of the training are named in a warning of the log: their masks are no
        independent prediction.

        Args:
            images: path of an image or a DICOM file, ``PIL.Image.Image``, or array of shape (H, W) or (H, W, 3), uint8;
                or a list of these. Files are decoded in this process.
            frame: number of the frame of each file, from 0; None for the only frame.

        Returns:
            For each image a mask (H, W), bool, of the size of the whole image; all False if no lesion is found.

        Raises:
            BadImage: a file cannot be read.
            UsvitError: an image is of another type or shape.
        """
        masks = []
        for whole, tissue, pixels in self._opened(images, frame):
            (found,) = self.maps(pixels)
            masks.append(self.preprocessing.restored(found, (whole.shape[0], whole.shape[1]), tissue) > THRESHOLD)
        return masks


@checked_arguments
def load_segmenter(run: str | os.PathLike[str], *, device: Device = "auto") -> Segmenter:
    """Load the segmenters of a run of ``usvit transfer --how segment``, one of each fold.

    Args:
        run: folder of the run, or of one of its folds.
        device: ``auto``, ``cpu`` or ``cuda``.

    Returns:
        The segmenter, on the device; of several folds the mean of their probabilities.

    Raises:
        UsvitError: the folder is not a finished segmentation of lesions, its files are damaged or do not belong
            together, MONAI is missing for its U-Net, or there is no such device.

    Example:
        >>> import numpy as np
        >>> import usvit
        >>> trained = usvit.transfer(
        ...     "segment", "scratch", dataset="phantom", model="timm:test_resnet", out="runs/segment", device="cpu",
        ...     model__image_size=64, segment__head="linear", split__folds=2, train__steps=2, train__eval_every=2,
        ... )
        >>> (mask,) = usvit.load_segmenter(trained.path, device="cpu").predict(np.zeros((48, 64), np.uint8))
        >>> mask.shape
        (48, 64)
    """
    path = Path(run)
    settings = transfer_settings(path, *_SEGMENTATION, "segment", SegmentConfig)
    folds = transfer_folds(path, *_SEGMENTATION)
    networks = [_of_fold(folder, metadata, settings) for folder, metadata in folds]
    if settings.head == "unet":  # a network of its own, in the usual file
        return Segmenter("segmenter", "unet", folds, networks, (), device)
    name = f"{folds[0][1].architecture}+{settings.head}"
    return Segmenter("segmenter", name, folds, networks, (SEGMENTER_FILE,), device)


def _of_fold(folder: Path, metadata: ModelMetadata, settings: SegmentConfig) -> SegmentationNetwork:
    if metadata.classes != list(LESION):
        raise UsvitError(
            f"{folder} holds no segmenter of lesions: its model.json names other classes than background and lesion. "
            "Name a run of usvit transfer --how segment without segment.table."
        )
    is_unet, size = settings.head == "unet", metadata.preprocessing.image_size
    network, spec = (None, None) if is_unet else load_network(folder, metadata)
    file = folder / ("model.safetensors" if is_unet else SEGMENTER_FILE)
    if is_unet and metadata.weights_sha256 != sha256_of_file(file, limit=MAX_BYTES):
        raise UsvitError(f"{file} is not the file that its model.json describes: its SHA-256 differs. Restore the run.")
    state = read_state_dict(file)
    try:
        with torch.random.fork_rng(devices=[]):
            name = metadata.architecture if spec is None else spec.name
            whole = make_segmenter(network, settings.head, len(LESION), size, settings, name)
        whole.decoder.load_state_dict(state)
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(f"{file} is not the head {settings.head} of this run. Restore the run. ({reason})") from error
    return whole
