"""The maps of all methods, in a common form."""

from dataclasses import dataclass

import torch
from torch import Tensor

from usvit.explaining.attention import head_maps, rollout_maps
from usvit.explaining.saliency import grad_cam, occlusion
from usvit.models import TrainedModel


@dataclass(frozen=True)
class MethodMaps:
    """The maps of one image."""

    maps: Tensor
    """(M, H, W), on any grid; the first map is scored."""
    titles: tuple[str, ...]
    layer: str | None
    heads: Tensor | None = None
    """(heads, H, W), each scored separately."""


def find_maps(method: str, trained: TrainedModel, images: Tensor, class_index: list[int]) -> list[MethodMaps]:
    """Compute the maps of each image of a batch.

    Args:
        method: ``rollout``, ``attention``, ``gradcam`` or ``occlusion``; the last two take one image at a time.
        trained: the network.
        images: (B, 3, S, S), normalised.
        class_index: (B,) classes whose scores are explained, if the method explains a class.

    Raises:
        UsvitError: the method does not support the network.

    Source: see ``usvit.explaining.explanation.SOURCES``.
    """
    model, name = trained.model, trained.spec.name
    if method == "rollout":
        return [MethodMaps(one[None], ("rollout",), None) for one in rollout_maps(model, images, name)]
    if method == "attention":
        found = head_maps(model, images, name, torch.tensor(class_index))
        titles = tuple(f"head {number + 1}" for number in range(found.maps.shape[1]))
        return [
            MethodMaps(heads, titles, found.layer, heads)
            if len(heads) == 1
            else MethodMaps(
                torch.cat([heads.mean(dim=0, keepdim=True), heads]), ("mean of heads", *titles), found.layer, heads
            )
            for heads in found.maps
        ]
    (one,), (index,) = images[None], class_index
    if method == "gradcam":
        cam, layer = grad_cam(model, one, index, name)
        return [MethodMaps(cam[None], ("Grad-CAM",), layer)]
    return [MethodMaps(occlusion(model, one, index)[None], ("occlusion",), None)]
