"""Weights of several models in the mean of their probabilities, chosen by the log loss of this mean."""

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import minimize

from usvit.metrics.calibration_statistics import LOWEST_PROB

_LEAST_WEIGHT = 1e-4
"""Smaller weights become 0: the model would change no probability by more, and need not be computed."""


def mixture_log_loss(reached: ArrayLike, weights: ArrayLike) -> float:
    """Compute the log loss of a weighted mean of probabilities, in nats.

    Args:
        reached: (M, n) probability that each of M models gives to the reference class of each image.
        weights: (M,) at least 0, sum 1.
    """
    prob = np.asarray(weights, dtype=np.float64) @ np.asarray(reached, dtype=np.float64)
    return float(-np.log(np.maximum(prob, LOWEST_PROB)).mean())


def mixture_weights(reached: ArrayLike) -> NDArray[np.float64]:
    """Choose the convex combination of M models with the smallest log loss.

    The log loss of a mean of probabilities is convex in the weights, so that the local minimum that sequential
    quadratic programming finds from equal weights is the global one. With equal models the weights stay equal.

    Args:
        reached: (M, n) probability that each model gives to the reference class of each image, in [0, 1], n >= 1.

    Returns:
        (M,) weights in [0, 1] that sum to 1; weights below ``_LEAST_WEIGHT`` are 0.

    Raises:
        ValueError: there is no model or no image, or a probability is not in [0, 1].

    Source: Breiman (1996), Machine Learning 24:49 (stacking with weights that are not negative); van der Laan, Polley &
    Hubbard (2007), Statistical Applications in Genetics and Molecular Biology 6:25 (convex combinations).
    """
    prob = np.asarray(reached, dtype=np.float64)
    if prob.ndim != 2 or not prob.size or not ((prob >= 0) & (prob <= 1)).all():
        raise ValueError("the weights need (M, n) probabilities in [0, 1] of at least one model and image")
    prob = np.maximum(prob, LOWEST_PROB)
    n_models = len(prob)
    found = minimize(
        lambda weights: -np.log(weights @ prob).mean(),
        np.full(n_models, 1 / n_models),
        jac=lambda weights: -(prob / (weights @ prob)).mean(axis=1),
        method="SLSQP",
        bounds=[(0.0, 1.0)] * n_models,
        constraints={"type": "eq", "fun": lambda weights: weights.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-12, "maxiter": 1000},
    ).x
    kept = np.where(found < _LEAST_WEIGHT, 0.0, found)
    return np.asarray(kept / kept.sum())
