"""Coarse-to-fine retrieval: how well images of a fine class are found by features trained on coarse classes.

The keys are the training images, embedded again with the final weights (thesis, section 2.3.1, "Adapting the
architecture at test-time"). Their fine labels, which the training did not use, are used here for the first
time. A run of Grafit is measured by its embedding, projector included, and any other network by its features.

Source: Touvron (2022), PhD thesis, sections 2.3.2-2.3.3, eq. 2.5 and 2.6.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError
from torch import nn

from usvit.config import ViTConfig
from usvit.data.splits import load_metadata
from usvit.errors import UsvitError
from usvit.metrics.retrieval import SIGMA, average_precisions, knn_probabilities
from usvit.models import Weights, build_model, find_model, only_fold, read_state_dict, resolve_weights
from usvit.upstream.config.pretrain import GrafitConfig
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.pretraining.grafit import PROJECTOR, Embedding

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class _CoarseRanking:
    """What coarse classes add to a search for fine classes, for each query."""

    precisions: dict[str, Floats]
    """Average precisions, of shape (n,): ``map_conditioned`` ranks keys by cosine and predicted coarse class (psi_cond,
    eq. 2.5), and ``map_oracle`` ranks keys of the true coarse class first."""
    right: NDArray[np.bool_]
    """Whether the predicted coarse class is right, of shape (n,)."""


@dataclass(frozen=True)
class LabelledFeatures:
    """Embeddings with their fine and coarse labels."""

    vectors: ArrayLike
    """Shape (n, D)."""
    fine: Ints
    coarse: Ints


def rank_by_coarse(queries: LabelledFeatures, keys: LabelledFeatures, sigma: float = SIGMA) -> _CoarseRanking:
    """Rank by eq. 2.5, and by an oracle of the coarse class.

    Args:
        queries, keys: Test and training images, with the same numbering of labels.
        sigma: Temperature of the weights of the neighbours.

    Raises:
        ValueError: Shapes or values are inconsistent.
    """
    n_coarse = int(max(queries.coarse.max(), keys.coarse.max())) + 1
    predicted = coarse_probabilities(queries.vectors, keys.vectors, keys.coarse, n_coarse, sigma)

    def ranked(coarse_prob: Floats) -> Floats:
        return average_precisions(
            queries.vectors, keys.vectors, queries.fine, keys.fine, coarse_prob=coarse_prob, key_coarse=keys.coarse
        )

    precisions = {"map_conditioned": ranked(predicted), "map_oracle": ranked(np.eye(n_coarse)[queries.coarse])}
    return _CoarseRanking(precisions, predicted.argmax(1) == queries.coarse)


def coarse_probabilities(
    queries: ArrayLike, keys: ArrayLike, coarse: Ints, n_classes: int, sigma: float = SIGMA
) -> Floats:
    """Return p_c of eq. 2.5, of shape (n, C); rows sum to one.

    The thesis does not name the classifier. This is the one that L_knn trains: the share of a coarse class in the
    weights (eq. 2.2) of all keys (the sum within eq. 2.3).
    """
    count = len(np.asarray(keys))
    return knn_probabilities(queries, keys, coarse, count, sigma, n_classes=n_classes)


def is_grafit(weights: Weights) -> bool:
    """Whether the weights are those of a run with ``objective: grafit``."""
    return weights.metadata is not None and weights.metadata.objective == "grafit"


def searching(network: nn.Module, weights: Weights, config: TransferConfig) -> nn.Module:
    """Return the module that embeds images: the embedding g of a run of Grafit, otherwise the network itself.

    Raises:
        UsvitError: The run of Grafit is incomplete.
    """
    if not is_grafit(weights) or weights.path is None or config.embedding == "trunk":
        return network
    return load_embedding(weights.path.parent, config.model.image_size)


def load_embedding(folder: Path, image_size: int | None = None) -> Embedding:
    """Load g of a finished run, the network and its projector, on the CPU in evaluation mode.

    Args:
        folder: The run, or one of its folds.
        image_size: Side of the input in pixels; None for that of the training.

    Raises:
        UsvitError: The folder is not a run of Grafit, or is incomplete.
    """
    fold = only_fold(folder)
    file = fold / f"{PROJECTOR}.safetensors"
    metadata = load_metadata(fold / "model.safetensors")
    projected = metadata is not None and (metadata.grafit or {}).get("projector") != "none"
    if metadata is None or metadata.objective != "grafit" or (projected and not file.is_file()):
        raise UsvitError(f"{folder} is not a run of the objective grafit with its {file.name}. Copy the run again.")
    try:
        if metadata.grafit is None or metadata.architecture is None or metadata.preprocessing is None:
            raise ValueError("it lacks the key grafit, architecture or preprocessing")
        config = GrafitConfig(**metadata.grafit)
        spec = find_model(metadata.architecture, ViTConfig(**metadata.vit).model_dump(exclude_none=True))
        image_size = image_size or metadata.preprocessing.image_size
    except (ValidationError, ValueError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(f"The metadata {fold / 'model.json'} is damaged: {reason}. Copy it again.") from error
    with torch.random.fork_rng(devices=[]):
        network = build_model(spec, resolve_weights(str(fold), spec), n_classes=0, image_size=image_size)
        embedding = Embedding(network, config)
    try:
        if projected:
            embedding.projector.load_state_dict(read_state_dict(file))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise UsvitError(
            f"The weights {file} are not of the projector that its metadata describes. ({reason})"
        ) from error
    return embedding.eval().requires_grad_(False)
