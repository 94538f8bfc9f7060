"""What a text tower is measured by: zero-shot classes and concepts, and retrieval both ways.

A class or a value of a concept is the mean of its prompts' embeddings (Radford et al. 2021, section 3.1.4).
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from usvit.data.datasets import ImageText
from usvit.errors import UsvitError
from usvit.metrics.of_scores import auc
from usvit.metrics.proportions import clustered_share
from usvit.metrics.retrieval import own_ranks
from usvit.upstream.config.text import TextConfig
from usvit.upstream.records.training import TextRecall, TransferEstimate, ZeroShotAuc
from usvit.upstream.text_tuning.tower import TextTower
from usvit.upstream.transfer_learning.splits import TransferSplit

Floats = NDArray[np.floating]
Concepts = dict[str, list[str]]
"""Concept, such as ``margin`` -> its values."""
RECALL_AT = (1, 5, 10)


def check_prompts(config: TextConfig, classes: Sequence[str]) -> None:
    """Raise UsvitError if there are prompts for a class that the images do not have; those of concepts have a colon."""
    if others := [name for name in config.prompts if name not in classes and ": " not in name]:
        raise UsvitError(
            f"text.prompts names the class {others[0]}, but the classes of the test images are "
            f"{', '.join(classes[:10])}. Correct or remove it."
        )


def class_logits(tower: TextTower, images: Floats, classes: Sequence[str]) -> Floats:
    """Return scaled cosines of images, unit vectors (n, E), and classes, (n, K) float."""
    return _similar(tower, images, _embedded(tower, [_prompts(tower.config, name, name) for name in classes]))


def class_aucs(split: TransferSplit, logits: Floats) -> list[ZeroShotAuc]:
    """Return the AUC of each class against all others."""
    prob = softmax(logits, axis=1)
    return [
        _auc("class", name, split.targets == at, prob[:, at], split.groups)
        for at, name in enumerate(split.source.classes)
        if (split.targets == at).any()
    ]


def concepts_of(texts: Sequence[ImageText] | None) -> Concepts:
    """Return the concepts of which the texts have at least two values, and these values."""
    kinds = dict.fromkeys(kind for one in texts or () for kind in one.concepts)
    found = {kind: sorted({one.concepts.get(kind, "") for one in texts or ()} - {""}) for kind in kinds}
    return {kind: values for kind, values in found.items() if len(values) > 1}


def concept_names(concepts: Concepts) -> tuple[str, ...]:
    """Return the V values of all concepts, such as ``margin: spiculated``."""
    return tuple(f"{kind}: {value}" for kind, values in concepts.items() for value in values)


class ConceptPrompts:
    """The embedded prompts of concepts; the score of a value is its probability among the values of its concept."""

    def __init__(self, tower: TextTower, concepts: Concepts):
        self._tower = tower
        self._means = [
            _embedded(tower, [_prompts(tower.config, f"{kind}: {value}", f"{value} {kind}") for value in values])
            for kind, values in concepts.items()
        ]

    def scores(self, images: Floats) -> NDArray[np.float64]:
        """Return the scores of all values, (n, V) in [0, 1], of images, unit vectors (n, E)."""
        each = [softmax(_similar(self._tower, images, means), axis=1) for means in self._means]
        return np.hstack([np.empty((len(images), 0)), *each])


def concept_figures(
    tower: TextTower, images: Floats, texts: Sequence[ImageText], split: TransferSplit
) -> tuple[list[ZeroShotAuc], pd.DataFrame | None]:
    """Return the AUC of each value of each concept among the images that have one, and a table of all scores.

    Args:
        tower: The text tower.
        images: Unit vectors (n, E) of the test images.
        texts: The n texts, with concepts.
        split: The test images.

    Returns:
        The figures, and columns ``image_id``, and ``<concept>: <value>`` in [0, 1]; no table without concepts.
    """
    found: list[ZeroShotAuc] = []
    concepts = concepts_of(texts)
    scores = dict(zip(concept_names(concepts), ConceptPrompts(tower, concepts).scores(images).T, strict=True))
    for kind, values in concepts.items():
        truth = np.array([one.concepts.get(kind, "") for one in texts])
        known = truth != ""
        groups = None if split.groups is None else split.groups[known]
        found += [_auc(kind, one, truth[known] == one, scores[f"{kind}: {one}"][known], groups) for one in values]
    table = {"image_id": split.table().image_id} | {name: one.round(6) for name, one in scores.items()}
    return found, pd.DataFrame(table) if scores else None


def recalls(tower: TextTower, images: Floats, texts: Sequence[ImageText], split: TransferSplit) -> list[TextRecall]:
    """Return the recall at 1, 5 and 10 of the own text of each image, and of the own image of each text."""
    written = tower.embedded([one.text for one in texts])
    groups = np.arange(len(texts)) if split.groups is None else split.groups
    both: dict[Literal["image", "text"], NDArray[np.int64]] = {
        "image": own_ranks(images, written),
        "text": own_ranks(written, images),
    }
    return [
        TextRecall(query=query, k=k, recall=TransferEstimate.of(clustered_share(ranks <= k, groups)))
        for query, ranks in both.items()
        for k in RECALL_AT
        if k < len(texts)
    ]


def image_vectors(tower: TextTower, features: NDArray[np.float32]) -> Floats:
    """Return unit vectors (n, E) of features (n, D)."""
    with torch.inference_mode():
        return np.asarray(tower.images(torch.from_numpy(features)).numpy(), dtype=np.float64)


def _prompts(config: TextConfig, key: str, said: str) -> Sequence[str]:
    return config.prompts.get(key) or [one.replace("{}", said) for one in config.templates]


def _embedded(tower: TextTower, prompts: Sequence[Sequence[str]]) -> Floats:
    """Return the mean of the embeddings of each list of prompts, as unit vectors (K, E)."""
    means = np.stack([tower.embedded(list(each)).mean(axis=0) for each in prompts])
    return means / np.linalg.norm(means, axis=1, keepdims=True)


def _similar(tower: TextTower, images: Floats, means: Floats) -> Floats:
    return float(tower.scale) * images @ means.T + float(tower.bias)


def _auc(
    of: str, value: str, positive: NDArray[np.bool_], score: Floats, groups: NDArray[np.object_] | None
) -> ZeroShotAuc:
    estimate = TransferEstimate.of(auc(positive, score, groups))
    return ZeroShotAuc(of=of, value=value, n_positive=int(positive.sum()), auc=estimate)
