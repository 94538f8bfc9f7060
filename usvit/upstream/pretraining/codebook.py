"""The codebook of the tokenizer: a vocabulary of vectors, updated by moving averages."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

DECAY = 0.99
"""gamma of the moving averages (van den Oord et al. 2017, appendix A.1)."""
DEAD = 0.05
"""A code whose usage falls below this share of the mean usage is dead, and is replaced."""
_CHUNK = 16_384  # tokens compared with all codes at a time


class Codebook(nn.Module):
    """K unit vectors, with nearest-neighbour search.

    Vectors are compared by direction in few dimensions, so that all codes stay in use (Yu et al. 2022, ViT-VQGAN,
    section 3.2; Peng et al. 2022, BEiT v2). Codes are not parameters: each follows the mean of the vectors that chose
    it.

    Args:
        vocabulary: number of codes K.
        width: dimensions C of a code.
    """

    codes: Tensor
    usage: Tensor
    sums: Tensor

    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        self.register_buffer("codes", normalize(torch.randn(vocabulary, width), dim=1))
        self.register_buffer("usage", torch.zeros(vocabulary))  # N of the paper: moving average of its tokens per batch
        self.register_buffer("sums", torch.zeros(vocabulary, width))  # m: moving average of their sum

    def nearest(self, vectors: Tensor) -> Tensor:
        """Map (..., C) unit vectors to (...,) int64, the code with the largest cosine; the first one if several tie."""
        flat = vectors.detach().reshape(-1, vectors.shape[-1]).float()
        with torch.autocast(flat.device.type, enabled=False):  # bfloat16 has too few digits to tell codes apart
            found = [(part @ self.codes.T).argmax(1) for part in flat.split(_CHUNK)]
        return torch.cat(found).reshape(vectors.shape[:-1])

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Quantize vectors; gradients pass through unchanged (straight-through).

        Args:
            vectors: (..., C) unit vectors.

        Returns:
            (..., C) the nearest codes, whose gradient passes to ``vectors``; and (...,) int64, their indices.

        Source: van den Oord et al. (2017), section 3.2.
        """
        chosen = self.nearest(vectors)
        codes = self.codes[chosen]
        return vectors + (codes - vectors).detach(), chosen

    @torch.no_grad()
    def follow(self, counts: Tensor, sums: Tensor, candidates: Tensor) -> None:
        """Move each code to the moving average of the vectors that chose it, and dead codes to candidates.

        Dead codes take the candidates in order; nothing is random. All codes start dead, so the first batches fill
        the vocabulary.

        Args:
            counts: (K,) number of vectors of the batch that chose each code.
            sums: (K, C) sum of these vectors.
            candidates: (M, C) unit vectors of the batch.

        Source: van den Oord et al. (2017), appendix A.1, with codes of length one (BEiT v2). Moving dead codes to
        vectors of the batch: Dhariwal et al. (2020), Jukebox, appendix B.1.
        """
        self.usage.lerp_(counts.to(self.usage), 1 - DECAY)
        self.sums.lerp_(sums.to(self.sums), 1 - DECAY)
        used = (self.usage > 0)[:, None]
        self.codes.copy_(torch.where(used, normalize(self.sums, dim=1), self.codes))
        if not len(candidates):
            return
        # The n-th dead code gets the n-th candidate. All are computed, so that the host does not wait for a count.
        mean = self.usage.mean()
        dead = self.usage < DEAD * mean
        turn = dead.cumsum(0) - 1
        dead = dead & (turn < len(candidates))
        fresh = candidates[turn.clamp(0, len(candidates) - 1)].to(self.codes)
        self.codes.copy_(torch.where(dead[:, None], fresh, self.codes))
        self.sums.copy_(torch.where(dead[:, None], fresh * mean, self.sums))
        self.usage.copy_(torch.where(dead, mean, self.usage))

    @property
    def perplexity(self) -> Tensor:
        """Return () the effective number of codes in use, exp of the entropy of their usage, in [1, K]."""
        share = self.usage / self.usage.sum().clamp(min=torch.finfo(torch.float32).tiny)
        return torch.special.entr(share).sum().exp()
