"""Encoder-decoders: ResMLP with linear layers over the tokens, and the Transformer.

Source: Touvron (2022), thesis, section 4.2, "Sequence-to-sequence ResMLP": the self-attention of encoder and decoder is
replaced by the residual layer with a matrix A over the tokens, triangular in the decoder, whose cross-attention stays;
shorter sequences are padded with zeros and read the submatrix of A of the longest one. Vaswani et al. (2017) for the
Transformer; its layers normalise first, which trains without their schedule.
"""

import math
from typing import Any

import torch
from timm.models.mlp_mixer import Affine
from torch import Tensor, nn

from usvit.upstream.config.translation import TranslatorName
from usvit.upstream.text_tuning.byte_pairs import END, PAD

_LAYER_SCALE = 0.2
"""Initial value (thesis, section 4.3.5)."""


class TokenMixing(nn.Module):
    """A linear map over the tokens: output i is the sum of A[i, j] x[j], and a bias.

    Args:
        context: Largest number of tokens L; A is (L, L).
        causal: Whether A is lower triangular, so that a token reads itself and earlier ones alone.
    """

    def __init__(self, context: int, causal: bool):
        super().__init__()
        whole = nn.Linear(context, context)
        self.weight, self.bias, self.causal = whole.weight, whole.bias, causal

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, n, D), zero where there is no token, by the submatrix of the first n tokens."""
        n = x.shape[1]
        matrix = self.weight[:n, :n]
        mixed: Tensor = (matrix.tril() if self.causal else matrix) @ x + self.bias[:n, None]
        return mixed


class CrossAttention(nn.MultiheadAttention):
    """Attention from target tokens to those of the encoder."""

    def read(self, x: Tensor, memory: Tensor, memory_padding: Tensor) -> Tensor:
        """Return (B, n, D) from x (B, n, D), memory (B, m, D) and where memory has no token, (B, m) bool."""
        found: Tensor = self(x, memory, memory, key_padding_mask=memory_padding, need_weights=False)[0]
        return found


class ResMLPSequenceLayer(nn.Module):
    """Layer of ResMLP on sequences; one of the decoder is causal and reads the encoder between its two sublayers."""

    def __init__(self, width: int, hidden: int, heads: int, context: int, dropout: float, decoder: bool):
        super().__init__()
        self.mixing = TokenMixing(context, causal=decoder)
        self.cross = CrossAttention(width, heads, dropout, batch_first=True) if decoder else None
        self.mlp = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
        names = ("mixing", "cross", "mlp") if decoder else ("mixing", "mlp")
        self.norms = nn.ModuleDict({name: Affine(width) for name in names})
        self.scales = nn.ParameterDict({name: nn.Parameter(torch.full((width,), _LAYER_SCALE)) for name in names})
        self.dropout = nn.Dropout(dropout)

    def forward(
        self, x: Tensor, padding: Tensor, memory: Tensor | None = None, outside: Tensor | None = None
    ) -> Tensor:
        """Map (B, n, D); ``padding`` (B, n) and ``outside`` (B, m) are True where x and memory have no token."""
        read = self.norms["mixing"](x).masked_fill(padding[:, :, None], 0)
        x = x + self.dropout(self.scales["mixing"] * self.mixing(read))
        if self.cross is not None and memory is not None and outside is not None:
            x = x + self.dropout(self.scales["cross"] * self.cross.read(self.norms["cross"](x), memory, outside))
        return x + self.dropout(self.scales["mlp"] * self.mlp(self.norms["mlp"](x)))


class Translator(nn.Module):
    """An encoder-decoder with one vocabulary for both languages, whose embedding is also the last layer.

    Args:
        kind: ``resmlp`` or ``transformer``.
        depth: Layers of the encoder, and of the decoder.
        vocabulary: Size of the vocabulary.
        context: Largest number of tokens of a text with its end.
        width, hidden, heads: D, the hidden width of the MLPs, and the heads of the attention.
        dropout: Dropout of sublayers and embeddings.
    """

    def __init__(
        self,
        kind: TranslatorName,
        *,
        depth: int,
        vocabulary: int,
        context: int,
        width: int,
        hidden: int,
        heads: int,
        dropout: float,
    ):
        super().__init__()
        self.kind, self.width, self.context = kind, width, context
        self.embedding = nn.Embedding(vocabulary, width, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.dropout = nn.Dropout(dropout)
        if kind == "resmlp":
            shape = (width, hidden, heads, context, dropout)
            self.encoder = nn.ModuleList(ResMLPSequenceLayer(*shape, decoder=False) for _ in range(depth))
            self.decoder = nn.ModuleList(ResMLPSequenceLayer(*shape, decoder=True) for _ in range(depth))
            self.last = nn.ModuleList(Affine(width) for _ in range(2))
        else:
            self.positions = nn.Parameter(torch.randn(context, width) * width**-0.5)
            options: dict[str, Any] = {
                "dropout": dropout,
                "activation": "gelu",
                "batch_first": True,
                "norm_first": True,
            }
            self.encoder = nn.ModuleList(
                nn.TransformerEncoderLayer(width, heads, hidden, **options) for _ in range(depth)
            )
            self.decoder = nn.ModuleList(
                nn.TransformerDecoderLayer(width, heads, hidden, **options) for _ in range(depth)
            )
            self.last = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def encoded(self, source: Tensor) -> Tensor:
        """Return the encoder's output (B, m, D) for the tokens (B, m) of the source."""
        x, padding = self._embedded(source), source == PAD
        for layer in self.encoder:
            x = layer(x, padding) if self.kind == "resmlp" else layer(x, src_key_padding_mask=padding)
        found: Tensor = self.last[0](x)
        return found

    def decoded(self, target: Tensor, memory: Tensor, source: Tensor) -> Tensor:
        """Return the logits (B, n, V) of the token after each of ``target`` (B, n), of which END is the first."""
        x, padding, outside = self._embedded(target), target == PAD, source == PAD
        future = torch.ones(target.shape[1], target.shape[1], dtype=torch.bool, device=target.device).triu(1)
        for layer in self.decoder:
            if self.kind == "resmlp":
                x = layer(x, padding, memory, outside)
            else:
                x = layer(x, memory, tgt_mask=future, memory_key_padding_mask=outside)
        logits: Tensor = self.last[1](x) @ self.embedding.weight.T
        return logits

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Return the logits (B, n, V) of ``target`` (B, n), which the decoder reads shifted by one."""
        begun = torch.cat([torch.full_like(target[:, :1], END), target[:, :-1]], dim=1)
        return self.decoded(begun, self.encoded(source), source)

    def _embedded(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens) * math.sqrt(self.width)
        x = x if self.kind == "resmlp" else x + self.positions[: tokens.shape[1]] * math.sqrt(self.width)
        dropped: Tensor = self.dropout(x)
        return dropped

    @torch.inference_mode()
    def translated(self, source: Tensor, beam: int) -> list[list[int]]:
        """Search the most likely targets by a beam, in which log-probabilities are divided by the length.

        Args:
            source: (B, m) tokens.
            beam: Number of candidates K that are kept.

        Returns:
            For each source the tokens of its translation, without the end.
        """
        n, v = len(source), self.embedding.num_embeddings
        memory = self.encoded(source).repeat_interleave(beam, 0)
        sources = source.repeat_interleave(beam, 0)
        tokens = torch.full((n * beam, 1), END, device=source.device)
        total = torch.full((n, beam), -torch.inf, device=source.device)
        total[:, 0] = 0.0
        length, ended = torch.zeros_like(total), torch.zeros_like(total, dtype=torch.bool)
        first = torch.arange(n, device=source.device)[:, None] * beam
        for _ in range(self.context):
            chances = self.decoded(tokens, memory, sources)[:, -1].log_softmax(1).view(n, beam, v)
            only_filling = torch.full_like(chances[0, 0], -torch.inf)
            only_filling[PAD] = 0.0
            chances[:, :, PAD] = -torch.inf
            chances = torch.where(ended[:, :, None], only_filling, chances)
            reached = total[:, :, None] + chances
            lengths = (length + ~ended)[:, :, None]
            best = (reached / lengths).flatten(1).topk(beam, dim=1).indices
            parent, token = best // v, best % v
            total = reached.flatten(1).gather(1, best)
            length = lengths[:, :, 0].gather(1, parent)
            ended = ended.gather(1, parent) | (token == END)
            tokens = torch.cat([tokens[(first + parent).flatten()], token.flatten()[:, None]], dim=1)
            if ended.all():
                break
        chosen = tokens.view(n, beam, -1)[:, 0, 1:]  # topk sorts
        return [[one for one in row if one not in (PAD, END)] for row in chosen.tolist()]
