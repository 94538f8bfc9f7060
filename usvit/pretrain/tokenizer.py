"""A discrete auto-encoder: every patch a word of a vocabulary, from which its pixels are made again.

    z   = l2(encoder(x)),              one vector for each patch, of few dimensions
    k   = argmax_k cos(z, e_k),        its code: what BEiT predicts
    L   = mean over pixels (x - decoder(e_k))^2 + beta * mean over patches |z - sg(e_k)|^2
    e_k follows the running mean of the z that chose it; gradients pass from e_k to z as they are

Source: van den Oord et al. (2017), Neural discrete representation learning, eq. 3 and appendix A.1; codes of length
one in few dimensions as in Yu et al. (2022), ViT-VQGAN, section 3.2, and Peng et al. (2022), BEiT v2, section 2.2. BEiT
itself took DALL-E's, a discrete VAE by Gumbel softmax that 250 million images trained.
"""

from pathlib import Path
from typing import Any

import torch
from pydantic import ValidationError
from timm.layers import LayerNorm2d
from timm.models.convnext import ConvNeXtBlock
from torch import Tensor, nn
from torch.nn.functional import normalize

from usvit.config.pretrain import TokenizerConfig
from usvit.data.preprocessing import Preprocessing
from usvit.data.seen import passport_beside
from usvit.data.stream import Batch
from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.models.count import Cost, blank, forward_macs
from usvit.models.weights import read_state_dict
from usvit.models.weights.runs import only_fold
from usvit.pretrain.codebook import Codebook
from usvit.pretrain.gather import sum_over_processes, whole_batch
from usvit.pretrain.noise import new_weights, random_bits
from usvit.pretrain.patches import unpatchify
from usvit.pretrain.plan import Plan, UpstreamObjective

BETA = 0.25
"""Weight of the commitment loss (van den Oord et al. 2017, section 3.2)."""
_CANDIDATES = 8  # patches of an image that may give a dead code its new place


class Tokenizer(nn.Module):
    """Encoder, vocabulary, decoder. Convolutions alone, so images of any size that is a multiple of the patch.

    Args:
        config: the sizes of all.
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
        """(B, 3, H, W) normalised -> (B, h, w, C) vectors of length one, float32."""
        return normalize(self.encoder(images).permute(0, 2, 3, 1).float(), dim=-1)

    def codes(self, images: Tensor) -> Tensor:
        """(B, 3, H, W) normalised -> (B, N) int64 in [0, vocabulary), patches in raster order."""
        return self.codebook.nearest(self.encode(images)).flatten(1)

    def coding_macs(self, image_size: int) -> tuple[int, int]:
        """Multiply-accumulate operations that ``codes`` takes for one image: of the encoder, and of the comparison."""
        encoder = forward_macs(self.encoder, blank(image_size))
        return encoder, (image_size // self.config.patch) ** 2 * self.config.vocabulary * self.config.code_width

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Through the vocabulary and back.

        Args:
            images: (B, 3, H, W), normalised.

        Returns:
            (B, 3, H, W) float32, made again; (B, N, C) vectors; (B, N) int64 their codes.
        """
        vectors = self.encode(images)
        words, chosen = self.codebook(vectors)
        pixels = self.decoder(words.permute(0, 3, 1, 2)).float()
        made = unpatchify(pixels.flatten(2).transpose(1, 2), self.config.patch, (pixels.shape[2], pixels.shape[3]))
        return made, vectors.flatten(1, 2), chosen.flatten(1)


