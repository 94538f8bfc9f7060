"""The affine map from features to one value per class, which every probe learns."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from usvit.errors import UsvitError
from usvit.models import head_parts

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Affine:
    """A map from features of shape (n, D) to values of shape (n, K)."""

    weight: Floats
    """Shape (D, K)."""
    bias: Floats
    """Shape (K,)."""

    @classmethod
    def standardised(cls, weight: Floats, bias: Floats, mean: Floats, std: Floats) -> "Affine":
        """Convert a map that was learnt on (features - mean) / std."""
        raw = weight / std[:, None]
        return cls(raw, bias - mean @ raw)

    def __call__(self, features: NDArray[np.floating]) -> Floats:
        return np.asarray(features, dtype=np.float64) @ self.weight + self.bias

    def write_into(self, model: nn.Module) -> None:
        """Write this map into the classifier of the network.

        Raises:
            UsvitError: The classifier is not a single linear layer.
        """
        for part in head_parts(model):
            if not isinstance(part, (nn.Linear, nn.Conv2d)) or part.bias is None:
                raise UsvitError(
                    f"The head of this network ({type(model).__name__}) is not a single linear layer, so a linear "
                    "probe cannot become its head: set model.vit.head to linear."
                )
            with torch.no_grad():
                part.weight.copy_(torch.from_numpy(self.weight.T).reshape(part.weight.shape))
                part.bias.copy_(torch.from_numpy(self.bias))
