"""Coarse to fine: how well a run of Grafit, which learnt coarse classes, finds the fine ones.

The keys are the training images, embedded anew with the final weights (thesis, section 2.3.1, "Adapting the
architecture at test-time"). Their fine labels, which the training did not see, are used here for the first time.

Source: Touvron (2022), PhD thesis, sections 2.3.2-2.3.3, eq. 2.5 and 2.6.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from pydantic import ValidationError

from usvit.config import PretrainConfig, ViTConfig
from usvit.config.pretrain import GrafitConfig
from usvit.data.preprocessing import Preprocessing
from usvit.data.seen import passport_beside
from usvit.data.sources.combine import Relabelled, Subset
from usvit.data.sources.open import open_training
from usvit.data.sources.source import Source
from usvit.data.views import test_view
from usvit.errors import UsvitError
from usvit.metrics.retrieval import K_CHOICES, SIGMA, choose_k, knn_probabilities, mean_average_precision
from usvit.models.build import build_model
from usvit.models.weights import read_state_dict, resolve_weights
from usvit.models.weights.runs import fold_folders
from usvit.models.zoo import find_model
from usvit.pretrain.grafit import PROJECTOR, Embedding
from usvit.progress import Progress, task
from usvit.run_dir import read_record
from usvit.train.device import resolve_device

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Embed = Callable[[torch.Tensor], torch.Tensor]
"""From (B, S, S, 3) uint8 to (B, D)."""
_BATCH = 64


@dataclass(frozen=True)
class Retrieval:
    """Figures of the queries, in [0, 1]."""

    knn: float
    """Share of queries whose fine class their nearest keys name (eq. 2.6)."""
    k: int
    """Neighbours, chosen among the keys alone."""
    map: float | None
    """Mean average precision of the keys, ranked by cosine; a key of the query's fine class is right."""
    map_conditioned: float | None
    """Ranked by the cosine and the predicted coarse class (eq. 2.5)."""
    map_oracle: float | None
    """Keys of the query's true coarse class first: a bound of the former."""
    coarse_accuracy: float
    """Of the predicted coarse class."""


@dataclass(frozen=True)
class Labelled:
    """Embeddings with both kinds of labels."""

    vectors: ArrayLike
    """(n, D)."""
    fine: Ints
    coarse: Ints


def retrieval(queries: Labelled, keys: Labelled, *, sigma: float = SIGMA, ks: tuple[int, ...] = K_CHOICES) -> Retrieval:
    """On-the-fly classification and category-level retrieval.

    Args:
        queries, keys: test and training images.
        sigma: temperature of the neighbours' weights.
        ks: numbers of neighbours to choose among, by leaving one key out at a time.

    Raises:
        ValueError: shapes or values that do not fit.
    """
    n_fine = int(max(queries.fine.max(), keys.fine.max())) + 1
    n_coarse = int(max(queries.coarse.max(), keys.coarse.max())) + 1
    k = choose_k(keys.vectors, keys.fine, ks, sigma)
    found = knn_probabilities(queries.vectors, keys.vectors, keys.fine, k, sigma, n_classes=n_fine).argmax(1)
    predicted = coarse_probabilities(queries.vectors, keys.vectors, keys.coarse, n_coarse, sigma)

    def ranked(**condition: Any) -> float | None:
        return mean_average_precision(queries.vectors, keys.vectors, queries.fine, keys.fine, **condition)

    return Retrieval(
        knn=float((found == queries.fine).mean()),
        k=k,
        map=ranked(),
        map_conditioned=ranked(coarse_prob=predicted, key_coarse=keys.coarse),
        map_oracle=ranked(coarse_prob=np.eye(n_coarse)[queries.coarse], key_coarse=keys.coarse),
        coarse_accuracy=float((predicted.argmax(1) == queries.coarse).mean()),
    )


def coarse_probabilities(
    queries: ArrayLike, keys: ArrayLike, coarse: Ints, n_classes: int, sigma: float = SIGMA
) -> Floats:
    """p_c of eq. 2.5: (n, C), rows sum to one.

    The thesis does not say which classifier gives it. Here it is the one that L_knn trains: the share of all keys'
    weights (eq. 2.2) that those of a coarse class have (the sum within eq. 2.3).
    """
    count = len(np.asarray(keys))
    return knn_probabilities(queries, keys, coarse, count, sigma, n_classes=n_classes)


