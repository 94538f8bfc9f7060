"""Shapes of Vision Transformers that a search varies, their networks, and what these cost."""

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

from usvit.config import ViTShape
from usvit.errors import UsvitError
from usvit.models import Complexity, count, count_plain, find_model
from usvit.plain_data import Settings

DIMENSIONS = ("width", "depth", "mlp")
"""The dimensions of a shape, in the order of the paper's tuples."""
TITLES = {"width": "width", "depth": "depth", "mlp": "MLP width"}
MLP_MULTIPLE = 8
"""The MLP width is rounded to a multiple of this, as accelerators prefer and as all printed ones are."""
_FLOPS_PER_MAC = 6
"""FLOPs of a training step for each MAC of one image: two in the forward pass, four in the backward pass."""


@dataclass(frozen=True, order=True)
class NetworkShape:
    """Width, depth and MLP width of a Vision Transformer."""

    width: int
    depth: int
    mlp: int

    def __str__(self) -> str:
        return f"w{self.width}-d{self.depth}-m{self.mlp}"


@dataclass(frozen=True)
class ShapeRule:
    """How a shape becomes a network that can be built and trained."""

    model: str = "vit"
    """Network whose other parts are kept (patch, pooling): a plain ViT of ``usvit models list``."""
    vit: tuple[tuple[str, Any], ...] = ()
    """Other parts that are exchanged, as ``model.vit``: ``(("patch", 8),)``."""
    image_size: int = 224
    heads: int | None = None
    """Number of heads of every network, as in the paper (16); None: one for each ``head_dim`` channels."""
    head_dim: int = 64

    def __post_init__(self) -> None:
        if min(self.head_dim, 1 if self.heads is None else self.heads) < 1:
            raise UsvitError("The number of heads and the channels of a head are at least 1.")

    @property
    def width_multiple(self) -> int:
        """Widths are multiples of this, so that every head has equally many channels."""
        return self.heads or self.head_dim

    def snap(self, width: float, depth: float, mlp: float) -> NetworkShape:
        """Return the nearest shape (by the ratio) whose width is divisible by the heads."""
        return NetworkShape(
            _nearest(width, self.width_multiple), _nearest(depth, 1), _nearest(mlp, min(MLP_MULTIPLE, max(1, int(mlp))))
        )

    def settings(self, shape: NetworkShape) -> Settings:
        """Return ``model.vit`` of a shape's network."""
        return {**dict(self.vit), **dataclasses.asdict(shape), "heads": self.n_heads(shape)}

    def n_heads(self, shape: NetworkShape) -> int:
        """Return the number of heads of a shape's network."""
        return self.heads or shape.width // self.head_dim

    def vit_shape(self, shape: NetworkShape) -> ViTShape:
        """Return the complete shape of the network.

        Raises:
            UsvitError: The model is not a plain ViT, the width is not divisible by the number of heads, or the image
                side not by the patch.
        """
        whole = find_model(self.model, self.settings(shape)).shape
        if whole is None:
            raise UsvitError(f"The shape of {self.model} cannot be varied, because it is not a plain ViT.")
        if self.image_size % whole.patch:
            raise UsvitError(
                f"The image side of {self.image_size} pixels is not a multiple of the patch of {whole.patch} pixels. "
                "Give another image size or another patch."
            )
        return whole

    def cost(self, shape: NetworkShape) -> Complexity:
        """Return parameters and MACs of a shape's network without its head."""
        whole = self.vit_shape(shape)
        known = count_plain(whole, self.image_size)
        if known is not None:
            return known
        return count(find_model(self.model, self.settings(shape)), self.image_size, 0)

    def flops(self, shape: NetworkShape) -> int:
        """Return the FLOPs of a training step for one image, forward and backward."""
        return _FLOPS_PER_MAC * self.cost(shape).macs


def _nearest(value: float, multiple: int) -> int:
    below = max(1, math.floor(value / multiple)) * multiple
    above = below + multiple
    return below if value / below <= above / value else above
