"""Inference on the images of a training: logits and features in one pass."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import lightning_fabric
import numpy as np
import torch
from numpy.typing import NDArray

from usvit.models import logits_and_features, vectors
from usvit.training.head_training import HeadOnFeatures
from usvit.training.task import Prepare


@dataclass(frozen=True)
class NetworkOutputs:
    """Outputs of a network for N images, in their order."""

    logits: NDArray[np.float32] = field(repr=False)
    """(N, K)"""
    features: NDArray[np.float32] | None = field(repr=False)
    """(N, D), the input of the classifier; None if the network exposes none."""

    def __add__(self, other: "NetworkOutputs") -> "NetworkOutputs":
        """Return the outputs for these images and then for the other ones."""
        features = None
        if self.features is not None and other.features is not None:
            features = np.concatenate([self.features, other.features])
        return NetworkOutputs(np.concatenate([self.logits, other.logits]), features)


def predict(
    wrapped: Any, fabric: lightning_fabric.Fabric, prepare: Prepare, batches: Iterator[torch.Tensor]
) -> NetworkOutputs:
    """Compute logits and features of all images in one pass, and leave the network in evaluation mode.

    Args:
        wrapped: The network, or its head (``HeadTraining``), as Fabric wraps it.
        fabric: Device and precision.
        prepare: Maps a batch, on the device, to the network's input.
        batches: Batches of images or features, on the host.
    """
    wrapped.eval()
    network = getattr(wrapped, "module", wrapped)
    logits, features = [], []
    # Inside one autocast, the weights are converted once for all batches instead of once for each.
    with torch.inference_mode(), fabric.autocast():
        for batch in batches:
            inputs = prepare(batch.to(fabric.device))
            found: torch.Tensor | None
            if isinstance(network, HeadOnFeatures) or getattr(network, "on_features", False):
                out, found = wrapped(inputs).float(), vectors(inputs)
            else:
                out, found = logits_and_features(network, inputs, through=wrapped)
            logits.append(out.cpu())
            if found is not None:
                features.append(found.cpu())
    every = len(features) == len(logits)
    return NetworkOutputs(torch.cat(logits).numpy(), torch.cat(features).numpy() if every else None)
