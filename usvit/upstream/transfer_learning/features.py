"""Features or logits of a network in evaluation mode, for the images of a split."""

import logging
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import lightning_fabric
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from usvit.data.transforms import Preprocessing, test_view
from usvit.errors import UsvitError
from usvit.files import read_array, regular_file, write_atomic
from usvit.models import logits_and_features
from usvit.progress import Progress, task
from usvit.resources import usable_cores
from usvit.upstream.pretraining.grafit import Embedding
from usvit.upstream.transfer_learning.splits import TransferSplit

logger = logging.getLogger(__name__)

Floats = NDArray[np.float32]
BATCH = 64


@dataclass(frozen=True)
class FeatureExtractor:
    """Runs a network over images, with one preprocessing, device and precision."""

    preprocessing: Preprocessing
    test_crop: float
    fabric: lightning_fabric.Fabric
    progress: Progress
    batch_size: int = BATCH

    def features(self, model: nn.Module, split: TransferSplit, kept: Path) -> Floats:
        """Return the input of the classifier, or Grafit's embedding, of shape (n, D), float32.

        The features are stored in the file ``kept``, which a resumed run reads. A damaged file is written again.

        Raises:
            BadImage: An image cannot be read.
            UsvitError: The network exposes no features, or they are not finite.
        """
        if (known := _known_features(kept, len(split))) is not None:
            return known
        _, features = self._forward(model, split, "features")
        if features is None:
            raise UsvitError(
                f"This network ({type(model).__name__}) does not expose the input of its classifier, so its features "
                "cannot be probed. Use --how finetune."
            )
        write_atomic(kept, lambda file: np.save(file, features))
        return features

    def logits(self, model: nn.Module, split: TransferSplit) -> Floats:
        """Return the outputs of the network, of shape (n, K), float32.

        Raises:
            BadImage: An image cannot be read.
            UsvitError: The outputs are not finite.
        """
        return self._forward(model, split, "predictions")[0]

    def _forward(self, model: nn.Module, split: TransferSplit, what: str) -> tuple[Floats, Floats | None]:
        wrapped = self.fabric.setup_module(model).eval()
        logits: list[Floats] = []
        features: list[Floats | None] = []
        with torch.inference_mode(), task(self.progress, f"{what}: {split.name}", len(split), "images") as advance:
            done = 0
            for pixels in self._batches(split):
                inputs = self.preprocessing.normalised(torch.from_numpy(pixels).to(self.fabric.device))
                if isinstance(model, Embedding):
                    out = caught = wrapped(inputs).float()
                else:
                    out, caught = logits_and_features(model, inputs, through=wrapped)
                logits.append(out.cpu().numpy())
                features.append(None if caught is None else caught.cpu().numpy())
                done += len(pixels)
                advance(done)
        found = [one for one in features if one is not None]
        whole = np.concatenate(logits), np.concatenate(found) if len(found) == len(features) else None
        if not all(np.isfinite(one).all() for one in whole if one is not None):
            raise UsvitError("The network's outputs are not finite. Use --precision fp32, or other weights.")
        return whole

    def _batches(self, split: TransferSplit) -> Iterator[NDArray[np.uint8]]:
        size, crop = self.preprocessing.image_size, self.test_crop

        def view(row: int) -> NDArray[np.uint8]:
            return test_view(split.source.image(row), size, crop)

        with ThreadPoolExecutor(usable_cores()) as pool:
            for start in range(0, len(split), self.batch_size):
                yield np.stack([*pool.map(view, split.rows[start : start + self.batch_size].tolist())])


def _known_features(path: Path, n_images: int) -> Floats | None:
    """Return the stored features of n images; None if there are none, or if they are damaged."""
    if not path.is_file():
        return None
    try:
        with regular_file(path) as file:
            found = read_array(file)
            if found.dtype != np.float32 or found.ndim != 2 or len(found) != n_images or file.read(1):
                raise ValueError(f"there are {n_images} images")
        if not np.isfinite(found).all():
            raise ValueError("they are not finite")
    except (OSError, ValueError, UsvitError) as error:
        logger.warning(f"The features in {path} are damaged ({error}), and are computed again.")
        return None
    return found
