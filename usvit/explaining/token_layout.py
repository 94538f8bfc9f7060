"""Layout of the tokens of a network: its grid of patches, the prefix tokens, and the tokens that its head reads."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from usvit.errors import UsvitError
from usvit.explaining.capture import Layer, attention_modules

Grid = tuple[int, int]
"""Numbers of patches (down, across)."""


@dataclass(frozen=True)
class Anatomy:
    """Layout of a network, as needed for attention maps."""

    grid: Grid
    n_prefix: int
    """Number of class, distillation and register tokens, which precede the patches and have no position."""
    reads: Literal["token", "mean", "pool"]
    """Input of the head: class (and distillation) token, the mean over patches, or attention pooling."""
    n_read: int = 1
    """Number of tokens that the head reads: 2 with a distillation token."""

    @property
    def n_patches(self) -> int:
        return self.grid[0] * self.grid[1]

    def on_grid(self, x: Tensor) -> Tensor:
        """Map (..., P + N) tokens or (..., N) patches to (..., H, W), without prefix tokens."""
        return x[..., x.shape[-1] - self.n_patches :].unflatten(-1, self.grid)


def grid_of(model: nn.Module) -> Grid | None:
    """Return the grid of patches from the network's embedding; None for a network without patches."""
    for name in ("patch_embed", "stem"):  # ResMLP calls it its stem
        grid = getattr(getattr(model, name, None), "grid_size", None)
        if grid is not None:
            return int(grid[0]), int(grid[1])
    return None


def anatomy_of(model: nn.Module, name: str) -> Anatomy:
    """Return the layout of a transformer.

    Args:
        model: a network with attention among all patches.
        name: name of the network in error messages.

    Raises:
        UsvitError: the network has no attention, or not among all patches; the message names other methods.
    """
    instead = "Use --method gradcam or occlusion."
    if hasattr(model, "attention_maps"):
        raise UsvitError(f"{name} has attention only in its pooling. Use --method attention.")
    if not attention_modules(model):
        raise UsvitError(f"{name} has no attention layers that usvit can draw. {instead}")
    grid = grid_of(model)
    if grid is None:
        raise UsvitError(f"{name} does not define the grid of its patches, so attention cannot be drawn. {instead}")
    pool = str(getattr(model, "global_pool", "token"))
    reads: Literal["token", "mean", "pool"] = "token" if pool in ("token", "") else "pool" if pool == "map" else "mean"
    n_prefix = int(getattr(model, "num_prefix_tokens", 1 if hasattr(model, "cls_token") else 0))
    return Anatomy(grid, n_prefix, reads, 2 if getattr(model, "head_dist", None) is not None else 1)


def refuse_other_tokens(layers: list[Layer], anatomy: Anatomy, name: str) -> None:
    """Raise ``UsvitError`` for a network that does not attend to all its patches (windows, several resolutions)."""
    wanted = {anatomy.n_patches, anatomy.n_patches + anatomy.n_prefix}
    for layer in layers:
        if layer.n_keys not in wanted:
            raise UsvitError(
                f"{name} does not attend to all {anatomy.grid[0]} x {anatomy.grid[1]} patches at once ({layer.name}: "
                f"{layer.n_keys} tokens), so that attention maps are not defined. Use --method gradcam or occlusion."
            )
