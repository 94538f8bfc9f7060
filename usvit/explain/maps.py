"""The maps of every method, in one form."""

from dataclasses import dataclass

import torch
from torch import Tensor

from usvit.explain.attention import head_maps, rollout_maps
from usvit.explain.saliency import grad_cam, occlusion
from usvit.models.trained import TrainedModel


@dataclass(frozen=True)
class Found:
    """What a method says of one image."""

    maps: Tensor
    """(M, H, W), on any grid; the first is the one that is scored."""
    titles: tuple[str, ...]
    layer: str | None
    heads: Tensor | None = None
    """(heads, H, W), to be scored each by itself."""


def find_maps(method: str, trained: TrainedModel, images: Tensor, class_index: list[int]) -> list[Found]:
    """What a method says of each image of a batch.

    Args:
        method: ``rollout``, ``attention``, ``gradcam`` or ``occlusion``; the last two take one image at a time.
        trained: the network.
        images: (B, 3, S, S), normalised.
        class_index: (B,) whose scores are explained, where the method is of a class.

    Raises:
        UsvitError: the network has no such maps.

    Source: see ``usvit.explain.run.SOURCES``.
    """
    model, name = trained.model, trained.spec.name
    if method == "rollout":
        return [Found(one[None], ("rollout",), None) for one in rollout_maps(model, images, name)]
    if method == "attention":
        found = head_maps(model, images, name, torch.tensor(class_index))
        titles = tuple(f"head {number + 1}" for number in range(found.maps.shape[1]))
        return [
            Found(heads, titles, found.layer, heads)
            if len(heads) == 1
            else Found(
                torch.cat([heads.mean(dim=0, keepdim=True), heads]), ("mean of heads", *titles), found.layer, heads
            )
            for heads in found.maps
        ]
    (one,), (index,) = images[None], class_index
    if method == "gradcam":
        cam, layer = grad_cam(model, one, index, name)
        return [Found(cam[None], ("Grad-CAM",), layer)]
    return [Found(occlusion(model, one, index)[None], ("occlusion",), None)]
