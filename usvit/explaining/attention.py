"""Attention rollout, attention maps of each head, and attention distances."""

from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from usvit.errors import UsvitError
from usvit.explaining.capture import Kind, Layer, capture
from usvit.explaining.token_layout import Anatomy, anatomy_of, refuse_other_tokens


def rollout(layers: list[Layer], anatomy: Anatomy) -> Tensor:
    """Compute the share of each input token in each token of the last layer, if only attention mixed them.

        A~_l = 1/2 mean over heads of A_l + 1/2 I,    R = A~_L ... A~_1

    The term 1/2 I stands for the residual connection. The heads of parallel branches count as heads of one layer. If
    the class token is added late (CaiT), earlier layers do not change it, and class-attention layers change nothing
    else.

    Args:
        layers: result of ``capture``, in order; pooling layers are ignored.
        anatomy: anatomy of the network.

    Returns:
        (B, T, T) with T = P + N, or N without prefix tokens; each row sums to 1.

    Source: Abnar & Zuidema (2020), arXiv:2005.00928, section 3; Dosovitskiy et al. (2021), appendix D.8.
    """
    rolled: Tensor | None = None
    for layer in layers:
        if layer.kind == "pool":
            continue
        mixing = layer.weights.mean(dim=1)  # (B, queries, keys)
        if layer.kind == "class" and mixing.shape[-1] == anatomy.n_patches:  # whose keys are the patches alone
            mixing = F.pad(mixing, (anatomy.n_prefix, 0))
        n_tokens = mixing.shape[-1]
        unit = torch.eye(n_tokens, dtype=mixing.dtype, device=mixing.device).expand(len(mixing), -1, -1)
        if layer.kind == "class":
            asked = mixing.shape[1]  # 1, or 2 with a distillation token
            mixing = torch.cat([(mixing + unit[:, :asked]) / 2, unit[:, asked:]], dim=1)
        else:
            mixing = (mixing + unit) / 2
        rolled = mixing if rolled is None else mixing @ _extended(rolled, n_tokens)
    if rolled is None:
        raise ValueError("there are no layers to roll out")
    return rolled


def _extended(rolled: Tensor, n_tokens: int) -> Tensor:
    """Add prefix tokens that no layer has changed so far."""
    more = n_tokens - rolled.shape[-1]
    if more <= 0:
        return rolled
    whole = torch.eye(n_tokens, dtype=rolled.dtype, device=rolled.device).repeat(len(rolled), 1, 1)
    whole[:, more:, more:] = rolled
    return whole


def rollout_maps(model: nn.Module, images: Tensor, name: str) -> Tensor:
    """Return the rollout from the tokens that the head reads to the patches: (B, 3, S, S) -> (B, H, W), sums of 1.

    Raises:
        UsvitError: the network has no attention among all patches.
    """
    anatomy = anatomy_of(model, name)

    def mean_of_heads(kind: Kind, weights: Tensor) -> Tensor:
        return weights.mean(dim=1, keepdim=True)

    layers = capture(model, images, mean_of_heads)
    refuse_other_tokens(layers, anatomy, name)
    rolled = rollout(layers, anatomy)
    if anatomy.reads == "pool":
        pooling = [layer.weights for layer in layers if layer.kind == "pool"]
        read = (pooling[-1].mean(dim=(1, 2)).unsqueeze(1) @ rolled[:, -pooling[-1].shape[-1] :]).squeeze(1)
    else:
        read = _read(rolled, anatomy)
    return _normalised(anatomy.on_grid(read))


@dataclass(frozen=True)
class HeadMaps:
    """Attention maps of one layer."""

    layer: str
    maps: Tensor
    """(B, heads, H, W), each sums to 1."""


