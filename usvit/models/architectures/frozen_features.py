"""A classifier on features of frozen networks: several networks, stages and sizes side by side, also of the lesion.

This is what ``usvit_small_multi`` does with its own layers, for any network of timm. Each view is the image at another
size. Of each view and network the head sees the last map and, with ``stages``, earlier ones; each as the mean over the
image and, with ``lesion``, as the mean weighted with the mask that ``usvit_small`` predicts. That network was trained
on phantoms alone, or learns the masks of the training part of a fold, so that no mask and no image of a tested patient
is behind it. With ``lesion_crop`` the networks see the part of the image around the lesion. ``refinements`` can be
added.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import timm
import torch
from timm.models import register_model
from torch import Tensor, nn
from torch.nn import functional as F

from usvit.config import Refinement
from usvit.errors import UsvitError
from usvit.models.architectures.small import lesion_weighted

_STAGES = 4
"""Number of earlier maps that the head sees: the last of each size, the finest left out; of a network whose maps have
one size (a ViT), evenly spaced ones."""
_LEAST = 0.125
"""Shortest side of the square around a lesion, as a share of the image: a smaller one would show a few pixels."""
_MULTIPLE = 32
"""Sides of views are rounded to a multiple of this number of pixels."""


class FrozenFeatures(nn.Module):
    """Network from images (B, 3, S, S) to logits (B, K). Its features, (B, F), are standardised before the classifier.

    Args:
        networks: Name for ``timm.create_model`` and its options, of each of the N networks.
        image_size: S.
        views: Sides of the views as shares of S, in (0, 1].
        stages: Whether the head sees earlier maps beside the last one.
        lesion: Whether it sees each map also weighted with the mask of the lesion.
        lesion_crop: Margin of the square around the lesion that the networks see, as a share of its side
            (``around_lesion``); None: they see the whole image.
        refinements: ``spread``: it sees the standard deviation over the image (the lesion) beside each mean.
            ``mirror``: the features are the mean of those of the image and of its mirror image. ``root``: their root
            with their sign, which makes long tails short. ``equal_maps``: the standardised features of each map are
            divided by the root of their number, so that a penalty on the classifier lets each map count alike.
        num_classes: K; with 0 there is no classifier.

    Raises:
        UsvitError: A network does not expose its feature maps.
    """

    scale: Tensor
    shift: Tensor

    def __init__(
        self,
        networks: Sequence[tuple[str, Mapping[str, Any]]],
        image_size: int,
        views: Sequence[float] = (1.0,),
        stages: bool = False,
        lesion: bool = False,
        lesion_crop: float | None = None,
        refinements: Sequence[Refinement] = (),
        num_classes: int = 1000,
    ):
        super().__init__()
        self.views, self.stages, self.lesion, self.refinements = tuple(views), stages, lesion, tuple(refinements)
        self.pretrained_cfg = {"architecture": "usvit_frozen_features", "classifier": "fc"}
        self.lesion_crop = lesion_crop
        names = [*networks, *([("usvit_small", {})] if self.predicts_mask else [])]
        self.networks = nn.ModuleList(_create(name, options, image_size, len(views) > 1) for name, options in names)
        # Networks were trained on inputs with different statistics; the images come with those of the first.
        self.register_buffer("scale", torch.ones(len(names), 3))
        self.register_buffer("shift", torch.zeros(len(names), 3))
        self.levels = [
            _levels(network, name, image_size) for network, (name, _) in zip(self._backbones, networks, strict=True)
        ]
        with torch.no_grad():
            self.eval()
            widths = [one.shape[1] for one in self._summaries(torch.zeros(1, 3, image_size, image_size))]
        self.num_features = sum(widths)
        self.hidden = (
            EqualMaps(widths) if "equal_maps" in refinements else nn.BatchNorm1d(self.num_features, affine=False)
        )
        self.reset_classifier(num_classes)
        self.train()

    @property
    def _backbones(self) -> list[nn.Module]:
        networks = list(self.networks)
        return networks[:-1] if self.predicts_mask else networks

    def reset_classifier(self, num_classes: int) -> None:
        """Give the network a new classifier."""
        self.fc = nn.Linear(self.num_features, num_classes) if num_classes else nn.Identity()

    def get_classifier(self) -> nn.Module:
        """Return the classifier."""
        return self.fc

    def match_statistics(self, statistics: Sequence[tuple[Sequence[float], Sequence[float]]]) -> None:
        """Set the mean and SD of the input of each network; images come with those of the first."""
        first_mean, first_std = (torch.tensor(values) for values in statistics[0])
        for index, (mean, std) in enumerate(statistics):
            self.scale[index] = first_std / torch.tensor(std)
            self.shift[index] = (first_mean - torch.tensor(mean)) / torch.tensor(std)

    def forward_features(self, x: Tensor) -> Tensor:
        """Map (B, 3, S, S) to (B, F): for each view and network, the mean of each map over the image and the lesion."""
        features = torch.cat(self._summaries(x), dim=1)
        if "mirror" in self.refinements:
            features = (features + torch.cat(self._summaries(x.flip(-1)), dim=1)) / 2
        return features.sign() * features.abs().sqrt() if "root" in self.refinements else features

    @property
    def predicts_mask(self) -> bool:
        """Whether the network has a ``lesion_mask``."""
        return self.lesion or self.lesion_crop is not None

    def lesion_mask(self, x: Tensor) -> Tensor:
        """Return the logits of the lesion mask of images (B, 3, S, S), (B, S/8, S/8), for weights and the crop."""
        mask: Tensor = self.lesion_network.lesion_mask(self.for_lesion_network(x))
        return mask

    @property
    def lesion_network(self) -> Any:
        """The network that finds the lesion."""
        return self.networks[-1]

    def for_lesion_network(self, x: Tensor) -> Tensor:
        """Change the statistics of images (B, 3, S, S) to those of the network that finds the lesion."""
        return self._input(x, len(self.networks) - 1)

    def _summaries(self, x: Tensor) -> list[Tensor]:
        """Map (B, 3, S, S) to the summaries (B, C) of each map."""
        parts, known = [], None
        if self.lesion_crop is not None:
            x, known = around_lesion(x, self.lesion_mask(x), self.lesion_crop)
        for share in self.views:
            size = [max(_MULTIPLE, round(side * share / _MULTIPLE) * _MULTIPLE) for side in x.shape[-2:]]
            view = x if share == 1 else F.interpolate(x, size=size, mode="bilinear", align_corners=False)
            mask = None if not self.lesion else self.lesion_mask(view) if known is None else known
            for index, network in enumerate(self._backbones):
                parts += self._pooled(network, self.levels[index], self._input(view, index), mask)
        return parts

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Map the features, (B, F), to logits (B, K), or to the classifier's input, (B, F)."""
        x = self.hidden(x)
        return x if pre_logits else self.fc(x)

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))

    def _input(self, view: Tensor, index: int) -> Tensor:
        matched = view * self.scale[index].view(1, 3, 1, 1) + self.shift[index].view(1, 3, 1, 1)
        return matched.contiguous(memory_format=torch.channels_last)  # the faster layout of convolutions on a CPU

    def _pooled(self, network: Any, levels: list[int], view: Tensor, mask: Tensor | None) -> list[Tensor]:
        last, maps = network.forward_intermediates(view, indices=levels)
        parts = []
        for one in maps if self.stages else ():
            parts += self._of_map(one, one.mean((2, 3)), mask)
        # A transformer's last output is no map of channels first: its last block is.
        is_map = last.ndim == 4 and last.shape[-1] == maps[-1].shape[-1] and last.shape[-2] == maps[-1].shape[-2]
        return parts + self._of_map(last if is_map else maps[-1], network.forward_head(last, pre_logits=True), mask)

    def _of_map(self, one: Tensor, whole: Tensor, mask: Tensor | None) -> list[Tensor]:
        """Return the summary ``whole`` of a map, its mean over the lesion, and after each the standard deviation."""
        parts = [whole.flatten(1)]
        if "spread" in self.refinements:
            parts.append(one.std((2, 3), correction=0))
        if mask is not None:
            mean = lesion_weighted(one, mask).mean((2, 3))
            parts.append(mean)
            if "spread" in self.refinements:
                parts.append(lesion_weighted((one - mean[..., None, None]).square(), mask).mean((2, 3)).sqrt())
        return parts


