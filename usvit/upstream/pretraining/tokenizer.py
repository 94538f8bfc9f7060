"""The tokenizer, a discrete autoencoder: every patch becomes a word, from which its pixels are reconstructed.

    z   = l2(encoder(x)),              one vector of few dimensions per patch
    k   = argmax_k cos(z, e_k),        its code, which BEiT predicts
    L   = mean over pixels (x - decoder(e_k))^2 + beta * mean over patches |z - sg(e_k)|^2
    e_k follows the moving average of the z that chose it; gradients pass from e_k to z unchanged

Source: van den Oord et al. (2017), Neural discrete representation learning, eq. 3 and appendix A.1; codes of length
one in few dimensions as in Yu et al. (2022), ViT-VQGAN, section 3.2, and Peng et al. (2022), BEiT v2, section 2.2. BEiT
itself used DALL-E's, a discrete VAE with Gumbel softmax, trained on 250 million images.
"""

from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from timm.layers import LayerNorm2d
from timm.models.convnext import ConvNeXtBlock
from torch import Tensor, nn
from torch.nn.functional import normalize

from usvit.data.loading import Batch
from usvit.data.splits import load_metadata
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.models import Cost, blank, forward_macs, only_fold, read_state_dict
from usvit.training import gather_rows, sum_over_processes
from usvit.upstream.config.pretrain import TokenizerConfig
from usvit.upstream.pretraining.codebook import Codebook
from usvit.upstream.pretraining.counter_rng import new_weights, random_bits
from usvit.upstream.pretraining.patches import unpatchify
from usvit.upstream.pretraining.task import PretrainingTask, TaskContext

BETA = 0.25
"""Weight of the commitment loss (van den Oord et al. 2017, section 3.2)."""
_CANDIDATES = 8  # patches per image that can replace dead codes


