"""Masked autoencoder: predict the pixels of masked patches from a quarter of an image's patches.

    x_v = blocks(stem(x) + E_pos of the visible patches),  encoder: visible patches only
    y   = decoder([x_v W; mask token, ...] + sincos),      small, discarded after the training
    L   = mean over masked patches, mean over pixels, of (y - t)^2
    t   = (p - mean(p)) / sqrt(var(p) + 1e-6),             p: pixels of a patch, all channels

Source: He et al. 2022, Masked autoencoders are scalable vision learners, section 3. Details that the
text leaves open (unbiased variance, 1e-6, initialization of the decoder) follow the authors' public code.
"""

from functools import partial
from typing import Any

import torch
from timm.models.vision_transformer import Block
from torch import Tensor, nn

from usvit.data.loading import Batch
from usvit.errors import UsvitError
from usvit.models import Cost, blank, forward_macs, sincos_2d
from usvit.upstream.config.pretrain import MaeConfig
from usvit.upstream.pretraining.counter_rng import new_weights, permutation
from usvit.upstream.pretraining.patches import MaskedPredictionNetwork, MaskedPredictionTask, Tokens, patchify
from usvit.upstream.pretraining.task import PretrainingTask, TaskContext

EPS = 1e-6
"""Added to the variance of a patch's pixels, and in the decoder's layer normalizations."""


class _MaeDecoder(nn.Module):
    """A small ViT over all patches, most of which are one learnt mask token.

    Args:
        tokens: tokens of the encoder.
        config: width, layers and heads.
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
        """Map (B, P, D) and (B, V, D) tokens with indices (B, V), (B, M) to pixels (B, M, 3 * patch^2)."""
        count = visible.shape[1] + masked.shape[1]
        x: Tensor = self.embed(torch.cat([prefix, seen], dim=1))
        x, seen = x[:, : self.n_prefix], x[:, self.n_prefix :]  # x: the prefix, whose positions are zero
        whole = self.mask_token.to(x.dtype).expand(len(x), count, -1)
        whole = whole.scatter(1, visible[..., None].expand_as(seen), seen) + self.positions
        x = self.norm(self.blocks(torch.cat([x.to(whole.dtype), whole], dim=1)))
        predicted: Tensor = self.predict(torch.take_along_dim(x[:, self.n_prefix :], masked[..., None], dim=1))
        return predicted


class MaskedAutoencoder(MaskedPredictionNetwork):
    """The network and its decoder.

    Args:
        network, tokens: see ``MaskedPredictionNetwork``.
        config: settings of the decoder.
    """

    def __init__(self, network: nn.Module, tokens: Tokens, config: MaeConfig):
        super().__init__(network, tokens)
        self.decoder = _MaeDecoder(tokens, config)

    def forward(self, images: Tensor, visible: Tensor, masked: Tensor) -> Tensor:
        """Map (B, 3, S, S) images with indices (B, V) and (B, M) to pixels (B, M, 3 * patch^2)."""
        patches = self.tokens.embed(self.network, images)
        prefix, seen = self.tokens.encode(self.network, patches, visible)
        predicted: Tensor = self.decoder(prefix, seen, visible, masked)
        return predicted


class _Mae(MaskedPredictionTask):
    """Mean squared error of the pixels of masked patches.

    Args:
        context: configuration, data and device of the training.
        network: a plain ViT of the zoo.

    Raises:
        UsvitError: the recipe does not fit the network.
    """

    module: MaskedAutoencoder

    def __init__(self, context: TaskContext, network: nn.Module):
        config = context.config.mae
        tokens = Tokens.of(network, "mae", subsets=True)
        _check_decoder(config)
        self._n_visible = visible_patches(tokens.count, config.mask)
        self._tokens, self._inputs, self._normalise = tokens, context.inputs, config.norm_pixels
        with new_weights(context.config.seed, "mae", "decoder"):
            self.module = MaskedAutoencoder(network, tokens, config)

    def loss(self, module: nn.Module, portion: Batch, step: int) -> Tensor:
        images = self._inputs(portion["images"], portion["seeds"])
        return self._losses(module, images, portion["seeds"]).sum()

    def cost(self, image_size: int) -> Cost:
        """Count the encoder on the visible patches and the decoder on all patches."""
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


def make(context: TaskContext, network: nn.Module) -> PretrainingTask:
    """Make the task (``usvit.upstream.pretraining.task.MakeTask``).

    The network keeps its initialization: the authors use Xavier's for its projections, timm normal values with
    standard deviation 0.02. It keeps its positions, too; the authors' are ``model.vit.position: sincos_2d``. Batch
    normalization in an hMLP stem sees all patches, as in fine-tuning.
    """
    return _Mae(context, network)


def visible_patches(count: int, mask: float) -> int:
    """Return how many of N patches the encoder sees: (1 - mask) N, rounded down.

    Raises:
        UsvitError: the encoder would see none of the patches, or all of them.
    """
    visible = int(count * (1 - mask) + 1e-9)  # 1 - 0.9 is a little less than 0.1
    if not 0 < visible < count:
        raise UsvitError(
            f"mae.mask {mask:g} leaves {visible} of {count} patches visible, but some must be visible and some masked. "
            "Set another mae.mask, a larger model.image_size, or a model of smaller patches."
        )
    return visible


def split(seeds: Tensor, count: int, n_visible: int) -> tuple[Tensor, Tensor]:
    """Draw visible and masked patches from each example's seed.

    Args:
        seeds: (B,) int64.
        count: number of patches N.
        n_visible: number of visible patches V.

    Returns:
        (B, V) and (B, N - V) int64, ascending indices in raster order.
    """
    order = permutation(seeds, count, "mae")
    return order[:, :n_visible].sort(dim=1).values, order[:, n_visible:].sort(dim=1).values


def reconstruction_loss(predicted: Tensor, images: Tensor, masked: Tensor, patch: int, *, normalise: bool) -> Tensor:
    """Compute the squared error of the pixels, mean over pixels and masked patches.

    Args:
        predicted: (B, M, 3 * patch^2).
        images: (B, 3, S, S), the network's input.
        masked: (B, M) int64, indices of the masked patches.
        patch: side of a patch in pixels.
        normalise: whether to normalize each target patch by its mean and unbiased variance over pixels and channels.

    Returns:
        (B,) float32, one loss per image.

    Source: He et al. 2022, section 3, "Reconstruction target"; Table 1d.
    """
    target = torch.take_along_dim(patchify(images.float(), patch), masked[..., None], dim=1)
    if normalise:
        variance, mean = torch.var_mean(target, dim=-1, keepdim=True)
        target = (target - mean) / (variance + EPS).sqrt()
    return (predicted - target).square().mean(dim=(1, 2))


def _check_decoder(config: MaeConfig) -> None:
    if config.decoder_width % 4:
        raise UsvitError(
            f"mae.decoder_width is {config.decoder_width}, but sine-cosine positions need a multiple of 4."
        )
    if config.decoder_width % config.decoder_heads:
        raise UsvitError(
            f"mae.decoder_width {config.decoder_width} is not a multiple of mae.decoder_heads {config.decoder_heads}. "
            "Set mae.decoder_heads to a divisor of it."
        )