def around_lesion(images: Tensor, mask: Tensor, margin: float) -> tuple[Tensor, Tensor]:
    """Cut a square around the lesion, and enlarge it to the size of the image.

    The square holds all cells of the mask with a probability of at least one half. It has the longer side of their box
    and the margin on each side, no less than ``_LEAST`` and no more than the image, and lies within the image.

    Args:
        images: (B, C, S, S).
        mask: (B, h, w) logits of the mask.
        margin: Share of the side of the box, >= 0.

    Returns:
        The squares, (B, C, S, S), bilinear, and their logits, (B, h, w). Images without such a cell stay whole.
    """
    inside = mask >= 0
    starts, ends = [], []
    for axis in (1, 2):  # columns, then rows, as affine_grid orders them
        hit = inside.any(axis).float()
        n = hit.shape[1]
        place = torch.arange(n, device=mask.device, dtype=torch.float32)
        starts.append(torch.where(hit > 0, place, float(n)).amin(1) / n)
        ends.append(torch.where(hit > 0, place + 1, 0.0).amax(1) / n)
    first, last = torch.stack(starts, 1), torch.stack(ends, 1)  # (B, 2) shares of the side
    side = ((last - first).amax(1, keepdim=True) * (1 + 2 * margin)).clamp(_LEAST, 1.0)
    centre = torch.minimum(torch.maximum((first + last) / 2, side / 2), 1 - side / 2)
    found = inside.flatten(1).any(1)[:, None]
    side, centre = torch.where(found, side, 1.0), torch.where(found, centre, 0.5)
    scale, shift = torch.diag_embed(side.expand(-1, 2)), (2 * centre - 1)[..., None]
    theta = torch.cat([scale, shift], dim=2)

    def cut(maps: Tensor) -> Tensor:
        grid = F.affine_grid(theta.to(maps.dtype), list(maps.shape), align_corners=False)
        return F.grid_sample(maps, grid, mode="bilinear", padding_mode="border", align_corners=False)

    return cut(images), cut(mask[:, None])[:, 0]


