"""A trained segmentation applied to new images."""

import logging
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from pydantic import ValidationError
from torch import nn

from usvit.arguments import checked_arguments
from usvit.config.scoring import Device
from usvit.data.io import decode, pixel_sha256
from usvit.data.splits import SeenImages, load_metadata, seen_by, together
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError
from usvit.files import sha256_of_file, sha256_of_text
from usvit.models import MAX_BYTES, SEGMENTER_FILE, fold_folders, load_network, read_state_dict
from usvit.records import ModelMetadata, load_run_record
from usvit.representation import Summarised
from usvit.scoring import ImageInput, image_pixels
from usvit.training import resolve_device
from usvit.upstream.config.segment import SegmentConfig
from usvit.upstream.segmentation.images import LESION
from usvit.upstream.segmentation.network import SegmentationNetwork, make_segmenter

logger = logging.getLogger(__name__)

THRESHOLD = 0.5
"""Mean probability of the lesion above which a pixel belongs to it."""


class Segmenter(Summarised):
    """The networks of a segmentation of lesions, whose probabilities are averaged; ``load_segmenter`` creates it.

    Example:
        See ``load_segmenter``.
    """

    def __init__(
        self, networks: Sequence[nn.Module], preprocessing: Preprocessing, seen: SeenImages, name: str, sha256: str
    ):
        self._networks, self.preprocessing, self.seen = list(networks), preprocessing, seen
        self.name, self.sha256 = name, sha256

    def _facts(self) -> dict[str, object]:
        return {"name": self.name, "networks": self.n_networks, "image_size": self.preprocessing.image_size}

    @property
    def n_networks(self) -> int:
        """Number of networks: one for each fold."""
        return len(self._networks)

    def maps(self, pixels: torch.Tensor) -> NDArray[np.float32]:
        """Return the mean probability that a pixel belongs to the lesion.

        Args:
            pixels: (B, S, S, 3) uint8, resized by ``preprocessing.resized``.

        Returns:
            (B, S, S) in [0, 1].
        """
        with torch.inference_mode():
            device = next(self._networks[0].parameters()).device
            images = self.preprocessing.normalised(pixels.to(device))
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
        given = [images] if isinstance(images, (str, os.PathLike, Image.Image, np.ndarray)) else list(images)
        masks, known = [], 0
        for number, one in enumerate(given):
            if isinstance(one, (str, os.PathLike)):
                whole, tissue, _ = decode(Path(one), frame)
            else:
                whole, tissue = image_pixels(one, f"image-{number}"), None
            known += pixel_sha256(whole) in self.seen
            (found,) = self.maps(torch.from_numpy(np.stack([self.preprocessing.resized(whole, tissue)])))
            masks.append(self.preprocessing.restored(found, (whole.shape[0], whole.shape[1]), tissue) > THRESHOLD)
        if known:
            logger.warning(f"{known} of {len(given)} images were used to train the segmenter {self.name}.")
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
    where = path if (path / "run.json").is_file() else path.absolute().parent
    hint = "Name the folder of a run of usvit transfer --how segment, or of one of its folds."
    record = load_run_record(where, hint)
    config: dict[str, Any] = record.config.content()
    if record.kind != "transfer" or config.get("how") != "segment":
        raise UsvitError(f"{path} is a run of usvit {record.kind}, but no segmentation. {hint}")
    try:
        settings = SegmentConfig.model_validate(config.get("segment"))
    except ValidationError as error:
        raise UsvitError(f"{where / 'run.json'} is damaged: its settings 'segment' are not readable.") from error
    folders = fold_folders(path)
    found = [_of_fold(folder, settings) for folder in folders]
    target = torch.device(resolve_device(device, "auto").type)
    metadata = [one for _, one in found]
    files = ["model.safetensors", *([] if settings.head == "unet" else [SEGMENTER_FILE])]
    return Segmenter(
        [network.to(target).eval() for network, _ in found],
        Preprocessing.of_record(metadata[0].preprocessing),
        together(seen_by(one, folder) for one, folder in zip(metadata, folders, strict=True)),
        settings.head if settings.head == "unet" else f"{metadata[0].architecture}+{settings.head}",
        sha256_of_text("\n".join(sha256_of_file(one / file) for one in folders for file in files)),
    )


def _of_fold(folder: Path, settings: SegmentConfig) -> tuple[SegmentationNetwork, ModelMetadata]:
    metadata = load_metadata(folder / "model.safetensors")
    if metadata is None or metadata.objective != "segment" or metadata.classes != list(LESION):
        raise UsvitError(
            f"{folder} holds no segmenter of lesions: its model.json is missing, or names another objective than "
            "'segment' or other classes than background and lesion. Name a run of usvit transfer --how segment without "
            "segment.table."
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
    return whole, metadata
