"""Attention over views that is fitted on the outputs of a trained network."""

import copy

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from usvit.models import ViewAttention, pooled_views
from usvit.training.inference import NetworkOutputs

_STEPS = 200
_EVERY = 10
_PATIENCE = 5
_LR = 3e-3
_WEIGHT_DECAY = 1e-2


def _pooled_loss(
    outputs: NetworkOutputs,
    attention: ViewAttention,
    targets: NDArray[np.int64],
    units: NDArray[np.int64],
    class_weights: torch.Tensor,
) -> torch.Tensor:
    """Compute the mean weighted cross-entropy of units, whose views are pooled by attention.

    Args:
        outputs: logits, (n, K), and features, (n, D), of the views.
        attention: scores the views.
        targets: (n,) class of the unit of each view.
        units: (n,) number of the unit of each view.
        class_weights: (K,) weight of each class.

    Returns:
        () float32, in nats.
    """
    assert outputs.features is not None
    own = torch.from_numpy(units)
    pooled, _ = pooled_views(torch.from_numpy(outputs.logits), attention(torch.from_numpy(outputs.features), own), own)
    first = np.unique(units, return_index=True)[1]
    return nn.functional.cross_entropy(pooled, torch.from_numpy(targets[first]), class_weights)


def fit_view_attention(
    train: NetworkOutputs,
    targets: NDArray[np.int64],
    units: NDArray[np.int64],
    validation: NetworkOutputs,
    val_targets: NDArray[np.int64],
    val_units: NDArray[np.int64],
    class_weights: torch.Tensor,
    seed: int,
    layers: int = 0,
) -> ViewAttention:
    """Fit attention on the outputs of a network that stays as it is.

    AdamW on all training units at once; the weights with the smallest loss on the inner validation units are kept,
    among which are those of the beginning, the mean of the logits.

    Args:
        train: logits and features of the training images.
        targets, units: class and number of the unit of each of them, (n,).
        validation, val_targets, val_units: the same of the inner validation images.
        class_weights: (K,) weight of each class.
        seed: seed of the first weights.
        layers: as for ``ViewAttention``.
    """
    assert train.features is not None
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        attention = ViewAttention(train.features.shape[1], layers=layers)
    optimizer = torch.optim.AdamW(attention.parameters(), lr=_LR, weight_decay=_WEIGHT_DECAY)
    best, kept, waited = float("inf"), copy.deepcopy(attention.state_dict()), 0
    for step in range(_STEPS + 1):
        if step % _EVERY == 0:
            with torch.no_grad():
                loss = _pooled_loss(validation, attention, val_targets, val_units, class_weights).item()
            waited = 0 if loss < best else waited + 1
            if loss < best:
                best, kept = loss, copy.deepcopy(attention.state_dict())
            if waited >= _PATIENCE:
                break
        optimizer.zero_grad()
        _pooled_loss(train, attention, targets, units, class_weights).backward()
        optimizer.step()
    attention.load_state_dict(kept)
    return attention
