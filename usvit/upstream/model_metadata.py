"""Metadata (``model.json``) of a network that was pre-trained or transferred."""

from typing import Any, Protocol

from usvit.data.datasets import Manifest, UpstreamDataset
from usvit.experiments import Statistics, TrainedSetup, network_entries, origin_entries, training_entries
from usvit.models import UPSTREAM
from usvit.records import ModelMetadata
from usvit.training import FitResult
from usvit.upstream.config.pretrain import PretrainConfig


class UpstreamSetup(TrainedSetup, Protocol):
    """The part of a ``PretrainingSetup`` or a ``TransferSetup`` that metadata describes."""

    @property
    def config(self) -> PretrainConfig: ...

    @property
    def inputs(self) -> Statistics: ...

    @property
    def manifest(self) -> Manifest | None: ...


def upstream_metadata(
    setup: UpstreamSetup,
    fold: int,
    source: UpstreamDataset,
    result: FitResult,
    weights_sha256: str,
    seen: dict[str, Any],
) -> dict[str, Any]:
    """Return ``model.json`` of a fold of a pre-training, or of a transfer.

    Args:
        setup: The resolved run.
        fold: Number of the fold, from 0.
        source: The images that the network was trained on.
        result: What ``fit`` returned.
        weights_sha256: The SHA-256 of ``model.safetensors``.
        seen: The entries that ``usvit.data.splits.leakage.write_seen`` returned.
    """
    config = setup.config
    resize = "pad" if config.objective == "signs" else "squash"
    return {
        "schema_version": ModelMetadata.VERSION,
        "stage": UPSTREAM,
        "objective": config.objective,
        "architecture": "tokenizer" if config.objective == "tokenizer" else setup.spec.name,
        **network_entries(setup, None, config.model.image_size, resize, setup.inputs, "tissue"),
        "tune": config.model.tune,
        "weights_sha256": weights_sha256,
        "temperature": None,
        "thresholds": [],
        "novelty": None,
        **training_entries(config, fold, result),
        "source": source.describe(),
        **origin_entries(setup, fold, setup.manifest),
        # The settings without which the saved network cannot be built again.
        **({config.objective: getattr(config, config.objective).model_dump()} if config.objective in _OWN else {}),
        **seen,
        "intended_use": "research only; not a medical device",
    }


_OWN = ("tokenizer", "grafit")
