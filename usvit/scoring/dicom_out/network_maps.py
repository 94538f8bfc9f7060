"""What networks show of a frame beside its scores: where they look, and what they mark as the lesion.

The maps are made in the process of the networks, and used in worker processes without torch.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from usvit.data.io import Box, UInt8
from usvit.errors import UsvitError
from usvit.scoring.items import ReadSettings
from usvit.wording import listed

if TYPE_CHECKING:
    import torch

    from usvit.models import TrainedModel

Saliency = NDArray[np.float64]

LESION = 0.5
"""Least mean probability of a pixel of the lesion."""


@dataclass(frozen=True)
class NetworkMaps:
    """Maps of the frames of an item, in the square of the networks, by the number of the frame."""

    saliency: dict[int, Saliency] = field(default_factory=dict, repr=False)
    """(S, S) in [0, 1]"""
    lesion: dict[int, NDArray[np.float32]] = field(default_factory=dict, repr=False)
    """(S, S), probability that a pixel belongs to the lesion, in ``ReadSettings.mask_square``."""

    def lesion_of_frame(
        self, frame: int, shape: tuple[int, int], tissue: Box | None, settings: ReadSettings
    ) -> NDArray[np.bool_] | None:
        """Return the mask of a whole frame, (H, W); None without a map.

        Args:
            frame: its number.
            shape: (H, W) of the frame.
            tissue: tissue region of the frame.
            settings: settings with which the frame was read.
        """
        if frame not in self.lesion:
            return None
        return settings.mask_square.restored(self.lesion[frame], shape, tissue) >= LESION


def saliency_of(trained: "TrainedModel", pixels: UInt8) -> Saliency:
    """Return a saliency map of a network.

    This is attention rollout if the network attends to all its patches (Abnar & Zuidema 2020), the mean over heads if
    it pools by attention, else Grad-CAM of the positive class (Selvaraju et al. 2017).

    Args:
        trained: one network, on any device.
        pixels: (S, S, 3) uint8, resized by ``Preprocessing``.

    Returns:
        (S, S) in [0, 1], scaled to its own range; all 0 if the map is constant.

    Raises:
        UsvitError: Grad-CAM is needed, but MONAI is not installed or the network has no feature map.
    """
    import torch
    from torch.nn import functional as F

    from usvit.explaining import grad_cam, head_maps, rollout_maps

    model, name = trained.model, trained.spec.name
    device = next(model.parameters()).device
    image = trained.preprocessing.normalised(torch.from_numpy(np.ascontiguousarray(pixels))[None].to(device))
    index = trained.classes.index(trained.positive)
    try:
        if hasattr(model, "attention_maps"):
            found = head_maps(model, image, name, torch.tensor([index])).maps[0].mean(dim=0)
        else:
            found = rollout_maps(model, image, name)[0]
    except UsvitError:  # no attention, or not among all patches
        found, _ = grad_cam(model, image, index, name)
    size = tuple(image.shape[-2:])
    large = F.interpolate(found[None, None].double(), size=size, mode="bilinear", align_corners=False)[0, 0]
    return scaled(np.asarray(large.detach().cpu().numpy()))


def without_mask(trained: Sequence["TrainedModel"]) -> list[str]:
    """Return the names of networks that predict no mask of the lesion."""
    return sorted({one.spec.name for one in trained if not getattr(one.model, "predicts_mask", False)})


def check_masks(trained: Sequence["TrainedModel"]) -> None:
    """Raise UsvitError if a network predicts no mask of the lesion."""
    if without := without_mask(trained):
        raise UsvitError(
            f"--seg writes the mask of the lesion that a network predicts, and {listed(without)} predicts none. Score "
            "with a model of usvit_small, or one that was trained with model.lesion=true (such as --recipe "
            "usvit_imagenet), name a segmenter by --seg-from, or leave out --seg."
        )


def lesions_of(trained: "TrainedModel", pixels: "torch.Tensor") -> NDArray[np.float32]:
    """Return the probability that a pixel belongs to the lesion.

    Args:
        trained: one network that predicts a mask (``check_masks``), on any device.
        pixels: (B, S, S, 3) uint8, resized by ``Preprocessing``.

    Returns:
        (B, S, S) in [0, 1]; bilinear between the points of the network's mask.
    """
    import torch
    from torch.nn import functional as F

    network: Any = trained.model
    batch = pixels.to(next(network.parameters()).device)
    with torch.inference_mode():
        mask = network.lesion_mask(trained.preprocessing.normalised(batch)).float().sigmoid()
        large = F.interpolate(mask[:, None], size=batch.shape[1:3], mode="bilinear", align_corners=False)[:, 0]
    return np.asarray(large.cpu().numpy())


def scaled(saliency: Saliency) -> Saliency:
    """Scale a map of any finite range to [0, 1]; a constant map becomes 0."""
    span = float(np.ptp(saliency))
    return (saliency - saliency.min()) / span if span > 1e-12 else np.zeros_like(saliency)
