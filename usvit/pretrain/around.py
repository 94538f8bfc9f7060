"""What objectives share that put something around a network: a decoder, a classifier of words, a mask embedding."""

from typing import Any

import torch
from torch import Tensor, nn

from usvit.data.stream import Batch
from usvit.pretrain.patches import Tokens, freeze_head


class Around(nn.Module):
    """A network of the zoo under the name ``network``; subclasses add what only pre-training needs.

    Args:
        network: a plain ViT, the one that the run keeps; its own head is left as it is, and does not train.
        tokens: of it.
    """

    def __init__(self, network: nn.Module, tokens: Tokens):
        super().__init__()
        self.network, self.tokens = network, tokens
        freeze_head(network)

    def no_weight_decay(self) -> set[str]:
        """The network's own (positions, class token), by their names here."""
        network: Any = self.network
        return {f"network.{name}" for name in network.no_weight_decay()}


class OverImages:
    """An objective whose module is an ``Around``, and whose loss is, unless it says otherwise, a mean over images."""

    def weight(self, batch: Batch, step: int) -> Tensor:
        """() the number of images."""
        return torch.tensor(float(len(batch["images"])))

    def updated(self, step: int) -> None:
        """Nothing follows the weights."""

    def network(self, module: nn.Module) -> nn.Module:
        kept: nn.Module = module.network  # type: ignore[assignment]
        return kept
