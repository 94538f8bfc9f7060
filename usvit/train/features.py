"""The head alone: the frozen rest of the network is run once per image, and its features are kept.

The head's input is caught by a hook, so that this works for every network whose classifier ends it. That it
does is tried on the first images: if the head on their features does not give the network's own outputs, the
whole network is trained the plain way, with all but the head frozen.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import lightning_fabric
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from usvit.data.loading import Store, eval_batches
from usvit.data.preprocessing import Preprocessing
from usvit.models.penultimate import caught_inputs
from usvit.models.tune import head_parts
from usvit.progress import Progress, task


@dataclass(frozen=True)
class Subject:
    """What is trained, and on what: a whole network on images, or its head on features."""

    module: nn.Module
    """What ``fit`` trains; a head is the network's own, so that training it trains the network."""
    store: Store
    """What batches are taken of."""
    prepare: Callable[[torch.Tensor], torch.Tensor]
    """From a batch of the store, on the device, to the module's input."""


class HeadOnFeatures(nn.Module):
    """A network's head, from its features (B, P, ...) to logits (B, K); the mean of P classifiers."""

    def __init__(self, parts: Sequence[nn.Module]):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, features: torch.Tensor) -> torch.Tensor:
        logits = [part(features[:, index]).flatten(1) for index, part in enumerate(self.parts)]
        return sum(logits[1:], logits[0]) / len(logits)


class FeatureStore:
    """Features instead of pixels: ``features`` is (N, P, ...) float32, one row an image."""

    lesions = None

    def __init__(self, features: NDArray[np.float32]):
        self.features = features

    def __getitem__(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        return self.features[rows]

    def __len__(self) -> int:
        return len(self.features)


class HeadTraining:
    """Makes the subject of ``tune: head`` for each fold; folds with one backbone share its features.

    Args:
        store: the pixels.
        fabric: device and precision.
        preprocessing: of the images.
        augmented: training images change from step to step, so the backbone has to be run in each.
        batch_size: images at once through the backbone.
        progress: where progress is shown.
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
    ):
        self._store, self._fabric, self._preprocessing = store, fabric, preprocessing
        self._augmented, self._batch_size, self._progress = augmented, batch_size, progress
        self._kept: tuple[str, FeatureStore] | None = None  # one backbone's: random ones do not come again

    def subject(self, model: nn.Module) -> Subject:
        """The head of a network, on features if that is the same thing.

        Args:
            model: with all but its head frozen (``set_trainable``).
        """
        head = HeadOnFeatures(head_parts(model))
        backbone = _Backbone(model, head, self._fabric, self._preprocessing)
        if (reason := self._difference(model, head, backbone)) is not None:
            self._progress.say(f"The head is trained with the whole network, not on features kept: {reason}.")
            return Subject(model, self._store, self._preprocessing.normalised)
        if self._augmented:
            return Subject(head, self._store, backbone)
        key = _hash_without(model, head)
        if self._kept is None or self._kept[0] != key:
            self._kept = (key, self._features(backbone))
        return Subject(head, self._kept[1], _as_is)

    def _features(self, backbone: "_Backbone") -> FeatureStore:
        """One forward pass over all images."""
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
        assert kept is not None, "a run without images"
        return FeatureStore(kept)

    def _difference(self, model: nn.Module, head: HeadOnFeatures, backbone: "_Backbone") -> str | None:
        """Why the head on features is not the network; None if it is."""
        images = torch.from_numpy(self._store[np.arange(min(2, len(self._store)))]).to(self._fabric.device)
        with _random_weights(head), torch.no_grad():
            try:
                features, expected = backbone.features_and_logits(images)
                with self._fabric.autocast():
                    found = head.eval()(features).float()
                    tolerance = 2e-2 if torch.is_autocast_enabled(self._fabric.device.type) else 1e-3
            except (RuntimeError, TypeError, ValueError) as error:
                return f"its features could not be taken ({' '.join(str(error).split())[:120]})"
        if found.shape != expected.shape or (found - expected).abs().max() > tolerance * expected.abs().max():
            return f"{type(model).__name__} does more than its classifier after its features"
        return None


class _Backbone:
    """A network up to its head, in eval mode and without gradients.

    Calling it takes (B, S, S, 3) uint8 to the head's inputs, (B, P, ...).
    """

    def __init__(
        self, model: nn.Module, head: HeadOnFeatures, fabric: lightning_fabric.Fabric, preprocessing: Preprocessing
    ):
        self._parts, self._preprocessing = list(head.parts), preprocessing
        # Here and not in each call: from now on the head's own mode is the training's to set.
        self._wrapped = fabric.setup_module(model).eval()

    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        return self.features_and_logits(images)[0]

    @torch.no_grad()  # not inference mode: the head's gradient needs what comes out
    def features_and_logits(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        with caught_inputs(self._parts) as caught:
            logits = self._wrapped(self._preprocessing.normalised(images))
        if len(caught) < len(self._parts):
            raise RuntimeError("its classifier is not called as a module")
        return torch.stack([caught[index] for index in range(len(self._parts))], dim=1), logits.float()


@contextmanager
def _random_weights(head: nn.Module) -> Iterator[None]:
    """Other weights for a moment: a head that starts at zero gives zero for any features."""
    generator = torch.Generator().manual_seed(0)  # its own: the global one belongs to the training
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
    """SHA-256 of a network's parameters and buffers, its head's left out."""
    of_head = {tensor.data_ptr() for tensor in head.state_dict().values()}
    digest = hashlib.sha256()
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in of_head:
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().numpy().tobytes())
    return digest.hexdigest()


def _as_is(batch: torch.Tensor) -> torch.Tensor:
    return batch
