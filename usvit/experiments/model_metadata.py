"""The metadata of a trained network (``model.json``): what it is, where it came from, and which images it has seen."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

import usvit.evaluation as evaluation
from usvit.config import Training
from usvit.config.evaluation import UnitSettings
from usvit.data.datasets import Manifest
from usvit.data.transforms import Preprocessing
from usvit.models import ModelSpec, Observed, OodDetector, UpstreamModel, Weights
from usvit.plain_data import Json
from usvit.records import AdapterRecord, AttentionRecord, ModelMetadata, ThresholdRecord, WeightsRecord
from usvit.records.model import OodRecord, UnitThresholds
from usvit.records.seen_images import SeenRecord
from usvit.records.weights_origin import BaseRecord
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


class _DownstreamSetup(TrainedSetup, Protocol):
    """The part of a ``CrossValidationSetup`` that metadata describes."""

    @property
    def config(self) -> Training: ...

    @property
    def preprocessing(self) -> Preprocessing: ...

    @property
    def manifest(self) -> Manifest: ...

    def teacher_of(self, fold: int) -> tuple[UpstreamModel, ...]: ...


@dataclass(frozen=True)
class Learnt:
    """What a fold has besides the tensors of its network."""

    result: FitResult
    """What ``fit`` returned."""
    weights_sha256: str
    """SHA-256 of ``model.safetensors``."""
    seen: SeenRecord
    """What ``usvit.data.splits.leakage.write_seen`` returned."""


@dataclass(frozen=True)
class Calibrated:
    """Temperature and thresholds of a network; a value that the images do not give is None, with the reason."""

    temperature: float | None
    temperature_reason: str | None
    thresholds: list[ThresholdRecord]
    """Thresholds of the positive class by ``RULES``."""
    of_units: UnitThresholds | None = None
    """Those of the units, if the run has a unit."""


def downstream_metadata(
    setup: _DownstreamSetup,
    fold: int,
    learnt: Learnt,
    calibrated: Calibrated,
    novelty: OodRecord | str,
    attention: AttentionRecord | None = None,
) -> ModelMetadata:
    """Return ``model.json`` of a fold of a cross-validation or a hold-out.

    Args:
        setup: The resolved run.
        fold: Number of the fold, from 0.
        learnt: What the training gave.
        calibrated: What ``calibration_of`` returned.
        novelty: The OOD detector, or the reason why there is none.
        attention: The attention over views; None without one.
    """
    return ModelMetadata(
        **common_entries(setup, fold, setup.config, setup.manifest, learnt),
        architecture=setup.spec.name,
        positive_class=setup.manifest.positive_class,
        preprocessing=setup.preprocessing.record(),
        adapter=adapter_of(setup.config, setup.weights.of_fold(fold)),
        temperature=calibrated.temperature,
        temperature_reason=calibrated.temperature_reason,
        thresholds=calibrated.thresholds,
        unit_thresholds=calibrated.of_units,
        novelty=None if isinstance(novelty, str) else novelty,
        novelty_reason=novelty if isinstance(novelty, str) else None,
        attention=attention,
        learnt_from=[one.record() for one in setup.teacher_of(fold)] or None,
    )


def adapter_of(config: Training, weights: Weights) -> AdapterRecord | None:
    """Return the metadata's entry ``adapter``; None unless the adapters of ``model.tune=lora`` are trained.

    Args:
        config: The settings of the run.
        weights: The initial weights of the fold, which are the base of the adapters.
    """
    if config.model.tune != "lora":
        return None
    base = BaseRecord.model_validate({key: getattr(weights, key) for key in BaseRecord.model_fields})
    lora = config.model.lora
    return AdapterRecord(method="lora", rank=lora.rank, alpha=lora.alpha, targets=list(lora.targets), base=base)


def common_entries(setup: TrainedSetup, fold: int, config: Training, manifest: Manifest | None, learnt: Learnt) -> Json:
    """Return the entries that all metadata has."""
    scratch = setup.weights.source == "scratch"
    return {
        "vit": dict(setup.spec.changed),
        "timm": setup.spec.architecture,
        **({"features": dict(setup.spec.features)} if setup.spec.features else {}),
        "classes": list(setup.classes),
        "tune": config.model.tune,
        "weights_sha256": learnt.weights_sha256,
        "fold": fold,
        "steps": learnt.result.steps,
        "best_step": learnt.result.best_step,
        "recipe": config.recipe,
        "seed": config.seed,
        "upstream": WeightsRecord(source="scratch") if scratch else setup.weights.of_fold(fold).record(),
        "data_licenses": {} if manifest is None else manifest.licenses,
        **dict(learnt.seen),
        "intended_use": "research only; not a medical device",
    }


def calibration_of(
    inner: pd.DataFrame, logits: NDArray[np.float32], classes: Sequence[str], positive: str, fold: int
) -> Calibrated:
    """Fit the temperature of a fold's network and choose its thresholds on the inner validation images.

    Args:
        inner: The n rows of the inner validation images, with the columns ``label`` and ``group_id``.
        logits: The network's outputs for them, of shape (n, K).
        classes: The K classes.
        positive: The class that the thresholds separate from the others.
        fold: Number of the fold, from 0.
    """
    codes = np.array([classes.index(label) for label in inner.label], dtype=np.int64)
    k, scores = classes.index(positive), logits.astype(np.float64)
    none = "no inner validation images"
    fit = evaluation.fit_temperature(codes, scores) if len(inner) else evaluation.NoFit(none)
    prob = (evaluation.Temperature(1.0) if isinstance(fit, evaluation.NoFit) else fit).log_prob(scores)[:, k]
    chosen_on = f"inner validation images of fold {fold}"
    thresholds = _thresholds(inner, codes == k, np.exp(prob), not isinstance(fit, evaluation.NoFit), chosen_on)
    if isinstance(fit, evaluation.NoFit):
        return Calibrated(None, fit.reason, thresholds)
    return Calibrated(fit.value, None, thresholds)


def unit_thresholds(
    inner: pd.DataFrame, settings: UnitSettings, positive: str, temperature: float | None
) -> UnitThresholds | None:
    """Choose the thresholds of units on the inner validation images of a fold; None if none of these has the unit.

    Args:
        inner: The predictions of the inner validation images.
        settings: The unit.
        positive: The class that the thresholds separate from the others.
        temperature: The temperature that ``calibration_of`` fitted.
    """
    if not evaluation.identified(inner, settings).any():
        return None
    units, record = evaluation.calibrated_units(inner, settings, positive, temperature)
    reference, score = (units["label"] == positive).to_numpy(), units[f"prob_{positive}"].to_numpy(np.float64)
    chosen_on = f"inner validation {settings.unit}s of fold {int(units['fold'].iloc[0])}"
    return UnitThresholds(
        units=record, thresholds=_thresholds(units, reference, score, temperature is not None, chosen_on)
    )


def _thresholds(
    inner: pd.DataFrame, reference: NDArray[np.bool_], score: NDArray[np.float64], calibrated: bool, chosen_on: str
) -> list[ThresholdRecord]:
    thresholds = []
    for rule in evaluation.RULES:
        if len(inner):
            choice = evaluation.choose_threshold(reference, score, rule)
        elif rule.kind == "fixed":  # a fixed threshold needs no images
            choice = evaluation.Choice(rule.target)
        else:
            choice = evaluation.Choice(None, "no inner validation images")
        thresholds.append(
            ThresholdRecord(
                rule=rule.name,
                threshold=choice.threshold,
                reason=choice.reason,
                score="calibrated probability" if calibrated else "plain probability",
                chosen_on=chosen_on,
                n_images=len(inner),
                n_groups=int(inner.group_id.nunique()),
            )
        )
    return thresholds


def ood_of(
    detector: OodDetector, content: bytes, test: Observed, group: ArrayLike, repeat: int | None = None
) -> OodRecord:
    """Describe the OOD detector of a fold, and measure how often it flags images like the training images.

    Args:
        detector: The detector that ``fit_ood_detector`` returned.
        content: The content of its file.
        test: The fold's n test images, on which the detector was not fitted.
        group: Group of each test image, of shape (n,); the interval of the rate counts groups.
        repeat: Number of the repeat in a repeated cross-validation, so that no image is counted twice when rates are
            pooled.
    """
    from usvit.metrics.clustered_wilson import ShareSums, rate_record  # on use, as SciPy's distributions load slowly

    return detector.record(content, rate_record(ShareSums.of(detector.of(test) > 1, group), repeat))
