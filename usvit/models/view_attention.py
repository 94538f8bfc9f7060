"""Attention over the views of a unit: several images, or frames of a loop, of one lesion, breast, exam or patient.

Each view has a score, and the weights of the views of a unit are the softmax of their scores. A linear classifier of
the weighted mean of the features is the weighted mean of the logits, so that a view needs nothing but its logits and
its score: views may be missing, any number of views has a result, and the weight of a view is its share in it. A unit
with one view has the logits of that view.

Source: Ilse, Tomczak & Welling (2018), Attention-based Deep Multiple Instance Learning, ICML, equation 9 (gated
attention); the layer normalisation of the features is ours.
"""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load as load_tensors
from torch import Tensor, nn

from usvit.errors import UsvitError
from usvit.models.features import logits_and_features, vectors
from usvit.models.training_addition import TrainingAddition
from usvit.models.weights.run_folds import read_beside
from usvit.records import ModelMetadata

ATTENTION_FILE = "attention.safetensors"
_MAX_BYTES = 100_000_000
"""Largest accepted size of that file; usvit writes less than 1 MB."""
_HIDDEN = 64
"""Width of the hidden layers of the attention."""


class ViewAttention(nn.Module):
    """Gated attention: maps the features of views, (n, D), to their scores, (n,) float32.

    All scores are zero at first, so that the first pooled logits are the mean of the views'.

    Args:
        width: D.
        hidden: Width of the two hidden layers.
    """

    def __init__(self, width: int, hidden: int = _HIDDEN):
        super().__init__()
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.value, self.gate = nn.Linear(width, hidden), nn.Linear(width, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)
        nn.init.zeros_(self.score.weight)

    def forward(self, features: Tensor) -> Tensor:
        at = self.norm(features.float())
        scores: Tensor = self.score(torch.tanh(self.value(at)) * torch.sigmoid(self.gate(at)))
        return scores[:, 0].float()


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
        hidden, width = tensors["value.weight"].shape
        attention = ViewAttention(width, hidden)
        attention.load_state_dict(tensors)
    except (SafetensorError, ValueError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(f"{folder / ATTENTION_FILE} is damaged ({reason}). Copy the fold's folder again.") from error
    return attention.eval()


class WithViewAttention(TrainingAddition):
    """A classifier with attention over views.

    In training mode, ``forward`` returns the logits of the images, (B, K), and their scores, (B,). In evaluation mode
    it returns the logits alone.

    Args:
        network: The classifier, or its head on stored features (``on_features``).
        width: Number of features (``usvit.models.vectors``) of an image.
        on_features: True if the input is the stored features, (B, P, ...).
    """

    def __init__(self, network: nn.Module, width: int, *, on_features: bool):
        super().__init__(network)
        self.on_features = on_features
        self.attention = ViewAttention(width)

    def forward(self, inputs: Tensor) -> Any:
        if not self.training:
            return self.network(inputs)
        logits, features = self.logits_and_features(inputs)
        return logits, self.attention(features)

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
