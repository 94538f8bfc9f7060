"""Concepts of new images, scored by a trained text tower."""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from usvit.arguments import checked_arguments
from usvit.config.scoring import Device
from usvit.config.views import ViewsConfig
from usvit.data.transforms import CentreSquare
from usvit.errors import UsvitError
from usvit.models import TEXT_FILE, load_network, logits_and_features
from usvit.records import ModelMetadata
from usvit.scoring import ImageInput
from usvit.upstream.applied_networks import AppliedNetworks, transfer_folds, transfer_settings
from usvit.upstream.text_tuning.decoder import CaptionDecoder
from usvit.upstream.text_tuning.figures import ConceptPrompts, concept_names, image_vectors
from usvit.upstream.text_tuning.tower import TextTower, load_text_module, load_text_tower

_TEXT = ("text", "training of a text tower")


class ConceptScorer(AppliedNetworks):
    """A locked network and its text tower, which score concepts; ``load_concepts`` creates it.

    Example:
        See ``load_concepts``.
    """

    def __init__(self, folder: Path, metadata: ModelMetadata, tower: TextTower, test_crop: float, device: str):
        network, _ = load_network(folder, metadata)
        super().__init__(
            "text tower", f"{metadata.architecture}+text", [(folder, metadata)], [network], (TEXT_FILE,), device
        )
        self.preprocessing = CentreSquare(**vars(self.preprocessing), test_crop=test_crop)
        self.concepts = concept_names(tower.concepts)
        """The V values of concepts that are scored, such as ``margin: spiculated``."""
        self._folder = folder
        self._tower, self._prompts = tower, ConceptPrompts(tower, tower.concepts)

    def scores(self, pixels: torch.Tensor) -> NDArray[np.float64]:
        """Return the probability of each value among the values of its concept.

        Args:
            pixels: (B, S, S, 3) uint8, resized by ``preprocessing.resized``.

        Returns:
            (B, V) in [0, 1], in the order of ``concepts``.
        """
        return self._prompts.scores(image_vectors(self._tower, self._features(pixels)))

    def _features(self, pixels: torch.Tensor) -> NDArray[np.float32]:
        (network,) = self._networks
        with torch.inference_mode():
            _, features = logits_and_features(network, self.preprocessing.normalised(pixels.to(self._device)))
        assert features is not None  # otherwise the text tower could not be trained
        return np.asarray(features.float().cpu().numpy())

    @checked_arguments
    def predict(self, images: ImageInput | Sequence[ImageInput], *, frame: int | None = None) -> pd.DataFrame:
        """Score the concepts of images.

        Images with the same pixels as those of the training are named in a warning of the log.

        Args:
            images: path of an image or a DICOM file, ``PIL.Image.Image``, or array of shape (H, W) or (H, W, 3), uint8;
                or a list of these. Files are decoded in this process.
            frame: number of the frame of each file, from 0; None for the only frame.

        Returns:
            One row for each image, and one column for each of ``concepts``: its probability, in [0, 1], among the
            values of its concept.

        Raises:
            BadImage: a file cannot be read.
            UsvitError: an image is of another type or shape.
        """
        rows = [self.scores(pixels) for *_, pixels in self._opened(images, frame)]
        return pd.DataFrame(np.concatenate([np.empty((0, len(self.concepts))), *rows]), columns=list(self.concepts))

    @checked_arguments
    def captions(self, images: ImageInput | Sequence[ImageInput], *, frame: int | None = None) -> list[str]:
        """Write the caption of each image, if the run trained a decoder (``text.decoder``).

        Args:
            images: as for ``predict``.
            frame: as for ``predict``.

        Returns:
            A text for each image, in lower case.

        Raises:
            BadImage: a file cannot be read.
            UsvitError: the run has no decoder, or an image is of another type or shape.
        """
        decoder = load_text_module(self._folder, CaptionDecoder)
        return [one for *_, pixels in self._opened(images, frame) for one in decoder.captions(self._features(pixels))]


@checked_arguments
def load_concepts(run: str | os.PathLike[str], *, device: Device = "auto") -> ConceptScorer:
    """Load the text tower of a run of ``usvit transfer --how text``, and the network whose features it meets.

    Args:
        run: folder of the run, or of its fold.
        device: ``auto``, ``cpu`` or ``cuda``.

    Returns:
        What scores the concepts that the run was tested on; the network is on the device.

    Raises:
        UsvitError: the folder is not a finished training of a text tower, its test images had no concepts, its files
            are damaged or do not belong together, or there is no such device.

    Example:
        >>> import numpy as np
        >>> import usvit
        >>> trained = usvit.transfer(
        ...     "text", "scratch", source="phantom", model="timm:test_resnet", out="runs/text", device="cpu",
        ...     source__size=30, source__image_size=64, model__image_size=64, text__width=16, text__depth=1,
        ...     text__steps=2,
        ... )
        >>> found = usvit.load_concepts(trained.path, device="cpu").predict(np.zeros((48, 64), np.uint8))
        >>> round(float(found[["shape: irregular", "shape: oval", "shape: round"]].sum(axis=1)[0]), 6)
        1.0
    """
    path = Path(run)
    views = transfer_settings(path, *_TEXT, "views", ViewsConfig)
    ((folder, metadata),) = transfer_folds(path, *_TEXT)
    tower = load_text_tower(folder)
    if not tower.concepts:
        raise UsvitError(
            f"The text tower of {path} was tested on no concept, so that it has none to score. Train it with concepts: "
            "phantoms have them, and the further columns of text.pairs are some (usvit docs text)."
        )
    return ConceptScorer(folder, metadata, tower, views.test_crop, device)
