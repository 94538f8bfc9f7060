"""Saliency of the score of a class: Grad-CAM (from MONAI) and occlusion, for networks of any kind."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn

from usvit.errors import UsvitError
from usvit.explaining.capture import attention_modules
from usvit.explaining.token_layout import grid_of

_OCCLUDED_SHARE = 7
"""The occluded square is 1/7 of the side: 32 of 224 pixels, about the size of a small lesion."""
_OCCLUSION_BATCH = 16


def refuse_without_monai() -> None:
    """Raise ``UsvitError`` if MONAI is not installed."""
    if find_spec("monai") is None:
        raise UsvitError(
            "Grad-CAM needs MONAI, which is not installed: pip install 'usvit[explain]'. The other methods do not need "
            "it (--method occlusion works for any network)."
        )


def grad_cam(model: nn.Module, image: Tensor, class_index: int, name: str) -> tuple[Tensor, str]:
    """Compute Grad-CAM: ReLU(sum_k w_k A_k), where w_k is the mean gradient of the class score with respect to A_k.

    A are the features that the head reads. In a transformer whose head reads only a token, the last features of the
    patches have no gradient; there A is the (normalised) input of the last attention layer, on the grid of patches.

    Args:
        model: any network with timm's interface, in evaluation mode.
        image: (1, 3, S, S), normalised.
        class_index: class whose logit is explained.
        name: name of the network in error messages.

    Returns:
        (H, W), not negative and not scaled, and the name of the layer; all 0 if no feature supports the class.

    Raises:
        UsvitError: MONAI is not installed, or the network has no feature map.

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
    """A network whose features pass, as a map (B, D, H, W), through a module that MONAI can observe."""

    def __init__(self, model: nn.Module, name: str):
        super().__init__()
        self.model, self.name = model, name
        self.tap = nn.Identity()
        self.grid = grid_of(model)
        self.layer, self._at = self._place()
        self.training = model.training  # MONAI restores this mode

    def _place(self) -> tuple[str, nn.Module | None]:
        """Return the name of the layer and the module to hook; None: use the features of the whole network."""
        reads_tokens = str(getattr(self.model, "global_pool", "")) == "token"
        attention = attention_modules(self.model)
        if not reads_tokens or not attention or self.grid is None:
            return "features", None
        parent = attention[-1][0].rpartition(".")[0]
        while "attns" in parent.split("."):  # all branches of a parallel layer read its input
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
        """Pass features of any layout through ``tap`` as (B, D, H, W), and restore the layout."""
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
            f"{self.name} has no feature map for Grad-CAM. Use --method occlusion, which does not need one."
        )

    def _tapped(self, x: Tensor) -> Tensor:
        # Cloned, because a hooked output must not be modified in place by the next layer.
        return self.tap(x.contiguous()).clone()


def occlusion(model: nn.Module, image: Tensor, class_index: int) -> Tensor:
    """Compute the loss of a class's probability when a part of the image is covered with its mean colour.

    The square is 1/7 of the side wide and moves by half of that; the values of overlapping squares are averaged.
    ``monai.visualize.OcclusionSensitivity`` is not used, because it relies on indexing that PyTorch has deprecated.

    Args:
        model: any network, in evaluation mode.
        image: (1, 3, S, S), normalised.
        class_index: class whose probability is explained.

    Returns:
        (S, S) in [-1, 1]; negative where covering makes the class more probable.

    Source: Zeiler & Fergus (2014), arXiv:1311.2901, section 4.2.
    """
    size = image.shape[-1]
    side = max(size // _OCCLUDED_SHARE, 1)
    starts = sorted({*range(0, size - side, max(side // 2, 1)), size - side})
    corners = [(top, left) for top in starts for left in starts]
    fill = image.mean(dim=(0, 2, 3)).view(3, 1, 1)
    lost, times = torch.zeros(size, size), torch.zeros(size, size)
    with torch.no_grad():
        whole = model(image).softmax(dim=1)[0, class_index]
        for begin in range(0, len(corners), _OCCLUSION_BATCH):
            batch = corners[begin : begin + _OCCLUSION_BATCH]
            hidden = image.repeat(len(batch), 1, 1, 1)
            for one, (top, left) in zip(hidden, batch, strict=True):
                one[:, top : top + side, left : left + side] = fill
            drop = (whole - model(hidden).softmax(dim=1)[:, class_index]).cpu()
            for value, (top, left) in zip(drop, batch, strict=True):
                lost[top : top + side, left : left + side] += value
                times[top : top + side, left : left + side] += 1
    return lost / times
