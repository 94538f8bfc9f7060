"""Where a network's tokens lie: its grid of patches, the tokens before them, and what its head reads."""

from dataclasses import dataclass
from typing import Literal

from torch import Tensor, nn

from usvit.errors import UsvitError
from usvit.explain.capture import Layer, attention_modules

Grid = tuple[int, int]
"""Patches down, across."""


@dataclass(frozen=True)
class Anatomy:
    """What attention maps need to know of a network."""

    grid: Grid
    n_prefix: int
    """Class, distillation and register tokens, which come before the patches and lie nowhere."""
    reads: Literal["token", "mean", "pool"]
    """What the head reads: class (and distillation) token, the mean over patches, or attention pooling."""
    n_read: int = 1
    """Tokens that the head reads: 2 with a distillation token."""

    @property
    def n_patches(self) -> int:
        return self.grid[0] * self.grid[1]

    def on_grid(self, x: Tensor) -> Tensor:
        """(..., P + N) over tokens, or (..., N) over patches -> (..., H, W) over patches; prefix tokens are cut off."""
        return x[..., x.shape[-1] - self.n_patches :].unflatten(-1, self.grid)


def grid_of(model: nn.Module) -> Grid | None:
    """Patches down and across, as the network's embedding counts them; None for a network without patches."""
    for name in ("patch_embed", "stem"):  # ResMLP calls it its stem
        grid = getattr(getattr(model, name, None), "grid_size", None)
        if grid is not None:
            return int(grid[0]), int(grid[1])
    return None


def anatomy_of(model: nn.Module, name: str) -> Anatomy:
    """A transformer's anatomy.

    Args:
        model: with attention among all patches.
        name: what errors call it.

    Raises:
        UsvitError: the network has no attention, or none among all patches; says what can be had instead.
    """
    instead = "Use --method gradcam or occlusion."
    if hasattr(model, "attention_maps"):
        raise UsvitError(f"{name} has attention in its pooling alone: --method attention shows it.")
    if not attention_modules(model):
        raise UsvitError(f"{name} has no attention layers that usvit could draw. {instead}")
    grid = grid_of(model)
    if grid is None:
        raise UsvitError(f"{name} does not tell the grid of its patches, so its attention cannot be drawn. {instead}")
    pool = str(getattr(model, "global_pool", "token"))
    reads: Literal["token", "mean", "pool"] = "token" if pool in ("token", "") else "pool" if pool == "map" else "mean"
    n_prefix = int(getattr(model, "num_prefix_tokens", 1 if hasattr(model, "cls_token") else 0))
    return Anatomy(grid, n_prefix, reads, 2 if getattr(model, "head_dist", None) is not None else 1)


def refuse_other_tokens(layers: list[Layer], anatomy: Anatomy, name: str) -> None:
    """Refuse a network whose attention is not among all of its patches (windows, several resolutions).

    Raises:
        UsvitError: names the layer.
    """
    wanted = {anatomy.n_patches, anatomy.n_patches + anatomy.n_prefix}
    for layer in layers:
        if layer.n_keys not in wanted:
            raise UsvitError(
                f"{name} does not attend to all {anatomy.grid[0]} x {anatomy.grid[1]} patches at once ({layer.name}: "
                f"{layer.n_keys} tokens), so there is no map of its attention. Use --method gradcam or "
                "occlusion."
            )
