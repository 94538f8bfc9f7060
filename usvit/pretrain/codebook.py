"""A vocabulary of vectors that follows what it is used for: the discrete half of the tokenizer."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

DECAY = 0.99
"""gamma of the running means (van den Oord et al. 2017, appendix A.1)."""
DEAD = 0.05
"""A code that is used less than this share of the mean use is given another place."""
_CHUNK = 16_384  # tokens that are compared with all codes at once


class Codebook(nn.Module):
    """K unit vectors, and which of them is nearest.

    Vectors are compared by direction, in few dimensions, so that all codes stay in use (Yu et al. 2022, ViT-VQGAN,
    section 3.2; Peng et al. 2022, BEiT v2). Codes are no parameters: each follows the mean of what chose it.

    Args:
        vocabulary: K.
        width: C, of a code.
    """

    codes: Tensor
    usage: Tensor
    sums: Tensor

    def __init__(self, vocabulary: int, width: int):
        super().__init__()
        self.register_buffer("codes", normalize(torch.randn(vocabulary, width), dim=1))
        self.register_buffer("usage", torch.zeros(vocabulary))  # N of the paper: running number of tokens a batch
        self.register_buffer("sums", torch.zeros(vocabulary, width))  # m: running sum of them

    def nearest(self, vectors: Tensor) -> Tensor:
        """(..., C) unit vectors -> (...,) int64, the code of the largest cosine; the first of equal ones."""
        flat = vectors.detach().reshape(-1, vectors.shape[-1]).float()
        with torch.autocast(flat.device.type, enabled=False):  # bfloat16 has too few digits to tell codes apart
            found = [(part @ self.codes.T).argmax(1) for part in flat.split(_CHUNK)]
        return torch.cat(found).reshape(vectors.shape[:-1])

    def forward(self, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Quantise; gradients pass as if nothing had been done (straight-through).

        Args:
            vectors: (..., C) unit vectors.

        Returns:
            (..., C) the nearest codes, whose gradient is handed on to ``vectors``; and (...,) int64 which they are.

        Source: van den Oord et al. (2017), section 3.2.
        """
        chosen = self.nearest(vectors)
        codes = self.codes[chosen]
        return vectors + (codes - vectors).detach(), chosen

    @torch.no_grad()
    def follow(self, counts: Tensor, sums: Tensor, candidates: Tensor) -> None:
        """Move each code to the running mean of what chose it, and dead ones to what the batch holds.

        Dead codes get the candidates one after the other: nothing is drawn. All codes begin dead, so the first
        batches fill the vocabulary.

        Args:
            counts: (K,) tokens of the batch that chose each code.
            sums: (K, C) their sum.
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
        # The n-th dead one gets the n-th candidate; all are computed, so that a GPU need not say how many are dead.
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
        """() how many codes are in use, as it were: exp of the entropy of their running use, from 1 to K."""
        share = self.usage / self.usage.sum().clamp(min=torch.finfo(torch.float32).tiny)
        return torch.special.entr(share).sum().exp()
