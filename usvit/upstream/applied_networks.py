"""Networks of a finished transfer, applied to new images."""

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from PIL import Image
from pydantic import ValidationError
from torch import nn

from usvit.config.sections import Section
from usvit.data.io import Box, UInt8, decode, pixel_sha256
from usvit.data.splits import load_metadata, seen_by, together
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError
from usvit.files import sha256_of_file, sha256_of_text
from usvit.models import fold_folders
from usvit.records import ModelMetadata, load_run_record
from usvit.representation import Summarised
from usvit.scoring import ImageInput, image_pixels
from usvit.training import resolve_device

logger = logging.getLogger(__name__)

_Section = TypeVar("_Section", bound=Section)


class AppliedNetworks(Summarised):
    """Networks of a transfer, one of each fold, in evaluation mode on a device.

    Args:
        kind: What they are, for messages: ``segmenter``.
        name: Name of the network and its head, for records.
        folds: Folder and metadata of each (``transfer_folds``).
        networks: The networks.
        files: Names of the files of a fold beside that of the network.
        device: ``auto``, ``cpu`` or ``cuda``.
    """

    def __init__(
        self,
        kind: str,
        name: str,
        folds: Sequence[tuple[Path, ModelMetadata]],
        networks: Sequence[nn.Module],
        files: Sequence[str],
        device: str,
    ):
        target = torch.device(resolve_device(device, "auto").type)
        self._kind, self._device = kind, target
        self._networks = [network.to(target).eval() for network in networks]
        first = folds[0][1]
        self.preprocessing = Preprocessing.of_record(first.preprocessing)
        self.seen = together(seen_by(metadata, folder) for folder, metadata in folds)
        """All images that they, or their initial weights, were trained on."""
        self.name = name
        self.sha256 = sha256_of_text(
            "\n".join(sha256_of_file(one / file) for one, _ in folds for file in ("model.safetensors", *files))
        )

    def _facts(self) -> dict[str, object]:
        return {"name": self.name, "networks": self.n_networks, "image_size": self.preprocessing.image_size}

    @property
    def n_networks(self) -> int:
        """Number of networks: one for each fold."""
        return len(self._networks)

    def _opened(
        self, images: ImageInput | Sequence[ImageInput], frame: int | None
    ) -> Iterator[tuple[UInt8, Box | None, torch.Tensor]]:
        """Yield each image whole, its tissue region, and the network's square (1, S, S, 3) uint8.

        Images with the same pixels as those of the training are counted in a warning of the log.

        Raises:
            BadImage: A file cannot be read.
            UsvitError: An image is of another type or shape.
        """
        given = [images] if isinstance(images, (str, os.PathLike, Image.Image, np.ndarray)) else list(images)
        known = 0
        for number, one in enumerate(given):
            if isinstance(one, (str, os.PathLike)):
                whole, tissue, _ = decode(Path(one), frame)
            else:
                whole, tissue = image_pixels(one, f"image-{number}"), None
            known += pixel_sha256(whole) in self.seen
            yield whole, tissue, torch.from_numpy(np.stack([self.preprocessing.resized(whole, tissue)]))
        if known:
            logger.warning(f"{known} of {len(given)} images were used to train the {self._kind} {self.name}.")


def transfer_settings(run: Path, how: str, what: str, key: str, section: type[_Section]) -> _Section:
    """Return one section of the configuration of a transfer.

    Args:
        run: Folder of the run, or of one of its folds.
        how: Method of the transfer.
        what: What such a run is, for the error: ``segmentation``.
        key: Name of the section, such as ``segment``.
        section: Its model.

    Raises:
        UsvitError: The folder is not such a run, or its ``run.json`` is damaged.
    """
    record = load_run_record(run if (run / "run.json").is_file() else run.absolute().parent, _hint(how))
    config: dict[str, Any] = record.config.content()
    if record.kind != "transfer" or config.get("how") != how:
        raise UsvitError(f"{run} is a run of usvit {record.kind}, but no {what}. {_hint(how)}")
    try:
        return section.model_validate(config.get(key))
    except ValidationError as error:
        raise UsvitError(f"The run.json of {run} is damaged: its settings '{key}' are not readable.") from error


def transfer_folds(run: Path, how: str, what: str) -> list[tuple[Path, ModelMetadata]]:
    """Return the folder of each fold of a transfer, and the metadata of its network; arguments as above.

    Raises:
        UsvitError: The run is unfinished or incomplete, or a network is another one.
    """
    found = []
    for folder in fold_folders(run):
        metadata = load_metadata(folder / "model.safetensors")
        if metadata is None or metadata.objective != how:
            raise UsvitError(
                f"{folder} holds no network of a {what}: its model.json is missing, or names another objective than "
                f"'{how}'. {_hint(how)}"
            )
        found.append((folder, metadata))
    return found


def _hint(how: str) -> str:
    return f"Name the folder of a run of usvit transfer --how {how}, or of one of its folds."