class EqualMaps(nn.BatchNorm1d):
    """Standardisation of the features of several maps, after which each map has the same total variance.

    Args:
        widths: Number of features of each map. The mean variance of all features is 1.
    """

    share: Tensor

    def __init__(self, widths: Sequence[int]):
        super().__init__(sum(widths), affine=False)
        share = torch.cat([torch.full((width,), width**-0.5) for width in widths])
        self.register_buffer("share", share / share.square().mean().sqrt())

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input) * self.share


def _create(name: str, options: Mapping[str, Any], image_size: int, several: bool) -> nn.Module:
    config = timm.get_pretrained_cfg(name)
    sized = {}
    if config is not None and config.fixed_input_size:
        sized = {"img_size": image_size, **({"dynamic_img_size": True} if several else {})}
    network: nn.Module = timm.create_model(name, num_classes=0, **{**options, **sized})
    return network


def _levels(network: Any, name: str, image_size: int) -> list[int]:
    """Return the indices of the maps of ``_STAGES``, the last one included."""
    if not hasattr(network, "forward_intermediates") or not hasattr(network, "forward_head"):
        raise UsvitError(
            f"model.features needs the feature maps of a network, and {name} does not expose any. Choose another "
            "model, such as efficientnet_lite0, resnet50 or timm:convnext_atto, or set model.features to null."
        )
    with torch.no_grad():
        maps = network.eval().forward_intermediates(torch.zeros(1, 3, image_size, image_size), intermediates_only=True)
    last_of = {tuple(one.shape[-2:]): index for index, one in enumerate(maps)}
    if len(last_of) > 1:
        return sorted(last_of.values())[-_STAGES:]
    return sorted({round(len(maps) * (number + 1) / _STAGES) - 1 for number in range(_STAGES)} - {-1})


@register_model
def usvit_frozen_features(pretrained: bool = False, cache_dir: object = None, **options: Any) -> FrozenFeatures:
    """Build a classifier on frozen features; ``options`` are those of ``FrozenFeatures``."""
    options = {key: value for key, value in options.items() if not key.startswith("pretrained")}
    return FrozenFeatures(**options)