def head_maps(model: nn.Module, images: Tensor, name: str, class_index: Tensor | None = None) -> HeadMaps:
    """Return the last attention map of each head: (B, 3, S, S) -> (B, heads, H, W).

    This is the row of the class token in the last layer (with a distillation token, the mean of both rows), the weights
    of attention pooling, or, if the classifier reads the mean over patches, the mean of their rows. Attention to prefix
    tokens is left out.

    Args:
        model: a transformer, or a network that pools by attention (with a method ``attention_maps``).
        images: (B, 3, S, S), normalised.
        name: name of the network in error messages.
        class_index: (B,) class of the map for each image, for a network with a query for each class.

    Raises:
        UsvitError: the network has no attention, or none among all patches.
    """
    if hasattr(model, "attention_maps"):
        with torch.no_grad():
            try:
                maps = model.attention_maps(images)  # type: ignore[operator]
            except ValueError as error:
                raise UsvitError(f"{name}: {error}. Use --method gradcam or occlusion.") from error
        if getattr(model, "queries", "one") == "class" and class_index is not None:
            maps = maps[torch.arange(len(maps)), class_index].unsqueeze(1)
        return HeadMaps("attn_pool", _normalised(maps))
    anatomy = anatomy_of(model, name)

    def of_reading(kind: Kind, weights: Tensor) -> Tensor:
        return weights.mean(dim=2) if kind != "self" else _read(weights, anatomy)

    def last(kind: Kind, weights: Tensor) -> Tensor:
        return of_reading(kind, weights).unsqueeze(2)

    layers = capture(model, images, last)
    refuse_other_tokens(layers, anatomy, name)
    return HeadMaps(layers[-1].name, _normalised(anatomy.on_grid(layers[-1].weights[:, :, 0])))


def _read(weights: Tensor, anatomy: Anatomy) -> Tensor:
    """Average the rows of the tokens that the head reads: (..., T, T) -> (..., T)."""
    if anatomy.reads == "token" and weights.shape[-1] > anatomy.n_patches:
        return weights[..., : anatomy.n_read, :].mean(dim=-2)
    return weights[..., weights.shape[-2] - anatomy.n_patches :, :].mean(dim=-2)


def _normalised(maps: Tensor) -> Tensor:
    return maps / maps.sum(dim=(-2, -1), keepdim=True).clamp_min(torch.finfo(maps.dtype).tiny)


@dataclass(frozen=True)
class Distances:
    """Attention distances of the heads of one layer."""

    layer: str
    distance: Tensor
    """(B, heads), in pixels of the input."""
    prefix_share: Tensor
    """(B, heads) in [0, 1]: share of the attention of the patches that goes to prefix tokens."""


def attention_distances(model: nn.Module, images: Tensor, name: str) -> list[Distances]:
    """Compute the mean distance between a patch and the patches it attends to, weighted by attention.

        d = mean over patches i of  sum_j a_ij |x_i - x_j| / sum_j a_ij,   j over patches

    x is the centre of a patch in pixels of the input. The paper does not say how to treat prefix tokens (such as the
    class token): they have no position, so attention to them is left out here, and its share is returned.

    Args:
        model: a transformer.
        images: (B, 3, S, S), normalised.
        name: name of the network in error messages.

    Raises:
        UsvitError: the network has no attention among all patches.

    Source: Dosovitskiy et al. (2021), section 4.5, Fig. 7 (right), and appendix D.7, Fig. 11.
    """
    anatomy = anatomy_of(model, name)
    between = patch_distances(anatomy, images.shape[-1]).to(images.device)
    n = anatomy.n_patches

    def both(kind: Kind, weights: Tensor) -> Tensor:
        among = weights[:, :, -n:, -n:]
        if kind != "self" or among.shape[2:] != between.shape:
            return among.new_zeros(*weights.shape[:2], 2)
        total = among.sum(dim=-1)
        distance = (among * between).sum(dim=-1) / total.clamp_min(torch.finfo(total.dtype).tiny)
        return torch.stack([distance.mean(dim=-1), 1 - total.mean(dim=-1)], dim=-1)

    layers = capture(model, images, both)
    refuse_other_tokens(layers, anatomy, name)
    return [
        Distances(layer.name, layer.weights[..., 0], layer.weights[..., 1].clamp(0, 1))
        for layer in layers
        if layer.kind == "self"
    ]


def patch_distances(anatomy: Anatomy, image_size: int) -> Tensor:
    """Return (N, N) float32 distances between the centres of all patches in raster order, in pixels of the input."""
    height, width = anatomy.grid
    down, across = image_size / height, image_size / width
    centres = torch.tensor([[r * down, c * across] for r, c in product(range(height), range(width))])
    return torch.cdist(centres, centres, compute_mode="donot_use_mm_for_euclid_dist")
