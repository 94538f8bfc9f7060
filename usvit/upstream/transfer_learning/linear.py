"""The linear probe: multinomial logistic regression on frozen features."""

import logging
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from usvit.training import logistic_coefficients
from usvit.upstream.transfer_learning.affine import Affine

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

L2 = tuple(10.0**power for power in range(-6, 2))
"""Strengths of regularisation, relative to the mean cross-entropy."""
_TINY = 1e-5


def fit_logistic(features: NDArray[np.floating], targets: Ints, n_classes: int, l2: float) -> Affine:
    """Minimise mean cross-entropy + l2 / 2 ||W||^2 on standardised features; the bias is not regularised.

    With two classes, W is the weight of the logit of the second; the logit of the first is 0.

    Args:
        features: Shape (n, D).
        targets: Class of each image, of shape (n,); every class must occur.
        n_classes: Number of classes K >= 2.
        l2: Strength of the regularisation, > 0.

    Source: the linear probe in the evaluation of CLIP (Radford et al. 2021, appendix A.3): L-BFGS, strength chosen on
    validation images.
    """
    x = np.asarray(features, dtype=np.float64)
    mean, std = x.mean(axis=0), x.std(axis=0) + _TINY
    weight, bias, converged = logistic_coefficients((x - mean) / std, targets, n_classes, l2)
    if not converged:
        logger.info(f"The linear probe with l2 = {l2:g} did not converge; its last state is used.")
    return Affine.standardised(weight, bias, mean, std)


def cross_entropy(logits: Floats, targets: Ints) -> float:
    """Return the mean cross-entropy, in nats, of logits of shape (n, K)."""
    high = logits.max(axis=1, keepdims=True)
    log_sum = np.log(np.exp(logits - high).sum(axis=1)) + high[:, 0]
    return float((log_sum - logits[np.arange(len(logits)), targets]).mean())


def choose(l2s: Sequence[float], accuracy: Sequence[float], loss: Sequence[float]) -> int:
    """Return the index of the strength with the best validation accuracy; of equal ones, the lowest cross-entropy."""
    return min(range(len(l2s)), key=lambda index: (-accuracy[index], loss[index]))
