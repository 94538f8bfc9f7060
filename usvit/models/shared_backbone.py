"""Networks that differ in their heads alone, as the folds of ``tune: head`` do: the rest runs once for all of them."""

from collections.abc import Sequence

import torch
from torch import nn

from usvit.models.features import caught_inputs, logits_and_features, vectors
from usvit.models.trainable import head_names, head_parts

_TOLERANCE = 1e-5
"""Largest difference, relative to the largest logit, with which heads on features count as the networks."""


def same_backbone(one: nn.Module, other: nn.Module) -> bool:
    """Return whether two networks of one architecture have equal tensors outside their heads."""
    try:
        heads = head_names(one)
        if heads != head_names(other):
            return False
    except (AttributeError, TypeError):  # a network without timm's interface
        return False
    first, second = one.state_dict(), other.state_dict()
    if not heads or first.keys() != second.keys():
        return False
    return all(torch.equal(first[name], second[name]) for name in first if name not in heads)


def several_logits_and_features(
    networks: Sequence[nn.Module], inputs: torch.Tensor
) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
    """Compute logits and features of networks that differ in their heads alone, with one pass of what they share.

    The head of the first network must reproduce its logits from the recorded features. If it does not, because the
    network has other layers after them, every network runs as a whole.

    Args:
        networks: M >= 1 networks in evaluation mode, each of which has the ``same_backbone`` as the first.
        inputs: (B, 3, S, S) float.

    Returns:
        For each network, as ``features.logits_and_features``.
    """
    first = networks[0]
    if len(networks) == 1:
        return [logits_and_features(first, inputs)]
    parts = head_parts(first)
    with caught_inputs(parts) as caught:
        logits = first(inputs).float()
    if len(caught) == len(parts):
        heads = [caught[index] for index in range(len(parts))]
        again = _through_head(first, heads)
        if again.shape == logits.shape and (again - logits).abs().max() <= _TOLERANCE * logits.abs().max():
            features = vectors(torch.stack(heads, dim=1))
            return [(logits, features), *((_through_head(one, heads), features) for one in networks[1:])]
    return [logits_and_features(one, inputs) for one in networks]


def _through_head(network: nn.Module, heads: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return (B, K) logits, the mean of the classifiers."""
    logits = [part(own).flatten(1).float() for part, own in zip(head_parts(network), heads, strict=True)]
    return sum(logits[1:], logits[0]) / len(logits)
