"""Masked auto-encoder: from a quarter of an image's patches, the pixels of the others.

    x_v = blocks(stem(x) + E_pos of the visible patches),  encoder: no masked patch, no mask token
    y   = decoder([x_v W; mask token, ...] + sincos),      small, thrown away
    L   = mean over masked patches, mean over pixels, of (y - t)^2
    t   = (p - mean(p)) / sqrt(var(p) + 1e-6),             p: a patch's own pixels, of all channels

Source: He et al. 2022, Masked autoencoders are scalable vision learners, section 3; what the text leaves open (the
unbiased variance, 1e-6, the decoder's start) as the authors' public code has it.
"""

from functools import partial
from typing import Any

import torch
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from usvit.config import MaeConfig
from usvit.data.stream import Batch
from usvit.errors import UsvitError
from usvit.models.architectures.positions import sincos_2d
from usvit.models.count import Cost, blank, forward_macs
from usvit.pretrain.around import Around, OverImages
from usvit.pretrain.noise import new_weights, permutation
from usvit.pretrain.patches import Tokens, patchify
from usvit.pretrain.plan import Plan, UpstreamObjective

EPS = 1e-6
"""Added to the variance of a patch's pixels, and in the decoder's layer normalisations."""


class Decoder(nn.Module):
    """A small ViT over all patches, of which most are one learnt mask token.

    Args:
        tokens: of the encoder.
        config: width, layers, heads.
    """

    positions: Tensor

    def __init__(self, tokens: Tokens, config: MaeConfig):
        super().__init__()
        width = config.decoder_width
        norm: Any = partial(nn.LayerNorm, eps=EPS)
        self.n_prefix = tokens.n_prefix
        self.embed = nn.Linear(tokens.width, width)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, width))
        self.register_buffer("positions", sincos_2d(tokens.grid, width), persistent=False)
        self.blocks = nn.Sequential(
            *[
                Block(width, config.decoder_heads, mlp_ratio=4.0, qkv_bias=True, norm_layer=norm)
                for _ in range(config.decoder_depth)
            ]
        )
        self.norm = norm(width)
        self.predict = nn.Linear(width, 3 * tokens.patch**2)
        nn.init.normal_(self.mask_token, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, prefix: Tensor, seen: Tensor, visible: Tensor, masked: Tensor) -> Tensor:
        """(B, P, D), (B, V, D), and the places (B, V), (B, M) -> (B, M, 3 * patch^2) pixels of the masked patches."""
        count = visible.shape[1] + masked.shape[1]
        x: Tensor = self.embed(torch.cat([prefix, seen], dim=1))
        x, seen = x[:, : self.n_prefix], x[:, self.n_prefix :]  # x: the prefix, whose positions are zero
        whole = self.mask_token.to(x.dtype).expand(len(x), count, -1)
        whole = whole.scatter(1, visible[..., None].expand_as(seen), seen) + self.positions
        x = self.norm(self.blocks(torch.cat([x.to(whole.dtype), whole], dim=1)))
        predicted: Tensor = self.predict(torch.take_along_dim(x[:, self.n_prefix :], masked[..., None], dim=1))
        return predicted


class MaskedAutoencoder(Around):
    """The network and its decoder.

    Args:
        network, tokens: of ``Around``.
        config: of the decoder.
    """

    def __init__(self, network: nn.Module, tokens: Tokens, config: MaeConfig):
        super().__init__(network, tokens)
        self.decoder = Decoder(tokens, config)

    def forward(self, images: Tensor, visible: Tensor, masked: Tensor) -> Tensor:
        """(B, 3, S, S), places (B, V) and (B, M) -> (B, M, 3 * patch^2)."""
        patches = self.tokens.embed(self.network, images)
        prefix, seen = self.tokens.encode(self.network, patches, visible)
        predicted: Tensor = self.decoder(prefix, seen, visible, masked)
        return predicted


