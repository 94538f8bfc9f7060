"""Saliency of one class's score: Grad-CAM (MONAI's) and occlusion, for networks of any kind."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from usvit.errors import UsvitError
from usvit.explain.anatomy import grid_of
from usvit.explain.capture import attention_modules

OCCLUDED_SHARE = 7
"""A patch of a 7th of the side is hidden: 32 of 224 pixels, about what a small lesion measures."""
OCCLUSION_BATCH = 16


def refuse_without_monai() -> None:
    """Raise where the optional package is absent.

    Raises:
        UsvitError: says how to install it.
    """
    if find_spec("monai") is None:
        raise UsvitError(
            "Grad-CAM comes from MONAI, which is not installed: pip install 'usvit[explain]'. "
            "The other methods (--method occlusion for any network) need nothing more."
        )


def grad_cam(model: nn.Module, image: Tensor, class_index: int, name: str) -> tuple[Tensor, str]:
    """Where the score of a class grows with the features: ReLU(sum_k w_k A_k), w_k the mean gradient of A_k.

    A are the features that the head reads. Of a transformer whose head reads a token alone, the patches' last features
    have no gradient; there A is what enters the last attention layer (after its normalisation), on the grid of patches.

    Args:
        model: any network of timm's interface, in evaluation mode.
        image: (1, 3, S, S), normalised.
        class_index: whose logit is explained.
        name: what errors call the network.

    Returns:
        (H, W) of at least 0, not scaled, and the layer's name; all 0 where no feature speaks for the class.

    Raises:
        UsvitError: MONAI is not installed, or the network has no map of features.

    Source: Selvaraju et al. (2017), arXiv:1610.02391, eq. 1 and 2; ``monai.visualize.GradCAM``.
    """
    refuse_without_monai()
    from monai.visualize import GradCAM

    tapped = _Tapped(model, name)
    with tapped.installed(), torch.enable_grad():
        cam = GradCAM(nn_module=tapped, target_layers="tap", postprocessing=lambda x: x)
        found = cam.compute_map(image.detach().clone().requires_grad_(), class_idx=class_index)
    model.zero_grad()
    return found[0, 0].detach(), tapped.layer


class _Tapped(nn.Module):
    """A network whose features pass, as a map (B, D, H, W), through a module that MONAI can watch."""

    def __init__(self, model: nn.Module, name: str):
        super().__init__()
        self.model, self.name = model, name
        self.tap = nn.Identity()
        self.grid = grid_of(model)
        self.layer, self._at = self._place()
        self.training = model.training  # MONAI leaves the whole in the mode in which it found this

    def _place(self) -> tuple[str, nn.Module | None]:
        """Name of the layer, and the module after (or before) which to listen; None: after the features."""
        reads_tokens = str(getattr(self.model, "global_pool", "")) == "token"
        attention = attention_modules(self.model)
        if not reads_tokens or not attention or self.grid is None:
            return "features", None
        parent = attention[-1][0].rpartition(".")[0]
        while "attns" in parent.split("."):  # the branches of a parallel layer: all read what enters the layer
            parent = parent.rpartition(".")[0]
        block = self.model.get_submodule(parent)
        norm = getattr(block, "norm1", None)
        return (f"{parent}.norm1", norm) if isinstance(norm, nn.Module) else (parent, block)

    @contextmanager
    def installed(self) -> Iterator[None]:
        handle: Any = None
        if self._at is not None:
            if self.layer.endswith(".norm1"):
                handle = self._at.register_forward_hook(lambda module, inputs, output: self._through(output))
            else:
                handle = self._at.register_forward_pre_hook(
                    lambda module, inputs: (self._through(inputs[0]), *inputs[1:])
                )
        try:
            yield
        finally:
            if handle is not None:
                handle.remove()

    def forward(self, x: Tensor) -> Tensor:
        if self._at is not None:
            return self.model(x)
        features = self.model.forward_features(x)  # type: ignore[operator]
        return self.model.forward_head(self._through(features))  # type: ignore[operator]

    def _through(self, x: Tensor) -> Tensor:
        """Features of any layout through ``tap`` as (B, D, H, W), and back."""
        width = getattr(self.model, "num_features", None)
        if isinstance(x, Tensor) and x.ndim == 4:
            if x.shape[1] != width and x.shape[-1] == width:  # channels last (Swin)
                return self._tapped(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
            return self._tapped(x)
        if isinstance(x, Tensor) and x.ndim == 3 and self.grid is not None:
            n_prefix = x.shape[1] - self.grid[0] * self.grid[1]
            if n_prefix >= 0:
                patches = self._tapped(x[:, n_prefix:].transpose(1, 2).unflatten(-1, self.grid))
                return torch.cat([x[:, :n_prefix], patches.flatten(2).transpose(1, 2)], dim=1)
        raise UsvitError(
            f"{self.name} has no map of features that Grad-CAM could weigh. Use --method occlusion, which needs none."
        )

    def _tapped(self, x: Tensor) -> Tensor:
        # The clone: what follows may compute in place, which a watched output does not bear.
        return self.tap(x.contiguous()).clone()


def occlusion(model: nn.Module, image: Tensor, class_index: int) -> Tensor:
    """How much of a class's probability is lost when a part of the image is hidden under the image's mean colour.

    The hidden square is a 7th of the side wide and moves by half of that; where squares overlap, their mean counts.
    Ours and not ``monai.visualize.OcclusionSensitivity``, which indexes in a way that PyTorch has announced to change.

    Args:
        model: any network, in evaluation mode.
        image: (1, 3, S, S), normalised.
        class_index: whose probability it is.

    Returns:
        (S, S) in [-1, 1]; below 0 where hiding makes the class more probable.

    Source: Zeiler & Fergus (2014), arXiv:1311.2901, section 4.2.
    """
    size = image.shape[-1]
    side = max(size // OCCLUDED_SHARE, 1)
    starts = sorted({*range(0, size - side, max(side // 2, 1)), size - side})
    corners = [(top, left) for top in starts for left in starts]
    fill = image.mean(dim=(0, 2, 3)).view(3, 1, 1)
    lost, times = torch.zeros(size, size), torch.zeros(size, size)
    with torch.no_grad():
        whole = model(image).softmax(dim=1)[0, class_index]
        for begin in range(0, len(corners), OCCLUSION_BATCH):
            batch = corners[begin : begin + OCCLUSION_BATCH]
            hidden = image.repeat(len(batch), 1, 1, 1)
            for one, (top, left) in zip(hidden, batch, strict=True):
                one[:, top : top + side, left : left + side] = fill
            drop = (whole - model(hidden).softmax(dim=1)[:, class_index]).cpu()
            for value, (top, left) in zip(drop, batch, strict=True):
                lost[top : top + side, left : left + side] += value
                times[top : top + side, left : left + side] += 1
    return lost / times
