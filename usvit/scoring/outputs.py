"""What the networks of an ensemble give for a batch of images, and the scores that follow from it."""

from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """Scores of B images."""

    prob: Float
    """(B, K) mean over the networks of softmax(logits): in [0, 1], rows sum to 1."""
    calibrated: Float
    """(B,) probability of the positive class after calibration (see ``Ensemble``)."""
    spread: Float
    """(B,) standard deviation (ddof 0) of the calibrated probabilities of the networks; 0 for a single network."""
    ood: Float
    """(B,) median of the OOD scores of the networks; the limit is 1. NaN if no network has an OOD detector."""
    unusual: NDArray[np.bool_]
    """(B,) whether ``ood`` is above 1, that is, whether most networks consider the image out of distribution. False
    without an OOD detector."""
    views: Float | None = None
    """(B, M, K) calibrated probabilities by each network, or (B, 1, K) with a calibration; None if ``view_pooling`` has
    nothing to pool."""
    described: Float | None = None
    """(B, M, E) what attention needs of the image by each network (``ViewAttention.described``); None without one."""
    lesions: NDArray[np.float32] | None = None
    """(B, S, S) probability that a pixel belongs to the lesion; None if not asked for."""
    concepts: Float | None = None
    """(B, V) scores of concepts (``Ensemble.concept_scores``); None if nothing scores them."""


@dataclass(frozen=True)
class Outputs:
    """Outputs of the networks for B images, in host memory; those of a GPU may still be on their way there."""

    logits: list[list[torch.Tensor]] = field(repr=False)
    """For each network: (B, K) float32 of the images and, with ``flip``, of their mirror images."""
    features: list[torch.Tensor | None] = field(repr=False)
    """For each network: (B, D) float32; None without features."""
    statistics: torch.Tensor | None = field(repr=False)
    """(B, 23) of ``picture_statistics``; None if no network has an OOD detector."""
    copied: torch.cuda.Event | None = None
    """On a GPU: recorded after the last copy."""
    lesions: NDArray[np.float32] | None = field(default=None, repr=False)
    """(B, S, S) probability that a pixel belongs to the lesion (``Ensemble.lesion_maps``); None if not asked for."""
    concepts: Float | None = field(default=None, repr=False)
    """(B, V) scores of concepts (``Ensemble.concept_scores``); None if nothing scores them."""

    @property
    def ready(self) -> bool:
        return self.copied is None or self.copied.query()

    def wait(self) -> None:
        """Wait until the outputs can be read."""
        if self.copied is not None:
            self.copied.synchronize()
