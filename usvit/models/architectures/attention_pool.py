"""Attention pooling, which shows where a network looks (thesis, section 5.2.1, Fig. 5.1).

    c'  = c + l_1 * W_o (softmax(W_q LN(c) (W_k LN(x))^T / sqrt(d)) W_v LN(x))
    c'' = c' + l_2 * FFN(LN'(c'))

A query c (a learned class token) attends to the patches x in one softmax. The patches themselves do not change, so the
attention weights are the contributions of the patches to the sum. "As opposed to the class-attention decoder [of CaiT]
we use a single block and a single head". With one query per class there is one map per class.

The query is not one of the keys, so that the weights of the patches sum to 1. So it is in the public code
(patchconvnet_models.py) with one query per class; with a single query that code has the query among the keys, too, and
its released weights of such networks would not give the same outputs here. As there, the pooling has no stochastic
depth.
"""

from typing import Literal

import torch
from timm.layers import LayerNorm, LayerScale, Mlp, trunc_normal_
from torch import Tensor, nn
from torch.nn import functional as F

from usvit.models.architectures.init import start_weights

Queries = Literal["one", "class"]


class AttentionPool(nn.Module):
    """Attention pooling from patches (B, N, D) to (B, Q, D), one row for each query.

    The parameter counts of PatchConvNet prove that the FFN's ratio is 3 (digest of the thesis, section 5). The pooling
    uses layer normalisation even if the trunk uses batch normalisation, which would see one token per image here.

    Args:
        width: Number of channels D.
        n_queries: Number of queries Q.
        heads: Number of attention heads; 1 in the thesis, more in its ablation (Table 5.7).
        mlp_ratio: Ratio of the FFN's hidden width to D.
        layer_scale: Initial value of l_1 and l_2.

    Raises:
        ValueError: If D is not divisible by the number of heads.
    """

    def __init__(
        self,
        width: int,
        n_queries: int = 1,
        *,
        heads: int = 1,
        mlp_ratio: float = 3.0,
        layer_scale: float = 1e-6,
    ):
        super().__init__()
        if heads < 1 or width % heads:
            raise ValueError(f"the width {width} is not divisible by the {heads} heads of the pooling")
        self.heads = heads
        self.queries = nn.Parameter(trunc_normal_(torch.empty(1, n_queries, width), std=0.02))
        self.norm1 = LayerNorm(width)
        self.q, self.k, self.v, self.proj = (nn.Linear(width, width) for _ in range(4))
        self.ls1 = LayerScale(width, layer_scale)
        self.norm2 = LayerNorm(width)
        self.mlp = Mlp(width, int(width * mlp_ratio))
        self.ls2 = LayerScale(width, layer_scale)
        start_weights(self)

    def forward(self, x: Tensor) -> Tensor:
        normed = self.norm1(x)
        mixed = F.scaled_dot_product_attention(*self._query_key(x, normed), self._by_head(self.v(normed)))
        pooled = self.queries + self.ls1(self.proj(mixed.transpose(1, 2).flatten(2)))
        return pooled + self.ls2(self.mlp(self.norm2(pooled)))

    def attention(self, x: Tensor) -> Tensor:
        """Compute the attention weights of the pooling, (B, heads, Q, N); each row sums to 1."""
        query, key = self._query_key(x, self.norm1(x))
        return (query @ key.transpose(-2, -1) * query.shape[-1] ** -0.5).softmax(dim=-1)

    def maps(self, x: Tensor) -> Tensor:
        """Compute the maps to display: (B, heads, N) for one query; for several, their mean over heads, (B, Q, N)."""
        weights = self.attention(x)
        return weights[:, :, 0] if weights.shape[2] == 1 else weights.mean(dim=1)

    def resize(self, n_queries: int) -> None:
        """Change the number of queries; new queries start as the mean of the old ones."""
        if n_queries != self.queries.shape[1]:
            mean = self.queries.data.mean(dim=1, keepdim=True)
            self.queries = nn.Parameter(mean.repeat(1, n_queries, 1), requires_grad=self.queries.requires_grad)

    def _query_key(self, x: Tensor, normed: Tensor) -> tuple[Tensor, Tensor]:
        query = self.q(self.norm1(self.queries)).expand(x.shape[0], -1, -1)
        return self._by_head(query), self._by_head(self.k(normed))

    def _by_head(self, x: Tensor) -> Tensor:  # (B, T, D) -> (B, heads, T, D / heads)
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)


class ClassHead(nn.Linear):
    """Classifier that computes each class's logit from the row of that class's query: (B, K, D) -> (B, K).

    logit_k = w_k . x_k + b_k; the weights have the shape of a linear layer's, (K, D).
    """

    def forward(self, x: Tensor) -> Tensor:
        return (x * self.weight).sum(dim=-1) + self.bias


def make_head(width: int, n_classes: int, queries: Queries) -> nn.Module:
    """Build the classifier that follows the pooling; the identity if there are no classes.

    Raises:
        ValueError: If ``queries`` is neither ``one`` nor ``class``.
    """
    if queries not in ("one", "class"):
        raise ValueError(f"queries is '{queries}', but must be one or class")
    if not n_classes:
        return nn.Identity()
    head = nn.Linear(width, n_classes) if queries == "one" else ClassHead(width, n_classes)
    start_weights(head)
    return head


def spread_query(state: dict[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Copy the single query of pre-trained weights to every query of a network with one query per class.

    "We typically do that in a fine-tuning stage" (thesis, section 5.2.1). timm calls it as ``pretrained_filter_fn``.
    """
    state = state.get("model", state)  # type: ignore[assignment]
    key = "attn_pool.queries"
    own = model.state_dict().get(key)
    if own is not None and key in state and state[key].shape[1] == 1:
        state = state | {key: state[key].expand_as(own).clone()}
    return state
