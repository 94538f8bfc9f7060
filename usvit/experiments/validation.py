"""What is measured of a network during training: loss, accuracy and AUC on the inner validation part."""

from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from usvit.experiments.training_units import TrainingUnits
from usvit.metrics.basic import auc
from usvit.training import Figures, NetworkOutputs, WeightedCrossEntropy


class Validation:
    """Measures weighted loss, accuracy and macro one-vs-rest AUC on the validation split, and keeps the outputs.

    Args:
        loss_fn: The loss of the training.
        units: The units of all images.
        at: (n,) rows of the validation images.
        outputs_of: Computes the outputs of the validation images with a wrapped network.
    """

    def __init__(
        self,
        loss_fn: WeightedCrossEntropy,
        units: TrainingUnits,
        at: NDArray[np.int64],
        outputs_of: Callable[[Any], NetworkOutputs],
    ):
        self._loss_fn, self._units, self._at, self._outputs_of = loss_fn, units, at, outputs_of
        self._votes = units.votes(at)
        self._last: NetworkOutputs | None = None
        self._best: NetworkOutputs | None = None

    def __call__(self, wrapped: nn.Module) -> Figures:
        self._last = self._outputs_of(wrapped)
        logits, targets = self._units.measured(wrapped, self._last, self._at)
        weights, labels = self._loss_fn.class_weights.cpu(), torch.from_numpy(targets)
        reduction = "mean" if self._votes is None else "none"
        loss = nn.functional.cross_entropy(
            logits, labels, weights, reduction=reduction, label_smoothing=self._loss_fn.label_smoothing
        )
        if self._votes is not None:
            votes = torch.from_numpy(self._votes)
            loss = (loss * votes).sum() / (weights[labels] * votes).sum()
        prob = logits.double().softmax(1).numpy()
        areas = [auc(targets == k, prob[:, k]) for k in range(prob.shape[1])]
        known = [area for area in areas if area is not None]
        return {
            "val_loss": float(loss) if torch.isfinite(loss) else None,
            "val_accuracy": float((prob.argmax(1) == targets).mean()),
            "val_auc": float(np.mean(known)) if known else None,
        }

    def keep(self) -> None:
        """Keep the outputs of the last evaluation as those of the best one."""
        self._best = self._last

    def outputs(self, keep: Literal["best", "last"]) -> NetworkOutputs | None:
        """Return the outputs of the weights that the training kept; None if an earlier process evaluated them."""
        return self._best if keep == "best" else self._last
