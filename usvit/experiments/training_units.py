"""Units of a fine-tuning: how the images of one lesion, breast, exam or patient count, and how they are pooled."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import nn

from usvit.config.sections import LossConfig
from usvit.data.loading import UnitsOfRows
from usvit.data.unit_numbers import unit_codes, unit_targets, votes_of
from usvit.errors import UsvitError
from usvit.files import write_bytes
from usvit.models import ATTENTION_FILE, ViewAttention, WithViewAttention, pooled_views
from usvit.records import AttentionRecord
from usvit.training import (
    ClassificationTask,
    HeadOnFeatures,
    NetworkOutputs,
    Subject,
    ViewsTask,
    WeightedCrossEntropy,
    balanced_class_weights,
    fit_view_attention,
)

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class TrainingUnits:
    """The units of the images of a run.

    Args:
        loss: ``vote``, ``attention``, ``views`` and ``class_weights``.
        image_targets: (N,) class of each image.
        codes: (N,) number of the unit of each image.
        unit_targets: (N,) class of that unit.
        n_classes: K.
    """

    loss: LossConfig
    image_targets: NDArray[np.int64] = field(repr=False)
    codes: NDArray[np.int64] = field(repr=False)
    unit_targets: NDArray[np.int64] = field(repr=False)
    n_classes: int

    @classmethod
    def of(cls, loss: LossConfig, rows: pd.DataFrame, classes: tuple[str, ...], positive: str) -> "TrainingUnits":
        """Find the unit of each image.

        Raises:
            UsvitError: no image has an id of ``loss.vote``.
        """
        targets = np.array([classes.index(label) for label in rows.label], dtype=np.int64)
        codes = unit_codes(rows, loss.vote)
        return cls(loss, targets, codes, unit_targets(targets, codes, classes.index(positive)), len(classes))

    @property
    def pooled(self) -> bool:
        """True if the network is trained on units, whose views attention pools."""
        return self.loss.attention == "trained"

    @cached_property
    def targets(self) -> NDArray[np.int64]:
        """(N,) class that the network learns for each image."""
        return self.unit_targets if self.pooled else self.image_targets

    def votes(self, at: Rows) -> NDArray[np.float32] | None:
        """Return the weight of each of the images ``at``; None if all are equal."""
        return None if self.pooled or self.loss.vote == "image" else votes_of(_from_zero(self.codes[at]))

    def of_rows(self, at: Rows) -> UnitsOfRows:
        """Return the units of the training images ``at`` for their loader."""
        if self.pooled:
            return UnitsOfRows(numbers=self.codes[at], views=self.loss.views)
        return UnitsOfRows(votes=self.votes(at))

    def class_weights(self, at: Rows) -> NDArray[np.float64] | None:
        """Return the (K,) weights of the classes from the training images ``at``; None for equal weights."""
        if self.loss.class_weights != "balanced":
            return None
        if self.pooled:
            return balanced_class_weights(self.unit_targets[self._first(at)], self.n_classes)
        votes = self.votes(at)
        return balanced_class_weights(
            self.image_targets[at], self.n_classes, None if votes is None else votes.astype(np.float64)
        )

    def measured(self, wrapped: nn.Module, outputs: NetworkOutputs, at: Rows) -> tuple[torch.Tensor, NDArray[np.int64]]:
        """Return what is evaluated of the images ``at`` in training: logits, (n, K), and their classes, (n,).

        They are those of the images, or of the units if the network is trained on units.
        """
        logits = torch.from_numpy(outputs.logits)
        if not self.pooled:
            return logits, self.image_targets[at]
        module = getattr(wrapped, "module", wrapped)
        assert isinstance(module, WithViewAttention)
        pooled, _ = pooled_views(
            logits, _scores(module.attention, outputs, self.codes[at]), torch.from_numpy(self.codes[at])
        )
        return pooled, self.unit_targets[self._first(at)]

    def task(
        self, subject: Subject, loss_fn: WeightedCrossEntropy, outputs_of: Callable[[nn.Module, Rows], NetworkOutputs]
    ) -> ClassificationTask:
        """Return the task that trains the subject.

        Args:
            subject: the network, or its head.
            loss_fn: the weighted loss.
            outputs_of: computes the outputs of some images with a module.

        Raises:
            UsvitError: attention is to be trained, and the network does not expose the input of its classifier.
        """
        if not self.pooled:
            return ClassificationTask(subject.module, loss_fn, subject.prepare)
        features = _features(outputs_of(subject.module, np.arange(1)))
        on_features = isinstance(subject.module, HeadOnFeatures)
        layers = self.loss.attention_layers
        module = WithViewAttention(subject.module, features.shape[1], on_features=on_features, layers=layers)
        return ViewsTask(module, loss_fn, subject.prepare)

    def attention(
        self,
        task: ClassificationTask,
        outputs_of: Callable[[Rows], NetworkOutputs],
        train: Rows,
        validation: tuple[NetworkOutputs, Rows],
        class_weights: torch.Tensor,
        seed: int,
    ) -> ViewAttention | None:
        """Return the attention of the trained network, which is fitted now for ``attention=fitted``; None without one.

        Args:
            task: what was trained.
            outputs_of: computes the outputs of some images with the trained network.
            train: rows of the training images.
            validation: outputs and rows of the inner validation images.
            class_weights: (K,) weights of the classes.
            seed: seed of the first weights.
        """
        if self.pooled:
            assert isinstance(task.module, WithViewAttention)
            return task.module.attention
        if self.loss.attention == "none":
            return None
        outputs, at = validation
        _features(outputs)
        return fit_view_attention(
            outputs_of(train),
            self.unit_targets[train],
            self.codes[train],
            outputs,
            self.unit_targets[at],
            self.codes[at],
            class_weights.cpu(),
            seed,
            self.loss.attention_layers,
        )

    def _first(self, at: Rows) -> Rows:
        """Return one of the images ``at`` of each unit, in ascending order of the units' numbers."""
        return at[np.unique(self.codes[at], return_index=True)[1]]


