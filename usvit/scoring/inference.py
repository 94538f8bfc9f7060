"""Networks that score batches in a thread of their own, while the caller reads, describes and commits others."""

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from types import TracebackType
from typing import Self

import numpy as np
import torch

from usvit.data.io import UInt8
from usvit.scoring.ensemble import Ensemble
from usvit.scoring.outputs import Outputs


class Inference:
    """Runs the networks of an ensemble on batches, in the order in which they are started.

    PyTorch releases Python's lock while it computes, so that one thread is enough to overlap inference with everything
    else. On a GPU the thread only launches the work, on its own stream: it copies a batch from pinned memory while the
    batch before it is computed, and starts the next one without waiting for results.
    """

    def __init__(self, ensemble: Ensemble):
        self._ensemble = ensemble
        self._thread = ThreadPoolExecutor(1, "inference")
        self._stream: torch.cuda.Stream | None = None
        if ensemble.torch_device.type == "cuda":
            self._stream = torch.cuda.Stream(ensemble.torch_device)
            # The current stream may still copy the weights.
            self._stream.wait_stream(torch.cuda.current_stream(ensemble.torch_device))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Drop the batches that wait, and wait for the one that is being computed."""
        self._thread.shutdown(cancel_futures=True)

    def start(
        self,
        images: Sequence[UInt8],
        for_masks: Sequence[UInt8] | None = None,
        for_concepts: Sequence[UInt8] | None = None,
    ) -> Future[Outputs]:
        """Start a batch; ``Ensemble.combine`` makes scores of its outputs.

        Args:
            images: B >= 1 images (S, S, 3) uint8, resized by ``Ensemble.preprocessing.resized``.
            for_masks: the same images for ``Ensemble.lesion_maps``; None for no masks.
            for_concepts: the same images for ``Ensemble.concept_scores``; None for no concepts.
        """
        return self._thread.submit(self._forward, images, for_masks, for_concepts)

    def _forward(
        self, images: Sequence[UInt8], for_masks: Sequence[UInt8] | None, for_concepts: Sequence[UInt8] | None
    ) -> Outputs:
        shape = (len(images), *images[0].shape)
        batch = torch.empty(shape, dtype=torch.uint8, pin_memory=self._stream is not None)
        np.stack(images, out=batch.numpy())
        with nullcontext() if self._stream is None else torch.cuda.stream(self._stream):
            outputs = self._ensemble.forward(batch)
            if for_masks is not None:
                outputs = replace(outputs, lesions=self._ensemble.lesion_maps(for_masks))
            if for_concepts is not None:
                outputs = replace(outputs, concepts=self._ensemble.concept_scores(for_concepts))
            return outputs
