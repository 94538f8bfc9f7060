"""The methods, and the maps of those that show an image, in a common form."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from usvit.config.explaining import ExplainSettings
from usvit.errors import UsvitError
from usvit.explaining.attention import HeadMaps, layer_maps, rollout_maps
from usvit.explaining.saliency import grad_cam, occlusion, refuse_without_monai
from usvit.explaining.token_layout import anatomy_of

SOURCES = {
    "rollout": "Abnar & Zuidema (2020), arXiv:2005.00928; Dosovitskiy et al. (2021), appendix D.8",
    "attention": "Dosovitskiy et al. (2021), section 4.5; of pooling: Touvron (2022), thesis, section 5.2",
    "gradcam": "Selvaraju et al. (2017), arXiv:1610.02391; monai.visualize.GradCAM",
    "occlusion": "Zeiler & Fergus (2014), arXiv:1311.2901, section 4.2",
    "distance": "Dosovitskiy et al. (2021), section 4.5 and appendix D.7",
    "residuals": "Touvron (2022), thesis, section 3.5.3, Fig. 3.6",
    "positions": "Dosovitskiy et al. (2021), section 4.5, Fig. 7 (centre)",
    "filters": "Dosovitskiy et al. (2021), section 4.5, Fig. 7 (left)",
    "mixing": "Touvron (2022), thesis, section 4.3.3, Fig. 4.2 and 4.3",
}
MAPS = ("rollout", "attention", "gradcam", "occlusion")
"""Methods that show each image."""
MEANS = ("distance", "residuals")
"""Methods that show the network by a mean over images."""
OF_A_CLASS = ("gradcam", "occlusion")
_WITH_LAYERS = ("attention", "mixing")
"""Methods of which layers can be chosen."""
N_IMAGES, N_MEAN = 6, 128
"""Default numbers of images: a few to look at, and for means as many as appendix D.7 averages over."""
BATCH = 8

PLAIN = {
    "rollout": "attention rollout",
    "attention": "attention of each head",
    "gradcam": "Grad-CAM",
    "occlusion": "occlusion",
}


@dataclass(frozen=True)
class MethodMaps:
    """The maps of one image."""

    maps: Tensor
    """(M, H, W), on any grid."""
    titles: tuple[str, ...]
    layer: str | None
    """Layer of the map that is scored; None for the whole network."""
    heads: Tensor | None = None
    """(heads, H, W), each scored separately."""
    scored: int = 0
    """Index of the map that is scored."""
    per_row: int | None = None
    """Number of maps in each row of the picture, which is a layer; None if the maps are not of several layers."""
    layers: tuple[str, ...] | None = None
    """The layers that are shown, if there are several."""


def _default_method(model: nn.Module, name: str) -> str:
    """Return ``rollout``, or the closest method that the architecture supports."""
    if hasattr(model, "attention_maps"):
        return "attention"
    try:
        anatomy_of(model, name)
        return "rollout"
    except UsvitError:
        return "gradcam"


def maps_by_class(model: nn.Module) -> bool:
    """Return whether the network has a query, and so a map of attention, for each class."""
    return hasattr(model, "attention_maps") and getattr(model, "queries", "one") == "class"


def explains_a_class(method: str, model: nn.Module) -> bool:
    """Return whether the maps of a method depend on a class."""
    return method in OF_A_CLASS or (method == "attention" and maps_by_class(model))


def choose_method(settings: ExplainSettings, model: nn.Module, name: str) -> str:
    """Return the method of the settings, or the default one of the network.

    Raises:
        UsvitError: The method needs MONAI, which is not installed, or a setting does not go with the method.
    """
    method = settings.method or _default_method(model, name)
    if method == "gradcam":
        refuse_without_monai()
    if settings.target is not None and not explains_a_class(method, model):
        raise UsvitError(f"The method {method} does not explain a class. --class requires {' or '.join(OF_A_CLASS)}.")
    if settings.layers and method not in _WITH_LAYERS:
        raise UsvitError(f"The method {method} has no choice of layers. --layer requires {' or '.join(_WITH_LAYERS)}.")
    if settings.chooses_images and method not in (*MAPS, *MEANS):
        raise UsvitError(
            f"The method {method} shows the network itself, not images. Leave out --images, --image-id and --errors."
        )
    return method


def find_maps(
    method: str, model: nn.Module, name: str, images: Tensor, class_index: Tensor, layers: Sequence[str] = ()
) -> list[MethodMaps]:
    """Compute the maps of each image of a batch.

    Args:
        method: one of ``MAPS``; ``gradcam`` and ``occlusion`` take one image and one class at a time.
        model: the network, in evaluation mode.
        name: name of the network in error messages.
        images: (B, 3, S, S), normalised.
        class_index: (B, C) classes whose scores are explained, if the method explains a class.
        layers: the layers of ``attention`` (``choose_layers``); none for the last.

    Raises:
        UsvitError: the method does not support the network.

    Source: see ``SOURCES``.
    """
    if method == "rollout":
        return [MethodMaps(one[None], ("rollout",), None) for one in rollout_maps(model, images, name)]
    if method == "attention":
        found = layer_maps(model, images, name, class_index, layers or ("-1",))
        if maps_by_class(model):
            (pooling,) = found
            numbers = tuple(f"class {number + 1}" for number in range(pooling.maps.shape[1]))
            return [MethodMaps(maps, numbers, pooling.layer, maps[:1]) for maps in pooling.maps]
        return [_of_heads(found, at) for at in range(len(images))]
    (one,), index = images[None], int(class_index[0, 0])
    if method == "gradcam":
        cam, layer = grad_cam(model, one, index, name)
        return [MethodMaps(cam[None], ("Grad-CAM",), layer)]
    return [MethodMaps(occlusion(model, one, index)[None], ("occlusion",), None)]


def _of_heads(found: list[HeadMaps], at: int) -> MethodMaps:
    """Return the maps of image ``at``: for each layer, the mean of the heads if there are several, then each head."""
    maps: list[Tensor] = []
    titles: list[str] = []
    starts: list[int] = []
    for layer in found:
        heads = layer.maps[at]
        starts.append(len(titles))
        prefix = f"{layer.layer}: " if len(found) > 1 else ""
        if len(heads) > 1:
            maps.append(heads.mean(dim=0, keepdim=True))
            titles.append(f"{prefix}mean of heads")
        maps.append(heads)
        titles += [f"{prefix}head {number + 1}" for number in range(len(heads))]
    last = found[-1]
    if len(found) == 1:
        return MethodMaps(torch.cat(maps), tuple(titles), last.layer, last.maps[at])
    widths = {len(layer.maps[at]) + (len(layer.maps[at]) > 1) for layer in found}
    return MethodMaps(
        torch.cat(maps),
        tuple(titles),
        last.layer,
        last.maps[at],
        scored=starts[-1],
        per_row=max(widths) if len(widths) == 1 else None,
        layers=tuple(layer.layer for layer in found),
    )
