"""The metadata of a trained network (``model.json``): what it is, where it came from, and which images it has seen."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

import usvit.evaluation as evaluation
from usvit.config import Training
from usvit.data.datasets import Manifest
from usvit.data.transforms import Preprocessing
from usvit.models import ModelSpec, Observed, OodDetector, Weights
from usvit.records import ModelMetadata
from usvit.training import FitResult


class Statistics(Protocol):
    """Mean and standard deviation of each channel, on the scale [0, 1]."""

    @property
    def mean(self) -> tuple[float, float, float]: ...

    @property
    def std(self) -> tuple[float, float, float]: ...


class TrainedSetup(Protocol):
    """The part of a setup that all metadata describes."""

    @property
    def spec(self) -> ModelSpec: ...

    @property
    def weights(self) -> Weights: ...

    @property
    def classes(self) -> tuple[str, ...]: ...


class DownstreamSetup(TrainedSetup, Protocol):
    """The part of a ``CrossValidationSetup`` that metadata describes."""

    @property
    def config(self) -> Training: ...

    @property
    def preprocessing(self) -> Preprocessing: ...

    @property
    def manifest(self) -> Manifest: ...


def downstream_metadata(
    setup: DownstreamSetup, fold: int, result: FitResult, learnt: dict[str, Any], seen: dict[str, Any]
) -> dict[str, Any]:
    """Return ``model.json`` of a fold of a cross-validation or a hold-out.

    Args:
        setup: The resolved run.
        fold: Number of the fold, from 0.
        result: What ``fit`` returned.
        learnt: ``weights_sha256``, and the entries of ``calibration_of`` and ``ood_of``.
        seen: The entries that ``usvit.data.splits.leakage.write_seen`` returned.
    """
    used = setup.preprocessing
    return {
        "schema_version": ModelMetadata.VERSION,
        "architecture": setup.spec.name,
        **network_entries(setup, setup.manifest.positive_class, used.image_size, used.resize, used, used.crop),
        "tune": setup.config.model.tune,
        **adapter_of(setup.config, setup.weights.of_fold(fold)),
        **learnt,
        **training_entries(setup.config, fold, result),
        **origin_entries(setup, fold, setup.manifest),
        **seen,
        "intended_use": "research only; not a medical device",
    }


def adapter_of(config: Training, weights: Weights) -> dict[str, Any]:
    """Return the metadata's entry ``adapter``; empty unless the adapters of ``model.tune=lora`` are trained.

    Args:
        config: The settings of the run.
        weights: The initial weights of the fold, which are the base of the adapters.
    """
    if config.model.tune != "lora":
        return {}
    lora = config.model.lora
    base = {key: getattr(weights, key) for key in ("source", "name", "sha256", "upstream")}
    settings = {"rank": lora.rank, "alpha": lora.alpha, "targets": list(lora.targets)}
    return {"adapter": {"method": "lora", **settings, "base": base}}


def network_entries(
    setup: TrainedSetup, positive: str | None, image_size: int, resize: str, statistics: Statistics, crop: str
) -> dict[str, Any]:
    return {
        "vit": dict(setup.spec.changed),
        "timm": setup.spec.architecture,
        "classes": list(setup.classes),
        "positive_class": positive,
        "preprocessing": {
            "image_size": image_size,
            "resize": resize,
            "mean": list(statistics.mean),
            "std": list(statistics.std),
            "crop": crop,
        },
    }


def training_entries(config: Training, fold: int, result: FitResult) -> dict[str, Any]:
    return {
        "fold": fold,
        "steps": result.steps,
        "best_step": result.best_step,
        "recipe": config.recipe,
        "seed": config.seed,
    }


def origin_entries(setup: TrainedSetup, fold: int, manifest: Manifest | None) -> dict[str, Any]:
    scratch = setup.weights.source == "scratch"
    return {
        "upstream": {"source": "scratch"} if scratch else setup.weights.of_fold(fold).describe(),
        "data_licenses": {} if manifest is None else manifest.licenses,
    }


def calibration_of(
    inner: pd.DataFrame, logits: NDArray[np.float32], classes: Sequence[str], positive: str, fold: int
) -> dict[str, Any]:
    """Fit the temperature of a fold's network and choose its thresholds on the inner validation images.

    Args:
        inner: The n rows of the inner validation images, with the columns ``label`` and ``group_id``.
        logits: The network's outputs for them, of shape (n, K).
        classes: The K classes.
        positive: The class that the thresholds separate from the others.
        fold: Number of the fold, from 0.

    Returns:
        The metadata's entries ``temperature``, ``temperature_reason``, and ``thresholds`` of the positive class by
        ``RULES``. A value that the images do not give is None, with the reason.
    """
    codes = np.array([classes.index(label) for label in inner.label], dtype=np.int64)
    k, scores = classes.index(positive), logits.astype(np.float64)
    none = "no inner validation images"
    fit = evaluation.fit_temperature(codes, scores) if len(inner) else evaluation.NoFit(none)
    prob = (evaluation.Temperature(1.0) if isinstance(fit, evaluation.NoFit) else fit).log_prob(scores)[:, k]
    thresholds = []
    for rule in evaluation.RULES:
        if len(inner):
            choice = evaluation.choose_threshold(codes == k, np.exp(prob), rule)
        else:  # a fixed threshold needs no images
            choice = evaluation.Choice(rule.target) if rule.kind == "fixed" else evaluation.Choice(None, none)
        thresholds.append(
            {
                "rule": rule.name,
                "threshold": choice.threshold,
                "reason": choice.reason,
                "score": f"{'plain' if isinstance(fit, evaluation.NoFit) else 'calibrated'} probability",
                "chosen_on": f"inner validation images of fold {fold}",
                "n_images": len(inner),
                "n_groups": int(inner.group_id.nunique()),
            }
        )
    return {
        "temperature": None if isinstance(fit, evaluation.NoFit) else fit.value,
        "temperature_reason": fit.reason if isinstance(fit, evaluation.NoFit) else None,
        "thresholds": thresholds,
    }


def ood_of(
    detector: OodDetector | str, content: bytes, test: Observed, group: ArrayLike, repeat: int | None = None
) -> dict[str, Any]:
    """Describe the OOD detector of a fold, and measure how often it flags images like the training images.

    Args:
        detector: The detector that ``fit_ood_detector`` returned, or the reason why there is none.
        content: The content of its file.
        test: The fold's n test images, on which the detector was not fitted.
        group: Group of each test image, of shape (n,); the interval of the rate counts groups.
        repeat: Number of the repeat in a repeated cross-validation, so that no image is counted twice when rates are
            pooled.

    Returns:
        The metadata's entry ``novelty``, with ``novelty_reason`` if there is no detector.
    """
    if isinstance(detector, str):
        return {"novelty": None, "novelty_reason": detector}
    from usvit.metrics.clustered_wilson import ShareSums, rate_record  # on use, as SciPy's distributions load slowly

    rate = {
        "part": "test",
        **({} if repeat is None else {"repeat": repeat}),
        **rate_record(ShareSums.of(detector.of(test) > 1, group)),
    }
    return {"novelty": {**detector.describe(content), "in_distribution": rate}, "novelty_reason": None}
