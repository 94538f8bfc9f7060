"""The self-supervision of the original ViT: predict the colours of corrupted patches.

Half of the patch embeddings are corrupted: 80 % of these become a learnt mask embedding, 10 % another patch's
embedding, and 10 % stay unchanged. "Finally, we predict the 3-bit, mean color (i.e., 512 colors in total) of every
corrupted patch using their respective patch representations." The paper tried two other targets: "a 4 x 4 downsized
version of the 16 x 16 patch with 3bit colors in parallel (i.e., 16 predictions of 512 colors)", and "regression on the
full patch using L2 (i.e., 256 regressions on the 3 RGB channels)".

Source: Dosovitskiy et al. 2021, section 4.6 and appendix B.1.2. Not stated there and chosen here: a patch is downsized
by the mean of each cell, the loss is the mean over the 16 cells, and the regression is on the network's input, that is,
on normalized pixels, with the mean of the squared errors as loss.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from usvit.data.loading import Batch
from usvit.errors import UsvitError
from usvit.models import Cost, blank, forward_macs
from usvit.upstream.config.pretrain import MaskedPatchConfig
from usvit.upstream.pretraining.counter_rng import new_weights, permutation, uniform
from usvit.upstream.pretraining.patches import MaskedPredictionNetwork, MaskedPredictionTask, Tokens, patchify
from usvit.upstream.pretraining.task import PretrainingTask, TaskContext

_ROUNDING = 1e-3
"""In grey levels of 255. Absorbs rounding, since the pixels were normalized and are converted back."""
CELLS = 4
"""Side of a downsized patch, in cells."""


class Corruption:
    """The corruption of the patches of a batch.

    Attributes:
        corrupted: (B, M) int64, ascending indices of the patches whose colour is predicted.
        replaced: (B, N) bool, True for patches that become the mask embedding.
        source: (B, N) int64, index of the patch whose embedding each patch gets; its own unless it is swapped.
    """

    def __init__(self, seeds: Tensor, count: int, config: MaskedPatchConfig):
        chosen = permutation(seeds, count, "masked_patch/which")[:, : corrupted_patches(count, config.corrupted)]
        self.corrupted = chosen.sort(dim=1).values
        inside = torch.zeros(len(seeds), count, dtype=torch.bool, device=seeds.device).scatter(1, chosen, True)
        draw = uniform(seeds, count, "masked_patch/how")
        self.replaced = inside & (draw < config.replaced)
        swapped = inside & ~self.replaced & (draw < config.replaced + config.swapped)
        own = torch.arange(count, device=seeds.device).expand_as(draw)
        away = 1 + (uniform(seeds, count, "masked_patch/other") * (count - 1)).long()  # 1 ... N - 1: never itself
        self.source = torch.where(swapped, (own + away) % count, own)

    def apply(self, patches: Tensor, mask_token: Tensor) -> Tensor:
        """Corrupt (B, N, D) embeddings, with the mask embedding (1, 1, D)."""
        patches = torch.take_along_dim(patches, self.source[..., None], dim=1)
        return torch.where(self.replaced[..., None], mask_token.to(patches.dtype), patches)


class _MaskedPatchNetwork(MaskedPredictionNetwork):
    """The network, the mask embedding and the layer that predicts colours.

    Args:
        network, tokens: see ``MaskedPredictionNetwork``.
        config: settings of the corruption.
    """

    def __init__(self, network: nn.Module, tokens: Tokens, config: MaskedPatchConfig):
        super().__init__(network, tokens)
        self.config = config
        self.mask_token = nn.Parameter(torch.zeros(1, 1, tokens.width))
        self.colour = nn.Linear(tokens.width, n_outputs(config, tokens.patch))
        nn.init.trunc_normal_(self.mask_token, std=0.02)
        nn.init.trunc_normal_(self.colour.weight, std=0.02)
        nn.init.zeros_(self.colour.bias)

    def forward(self, images: Tensor, seeds: Tensor) -> Tensor:
        """Compute outputs for the corrupted patches: (B, 3, S, S) and (B,) int64 seeds -> (B, M, ``n_outputs``)."""
        corruption = Corruption(seeds, self.tokens.count, self.config)
        patches = corruption.apply(self.tokens.embed(self.network, images), self.mask_token)
        _, patches = self.tokens.encode(self.network, patches)
        outputs: Tensor = self.colour(torch.take_along_dim(patches, corruption.corrupted[..., None], dim=1))
        return outputs


class _MaskedPatch(MaskedPredictionTask):
    """Cross-entropy of the corrupted patches' colours, or squared error of their pixels, mean over patches.

    Args:
        context: configuration, data and device of the training.
        network: a plain ViT of the zoo.

    Raises:
        UsvitError: the recipe does not fit the network.
    """

    module: _MaskedPatchNetwork

    def __init__(self, context: TaskContext, network: nn.Module):
        self._config = context.config.masked_patch
        self._tokens, self._inputs = Tokens.of(network, "masked_patch"), context.inputs
        _check(self._config, self._tokens)
        with new_weights(context.config.seed, "masked_patch", "head"):
            self.module = _MaskedPatchNetwork(network, self._tokens, self._config)

    def loss(self, module: nn.Module, portion: Batch, step: int) -> Tensor:
        images = self._inputs(portion["images"], portion["seeds"])
        return self._per_image(*self._predict(module, images, portion["seeds"])).sum()

    def cost(self, image_size: int) -> Cost:
        seeds = torch.empty(1, dtype=torch.int64, device="meta")
        return Cost(forward_macs(self.module, blank(image_size), seeds))

    def evaluate(self, module: nn.Module, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Compute the figures; ``val_accuracy`` sums each image's share of correct colours among corrupted patches."""
        places = torch.arange(len(images), device=images.device)  # the same corruption at every evaluation
        outputs, wanted = self._predict(module, images, places)
        figures = {"val_loss": self._per_image(outputs, wanted).sum()}
        if self._config.target != "pixels":
            figures["val_accuracy"] = (outputs.argmax(-1) == wanted).float().mean(dim=(1, 2)).sum()
        return figures

    def _predict(self, module: nn.Module, images: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor]:
        """Return outputs and targets of the M corrupted patches.

        For colours, logits (B, M, C, 2^(3 bits)) and classes (B, M, C) of C cells; for pixels, twice (B, M, 3 P^2).
        """
        corrupted = Corruption(seeds, self._tokens.count, self._config).corrupted
        patch, bits = self._tokens.patch, self._config.bits
        outputs = module(images, seeds).float()
        if self._config.target == "pixels":
            return outputs, torch.take_along_dim(patchify(images.float(), patch), corrupted[..., None], dim=1)
        pixels = _stored(images, self._inputs.mean, self._inputs.std)
        if self._config.target == "downsized":
            colours = downsized_colours(pixels, patch, bits)
        else:
            colours = mean_colours(pixels, patch, bits)[..., None]
        wanted = torch.take_along_dim(colours, corrupted[..., None], dim=1)
        return outputs.unflatten(-1, (wanted.shape[-1], -1)), wanted

    def _per_image(self, outputs: Tensor, wanted: Tensor) -> Tensor:
        """Compute (B,) the mean loss over the corrupted patches from the results of ``_predict``."""
        if self._config.target == "pixels":
            return (outputs - wanted).square().mean(dim=(1, 2))
        logits, classes = outputs.flatten(1, 2), wanted.flatten(1)
        return F.cross_entropy(logits.transpose(1, 2), classes, reduction="none").mean(dim=1)