def write_attention(folder: Path, attention: ViewAttention, loss: LossConfig) -> AttentionRecord:
    """Write ``attention.safetensors`` into the folder of a fold, and return its entry of ``model.json``."""
    content = save({name: tensor.cpu().contiguous() for name, tensor in attention.state_dict().items()})
    write_bytes(folder / ATTENTION_FILE, content)
    return AttentionRecord(
        file=ATTENTION_FILE,
        sha256=hashlib.sha256(content).hexdigest(),
        unit=loss.vote,
        fitted=loss.attention,
        layers=loss.attention_layers or None,
    )


def view_scores(attention: ViewAttention, outputs: NetworkOutputs, codes: Rows) -> NDArray[np.float64]:
    """Return the score of each of the first n images, whose softmax over the views of a unit is its weight.

    Args:
        attention: the attention.
        outputs: the outputs of n or more images.
        codes: (n,) number of the unit of each image.
    """
    return _scores(attention, outputs, codes).double().numpy()


@torch.no_grad()
def _scores(attention: ViewAttention, outputs: NetworkOutputs, codes: Rows) -> torch.Tensor:
    device = next(attention.parameters()).device
    features = torch.from_numpy(_features(outputs)[: len(codes)]).to(device)
    return attention(features, torch.from_numpy(codes)).cpu()


def _features(outputs: NetworkOutputs) -> NDArray[np.float32]:
    if outputs.features is None:
        raise UsvitError(
            "loss.attention weighs the views of a unit by the input of the network's classifier, and this network does "
            "not expose one. Set loss.attention to none, or choose another model."
        )
    return outputs.features


def _from_zero(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.unique(codes, return_inverse=True)[1]
