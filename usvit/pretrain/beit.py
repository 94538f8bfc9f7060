"""BEiT: from the patches around them, the visual words of the masked ones.

    x_i = mask embedding where i is masked, else stem(patch i)
    h   = blocks(x + E_pos)
    L   = - mean over masked patches of log softmax(W h_i)[z_i],   z: the tokenizer's code of the whole image's patch i

Source: Bao et al. (2022), BEiT: BERT pre-training of image transformers, section 2, eq. 1-2, Algorithm 1. The tokenizer
is ours (``usvit.pretrain.tokenizer``), not DALL-E's, and reads the view that the network reads, at the same size; the
authors' reads it at half the size, since its words stand for 8 pixels. Positions, LayerScale and the pooling are the
network's own.
"""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from usvit.data.preprocessing import Preprocessing
from usvit.data.seen import passport_beside
from usvit.data.stream import Batch
from usvit.errors import UsvitError
from usvit.files import sha256_of_file
from usvit.models.count import Cost, blank, forward_macs
from usvit.models.weights.runs import only_fold
from usvit.pretrain.around import Around, OverImages
from usvit.pretrain.block_masks import block_masks
from usvit.pretrain.noise import new_weights
from usvit.pretrain.origin import Origin
from usvit.pretrain.patches import Tokens
from usvit.pretrain.plan import Inputs, Plan, UpstreamObjective
from usvit.pretrain.tokenizer import Tokenizer, load_tokenizer
from usvit.train.objective import ON_HOST

_DRAWN = 256
"""Masks that are drawn to know how many patches are masked on average."""


class BeitNetwork(Around):
    """The network, the mask embedding, and the classifier of words.

    Args:
        network, tokens: of ``Around``.
        vocabulary: words K.
    """

    def __init__(self, network: nn.Module, tokens: Tokens, vocabulary: int):
        super().__init__(network, tokens)
        self.mask_token = nn.Parameter(torch.zeros(1, 1, tokens.width))
        self.words = nn.Linear(tokens.width, vocabulary)
        nn.init.trunc_normal_(self.mask_token, std=0.02)
        nn.init.trunc_normal_(self.words.weight, std=0.02)
        nn.init.zeros_(self.words.bias)

    def forward(self, images: Tensor, mask: Tensor, places: Tensor) -> Tensor:
        """Logits of the masked patches.

        Args:
            images: (B, 3, S, S), normalised.
            mask: (B, N) bool, True where masked.
            places: (M,) int64, where ``mask.flatten()`` is True: given, so that a device need not be asked.

        Returns:
            (M, K), images one after the other.
        """
        patches = self.tokens.embed(self.network, images)
        patches = torch.where(mask[..., None], self.mask_token.to(patches.dtype), patches)
        _, patches = self.tokens.encode(self.network, patches)
        logits: Tensor = self.words(patches.flatten(0, 1)[places])
        return logits