class TokenizerObjective:
    """Reconstruction and commitment; the vocabulary follows once a step, whatever portions the batch came in.

    Args:
        plan: what is known. Its network is not used: what the run keeps is the tokenizer.

    Raises:
        UsvitError: images that are no multiple of the patch.
    """

    def __init__(self, plan: Plan):
        config, size = plan.config.tokenizer, plan.config.model.image_size
        if size % config.patch:
            raise UsvitError(
                f"model.image_size {size} is no multiple of tokenizer.patch {config.patch}: set another of them."
            )
        self._inputs = plan.inputs
        with new_weights(plan.config.seed, "tokenizer"):
            self.module = Tokenizer(config)
        self._seen: list[tuple[Tensor, Tensor, Tensor]] = []

    def weight(self, batch: Batch, step: int) -> Tensor:
        return torch.tensor(float(len(batch["images"])))

    def loss(self, module: nn.Module, portion: Batch, step: int) -> Tensor:
        images = self._inputs(portion["images"], portion["seeds"])
        made, vectors, chosen = module(images)
        self._remember(vectors.detach(), chosen, portion["seeds"])
        away = (vectors - self.module.codebook.codes[chosen]).square().sum(-1).mean(1)
        return (_error(made, images) + BETA * away).sum()

    def updated(self, step: int) -> None:
        if not self._seen:
            return
        counts, sums = (torch.stack(parts).sum(0) for parts in zip(*(seen[:2] for seen in self._seen), strict=True))
        candidates = torch.cat([seen[2] for seen in self._seen])
        self._seen = []
        # As one process alone: the sums are of the whole batch, and candidates in its order.
        self.module.codebook.follow(sum_over_processes(counts), sum_over_processes(sums), whole_batch(candidates))

    def network(self, module: nn.Module) -> nn.Module:
        return module

    def cost(self, image_size: int) -> Cost:
        """Encoder and decoder learn; the comparison with all codes has no backward pass."""
        config, side = self.module.config, image_size // self.module.config.patch
        encoder, comparison = self.module.coding_macs(image_size)
        decoder = forward_macs(self.module.decoder, torch.empty(1, config.code_width, side, side, device="meta"))
        return Cost(encoder + decoder, comparison)

    def evaluate(self, module: nn.Module, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """``val_loss``: squared error of the pixels; ``val_perplexity``: codes in use, of the last hundred training
        batches: so it is the same for each image."""
        made, _, _ = module(images)
        return {
            "val_loss": _error(made, images).sum(),
            "val_perplexity": self.module.codebook.perplexity * len(images),
        }

    def _remember(self, vectors: Tensor, chosen: Tensor, seeds: Tensor) -> None:
        """Keep of a portion what the vocabulary follows; float64, so that the order of summing does not show."""
        size, width = self.module.config.vocabulary, vectors.shape[-1]
        flat = vectors.reshape(-1, width).double()
        # Not bincount, which makes the host wait for the largest number, to know how long its answer is.
        counts = torch.zeros(size, dtype=torch.float64, device=flat.device)
        counts.index_add_(0, chosen.flatten(), torch.ones_like(flat[:, 0]))
        sums = torch.zeros(size, width, dtype=torch.float64, device=flat.device).index_add(0, chosen.flatten(), flat)
        places = random_bits(seeds, _CANDIDATES, "tokenizer/candidates") % chosen.shape[1]
        self._seen.append((counts, sums, torch.take_along_dim(vectors, places[..., None], dim=1).flatten(0, 1)))


def make(plan: Plan, network: nn.Module) -> UpstreamObjective:
    """``usvit.pretrain.plan.MakeObjective``; the network is not used."""
    return TokenizerObjective(plan)


def load_tokenizer(folder: Path) -> tuple[Tokenizer, Preprocessing]:
    """The tokenizer of a finished run (``objective: tokenizer``), on the CPU, in evaluation mode, frozen.

    Args:
        folder: the run, or one of its folds.

    Returns:
        The tokenizer, and how its input is normalised.

    Raises:
        UsvitError: there is none, or it is damaged.
    """
    fold = only_fold(folder)
    file, where = fold / "model.safetensors", fold / "model.json"
    passport = passport_beside(file)
    if passport is None:
        raise UsvitError(f"{fold} has no model.json, the passport of its network. Copy it beside {file.name}.")
    if passport.get("architecture") != "tokenizer":
        raise UsvitError(
            f"{folder} is a run of the network {passport.get('architecture')}, not of a tokenizer. Train one with "
            "usvit pretrain --recipe beit_tokenizer, and name its run."
        )
    if passport.get("weights_sha256") not in (None, sha256_of_file(file)):
        raise UsvitError(f"The weights {file} are not those that {where} describes. Copy both from the same fold.")
    try:
        stated = passport["preprocessing"]
        mean, std = (tuple(float(value) for value in stated[key]) for key in ("mean", "std"))
        if len(mean) != 3 or len(std) != 3 or not min(std) > 0:
            raise ValueError(f"the preprocessing is {stated}")
        size, resize = int(stated["image_size"]), str(stated["resize"])
        preprocessing = Preprocessing(size, resize, (mean[0], mean[1], mean[2]), (std[0], std[1], std[2]))
        config = TokenizerConfig(**passport["tokenizer"])
    except (ValidationError, ValueError, TypeError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(f"The passport {where} is damaged: {reason}. Copy the fold's own again.") from error
    with torch.random.fork_rng(devices=[]):
        tokenizer = Tokenizer(config)
    try:
        tokenizer.load_state_dict(read_state_dict(file))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise UsvitError(f"The weights {file} are not of the tokenizer that {where} describes. ({reason})") from error
    return tokenizer.eval().requires_grad_(False), preprocessing


def _blocks(config: TokenizerConfig) -> list[nn.Module]:
    block: Any = ConvNeXtBlock
    return [block(config.width, ls_init_value=None) for _ in range(config.depth)]


def _error(made: Tensor, images: Tensor) -> Tensor:
    """(B,) mean squared error over pixels and channels."""
    return (made - images.float()).square().mean((1, 2, 3))
