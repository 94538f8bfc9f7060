"""The projection head of DINO (Caron et al. 2021, section 3.2)."""

from typing import Any

from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils.parametrizations import weight_norm

from usvit.upstream.config.pretrain import DinoConfig


class DinoHead(nn.Module):
    """An MLP of three layers, normalisation to length one, and a linear layer whose rows have a length of their own.

    The weight of the last layer is g v / |v| in each row. Unless ``dino.norm_last_layer`` is false, g stays 1. Weights
    are initialised as in the public code: the MLP by a truncated normal (sd 0.02) and zero biases, v as in PyTorch.

    Args:
        n_features: number of features D of the network.
        config: widths and number of outputs K.
    """

    def __init__(self, n_features: int, config: DinoConfig):
        super().__init__()
        self.mlp = nn.Sequential(
            nn.Linear(n_features, config.hidden),
            nn.GELU(),
            nn.Linear(config.hidden, config.hidden),
            nn.GELU(),
            nn.Linear(config.hidden, config.bottleneck),
        )
        for layer in self.mlp:
            if isinstance(layer, nn.Linear):
                nn.init.trunc_normal_(layer.weight, std=0.02)
                nn.init.zeros_(layer.bias)
        self.last = weight_norm(nn.Linear(config.bottleneck, config.outputs, bias=False))
        lengths: Any = self.last.parametrizations.weight.original0
        nn.init.ones_(lengths)
        lengths.requires_grad_(not config.norm_last_layer)

    def forward(self, features: Tensor) -> Tensor:
        """Map (B, D) features to (B, K) outputs."""
        outputs: Tensor = self.last(normalize(self.mlp(features), dim=1))
        return outputs
