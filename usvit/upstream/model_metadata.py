"""Metadata (``model.json``) of a network that was pre-trained or transferred."""

from collections.abc import Sequence
from typing import Protocol

from usvit.data.datasets import Manifest, UpstreamDataset
from usvit.data.transforms import Preprocessing
from usvit.experiments import Learnt, Statistics, TrainedSetup, common_entries
from usvit.models import UPSTREAM
from usvit.records import ModelMetadata
from usvit.records.weights_origin import TeacherRecord
from usvit.upstream.config.pretrain import PretrainConfig


class _UpstreamSetup(TrainedSetup, Protocol):
    """The part of a ``PretrainingSetup`` or a ``TransferSetup`` that metadata describes."""

    @property
    def config(self) -> PretrainConfig: ...

    @property
    def inputs(self) -> Statistics: ...

    @property
    def manifest(self) -> Manifest | None: ...


def upstream_metadata(
    setup: _UpstreamSetup,
    fold: int,
    source: UpstreamDataset,
    learnt: Learnt,
    learnt_from: Sequence[TeacherRecord] = (),
) -> ModelMetadata:
    """Return ``model.json`` of a fold of a pre-training, or of a transfer.

    Args:
        setup: The resolved run.
        fold: Number of the fold, from 0.
        source: The images that the network was trained on.
        learnt: What the training gave.
        learnt_from: The other networks that it learnt from.
    """
    config, inputs = setup.config, setup.inputs
    resize = "pad" if config.objective == "signs" else "squash"
    own = getattr(config, config.objective).model_dump() if config.objective in _OWN else None
    return ModelMetadata(
        **common_entries(setup, fold, config, setup.manifest, learnt),
        stage=UPSTREAM,
        objective=config.objective,
        architecture="tokenizer" if config.objective == "tokenizer" else setup.spec.name,
        positive_class=None,
        preprocessing=Preprocessing(config.model.image_size, resize, inputs.mean, inputs.std).record(),
        temperature=None,
        thresholds=[],
        novelty=None,
        source=source.record(),
        **{config.objective: own} if own else {},
        learnt_from=list(learnt_from) or None,
    )


_OWN = ("tokenizer", "grafit")
"""Objectives without whose settings the saved network cannot be built again."""
