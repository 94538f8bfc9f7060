"""The training of a text tower, or of a decoder, on stored features of a locked network."""

import math
import time
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from usvit.errors import Diverged
from usvit.progress import Progress, task
from usvit.seeding import derive_seed
from usvit.training import seed_everything
from usvit.upstream.config.text import TextConfig
from usvit.upstream.text_tuning.byte_pairs import BytePairs
from usvit.upstream.text_tuning.decoder import CaptionDecoder
from usvit.upstream.text_tuning.hub_words import hub_weights, hub_words
from usvit.upstream.text_tuning.tower import TextTower

_Module = TypeVar("_Module", TextTower, CaptionDecoder)

_BETAS = (0.9, 0.95)
_CLIP = 1.0
"""Largest norm of the gradient."""
_LAST = 0.1
"""Share of the steps whose losses are averaged into the reported one."""


@dataclass(frozen=True)
class TunedText(Generic[_Module]):
    """A trained text tower or decoder, in evaluation mode on the CPU."""

    module: _Module
    loss: float
    """Mean loss of the last tenth of the steps."""
    n_cut: int
    """Training texts that are longer than the context."""
    seconds: float


def tune_text(
    features: NDArray[np.float32], texts: list[str], config: TextConfig, seed: int, progress: Progress
) -> TunedText[TextTower]:
    """Learn the vocabulary from the texts, or take that of the hub, then train: AdamW, warm-up, a cosine to zero.

    Args:
        features: (n, D), features of the training images.
        texts: The n texts.
        config: The settings.
        seed: Seed of the run: initial weights and order of the pairs.
        progress: Shown while the tower is trained.

    Raises:
        Diverged: The loss is not finite.
    """
    words = hub_words(config.tower, config.context) if config.tower else BytePairs.learnt(texts, config.vocabulary)
    seed_everything(seed, "text", 0)
    tower = TextTower(config, words, features.shape[1])
    if config.tower:
        tower.encoder.load_state_dict(hub_weights(config.tower))
    if config.projection:
        tower.standardise_by(features)
    return _tuned(tower, features, texts, config.steps, "text tower", seed, progress)


def tune_decoder(
    features: NDArray[np.float32], texts: list[str], config: TextConfig, seed: int, progress: Progress
) -> TunedText[CaptionDecoder]:
    """Learn byte pairs, and train a decoder; as ``tune_text``."""
    words = BytePairs.learnt(texts, config.vocabulary)
    seed_everything(seed, "captions", 0)
    decoder = CaptionDecoder(config, words, features.shape[1])
    decoder.standardise_by(features)
    return _tuned(decoder, features, texts, config.decoder_steps, "captions", seed, progress)


def _tuned(
    module: _Module,
    features: NDArray[np.float32],
    texts: list[str],
    steps: int,
    what: str,
    seed: int,
    progress: Progress,
) -> TunedText[_Module]:
    started, config = time.monotonic(), module.config
    numbers, n_cut = module.words.encoded(texts, config.context)
    images, tokens = torch.from_numpy(features), torch.from_numpy(numbers)
    rng = np.random.default_rng(derive_seed(seed, "text order"))
    decayed = [one for one in module.parameters() if one.ndim > 1]
    others = [one for one in module.parameters() if one.ndim < 2]
    groups = [{"params": decayed, "weight_decay": config.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=config.lr, betas=_BETAS)
    warmup = max(1, steps // 20)
    batch, losses = min(config.batch_size, len(texts)), []
    order = np.empty(0, dtype=np.int64)
    with task(progress, what, steps, "steps") as advance:
        for step in range(steps):
            if len(order) < batch:
                order = rng.permutation(len(texts))
            rows, order = torch.from_numpy(order[:batch]), order[batch:]
            rate = min((step + 1) / warmup, 0.5 * (1 + math.cos(math.pi * step / steps)))
            for group in optimizer.param_groups:
                group["lr"] = config.lr * rate
            loss = module.loss(images[rows], tokens[rows])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(module.parameters(), _CLIP)
            optimizer.step()
            losses.append(float(loss.detach()))
            if not math.isfinite(losses[-1]):
                raise Diverged(f"The loss of the {what} is not finite at step {step + 1}. Set text.lr lower.")
            advance(step + 1)
    last = losses[-max(1, round(_LAST * len(losses))) :]
    module.eval().requires_grad_(False)
    return TunedText(module, float(np.mean(last)), n_cut, time.monotonic() - started)
