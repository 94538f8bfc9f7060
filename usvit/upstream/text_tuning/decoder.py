"""A decoder that writes the caption of an image from the features of a locked network.

Source: Beyer et al. (2023), A study of autoregressive decoders for multi-tasking in computer vision (LiT-decoder);
Alabdulmohsin et al. (2023), sections 4.2 and 5.3: the encoder is frozen, and a decoder of two layers is trained. Chosen
here: it attends to eight tokens, a linear map of the pooled features, in place of the tokens of the encoder.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from usvit.models import CAPTIONS_FILE
from usvit.upstream.config.text import TextConfig
from usvit.upstream.text_tuning.byte_pairs import END, PAD, BytePairs
from usvit.upstream.text_tuning.tower import TextModule

_LAYERS = 2
_MEMORY = 8
"""Number of tokens made of the features."""


class CaptionDecoder(TextModule):
    """A text transformer that predicts each byte pair from those before it and from the image."""

    file = CAPTIONS_FILE

    def __init__(self, config: TextConfig, words: BytePairs, n_features: int):
        super().__init__(config, words, n_features)
        self.words: BytePairs = words
        width = config.width
        self.memory = nn.Linear(n_features, _MEMORY * width)
        layer = nn.TransformerDecoderLayer(
            width, config.heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerDecoder(layer, _LAYERS, nn.LayerNorm(width))
        nn.init.normal_(self.embed.weight, std=0.02)

    def hidden(self, features: Tensor, numbers: Tensor) -> Tensor:
        """Return what predicts the next byte pair, (n, L, W).

        Args:
            features: (n, D).
            numbers: (n, L) the byte pairs before it, the first being ``END``.
        """
        memory = self.memory(self.standardised(features)).unflatten(1, (_MEMORY, -1))
        later = torch.triu(torch.ones(numbers.shape[1], numbers.shape[1], dtype=torch.bool), diagonal=1)
        hidden = self.embed(numbers) + self.positions[: numbers.shape[1]]
        found: Tensor = self.blocks(hidden, memory, tgt_mask=later, tgt_is_causal=True)
        return found

    def logits(self, hidden: Tensor) -> Tensor:
        """Return logits (..., V) of the next byte pair, by the embedding."""
        return F.linear(hidden, self.embed.weight)

    def surprise(self, features: Tensor, numbers: Tensor) -> Tensor:
        """Return the negative log-likelihood of each byte pair and of the end, (n, L) in nats; 0 for filling.

        Args:
            features: (n, D).
            numbers: (n, context), as ``BytePairs.encoded`` gives them; L is the length of the longest text.
        """
        numbers = numbers[:, : int((numbers != PAD).sum(1).max())]
        before = torch.cat([torch.full_like(numbers[:, :1], END), numbers[:, :-1]], dim=1)
        read = numbers != PAD
        each = F.cross_entropy(self.logits(self.hidden(features, before)[read]), numbers[read], reduction="none")
        return torch.zeros(numbers.shape).masked_scatter(read, each)

    def loss(self, features: Tensor, numbers: Tensor) -> Tensor:
        """Return the mean negative log-likelihood of a byte pair, () in nats."""
        return self.surprise(features, numbers).sum() / (numbers != PAD).sum()

    @torch.inference_mode()
    def log_perplexities(
        self, features: NDArray[np.float32], texts: Sequence[str], batch: int = 256
    ) -> NDArray[np.float64]:
        """Return the mean negative log-likelihood of the byte pairs of each text, (n,) in nats, given its image."""
        numbers = torch.from_numpy(self.words.encoded(texts, self.config.context)[0])
        parts = zip(torch.from_numpy(features).split(batch), numbers.split(batch), strict=True)
        each = [self.surprise(of, text).sum(1) / (text != PAD).sum(1) for of, text in parts]
        return torch.cat(each).double().numpy()

    @torch.inference_mode()
    def captions(self, features: NDArray[np.float32], batch: int = 256) -> list[str]:
        """Return the caption of each image: always the likeliest byte pair, until the end or the context."""
        found = []
        for part in torch.from_numpy(features).split(batch):
            numbers = torch.full((len(part), 1), END)
            for _ in range(self.config.context):
                logits = self.logits(self.hidden(part, numbers)[:, -1])
                logits[:, PAD] = -torch.inf
                numbers = torch.cat([numbers, logits.argmax(1, keepdim=True)], dim=1)
                if bool((numbers[:, 1:] == END).any(1).all()):
                    break
            found += [self.words.text(row) for row in numbers[:, 1:].tolist()]
        return found
