"""Training of the head alone: the frozen rest of the network runs once per image, and its features are kept.

A hook catches the head's input, so that this works for every network that ends in its classifier. This is checked on
the first images: if the head on their features does not reproduce the network's outputs, the whole network is trained
in the usual way, with everything but the head frozen.
"""

import hashlib
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import lightning_fabric
import numpy as np
import timm
import torch
from numpy.typing import NDArray
from torch import nn

import usvit
from usvit.data.loading import ArrayCache, Store, eval_batches
from usvit.data.transforms import Preprocessing
from usvit.models import caught_inputs, head_parts
from usvit.progress import Progress, task

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Subject:
    """A module and its training data: a whole network with images, or its head with features."""

    module: nn.Module
    """The module to train. A head is the network's own, so that training it trains the network."""
    store: Store
    """The source of the batches."""
    prepare: Callable[[torch.Tensor], torch.Tensor]
    """Maps a batch of the store, on the device, to the module's input."""


class HeadOnFeatures(nn.Module):
    """A network's head. Maps features (B, P, ...) to logits (B, K), the mean of P classifiers."""

    def __init__(self, parts: Sequence[nn.Module]):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        logits = [part(features[:, index]).flatten(1) for index, part in enumerate(self.parts)]
        return sum(logits[1:], logits[0]) / len(logits)


class FeatureStore:
    """A store of features instead of pixels: ``features`` is (N, P, ...) float32, one row per image."""

    lesions = None

    def __init__(self, features: NDArray[np.float32]):
        self.features = features

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return self.features[rows]

    def __len__(self) -> int:
        return len(self.features)


class HeadTraining:
    """Makes the subject of ``tune: head`` for each fold. Folds with the same backbone share its features.

    Args:
        store: the pixels.
        fabric: device and precision.
        preprocessing: preprocessing of the images.
        augmented: whether training images change at each step, so that the backbone must run at each step.
        batch_size: images per forward pass of the backbone.
        progress: shows the progress.
        cache: take the features from the user's cache folder, if an earlier run has computed the same ones; False
            computes them again. In either case they are kept for later runs; None uses no cache.
    """

    def __init__(
        self,
        store: Store,
        fabric: lightning_fabric.Fabric,
        preprocessing: Preprocessing,
        *,
        augmented: bool,
        batch_size: int,
        progress: Progress,
        cache: bool | None = None,
    ):
        self._store, self._fabric, self._preprocessing = store, fabric, preprocessing
        self._augmented, self._batch_size, self._progress = augmented, batch_size, progress
        self._cache = cache
        self._kept: tuple[str, FeatureStore] | None = None  # of the last backbone

    def subject(self, model: nn.Module) -> Subject:
        """Return the head of a network with features if that is equivalent, else the network with images.

        Args:
            model: the network, with everything but its head frozen (``set_trainable``).
        """
        head = HeadOnFeatures(head_parts(model))
        backbone = _Backbone(model, head, self._fabric, self._preprocessing)
        if (reason := self._difference(model, head, backbone)) is not None:
            logger.info(f"The head is trained with the whole network, not on stored features: {reason}.")
            return Subject(model, self._store, self._preprocessing.normalised)
        if self._augmented:
            return Subject(head, self._store, backbone)
        key = _hash_without(model, head)
        if self._kept is None or self._kept[0] != key:
            self._kept = (key, FeatureStore(self._features(backbone, key)))
        return Subject(head, self._kept[1], _as_is)

    def _features(self, backbone: "_Backbone", weights: str) -> NDArray[np.float32]:
        """Find the features of all images in the cache, or compute and keep them."""
        if self._cache is None:
            return self._computed(backbone)
        cache, key = ArrayCache("features"), self._key(backbone, weights)
        if self._cache and (found := cache.load(key, 1)) is not None:
            logger.info("The features are those that an earlier run has kept.")
            return found[0]
        features = self._computed(backbone)
        cache.save(key, features)
        return features

    def _key(self, backbone: "_Backbone", weights: str) -> str:
        """Hash all that determines the features: weights, pixels, arithmetic, and the code by its result on two images.

        The features of two images change with the layers, views, mask and preprocessing, and with the code behind them.
        """
        device = self._fabric.device
        name = torch.cuda.get_device_name(device) if device.type == "cuda" else torch.backends.cpu.get_cpu_capability()
        arithmetic = (device.type, name, self._fabric.strategy.precision.precision, torch.get_num_threads())
        versions = (usvit.__version__, timm.__version__, torch.__version__, np.__version__)
        rows = np.arange(len(self._store))
        digest = hashlib.sha256(json.dumps([weights, arithmetic, versions, self._batch_size, len(rows)]).encode())
        for images in eval_batches(self._store, rows, self._batch_size):
            digest.update(images.cpu().contiguous().numpy().data)
        first = next(iter(eval_batches(self._store, rows[:2], 2))).to(device)
        digest.update(backbone(first).float().cpu().contiguous().numpy().data)
        return digest.hexdigest()

    def _computed(self, backbone: "_Backbone") -> NDArray[np.float32]:
        """Compute the features of all images in one pass."""
        rows = np.arange(len(self._store))
        kept: NDArray[np.float32] | None = None
        with task(self._progress, "features", len(rows), "images") as advance:
            done = 0
            for images in eval_batches(self._store, rows, self._batch_size):
                features = backbone(images.to(self._fabric.device)).float().cpu().numpy()
                if kept is None:
                    kept = np.empty((len(rows), *features.shape[1:]), dtype=np.float32)
                kept[done : done + len(features)] = features
                done += len(features)
                advance(done)
        assert kept is not None, "the run has no images"
        return kept

    def _difference(self, model: nn.Module, head: HeadOnFeatures, backbone: "_Backbone") -> str | None:
        """Return why the head on features is not equivalent to the network; None if it is."""
        images = torch.as_tensor(self._store[np.arange(min(2, len(self._store)))]).to(self._fabric.device)
        with _random_weights(head), torch.no_grad():
            try:
                features, expected = backbone.features_and_logits(images)
                with self._fabric.autocast():
                    found = head.eval()(features).float()
                    tolerance = 2e-2 if torch.is_autocast_enabled(self._fabric.device.type) else 1e-3
            except (RuntimeError, TypeError, ValueError) as error:
                return f"its features could not be recorded ({' '.join(str(error).split())[:120]})"
        if found.shape != expected.shape or (found - expected).abs().max() > tolerance * expected.abs().max():
            return f"{type(model).__name__} has other layers besides its classifier after its features"
        return None


