"""Coarse to fine: how well images of a class are found by a representation that learnt no such class.

The keys are the training images, embedded again with the final weights (thesis, section 2.3.1, "Adapting the
architecture at test-time"). Their fine labels, which the training did not see, are used here for the first time.
A run of Grafit is judged by its embedding, projector included; any other network by its features.

Source: Touvron (2022), PhD thesis, sections 2.3.2-2.3.3, eq. 2.5 and 2.6.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError
from torch import nn

from usvit.config import ViTConfig
from usvit.config.pretrain import GrafitConfig
from usvit.data.seen import Seen as Hashes
from usvit.data.seen import passport_beside, seen_by_weights
from usvit.errors import UsvitError
from usvit.metrics.retrieval import SIGMA, average_precisions, knn_probabilities
from usvit.models.build import build_model
from usvit.models.weights import Weights, read_state_dict, resolve_weights
from usvit.models.weights.runs import only_fold
from usvit.models.zoo import find_model
from usvit.pretrain.grafit import PROJECTOR, Embedding

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class CoarseRanking:
    """What knowing coarse classes adds to a search for fine ones, query by query."""

    precisions: dict[str, Floats]
    """(n,) average precisions: ``map_conditioned``, where keys are ranked by the cosine and the predicted coarse class
    (psi_cond, eq. 2.5), and ``map_oracle``, where keys of the true coarse class come first."""
    right: NDArray[np.bool_]
    """(n,) whether the predicted coarse class is right."""


@dataclass(frozen=True)
class Labelled:
    """Embeddings with both kinds of labels."""

    vectors: ArrayLike
    """(n, D)."""
    fine: Ints
    coarse: Ints


def rank_by_coarse(queries: Labelled, keys: Labelled, sigma: float = SIGMA) -> CoarseRanking:
    """Rank by eq. 2.5, and by an oracle of the coarse class.

    Args:
        queries, keys: test and training images; labels are counted alike.
        sigma: temperature of the neighbours' weights.

    Raises:
        ValueError: shapes or values that do not fit.
    """
    n_coarse = int(max(queries.coarse.max(), keys.coarse.max())) + 1
    predicted = coarse_probabilities(queries.vectors, keys.vectors, keys.coarse, n_coarse, sigma)

    def ranked(coarse_prob: Floats) -> Floats:
        return average_precisions(
            queries.vectors, keys.vectors, queries.fine, keys.fine, coarse_prob=coarse_prob, key_coarse=keys.coarse
        )

    precisions = {"map_conditioned": ranked(predicted), "map_oracle": ranked(np.eye(n_coarse)[queries.coarse])}
    return CoarseRanking(precisions, predicted.argmax(1) == queries.coarse)


def coarse_probabilities(
    queries: ArrayLike, keys: ArrayLike, coarse: Ints, n_classes: int, sigma: float = SIGMA
) -> Floats:
    """p_c of eq. 2.5: (n, C), rows sum to one.

    The thesis does not say which classifier gives it. Here it is the one that L_knn trains: the share of all keys'
    weights (eq. 2.2) that those of a coarse class have (the sum within eq. 2.3).
    """
    count = len(np.asarray(keys))
    return knn_probabilities(queries, keys, coarse, count, sigma, n_classes=n_classes)


def is_grafit(weights: Weights) -> bool:
    """Whether they are of a run of ``objective: grafit``."""
    return (weights.passport or {}).get("objective") == "grafit"


def forbidden(weights: Weights) -> Hashes:
    """What a search with these weights may not test: all that they have seen.

    Validation images of a run of Grafit that kept its last step have chosen nothing: they are its queries, as in the
    thesis.
    """
    seen, told = seen_by_weights(weights), weights.passport or {}
    if is_grafit(weights) and told.get("best_step") == told.get("steps"):
        return seen.of_parts("train", "upstream")
    return seen


def searching(network: nn.Module, weights: Weights, image_size: int) -> nn.Module:
    """What embeds images for a search: g of a run of Grafit; of other weights the network itself, by its features.

    Raises:
        UsvitError: a run of Grafit that is not whole.
    """
    if not is_grafit(weights) or weights.path is None:
        return network
    return load_embedding(weights.path.parent, image_size)


def load_embedding(folder: Path, image_size: int | None = None) -> Embedding:
    """g of a finished run: the network and its projector, on the CPU, in evaluation mode.

    Args:
        folder: the run, or one of its folds.
        image_size: side of the input in pixels; None: as it was trained.

    Raises:
        UsvitError: it is no run of Grafit, or not whole.
    """
    fold = only_fold(folder)
    file = fold / f"{PROJECTOR}.safetensors"
    passport = passport_beside(fold / "model.safetensors") or {}
    if passport.get("objective") != "grafit" or not file.is_file():
        raise UsvitError(f"{folder} is no run of the objective grafit with its {file.name}. Copy the run again.")
    try:
        config = GrafitConfig(**passport["grafit"])
        vit: dict[str, Any] = ViTConfig(**passport.get("vit", {})).model_dump(exclude_none=True)
        spec = find_model(str(passport["architecture"]), vit)
        image_size = image_size or int(passport["preprocessing"]["image_size"])
    except (ValidationError, ValueError, TypeError, KeyError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(f"The passport {fold / 'model.json'} is damaged: {reason}. Copy it again.") from error
    with torch.random.fork_rng(devices=[]):
        network = build_model(spec, resolve_weights(str(fold), spec), n_classes=0, image_size=image_size)
        embedding = Embedding(network, config)
    try:
        embedding.projector.load_state_dict(read_state_dict(file))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise UsvitError(
            f"The weights {file} are not of the projector that its passport describes. ({reason})"
        ) from error
    return embedding.eval().requires_grad_(False)
