"""The passport of a pre-trained network: what it is, where it came from, and what it has seen."""

from typing import Any, Protocol

from usvit.config import PretrainConfig
from usvit.data.manifest import Manifest
from usvit.data.sources.source import Source
from usvit.job import PASSPORT_SCHEMA
from usvit.models.spec import ModelSpec
from usvit.models.trained import UPSTREAM
from usvit.models.weights import Weights
from usvit.train.loop import FitResult


class Statistics(Protocol):
    """Of each channel, on the scale [0, 1]."""

    @property
    def mean(self) -> tuple[float, float, float]: ...

    @property
    def std(self) -> tuple[float, float, float]: ...


class Learnt(Protocol):
    """What a passport tells of a training: of ``PretrainJob``, or of a transfer's."""

    @property
    def config(self) -> PretrainConfig: ...

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def weights(self) -> Weights: ...

    @property
    def classes(self) -> tuple[str, ...]: ...

    @property
    def inputs(self) -> Statistics: ...

    @property
    def manifest(self) -> Manifest | None: ...


def passport(
    job: Learnt, fold: int, source: Source, result: FitResult, weights_sha256: str, seen: dict[str, Any]
) -> dict[str, Any]:
    """``model.json`` of one fold.

    Args:
        job, fold, result: the training.
        source: what it learnt from.
        weights_sha256: of ``model.safetensors``.
        seen: the entries ``seen_sha256`` and ``seen_copies`` (``usvit.data.seen.write_seen``).
    """
    weights = job.weights.of_fold(fold)
    return {
        "schema_version": PASSPORT_SCHEMA,
        "stage": UPSTREAM,
        "objective": job.config.objective,
        "architecture": "tokenizer" if job.config.objective == "tokenizer" else job.spec.name,
        "vit": dict(job.spec.changed),
        "timm": job.spec.architecture,
        "classes": list(job.classes),
        "positive_class": None,
        "preprocessing": {
            "image_size": job.config.model.image_size,
            "resize": "squash",
            "mean": list(job.inputs.mean),
            "std": list(job.inputs.std),
            "crop": "tissue",
        },
        "tune": job.config.model.tune,
        "weights_sha256": weights_sha256,
        "temperature": None,
        "thresholds": [],
        "novelty": None,
        "fold": fold,
        "steps": result.steps,
        "best_step": result.best_step,
        "recipe": job.config.recipe,
        "seed": job.config.seed,
        "source": source.describe(),
        "upstream": {"source": "scratch"} if weights.source == "scratch" else weights.describe(),
        "data_licenses": {} if job.manifest is None else job.manifest.licenses,
        **_objective(job.config),
        **seen,
        "intended_use": "research only; not a medical device",
    }


def _objective(config: PretrainConfig) -> dict[str, Any]:
    """The settings without which what was saved cannot be built again."""
    if config.objective in ("tokenizer", "grafit"):
        return {config.objective: getattr(config, config.objective).model_dump()}
    return {}