def make(context: TaskContext, network: nn.Module) -> PretrainingTask:
    """Make the task (``usvit.upstream.pretraining.task.MakeTask``)."""
    return _MaskedPatch(context, network)


def corrupted_patches(count: int, share: float) -> int:
    """Return how many of N patches are corrupted: the share, rounded down, at least one."""
    return max(1, int(count * share + 1e-9))


def n_outputs(config: MaskedPatchConfig, patch: int) -> int:
    """Return the number of outputs for each patch of ``patch`` x ``patch`` pixels."""
    colours = 2 ** (3 * config.bits)
    return {"mean_colour": colours, "downsized": CELLS**2 * colours, "pixels": 3 * patch**2}[config.target]


def mean_colours(pixels: Tensor, patch: int, bits: int) -> Tensor:
    """Compute the class of each patch from the highest bits of its mean red, green and blue, in this order.

    The class is red * 4^bits + green * 2^bits + blue, each floor(mean / 2^(8 - bits)); the mean is taken before the
    bits.

    Args:
        pixels: (B, 3, S, S) in [0, 255]; values slightly outside are clipped.
        patch: side of a patch in pixels.
        bits: bits per channel, 1 to 8.

    Returns:
        (B, N) int64 in [0, 2^(3 bits)), in raster order.
    """
    mean = patchify(pixels.float(), patch).unflatten(-1, (patch * patch, 3)).mean(dim=2)
    level = ((mean + _ROUNDING) / 2 ** (8 - bits)).floor().long().clamp(0, 2**bits - 1)
    red, green, blue = level.unbind(-1)
    return (red << 2 * bits) | (green << bits) | blue


def downsized_colours(pixels: Tensor, patch: int, bits: int) -> Tensor:
    """Compute the class of each of the 4 x 4 cells of each patch, as ``mean_colours`` does.

    Args:
        pixels: (B, 3, S, S) in [0, 255].
        patch: side of a patch in pixels, a multiple of 4.
        bits: bits per channel, 1 to 8.

    Returns:
        (B, N, 16) int64 in [0, 2^(3 bits)); patches and the cells within a patch are in raster order.
    """
    side = patch // CELLS
    cells = mean_colours(pixels, side, bits).unflatten(1, (pixels.shape[2] // side, pixels.shape[3] // side))
    return patchify(cells[:, None], CELLS)


def _stored(images: Tensor, mean: tuple[float, float, float], std: tuple[float, float, float]) -> Tensor:
    """Convert images from the network's scale to that of stored pixels: (B, 3, S, S) in [0, 255]."""
    scale, shift = (images.new_tensor(of, dtype=torch.float32).view(3, 1, 1) for of in (std, mean))
    return (images.float() * scale + shift) * 255


def _check(config: MaskedPatchConfig, tokens: Tokens) -> None:
    if config.replaced + config.swapped > 1 + 1e-9:
        raise UsvitError(
            f"masked_patch.replaced {config.replaced:g} and masked_patch.swapped {config.swapped:g} are shares of the "
            "same patches, but their sum exceeds 1. Set smaller shares."
        )
    if config.target == "downsized" and tokens.patch % CELLS:
        raise UsvitError(
            f"masked_patch.target is downsized, which cuts patches into {CELLS} x {CELLS} cells, but the patches have "
            f"{tokens.patch} pixels. Use a model with patches of a multiple of {CELLS}, or mean_colour."
        )
    if tokens.count < 2:
        raise UsvitError("objective masked_patch needs at least two patches: set a larger model.image_size.")
