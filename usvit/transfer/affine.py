"""What every probe learns: one affine map from features to a value for each class."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from usvit.errors import UsvitError
from usvit.models.tune import head_parts

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Affine:
    """From (n, D) features to (n, K) values."""

    weight: Floats
    """(D, K)."""
    bias: Floats
    """(K,)."""

    @classmethod
    def standardised(cls, weight: Floats, bias: Floats, mean: Floats, std: Floats) -> "Affine":
        """Of a map that was learnt on (features - mean) / std."""
        raw = weight / std[:, None]
        return cls(raw, bias - mean @ raw)

    def __call__(self, features: NDArray[np.floating]) -> Floats:
        return np.asarray(features, dtype=np.float64) @ self.weight + self.bias

    def write_into(self, model: nn.Module) -> None:
        """Make it the network's classifier: its logits are then this map of its features.

        Raises:
            UsvitError: the classifier is no single layer of this shape.
        """
        for part in head_parts(model):
            if not isinstance(part, (nn.Linear, nn.Conv2d)) or part.bias is None:
                raise UsvitError(
                    f"The head of this network ({type(model).__name__}) is no single linear layer, so a linear probe "
                    "cannot become its head: set model.vit.head to linear."
                )
            with torch.no_grad():
                part.weight.copy_(torch.from_numpy(self.weight.T).reshape(part.weight.shape))
                part.bias.copy_(torch.from_numpy(self.bias))
