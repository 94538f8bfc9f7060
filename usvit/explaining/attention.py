"""Attention rollout, attention maps of each head, and attention distances."""

import re
from collections.abc import Sequence
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
    """Return the attention maps of each head in the last layer; see ``layer_maps``."""
    return layer_maps(model, images, name, class_index)[-1]


def layer_maps(
    model: nn.Module, images: Tensor, name: str, class_index: Tensor | None = None, layers: Sequence[str] = ("-1",)
) -> list[HeadMaps]:
    """Return the attention maps of each head in some layers: (B, 3, S, S) -> (B, heads, H, W) each.

    A map is the row of the class token (with a distillation token, the mean of both rows), the weights of attention
    pooling, or, if the classifier reads the mean over patches, the mean of their rows. Layers before the class token
    enters (CaiT) have the mean of the rows of the patches. Attention to prefix tokens is left out.

    Args:
        model: a transformer, or a network that pools by attention (with a method ``attention_maps``).
        images: (B, 3, S, S), normalised.
        name: name of the network in error messages.
        class_index: (B,) or (B, C) classes of the maps of each image, for a network with a query for each class.
        layers: the layers, see ``choose_layers``.

    Returns:
        The maps of these layers, in the order in which the layers run.

    Raises:
        UsvitError: the network has no attention, or none among all patches, or has no such layer.
    """
    if hasattr(model, "attention_maps"):
        choose_layers(["attn_pool"], layers, name)
        with torch.no_grad():
            try:
                maps = model.attention_maps(images)  # type: ignore[operator]
            except ValueError as error:
                raise UsvitError(f"{name}: {error}. Use --method gradcam or occlusion.") from error
        if getattr(model, "queries", "one") == "class" and class_index is not None:
            maps = maps[torch.arange(len(maps)).unsqueeze(1), class_index.view(len(maps), -1)]
        return [HeadMaps("attn_pool", _normalised(maps))]
    anatomy = anatomy_of(model, name)

    def of_reading(kind: Kind, weights: Tensor) -> Tensor:
        return (weights.mean(dim=2) if kind != "self" else _read(weights, anatomy)).unsqueeze(2)

    found = capture(model, images, of_reading)
    refuse_other_tokens(found, anatomy, name)
    chosen = (found[at] for at in choose_layers([layer.name for layer in found], layers, name))
    return [HeadMaps(layer.name, _normalised(anatomy.on_grid(layer.weights[:, :, 0]))) for layer in chosen]


def choose_layers(names: Sequence[str], wanted: Sequence[str], network: str) -> list[int]:
    """Return the indices of layers, in ascending order and each once.

    Args:
        names: names of the layers, in order.
        wanted: numbers from 1 for the first, or from -1 for the last; names; ``all``.
        network: name of the network in error messages.

    Raises:
        UsvitError: there is no such layer.
    """
    chosen: set[int] = set()
    for one in wanted:
        if one == "all":
            chosen |= set(range(len(names)))
        elif one in names:
            chosen.add(names.index(one))
        elif re.fullmatch(r"-?[1-9]\d{0,5}", one) and abs(int(one)) <= len(names):
            chosen.add(int(one) - 1 if int(one) > 0 else len(names) + int(one))
        else:
            shown = ", ".join(names) if len(names) < 4 else f"{names[0]}, {names[1]}, ..., {names[-1]}"
            raise UsvitError(
                f"{network} has no layer '{one}'. --layer takes a number from 1 to {len(names)}, a number from "
                f"-{len(names)} to -1, which counts from the last layer, a name ({shown}), or all."
            )
    return sorted(chosen)


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
