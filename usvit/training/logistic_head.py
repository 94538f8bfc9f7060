"""Logistic regression as the training of a head: fitted to convergence, its strength chosen on validation images."""

import logging
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from usvit.config import EarlyStoppingConfig
from usvit.errors import UsvitError
from usvit.training.early_stopping import EarlyStopping
from usvit.training.evaluation import Figures
from usvit.training.phases import PhaseTimes
from usvit.training.trainer import FitResult, history_table

logger = logging.getLogger(__name__)

Floats = NDArray[np.float64]

_TINY = 1e-5
"""Added to the standard deviation of a feature that does not vary."""
_ITERATIONS = 1000


def logistic_coefficients(
    x: Floats,
    targets: NDArray[np.int64],
    n_classes: int,
    l2: float,
    weights: Floats | None = None,
) -> tuple[Floats, Floats, bool]:
    """Minimise the weighted mean cross-entropy + l2 / 2 ||W||^2; the bias is not regularised.

    Args:
        x: (n, D) features.
        targets: (n,) classes; every class must occur.
        n_classes: K >= 2. With two, W is the weight of the logit of the second; the logit of the first is 0.
        l2: Strength of the regularisation, > 0.
        weights: (n,) weights of the images; None for equal ones.

    Returns:
        W (D, K), the bias (K,), and whether the solver converged.
    """
    from sklearn.exceptions import ConvergenceWarning  # on use: importing scikit-learn takes half a second
    from sklearn.linear_model import LogisticRegression

    total = len(x) if weights is None else float(weights.sum())
    model = LogisticRegression(C=1 / (l2 * total), max_iter=_ITERATIONS, tol=1e-6)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(x, targets, sample_weight=weights)
    weight, bias = model.coef_.T, model.intercept_
    if n_classes == 2:
        weight, bias = np.concatenate([0 * weight, weight], axis=1), np.concatenate([0 * bias, bias])
    return weight, bias, not any(issubclass(one.category, ConvergenceWarning) for one in caught)


@dataclass(frozen=True)
class HeadSample:
    """Features of images, with what the head learns from them."""

    features: NDArray[np.float32]
    """(n, 1, D)"""
    targets: NDArray[np.int64]
    """(n,) classes; every class of the head must occur."""
    weights: Floats
    """(n,) weights of the images."""


def fit_logistic_head(
    parts: Sequence[nn.Module],
    train: HeadSample,
    strengths: Sequence[float],
    evaluate: Callable[[], Figures],
    stopping: EarlyStoppingConfig,
    on_best: Callable[[], None],
    refit: HeadSample | None = None,
) -> FitResult:
    """Fit the classifier of a network on features that are standardised over the training images.

    Args:
        parts: The classifiers (``head_parts``), of which there must be one: a linear layer, or one behind a batch
            normalisation without scale and shift. Changed in place.
        train: The training images.
        strengths: L2 penalties relative to the mean cross-entropy.
        evaluate: Measures the validation images with the head as it is.
        stopping: ``monitor`` chooses the strength; the first of equal ones is kept.
        on_best: Called after the best evaluation so far.
        refit: Images to which the head is fitted in the end, with the chosen strength; None to keep the fit that was
            judged.

    Returns:
        The result, with one row of the history for each strength, in the order given.

    Raises:
        UsvitError: The head is no linear classifier, or a class has no training image.
    """
    begun = time.monotonic()
    norm, linear = _layers(parts)
    regression = _Regression(train, norm, linear)
    best, history, chosen = EarlyStopping(stopping), [], None
    for step, l2 in enumerate(strengths, start=1):
        state = regression.fit(l2)
        figures = evaluate()
        seconds = time.monotonic() - begun
        history.append({"step": step, "epoch": float(step), "l2": l2, **figures})
        if best.update(step, figures[stopping.monitor]) or chosen is None:
            chosen, strength = state, l2
            on_best()
    assert chosen is not None, "no strength"
    if refit is None:
        linear.load_state_dict(chosen)
    else:
        _Regression(refit, norm, linear).fit(strength)
    seconds = time.monotonic() - begun
    return FitResult(
        steps=len(history),
        best_step=max(1, best.best_step),
        history=history_table(history),
        seconds=seconds,
        images_per_second=len(train.targets) * len(history) / max(seconds, 1e-9),
        phases=PhaseTimes({"training": seconds, "evaluation": 0.0}),
    )


class _Regression:
    """The regression of a linear layer on one set of images, at any strength.

    With more features than images, it is solved in the space that the images span, which has the same solution: the
    gradient is a combination of the images, and the penalty does not depend on the axes.
    """

    def __init__(self, images: HeadSample, norm: nn.BatchNorm1d | None, linear: nn.Linear):
        self._images, self._linear = images, linear
        x = images.features[:, 0].reshape(len(images.features), -1).astype(np.float64)
        if missing := set(range(linear.out_features)) - set(images.targets.tolist()):
            raise UsvitError(
                f"No training image has class {min(missing) + 1} of {linear.out_features}, so optim.name=logistic "
                "cannot fit a head. Use fewer folds (split.folds), or another optim.name."
            )
        mean, std = x.mean(axis=0), x.std(axis=0)
        scale = std + _TINY if norm is None else np.sqrt(std**2 + norm.eps)
        # Features behind a norm that scales them have a penalty on the weights that its output is multiplied with.
        share = getattr(norm, "share", None)
        if share is not None:
            scale = scale / share.double().cpu().numpy()
        x = (x - mean) / scale
        values, axes = np.linalg.eigh(x @ x.T)  # x = axes sqrt(values) V^T
        kept = values > values[-1] * len(x) * np.finfo(np.float64).eps
        length = np.sqrt(values[kept])
        self._spanned, self._back = axes[:, kept] * length, x.T @ (axes[:, kept] / length)
        self._standardised = None if norm is not None else (mean, scale)
        if norm is not None:
            norm.running_mean, norm.running_var = torch.from_numpy(mean).float(), torch.from_numpy(std**2).float()

    def fit(self, l2: float) -> dict[str, torch.Tensor]:
        """Give the layer the coefficients at a strength, and return its state."""
        targets, weights = self._images.targets, self._images.weights
        own, bias, converged = logistic_coefficients(self._spanned, targets, self._linear.out_features, l2, weights)
        if not converged:
            logger.warning(f"optim.name=logistic did not converge with strength {l2:g}; its last state is judged.")
        state = _as_tensors(self._back @ own, bias, self._standardised)
        self._linear.load_state_dict(state)
        return state


def _layers(parts: Sequence[nn.Module]) -> tuple[nn.BatchNorm1d | None, nn.Linear]:
    layers = list(parts[0]) if isinstance(parts[0], nn.Sequential) else list(parts)
    first, last = layers[0], layers[-1]
    if len(parts) == 1 and isinstance(last, nn.Linear):
        if len(layers) == 1:
            return None, last
        if len(layers) == 2 and isinstance(first, nn.BatchNorm1d) and not first.affine:
            return first, last
    raise UsvitError(
        "optim.name=logistic fits one linear classifier, which this network does not end in: set model.features=last, "
        "or another optim.name."
    )


def _as_tensors(weight: Floats, bias: Floats, standardised: tuple[Floats, Floats] | None) -> dict[str, torch.Tensor]:
    """Return the state of a linear layer, which takes the features as they are if it gets their mean and scale."""
    if standardised is not None:
        mean, scale = standardised
        weight = weight / scale[:, None]
        bias = bias - mean @ weight
    return {"weight": torch.from_numpy(weight.T).float().contiguous(), "bias": torch.from_numpy(bias).float()}