class Beit(OverImages):
    """The objective: cross-entropy of masked words, mean over all masked patches of a batch.

    Args:
        plan: what is known.
        network: a plain ViT of the zoo.
        tokenizer: whose words are predicted, and how its input is normalised.
        learnt_from: what is known of it.

    Raises:
        UsvitError: the recipe does not fit the network, or the tokenizer does not.
    """

    def __init__(
        self,
        plan: Plan,
        network: nn.Module,
        tokenizer: tuple[Tokenizer, Preprocessing],
        learnt_from: tuple[Origin, ...] = (),
    ):
        config = plan.config.beit
        tokens = Tokens.of(network, "beit")
        self._tokenizer, own = tokenizer
        self.learnt_from = learnt_from
        _check(tokens, self._tokenizer, plan)
        self._tokens, self._inputs, self._config = tokens, plan.inputs, config
        self._renormalised = _Renormalised(plan.inputs, own)
        with new_weights(plan.config.seed, "beit", "head"):
            self.module = BeitNetwork(network, tokens, self._tokenizer.config.vocabulary)

    def weight(self, batch: Batch, step: int) -> Tensor:
        """() the number of masked patches."""
        return self._masks(batch["seeds"]).sum().float()

    def loss(self, module: nn.Module, portion: Batch, step: int) -> Tensor:
        images = self._inputs(portion["images"], portion["seeds"])
        logits, words, _ = self._predict(module, images, portion.get(ON_HOST, portion["seeds"]))
        return F.cross_entropy(logits, words, reduction="sum")

    def cost(self, image_size: int) -> Cost:
        """The trunk on all patches, the classifier on as many as are masked on average; the tokenizer is asked."""
        mask = self._masks(torch.arange(_DRAWN))
        places = torch.empty(round(float(mask.sum()) / _DRAWN), dtype=torch.int64, device="meta")
        trained = forward_macs(self.module, blank(image_size), mask[:1], places)
        return Cost(trained, sum(self._tokenizer.coding_macs(image_size)))

    def evaluate(self, module: nn.Module, images: Tensor, targets: Tensor) -> dict[str, Tensor]:
        """Means over each image's masked patches, summed over images; ``val_accuracy``: of the words."""
        logits, words, mask = self._predict(module, images, torch.arange(len(images)))  # always the same masks
        image = mask.nonzero()[:, 0].to(images.device)
        share = 1 / mask.sum(1).to(images.device)[image]
        losses = F.cross_entropy(logits, words, reduction="none")
        hits = (logits.argmax(1) == words).float()
        return {"val_loss": (losses * share).sum(), "val_accuracy": (hits * share).sum()}

    def _predict(self, module: nn.Module, images: Tensor, seeds: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(M, K) logits and (M,) words of the masked patches, and the (B, N) masks, these on the host."""
        mask = self._masks(seeds)
        places = mask.flatten().nonzero()[:, 0].to(images.device, non_blocking=True)
        logits = module(images, mask.to(images.device, non_blocking=True), places).float()
        return logits, self._words(images).flatten()[places], mask

    def _masks(self, seeds: Tensor) -> Tensor:
        return block_masks(seeds.cpu(), self._tokens.grid, self._config.mask, self._config.min_block)

    @torch.no_grad()
    def _words(self, images: Tensor) -> Tensor:
        """(B, N) int64: of the whole view, without a mask."""
        self._tokenizer.to(images.device)
        return self._tokenizer.codes(self._renormalised(images))


def make(plan: Plan, network: nn.Module) -> UpstreamObjective:
    """``usvit.pretrain.plan.MakeObjective``.

    Raises:
        UsvitError: also where ``beit.tokenizer`` is no run of a tokenizer.
    """
    where = plan.config.beit.tokenizer
    if not where:
        raise UsvitError(
            "objective beit predicts the words of a tokenizer, and beit.tokenizer names none. Train one with "
            "usvit pretrain --recipe beit_tokenizer, and name its run: --set beit.tokenizer=RUN."
        )
    if not Path(where).is_dir():
        raise UsvitError(f"beit.tokenizer: there is no run {where}. Name the folder of a run of a tokenizer.")
    tokenizer = load_tokenizer(Path(where))
    file = only_fold(Path(where)) / "model.safetensors"
    sha256, own = sha256_of_file(file), passport_beside(file)
    return Beit(plan, network, tokenizer, (Origin("tokenizer", "tokenizer", sha256, passport=own, path=file),))


class _Renormalised:
    """From the network's input to the tokenizer's: other means and deviations of the channels."""

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


def _check(tokens: Tokens, tokenizer: Tokenizer, plan: Plan) -> None:
    config, patch = plan.config.beit, tokenizer.config.patch
    if patch != tokens.patch:
        raise UsvitError(
            f"The tokenizer {config.tokenizer} makes words of {patch} pixels, and the patches of {plan.spec.name} have "
            f"{tokens.patch}. Train a tokenizer with tokenizer.patch={tokens.patch}, or choose a model with patches of "
            f"{patch}."
        )
    if config.min_block > config.mask * tokens.count:
        raise UsvitError(
            f"beit.min_block {config.min_block} is more than beit.mask {config.mask:g} of the {tokens.count} patches: "
            "set a smaller beit.min_block, or a larger model.image_size."
        )