class Mae(OverImages):
    """The objective: mean squared error of masked patches.

    Args:
        plan: what is known.
        network: a plain ViT of the zoo.

    Raises:
        UsvitError: the recipe does not fit the network.
    """

    def __init__(self, plan: Plan, network: nn.Module):
        config = plan.config.mae
        tokens = Tokens.of(network, "mae", subsets=True)
        _check_decoder(config)
        self._n_visible = visible_patches(tokens.count, config.mask)
        self._tokens, self._inputs, self._normalise = tokens, plan.inputs, config.norm_pixels
        with new_weights(plan.config.seed, "mae", "decoder"):
            self.module = MaskedAutoencoder(network, tokens, config)

    def loss(self, module: nn.Module, portion: Batch, step: int) -> Tensor:
        images = self._inputs(portion["images"], portion["seeds"])
        return self._losses(module, images, portion["seeds"]).sum()

    def cost(self, image_size: int) -> Cost:
        """The encoder's on what it sees, the decoder's on all patches."""
        seeds = torch.empty(1, dtype=torch.int64, device="meta")
        visible, masked = split(seeds, self._tokens.count, self._n_visible)
        return Cost(forward_macs(self.module, blank(image_size), visible, masked))

    def evaluate(self, module: nn.Module, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        places = torch.arange(len(images), device=images.device)  # the same masks at every evaluation
        return {"val_loss": self._losses(module, images, places).sum()}

    def _losses(self, module: nn.Module, images: Tensor, seeds: Tensor) -> Tensor:
        visible, masked = split(seeds, self._tokens.count, self._n_visible)
        predicted = module(images, visible, masked).float()
        return reconstruction_loss(predicted, images, masked, self._tokens.patch, normalise=self._normalise)


def make(plan: Plan, network: nn.Module) -> UpstreamObjective:
    """``usvit.pretrain.plan.MakeObjective``.

    The network starts as it is: the authors start its projections by Xavier's rule, timm by normals of 0.02. Its
    positions are its own, too: theirs are ``model.vit.position: sincos_2d``. Batch normalisation in an hMLP stem sees
    all patches, as it will in fine-tuning.
    """
    return Mae(plan, network)


def visible_patches(count: int, mask: float) -> int:
    """How many of N patches the encoder sees: (1 - mask) N, rounded down.

    Raises:
        UsvitError: none, or all of them.
    """
    visible = int(count * (1 - mask) + 1e-9)  # 1 - 0.9 is a little less than 0.1
    if not 0 < visible < count:
        raise UsvitError(
            f"mae.mask {mask:g} leaves {visible} of {count} patches visible, and there must be some of both: set "
            "another mae.mask, a larger model.image_size, or a model of smaller patches."
        )
    return visible


def split(seeds: Tensor, count: int, n_visible: int) -> tuple[Tensor, Tensor]:
    """Which patches are seen and which are not, by each example's seed.

    Args:
        seeds: (B,) int64.
        count: patches N.
        n_visible: V.

    Returns:
        (B, V) and (B, N - V) int64, ascending places in raster order.
    """
    order = permutation(seeds, count, "mae")
    return order[:, :n_visible].sort(dim=1).values, order[:, n_visible:].sort(dim=1).values


def reconstruction_loss(predicted: Tensor, images: Tensor, masked: Tensor, patch: int, *, normalise: bool) -> Tensor:
    """Mean over pixels, mean over masked patches of the squared error.

    Args:
        predicted: (B, M, 3 * patch^2).
        images: (B, 3, S, S), as the network gets them.
        masked: (B, M) int64, places of the masked patches.
        patch: side, in pixels.
        normalise: each target patch by its own mean and variance (over pixels and channels, unbiased).

    Returns:
        (B,) one loss an image.

    Source: He et al. 2022, section 3, "Reconstruction target"; Table 1d.
    """
    target = torch.take_along_dim(patchify(images.float(), patch), masked[..., None], dim=1)
    if normalise:
        variance, mean = torch.var_mean(target, dim=-1, keepdim=True)
        target = (target - mean) / (variance + EPS).sqrt()
    return (predicted - target).square().mean(dim=(1, 2))


def _check_decoder(config: MaeConfig) -> None:
    if config.decoder_width % 4 or config.decoder_width < 8:
        raise UsvitError(
            f"mae.decoder_width is {config.decoder_width}, and sine-cosine positions need a multiple of 4, from 8 on."
        )
    if config.decoder_width % config.decoder_heads:
        raise UsvitError(
            f"mae.decoder_width {config.decoder_width} cannot be shared out to {config.decoder_heads} heads: set a "
            "divisor of it as mae.decoder_heads."
        )
