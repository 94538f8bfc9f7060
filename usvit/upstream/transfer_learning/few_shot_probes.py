"""The classifiers of the few-shot probe: each is prepared once for its images, then solved for each setting tried."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from usvit.metrics.retrieval import SMALLEST_PROB, knn_probabilities
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.transfer_learning import least_squares, linear

Floats = NDArray[np.floating]
Ints = NDArray[np.int64]


class FewShotProbe(Protocol):
    """A classifier of n images with features of shape (n, D)."""

    def solve(self, setting: float, /) -> Callable[[Floats], NDArray[np.float64]]:
        """Return the map from features (m, D) to logits (m, K) for one strength or number of neighbours."""


@dataclass(frozen=True)
class LogisticProbe:
    """Logistic regression (``linear.fit_logistic``)."""

    features: Floats
    targets: Ints
    n_classes: int

    def solve(self, l2: float, /) -> Callable[[Floats], NDArray[np.float64]]:
        return linear.fit_logistic(self.features, self.targets, self.n_classes, l2)


@dataclass(frozen=True)
class NeighboursProbe:
    """Weighted votes of the nearest images (``knn_probabilities``)."""

    features: Floats
    targets: Ints
    n_classes: int
    sigma: float

    def solve(self, neighbours: float, /) -> Callable[[Floats], NDArray[np.float64]]:
        def logits(queries: Floats) -> NDArray[np.float64]:
            k, n = int(neighbours), self.n_classes
            prob = knn_probabilities(queries, self.features, self.targets, k, self.sigma, n_classes=n)
            return np.log(np.maximum(prob, SMALLEST_PROB))

        return logits


def probe_of(config: TransferConfig, features: Floats, targets: Ints, n_classes: int) -> FewShotProbe:
    """Prepare ``config.probe`` for n images with features (n, D) and classes (n,)."""
    if config.probe == "least_squares":
        return least_squares.LeastSquares.of(features, targets, n_classes)
    if config.probe == "logistic":
        return LogisticProbe(features, targets, n_classes)
    return NeighboursProbe(features, targets, n_classes, config.sigma)


def settings_of(
    config: TransferConfig, n_images: int | None = None
) -> tuple[Literal["l2", "neighbours"], Sequence[float]]:
    """Return the name of what is chosen on validation images, and its values: those of ``n_images``, if given."""
    if config.probe == "neighbours":
        values = config.k if n_images is None else sorted({min(k, n_images) for k in config.k})
        return "neighbours", values
    return "l2", config.l2 or (least_squares.L2 if config.probe == "least_squares" else linear.L2)