def evaluate_run(run: Path, roots: dict[str, Path], progress: Progress) -> Retrieval:
    """The figures of a finished run of ``objective: grafit`` on its own validation images.

    Args:
        run: of ``usvit pretrain``; its source had ``coarse`` and validation images.
        roots: data set -> folder, "" for all.
        progress: where progress is shown.

    Raises:
        UsvitError: it is no such run, it is damaged, or it had no validation images.
    """
    record = read_record(run)
    try:
        config = PretrainConfig.model_validate(record["config"])
    except (ValidationError, KeyError) as error:
        raise UsvitError(
            f"{run / 'run.json'} is of no pre-training, or damaged. Name a run of usvit pretrain."
        ) from error
    if config.objective != "grafit":
        raise UsvitError(f"{run} was trained with the objective {config.objective}, not grafit.")
    training, validation = open_training(config.source, roots, seed=config.seed)
    if validation is None:
        raise UsvitError(f"{run} had no validation images: train with source.val, or source.val_share.")
    embedding, preprocessing = load_embedding(run)
    device = resolve_device(config.device, config.precision)
    fabric = device.fabric()
    wrapped = fabric.setup_module(embedding).eval()

    def embed(pixels: torch.Tensor) -> torch.Tensor:
        vectors: torch.Tensor = wrapped(preprocessing.normalised(pixels.to(fabric.device)))
        return vectors

    keys = embedded(training, embed, preprocessing.image_size, config.views.test_crop, progress)
    queries = embedded(validation, embed, preprocessing.image_size, config.views.test_crop, progress)
    return retrieval(*same_classes((queries, validation), (keys, training)), sigma=config.grafit.sigma)


def embedded(source: Source, embed: Embed, size: int, crop: float, progress: Progress) -> Floats:
    """(N, D) of each image's test view."""
    found = []
    with torch.inference_mode(), task(progress, f"embeddings: {source.name}", len(source), "images") as advance:
        for start in range(0, len(source), _BATCH):
            rows = range(start, min(start + _BATCH, len(source)))
            pixels = np.stack([test_view(source.image(row), size, crop) for row in rows])
            found.append(embed(torch.from_numpy(pixels)).float().cpu().numpy().astype(np.float64))
            advance(rows.stop)
    return np.concatenate(found)


def same_classes(*parts: tuple[Floats, Source]) -> tuple[Labelled, ...]:
    """Labels of several sources counted alike: fine classes go by their names."""
    finest = [fine_labels(source) for _, source in parts]
    number = {name: at for at, name in enumerate(sorted({name for names, _ in finest for name in names}))}
    return tuple(
        Labelled(vectors, np.array([number[name] for name in names])[targets], source.targets)
        for (vectors, source), (names, targets) in zip(parts, finest, strict=True)
    )


def fine_labels(source: Source) -> tuple[tuple[str, ...], Ints]:
    """The classes, and each image's, before they were made coarse; the source's own where they were not."""
    if isinstance(source, Relabelled):
        return fine_labels(source.source)
    if isinstance(source, Subset):
        names, targets = fine_labels(source.source)
        return names, targets[source.indices]
    return source.classes, source.targets


def load_embedding(folder: Path) -> tuple[Embedding, Preprocessing]:
    """g of a finished run: the network and its projector, on the CPU, in evaluation mode.

    Args:
        folder: the run, or one of its folds.

    Raises:
        UsvitError: it is no run of Grafit, or not whole.
    """
    folders = fold_folders(folder)
    if len(folders) > 1:
        raise UsvitError(f"{folder} is a run of {len(folders)} folds with a network in each. Name one: {folders[0]}.")
    file = folders[0] / f"{PROJECTOR}.safetensors"
    passport = passport_beside(folders[0] / "model.safetensors") or {}
    if passport.get("objective") != "grafit" or not file.is_file():
        raise UsvitError(f"{folder} is no run of the objective grafit with its {file.name}. Copy the run again.")
    try:
        config, stated = GrafitConfig(**passport["grafit"]), passport["preprocessing"]
        vit = ViTConfig(**passport.get("vit", {})).model_dump(exclude_none=True)
        spec = find_model(str(passport["architecture"]), vit)
        mean, std = (tuple(float(value) for value in stated[key]) for key in ("mean", "std"))
        preprocessing = Preprocessing(
            int(stated["image_size"]), stated["resize"], (mean[0], mean[1], mean[2]), (std[0], std[1], std[2])
        )
    except (ValidationError, ValueError, TypeError, KeyError, IndexError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsvitError(f"The passport {folders[0] / 'model.json'} is damaged: {reason}. Copy it again.") from error
    with torch.random.fork_rng(devices=[]):
        network = build_model(
            spec, resolve_weights(str(folders[0]), spec), n_classes=0, image_size=preprocessing.image_size
        )
        embedding = Embedding(network, config)
    try:
        embedding.projector.load_state_dict(read_state_dict(file))
    except RuntimeError as error:
        reason = " ".join(str(error).split())[:300]
        raise UsvitError(
            f"The weights {file} are not of the projector that its passport describes. ({reason})"
        ) from error
    return embedding.eval().requires_grad_(False), preprocessing