class _Backbone:
    """A network without its head, in evaluation mode and without gradients.

    Maps (B, S, S, 3) uint8 to the head's inputs, (B, P, ...).
    """

    def __init__(
        self, model: nn.Module, head: HeadOnFeatures, fabric: lightning_fabric.Fabric, preprocessing: Preprocessing
    ):
        self._parts, self._preprocessing = list(head.parts), preprocessing
        # The mode is set here and not in each call, because the training sets the head's mode from now on.
        self._wrapped = fabric.setup_module(model).eval()

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        return self.features_and_logits(images)[0]

    @torch.no_grad()  # not inference mode: the head's gradient needs the features
    def features_and_logits(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with caught_inputs(self._parts) as caught:
            logits = self._wrapped(self._preprocessing.normalised(images))
        if len(caught) < len(self._parts):
            raise RuntimeError("its classifier is not called as a module")
        return torch.stack([caught[index] for index in range(len(self._parts))], dim=1), logits.float()


@contextmanager
def _random_weights(head: nn.Module) -> Iterator[None]:
    """Give the head random weights within the context: a head of zeros gives zero for any features."""
    generator = torch.Generator().manual_seed(0)  # the global generator belongs to the training
    kept = [parameter.detach().clone() for parameter in head.parameters()]
    try:
        with torch.no_grad():
            for parameter in head.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
        yield
    finally:
        with torch.no_grad():
            for parameter, value in zip(head.parameters(), kept, strict=True):
                parameter.copy_(value)


def _hash_without(model: nn.Module, head: nn.Module) -> str:
    """Compute the SHA-256 of a network's parameters and buffers without its head's."""
    of_head = {tensor.data_ptr() for tensor in head.state_dict().values()}
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in of_head:
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _as_is(batch: torch.Tensor) -> torch.Tensor:
    return batch
