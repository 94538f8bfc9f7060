"""BEiT: predict the visual words of masked patches from the patches around them.

    x_i = mask embedding where i is masked, else stem(patch i)
    h   = blocks(x + E_pos)
    L   = - mean over masked patches of log softmax(W h_i)[z_i],   z: the tokenizer's code of the whole image's patch i

Source: Bao et al. (2022), BEiT: BERT pre-training of image transformers, section 2, eq. 1-2, Algorithm 1. The tokenizer
is usvit's (``usvit.upstream.pretraining.tokenizer``), not DALL-E's. It reads the same view as the network, at the same
size; the authors' tokenizer reads it at half the size, since its words stand for 8 pixels. Positions, LayerScale and
pooling are the network's. Patches are masked after the stem, and stems that mix neighbouring patches are allowed, as in
Three things (Table 7).
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from usvit.data.loading import Batch
from usvit.data.splits import load_metadata
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.models import Cost, UpstreamModel, blank, forward_macs, only_fold
from usvit.training import ON_HOST
from usvit.upstream.pretraining.block_masks import block_masks
from usvit.upstream.pretraining.counter_rng import new_weights
from usvit.upstream.pretraining.patches import MaskedPredictionNetwork, MaskedPredictionTask, Tokens
from usvit.upstream.pretraining.task import Inputs, PretrainingTask, TaskContext
from usvit.upstream.pretraining.tokenizer import Tokenizer, load_tokenizer

_DRAWN = 256
"""Number of masks that are drawn to estimate how many patches are masked on average."""


class _BeitNetwork(MaskedPredictionNetwork):
    """The network, the mask embedding, and the classifier of words.

    Args:
        network, tokens: see ``MaskedPredictionNetwork``.
        vocabulary: number of words K.
    """

    def __init__(self, network: nn.Module, tokens: Tokens, vocabulary: int):
        super().__init__(network, tokens)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, tokens.width))
        self.words = nn.Linear(tokens.width, vocabulary)
        nn.init.trunc_normal_(self.mask_token, std=0.02)
        nn.init.trunc_normal_(self.words.weight, std=0.02)
        nn.init.zeros_(self.words.bias)

    def forward(self, images: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        """Compute the logits of the masked patches.

        Args:
            images: (B, 3, S, S) float, normalized.
            mask: (B, N) bool, True where masked.
            places: (M,) int64, indices where ``mask.flatten()`` is True; an argument, so that the host does not
                wait for the device.

        Returns:
            (M, K), image by image.
        """
        patches = self.tokens.embed(self.network, images)
        patches = torch.where(mask[..., None], self.mask_token.to(patches.dtype), patches)
        _, patches = self.tokens.encode(self.network, patches)
        logits: Tensor = self.words(patches.flatten(0, 1)[places])
        return logits


class Beit(MaskedPredictionTask):
    """Cross-entropy of the words of masked patches, mean over all masked patches of a batch.

    Args:
        context: configuration, data and device of the training.
        network: a plain ViT of the zoo.
        tokenizer: the tokenizer whose words are predicted, and the normalization of its input.
        upstream_models: the record of the tokenizer.

    Raises:
        UsvitError: the recipe or the tokenizer does not fit the network.
    """

    module: _BeitNetwork

    def __init__(
        self,
        context: TaskContext,
        network: nn.Module,
        tokenizer: tuple[Tokenizer, Preprocessing],
        upstream_models: tuple[UpstreamModel, ...] = (),
    ):
        config = context.config.beit
        tokens = Tokens.of(network, "beit", mixing=True)
        self._tokenizer, own = tokenizer
        self.upstream_models = upstream_models
        _check(tokens, self._tokenizer, context)
        self._tokens, self._inputs, self._config = tokens, context.inputs, config
        self._renormalised = _Renormalised(context.inputs, own)
        with new_weights(context.config.seed, "beit", "head"):
            self.module = _BeitNetwork(network, tokens, self._tokenizer.config.vocabulary)

    def normalizer(self, batch: Batch, step: int) -> Tensor:
        """Return () the number of masked patches."""
        return self._masks(batch["seeds"]).sum().float()

    def loss(self, module: nn.Module, portion: Batch, step: int) -> Tensor:
        images = self._inputs(portion["images"], portion["seeds"])
        logits, words, _ = self._predict(module, images, portion.get(ON_HOST, portion["seeds"]))
        return F.cross_entropy(logits, words, reduction="sum")

    def cost(self, image_size: int) -> Cost:
        """Count the trunk on all patches, the classifier on the average number of masked ones, and the tokenizer."""
        mask = self._masks(torch.arange(_DRAWN))
        places = torch.empty(round(float(mask.sum()) / _DRAWN), dtype=torch.int64, device="meta")
        trained = forward_macs(self.module, blank(image_size), mask[:1], places)
        return Cost(trained, sum(self._tokenizer.coding_macs(image_size)))

    def evaluate(self, module: nn.Module, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Compute means over each image's masked patches, summed over images; ``val_accuracy`` is of the words."""
        logits, words, mask = self._predict(module, images, torch.arange(len(images)))  # constant masks
        image = mask.nonzero()[:, 0].to(images.device)
        share = 1 / mask.sum(1).to(images.device)[image]
        losses = F.cross_entropy(logits, words, reduction="none")
        hits = (logits.argmax(1) == words).float()
        return {"val_loss": (losses * share).sum(), "val_accuracy": (hits * share).sum()}

    def _predict(self, module: nn.Module, images: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return (M, K) logits and (M,) words of the masked patches, and the (B, N) masks on the host."""
        mask = self._masks(seeds)
        places = mask.flatten().nonzero()[:, 0].to(images.device, non_blocking=True)
        logits = module(images, mask.to(images.device, non_blocking=True), places).float()
        return logits, self._words(images).flatten()[places], mask

    def _masks(self, seeds: Tensor) -> Tensor:
        return block_masks(seeds.cpu(), self._tokens.grid, self._config.mask, self._config.min_block)

    @torch.no_grad()
    def _words(self, images: Tensor) -> Tensor:
        """Return (B, N) int64, the words of the whole, unmasked view."""
        self._tokenizer.to(images.device)
        return self._tokenizer.codes(self._renormalised(images))


def make(context: TaskContext, network: nn.Module) -> PretrainingTask:
    """Make the task (``usvit.upstream.pretraining.task.MakeTask``).

    Raises:
        UsvitError: ``beit.tokenizer`` is not a run of a tokenizer, or the recipe does not fit the network.
    """
    where = context.config.beit.tokenizer
    if not where:
        raise UsvitError(
            "objective beit predicts the words of a tokenizer, but beit.tokenizer is not set. Train a tokenizer with "
            "usvit pretrain --recipe beit_tokenizer, and name its run: --set beit.tokenizer=RUN."
        )
    if not Path(where).is_dir():
        raise UsvitError(f"beit.tokenizer: the run {where} does not exist. Name the folder of a run of a tokenizer.")
    tokenizer = load_tokenizer(Path(where))
    file = only_fold(Path(where)) / "model.safetensors"
    sha256, own = sha256_of_file(file), load_metadata(file)
    return Beit(
        context, network, tokenizer, (UpstreamModel("tokenizer", "tokenizer", sha256, metadata=own, path=file),)
    )


class _Renormalised:
    """Converts the network's input to the tokenizer's, which has other channel means and deviations."""

    def __init__(self, given: Inputs, wanted: Preprocessing):
        scale = [a / b for a, b in zip(given.std, wanted.std, strict=True)]
        shift = [(a - b) / c for a, b, c in zip(given.mean, wanted.mean, wanted.std, strict=True)]
        self._scale, self._shift = torch.tensor(scale).view(1, 3, 1, 1), torch.tensor(shift).view(1, 3, 1, 1)
        self._same = tuple(given.mean) == tuple(wanted.mean) and tuple(given.std) == tuple(wanted.std)

    def __call__(self, images: Tensor) -> Tensor:
        if self._same:
            return images
        self._scale, self._shift = self._scale.to(images.device), self._shift.to(images.device)
        return images.float() * self._scale + self._shift


def _check(tokens: Tokens, tokenizer: Tokenizer, context: TaskContext) -> None:
    config, patch = context.config.beit, tokenizer.config.patch
    if patch != tokens.patch:
        raise UsvitError(
            f"The tokenizer {config.tokenizer} has patches of {patch} pixels, but those of {context.spec.name} have "
            f"{tokens.patch}. Train a tokenizer with tokenizer.patch={tokens.patch}, or choose a model with patches of "
            f"{patch}."
        )
    if config.min_block > config.mask * tokens.count:
        raise UsvitError(
            f"beit.min_block {config.min_block} is more than beit.mask {config.mask:g} of the {tokens.count} patches: "
            "set a smaller beit.min_block, or a larger model.image_size."
        )
