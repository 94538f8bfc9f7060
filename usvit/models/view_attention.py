"""Attention over the views of a unit: several images, or frames of a loop, of one lesion, breast, exam or patient.

Each view has a score, and the weights of the views of a unit are the softmax of their scores. A linear classifier of
the weighted mean of the features is the weighted mean of the logits, so that a view needs nothing but its logits and
its score: views may be missing, any number of views has a result, and the weight of a view is its share in it. A unit
with one view has the logits of that view.

With ``layers``, the score of a view also depends on the other views of its unit, which a small transformer compares.
What is pooled, and what a weight means, stays the same: the transformer weighs views and does not classify them.

Source: Ilse, Tomczak & Welling (2018), Attention-based Deep Multiple Instance Learning, ICML, equation 9 (gated
attention); Lee et al. (2019), Set Transformer, ICML (self-attention over a set, before it is pooled). The layer
normalisation of the features, and pooled logits in place of pooled tokens, are ours.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from usvit.errors import UsvitError
from usvit.models.features import logits_and_features, vectors
from usvit.models.training_addition import TrainingAddition
from usvit.models.weights import read_beside
from usvit.records import ModelMetadata

ATTENTION_FILE = "attention.safetensors"
_MAX_BYTES = 100_000_000
"""Largest accepted size of that file; usvit writes less than 1 MB."""
_HIDDEN = 64
"""Width of the hidden layers of the attention."""
_HEADS = 4
"""Heads of each layer of the transformer."""


class ViewAttention(nn.Module):
    """Gated attention: maps the features of views, (n, D), and the numbers of their units, (n,), to (n,) scores.

    All scores are zero at first, so that the first pooled logits are the mean of the views'. Neither the order of the
    views nor views of other units matter.

    Args:
        width: D.
        hidden: Width of the two hidden layers, and of the transformer.
        layers: Layers of a transformer over the views of a unit, without positions, before the attention.
    """

    def __init__(self, width: int, hidden: int = _HIDDEN, layers: int = 0):
        super().__init__()
        self.layers = layers
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        if layers:
            self.embed = nn.Linear(width, hidden)
            layer = nn.TransformerEncoderLayer(
                hidden, _HEADS, 2 * hidden, 0.0, "gelu", batch_first=True, norm_first=True
            )
            self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(hidden), enable_nested_tensor=False)
            width = hidden
        self.value, self.gate = nn.Linear(width, hidden), nn.Linear(width, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)
        nn.init.zeros_(self.score.weight)

    def forward(self, features: Tensor, units: Tensor) -> Tensor:
        return self.scores(self.described(features), units)

    def described(self, features: Tensor) -> Tensor:
        """Compute what the scores need of each view, (n, E) float32: its score, or the transformer's input."""
        at = self.norm(features.float())
        found: Tensor = self.embed(at) if self.layers else self._gated(at)
        return found.float()

    def scores(self, described: Tensor, units: Tensor) -> Tensor:
        """Compute the (n,) scores of views from what ``described`` returned and the (n,) numbers of their units."""
        if not self.layers:
            return described[:, 0]
        _, unit, sizes = torch.unique(units.to(described.device), return_inverse=True, return_counts=True)
        order = unit.argsort(stable=True)
        views = pad_sequence(described[order].split(sizes.tolist()), batch_first=True)  # (U, most, E)
        absent = torch.arange(views.shape[1], device=views.device) >= sizes[:, None]
        found = self._gated(self.encoder(views, src_key_padding_mask=absent))[..., 0].float()
        return found[~absent][order.argsort()]

    def _gated(self, at: Tensor) -> Tensor:
        scores: Tensor = self.score(torch.tanh(self.value(at)) * torch.sigmoid(self.gate(at)))
        return scores


def read_attention(folder: Path, metadata: ModelMetadata) -> ViewAttention | None:
    """Read the attention of a fold, in evaluation mode on the CPU; None if its metadata has none.

    Raises:
        UsvitError: If the file is missing or damaged, or is not the one that the metadata names.
    """
    if metadata.attention is None:
        return None
    content = read_beside(folder, ATTENTION_FILE, metadata.attention.sha256, _MAX_BYTES)
    try:
        tensors = load_tensors(content)
        layers = len({name.split(".")[2] for name in tensors if name.startswith("encoder.layers.")})
        hidden, width = tensors["embed.weight" if layers else "value.weight"].shape
        attention = ViewAttention(width, hidden, layers)
        attention.load_state_dict(tensors)
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(f"{folder / ATTENTION_FILE} is damaged ({reason}). Copy the fold's folder again.") from error
    return attention.eval()


class WithViewAttention(TrainingAddition):
    """A classifier with attention over views.

    In training mode, ``forward`` takes the images and the numbers of their units, (B,), and returns the logits of the
    images, (B, K), and their scores, (B,). In evaluation mode it returns the logits alone.

    Args:
        network: The classifier, or its head on stored features (``on_features``).
        width: Number of features (``usvit.models.vectors``) of an image.
        on_features: True if the input is the stored features, (B, P, ...).
        layers: As for ``ViewAttention``.
    """

    def __init__(self, network: nn.Module, width: int, *, on_features: bool, layers: int = 0):
        super().__init__(network)
        self.on_features = on_features
        self.attention = ViewAttention(width, layers=layers)

    def forward(self, inputs: Tensor, units: Tensor | None = None) -> Any:
        if not self.training or units is None:
            return self.network(inputs)
        logits, features = self.logits_and_features(inputs)
        return logits, self.attention(features, units)

    def logits_and_features(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the logits, (B, K), and the features, (B, D), of images or of stored features."""
        if self.on_features:
            return self.network(inputs).float(), vectors(inputs)
        logits, features = logits_and_features(self.network, inputs)
        assert features is not None, "attention needs the input of the classifier"
        return logits, features


def pooled_views(logits: Tensor, scores: Tensor, units: Tensor) -> tuple[Tensor, Tensor]:
    """Pool the logits of the views of each unit with the softmax of their scores.

    Args:
        logits: (n, K) float, of n >= 1 views.
        scores: (n,) float.
        units: (n,) int64, any numbers; views with one number belong to one unit.

    Returns:
        (U, K) float32 logits of the units in ascending order of their numbers, and the (n,) weight of each view in
        its unit, which sum to one there.
    """
    numbers = torch.unique(units)
    belongs = units == numbers[:, None]  # (U, n); a product of matrices adds in one order, on a GPU too
    weights = torch.where(belongs, scores.float(), -torch.inf).softmax(1)
    return weights @ logits.float(), weights.sum(0)