class Tokenizer(nn.Module):
    """Encoder, codebook and decoder. They are convolutional, so that any multiple of the patch is a valid image size.

    Args:
        config: sizes of encoder, codebook and decoder.
    """

    def __init__(self, config: TokenizerConfig):
        super().__init__()
        self.config = config
        width, patch = config.width, config.patch
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, patch, patch),
            *_blocks(config),
            LayerNorm2d(width),
            nn.Conv2d(width, config.code_width, 1),
        )
        self.codebook = Codebook(config.vocabulary, config.code_width)
        self.decoder = nn.Sequential(
            nn.Conv2d(config.code_width, width, 1),
            *_blocks(config),
            LayerNorm2d(width),
            nn.Conv2d(width, 3 * patch**2, 1),
        )

    def encode(self, images: Tensor) -> Tensor:
        """Map (B, 3, H, W) normalized images to (B, h, w, C) float32 vectors of length one."""
        return normalize(self.encoder(images).permute(0, 2, 3, 1).float(), dim=-1)

    def codes(self, images: Tensor) -> Tensor:
        """Map (B, 3, H, W) normalized images to (B, N) int64 codes in [0, vocabulary), in raster order."""
        return self.codebook.nearest(self.encode(images)).flatten(1)

    def coding_macs(self, image_size: int) -> tuple[int, int]:
        """Count the multiply-accumulate operations of ``codes`` for one image: encoder, comparison with all codes."""
        encoder = forward_macs(self.encoder, blank(image_size))
        return encoder, (image_size // self.config.patch) ** 2 * self.config.vocabulary * self.config.code_width

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Encode, quantize and decode images.

        Args:
            images: (B, 3, H, W) float, normalized.

        Returns:
            (B, 3, H, W) float32 reconstructions; (B, N, C) vectors; (B, N) int64 their codes.
        """
        vectors = self.encode(images)
        words, chosen = self.codebook(vectors)
        pixels = self.decoder(words.permute(0, 3, 1, 2)).float()
        made = unpatchify(pixels.flatten(2).transpose(1, 2), self.config.patch, (pixels.shape[2], pixels.shape[3]))
        return made, vectors.flatten(1, 2), chosen.flatten(1)


class _TokenizerTask(PretrainingTask):
    """Reconstruction and commitment losses. The codebook is updated once per step, whatever the portions.

    Args:
        context: configuration, data and device of the training.

    Raises:
        UsvitError: the image size is not a multiple of the patch.
    """

    module: Tokenizer

    def __init__(self, context: TaskContext):
        config, size = context.config.tokenizer, context.config.model.image_size
        if size % config.patch:
            raise UsvitError(
                f"model.image_size {size} is not a multiple of tokenizer.patch {config.patch}. Change one of them."
            )
        self._inputs = context.inputs
        with new_weights(context.config.seed, "tokenizer"):
            self.module = Tokenizer(config)
        self._seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def loss(self, module: nn.Module, portion: Batch, step: int) -> Tensor:
        images = self._inputs(portion["images"], portion["seeds"])
        made, vectors, chosen = module(images)
        self._remember(vectors.detach(), chosen, portion["seeds"])
        away = (vectors - self.module.codebook.codes[chosen]).square().sum(-1).mean(1)
        return (_error(made, images) + BETA * away).sum()

    def on_step_end(self, step: int) -> None:
        if not self._seen:
            return
        counts, sums = (torch.stack(parts).sum(0) for parts in zip(*(seen[:2] for seen in self._seen), strict=True))
        candidates = torch.cat([seen[2] for seen in self._seen])
        self._seen = []
        # Sums over the whole batch, and candidates in its order: the same result as with one process.
        self.module.codebook.follow(sum_over_processes(counts), sum_over_processes(sums), gather_rows(candidates))

    def cost(self, image_size: int) -> Cost:
        """Count encoder and decoder as trained; the comparison with all codes has no backward pass."""
        config, side = self.module.config, image_size // self.module.config.patch
        encoder, comparison = self.module.coding_macs(image_size)
        decoder = forward_macs(self.module.decoder, torch.empty(1, config.code_width, side, side, device="meta"))
        return Cost(encoder + decoder, comparison)

    def evaluate(self, module: nn.Module, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Compute ``val_loss``, the squared error of the pixels, and ``val_perplexity``, the codes in use.

        The perplexity is that of about the last hundred training batches, and is equal for all images.
        """
        made, _, _ = module(images)
        return {
            "val_loss": _error(made, images).sum(),
            "val_perplexity": self.module.codebook.perplexity * len(images),
        }

    def _remember(self, vectors: Tensor, chosen: Tensor, seeds: Tensor) -> None:
        """Keep what the codebook needs of a portion, in float64, so that the order of summation does not matter."""
        size, width = self.module.config.vocabulary, vectors.shape[-1]
        flat = vectors.reshape(-1, width).double()
        # Not bincount: the host would wait for the largest index, which determines the length of the result.
        counts = torch.zeros(size, dtype=torch.float64, device=flat.device)
        counts.index_add_(0, chosen.flatten(), torch.ones_like(flat[:, 0]))
        sums = torch.zeros(size, width, dtype=torch.float64, device=flat.device).index_add(0, chosen.flatten(), flat)
        places = random_bits(seeds, _CANDIDATES, "tokenizer/candidates") % chosen.shape[1]
        self._seen.append((counts, sums, torch.take_along_dim(vectors, places[..., None], dim=1).flatten(0, 1)))


def make(context: TaskContext, network: nn.Module) -> PretrainingTask:
    """Make the task (``usvit.upstream.pretraining.task.MakeTask``). The run saves the tokenizer; the network is not
    used."""
    return _TokenizerTask(context)


def load_tokenizer(folder: Path) -> tuple[Tokenizer, Preprocessing]:
    """Load the tokenizer of a finished run (``objective: tokenizer``), on the CPU, frozen and in evaluation mode.

    Args:
        folder: the run, or one of its folds.

    Returns:
        The tokenizer, and the preprocessing of its input.

    Raises:
        UsvitError: the run has no tokenizer, or it is damaged.
    """
    fold = only_fold(folder)
    file, where = fold / "model.safetensors", fold / "model.json"
    metadata = load_metadata(file)
    if metadata is None:
        raise UsvitError(f"{fold} has no model.json, the model metadata. Copy it beside {file.name}.")
    if metadata.architecture != "tokenizer":
        raise UsvitError(
            f"{folder} is a run of the network {metadata.architecture}, not of a tokenizer. Train one with "
            "usvit pretrain --recipe beit_tokenizer, and name its run."
        )
    if metadata.weights_sha256 not in (None, sha256_of_file(file)):
        raise UsvitError(f"The weights {file} do not match {where}. Copy both from the same fold.")
    try:
        if metadata.preprocessing is None or metadata.tokenizer is None:
            raise ValueError("it lacks the key preprocessing or tokenizer")
        preprocessing = Preprocessing.of_record(metadata.preprocessing)
        config = TokenizerConfig(**metadata.tokenizer)
    except (ValidationError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(f"The model metadata {where} is damaged: {reason}. Copy it from the fold again.") from error
    with torch.random.fork_rng(devices=[]):
        tokenizer = Tokenizer(config)
    try:
        tokenizer.load_state_dict(read_state_dict(file))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise UsvitError(f"The weights {file} do not fit {where}. Copy both from the same fold. ({reason})") from error
    return tokenizer.eval().requires_grad_(False), preprocessing


def _blocks(config: TokenizerConfig) -> list[nn.Module]:
    block: Any = ConvNeXtBlock
    return [block(config.width, ls_init_value=None) for _ in range(config.depth)]


def _error(made: Tensor, images: Tensor) -> Tensor:
    """Compute (B,) the mean squared error over pixels and channels."""
    return (made - images.float()).square().mean((1, 2, 3))
