"""Cross-validation and hold-out: images -> folds -> one trained model each -> pooled predictions -> metrics -> report.

``usvit cv`` (k folds) and ``usvit train`` (one hold-out) are the same experiment on different folds. In each fold,
training, every choice (early stopping) and the test use three different splits, and no group (patient, cluster of
near-duplicates) is in two of them.
"""

import json
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import lightning_fabric
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import usvit.evaluation as evaluation
import usvit.reports as reports
from usvit.config import RunConfig
from usvit.data.datasets import described_table
from usvit.data.loading import PixelStore, Store, eval_batches, place_pixels, train_batches
from usvit.data.splits import check_folds, folds_sha256, read_folds, repeat_of, rows_of_split, write_seen
from usvit.data.transforms import make_augment, resolve_on
from usvit.errors import UsvitError
from usvit.experiments.base import Experiment, write_model
from usvit.experiments.cross_validation_setup import (
    CrossValidationSetup,
    Kind,
    default_out,
    folds_at_once,
    planned_threads,
    prepare,
    run_record,
)
from usvit.experiments.fold_worker import TrainFold
from usvit.experiments.model_metadata import (
    Learnt,
    adapter_of,
    calibration_of,
    downstream_metadata,
    ood_of,
    unit_thresholds,
)
from usvit.experiments.parallel_folds import train_side_by_side
from usvit.experiments.run_directory import RunDirectory
from usvit.experiments.training_units import TrainingUnits, view_scores, write_attention
from usvit.experiments.validation import Validation
from usvit.files import for_the_owner_alone, write_atomic, write_bytes, write_csv
from usvit.models import WithMaskHead, lora_state, ood, statistics_of
from usvit.progress import Progress
from usvit.records import MetricsRecord, ModelMetadata, RunRecord, save_record
from usvit.seeding import derive_seed
from usvit.training import (
    FeatureStore,
    FitResult,
    HeadTraining,
    MaskedClassificationTask,
    NetworkOutputs,
    Subject,
    Trainer,
    WeightedCrossEntropy,
    fit_logistic_head,
    predict,
    recompute_statistics,
    seed_everything,
    torch_threads,
)

logger = logging.getLogger(__name__)


class CrossValidation(Experiment[CrossValidationSetup, None, MetricsRecord]):
    """A cross-validation (``cv``) or a hold-out (``train``).

    Args:
        kind: ``cv`` or ``train``.
        config: The complete configuration.
        **arguments: Those of ``Experiment``.
    """

    result_model = MetricsRecord

    def __init__(self, kind: Kind, config: RunConfig, **arguments: Any):
        super().__init__(**arguments)
        self.kind, self.config = kind, config

    def prepare(self) -> CrossValidationSetup:
        return prepare(self.kind, self.config, self.roots, self.progress)

    def default_out(self, setup: CrossValidationSetup) -> Path:
        return default_out(self.kind, self.config)

    def new_record(self, setup: CrossValidationSetup) -> RunRecord:
        return run_record(setup, self.command)

    @contextmanager
    def opened(self, setup: CrossValidationSetup) -> Iterator[RunDirectory]:
        with for_the_owner_alone(setup.manifest.is_private), super().opened(setup) as run:
            yield run

    def train(self, setup: CrossValidationSetup, run: RunDirectory) -> None:
        _train_all(setup, run, self.progress)

    def conclude(self, setup: CrossValidationSetup, run: RunDirectory, trained: None) -> None:
        _conclude(setup, run)

    def report(self, run: RunDirectory) -> None:
        if not (run.path / "report.html").is_file():
            reports.write_report(run.path)


def _train_all(setup: CrossValidationSetup, run: RunDirectory, progress: Progress) -> None:
    rows = setup.manifest.usable
    folds_file = run.path / "folds.csv"
    if folds_file.is_file() and folds_sha256(read_folds(folds_file)) != folds_sha256(setup.folds):
        raise UsvitError(f"{folds_file} has been changed since the run began. Restore it, or choose another --out.")
    if setup.config.split.unit == "group":
        check_folds(setup.folds, rows)
    write_csv(folds_file, setup.folds)
    table = described_table(setup.manifest, setup.manifest.shown)
    write_atomic(run.path / "manifest.parquet", lambda file: table.to_parquet(file, index=False))
    todo = run.unfinished(setup.n_folds, "predictions.csv")
    if not todo:
        return
    if setup.weights.source != "scratch":
        logger.info(f"Weights {setup.weights.name}: {setup.loaded.line()}")
    logger.info(str(setup.tuned))

    def log_result(fold: int, result: FitResult) -> None:
        logger.info(_fold_line(setup, fold, result))

    def decode() -> PixelStore:
        return PixelStore.build(
            setup.manifest,
            setup.preprocessing,
            memory_gb=setup.config.input.cache_gb,
            folder=run.path,
            progress=progress,
            with_lesions=setup.config.input.augment != "none" or setup.config.loss.mask_weight > 0,
            cache=setup.config.data.cache,
        )

    def decode_and_measure() -> tuple[PixelStore, NDArray[np.float32]]:
        store = decode()
        return store, _statistics(setup, store, setup.device.fabric().device)

    threads = run.record.folds.threads or planned_threads(setup)
    at_once = min(folds_at_once(setup, threads), len(todo))
    if at_once > 1:
        setup.built.clear()  # each process builds its own networks
        train_side_by_side(setup, run, todo, decode_and_measure, _fold_trainer, at_once, threads, progress, log_result)
        return
    with torch_threads(threads):
        train = _fold_trainer(setup, decode(), None, progress)
        for fold in todo:
            log_result(fold, train(run, fold))


def _fold_trainer(
    setup: CrossValidationSetup,
    decoded: PixelStore,
    statistics: NDArray[np.float32] | None,
    progress: Progress,
    gpu: int | None = None,
    copies: int = 1,
) -> TrainFold:
    """Return the function that trains a fold in this process; all folds share the pixels.

    Args:
        setup: The resolved run.
        decoded: The images.
        statistics: (N, 23) of all images; None to compute them when a fold first needs them, after its training.
        progress: Shows the progress.
        gpu: Number of the GPU; None for the first, and for a CPU.
        copies: Number of processes that train folds on this device.
    """
    fabric = setup.device.fabric(gpu)
    store = place_pixels(decoded, fabric.device, setup.config.input.device_store, copies)
    heads = HeadTraining(
        store,
        fabric,
        setup.preprocessing,
        augmented=setup.config.input.augment != "none" and not setup.config.train.head_first,
        batch_size=_eval_size(setup),
        progress=progress,
        cache=setup.config.data.cache if setup.manifest.is_public else None,
    )
    rows = setup.manifest.usable

    @cache
    def measured() -> NDArray[np.float32]:
        return _statistics(setup, decoded, fabric.device) if statistics is None else statistics

    def train(run: RunDirectory, fold: int) -> FitResult:
        return _run_fold(setup, run, fold, rows, store, measured, heads, fabric, progress)

    return train


def _run_fold(
    setup: CrossValidationSetup,
    run: RunDirectory,
    fold: int,
    rows: pd.DataFrame,
    store: Store,
    statistics: Callable[[], NDArray[np.float32]],
    heads: HeadTraining,
    fabric: lightning_fabric.Fabric,
    progress: Progress,
) -> FitResult:
    """Train and test one fold; its folder is complete once it holds ``predictions.csv``."""
    config, folder = setup.config, run.fold(fold)
    at = {split: rows_of_split(setup.folds, rows, split, fold) for split in ("train", "val", "test")}
    units = TrainingUnits.of(config.loss, rows, setup.classes, setup.manifest.positive_class)

    model = setup.network(fold)
    subject, optim = Subject(model, store, setup.preprocessing.normalised), config.optim
    if config.model.tune == "head":
        # The head is the last layer, whose learning rate is not decayed.
        subject, optim = heads.subject(model), optim.model_copy(update={"layer_decay": None})
    loss_fn = WeightedCrossEntropy(units.class_weights(at["train"]), len(setup.classes), config.loss.label_smoothing)
    with_masks = config.loss.mask_weight > 0
    on_device = resolve_on(config.input.augment_on, fabric.device.type) and not with_masks
    batches = train_batches(
        subject.store,
        at["train"],
        units.targets[at["train"]],
        batch_size=config.train.batch_size,
        augment=make_augment(config.input.augment),
        seed=derive_seed(config.seed, "batches", fold),
        workers=config.workers,
        device=fabric.device if on_device else None,
        units=units.of_rows(at["train"]),
        masked=rows.mask_path.notna().to_numpy() if with_masks else None,
    )

    def outputs_of(wrapped: Any, which: NDArray[np.int64]) -> NetworkOutputs:
        return _outputs(setup, subject, fabric, which, wrapped)

    def statistics_of_training(wrapped: Any) -> None:
        size, seed = _eval_size(setup), derive_seed(config.seed, "statistics", fold)
        order = np.random.default_rng(seed).permutation(at["train"])
        whole = order[: len(order) // size * size] if len(order) > size else order  # batches of one size
        recompute_statistics(wrapped, fabric, subject.prepare, eval_batches(subject.store, whole, size))

    validation = Validation(loss_fn, units, at["val"], lambda wrapped: outputs_of(wrapped, at["val"]))
    # Checkpoints hold the state of the random generators, so that a resumed training draws the same dropout masks.
    seed_everything(config.seed, "train", fold)
    checkpoint = folder / "state.pt"
    loss_fn = loss_fn.to(fabric.device)
    task = units.task(subject, loss_fn, lambda module, which: outputs_of(fabric.setup_module(module), which))
    if with_masks:
        decoded = WithMaskHead(model, config.model.image_size, setup.spec.name)
        task = MaskedClassificationTask(decoded, loss_fn, subject.prepare, config.loss.mask_weight)
    if config.optim.name == "logistic":
        result = _logistic_head(setup, subject, validation, fabric, units, loss_fn, at["train"])
    else:
        if config.train.head_first and not checkpoint.is_file():
            frozen = heads.subject(model)
            first = partial(_outputs, setup, frozen, fabric, at["val"])
            chosen = Validation(loss_fn, units, at["val"], first)
            _logistic_head(setup, frozen, chosen, fabric, units, loss_fn, at["train"])
        result = Trainer(
            task,
            fabric,
            batches,
            validation,
            train=config.train.model_copy(update={"batch_norm": config.batch_norm}),
            optim=optim,
            checkpoint=checkpoint,
            name=setup.fold_name(fold),
            progress=progress,
            on_best=validation.keep,
            statistics=statistics_of_training if config.batch_norm == "recomputed" else None,
        ).fit()
    times = result.phases
    with times.phase("prediction"):
        wrapped = fabric.setup_module(subject.module)
        # A resumed training may have evaluated the kept weights in an earlier process.
        val = validation.outputs(config.train.early_stopping.keep) or outputs_of(wrapped, at["val"])
        fitted = ood.training_sample(at["train"], derive_seed(config.seed, "novelty", fold))
        outputs = val + outputs_of(wrapped, np.concatenate([at["test"], fitted]))
        attention = units.attention(
            task,
            lambda which: outputs_of(wrapped, which),
            at["train"],
            (val, at["val"]),
            loss_fn.class_weights,
            derive_seed(config.seed, "attention", fold),
        )
    which = np.concatenate([at["val"], at["test"]])
    logits = outputs.logits[: len(which)]
    if not np.isfinite(outputs.logits).all():
        raise UsvitError("The trained model's outputs are not finite. Use --precision fp32 or a lower optim.lr.")
    splits = ["val"] * len(at["val"]) + ["test"] * len(at["test"])
    repeat = repeat_of(setup.folds, fold) if setup.n_repeats > 1 else None
    scores = None if attention is None else view_scores(attention, outputs, units.codes[which])
    table = evaluation.predictions_table(
        rows.iloc[which], logits, classes=setup.classes, fold=fold, part=splits, repeat=repeat, view_score=scores
    )

    write_csv(folder / "history.csv", result.history)
    with times.phase("novelty and calibration"):
        observed = ood.Observed(outputs.features, statistics()[np.concatenate([which, fitted])])
        of_val, of_test, of_train = np.split(np.arange(len(observed)), [len(at["val"]), len(which)])
        group = rows.group_id.to_numpy(object)
        detector = ood.fit_ood_detector(
            observed[of_train], units.image_targets[fitted], observed[of_val], group[at["val"]]
        )
        content = b"" if isinstance(detector, str) else detector.save()
        positive = setup.manifest.positive_class
        calibrated = calibration_of(rows.iloc[at["val"]], logits[: len(at["val"])], setup.classes, positive, fold)
        of_units = None
        if not setup.units.of_images:
            inner = evaluation.with_unit_columns(table[table["part"] == "val"], rows)
            of_units = unit_thresholds(inner, setup.units, positive, calibrated.temperature)
        novelty = (
            detector
            if isinstance(detector, str)
            else ood_of(detector, content, observed[of_test], group[at["test"]], repeat)
        )

    def metadata(weights_sha256: str) -> ModelMetadata:
        if content:
            write_bytes(folder / ood.NOVELTY_FILE, content)
        described = None if attention is None else write_attention(folder, attention, config.loss)
        seen = write_seen(
            folder,
            {name: rows.sha256.iloc[at[name]].tolist() for name in ("train", "val")},
            setup.weights.of_fold(fold),
            described=setup.manifest.descriptions,
            name=f"the images of {'+'.join(setup.manifest.roots)}",
        )
        learnt, own = Learnt(result, weights_sha256, seen), replace(calibrated, of_units=of_units)
        return downstream_metadata(setup, fold, learnt, own, novelty, described)

    with times.phase("files"):
        if adapter := adapter_of(config, setup.weights.of_fold(fold)):
            header = {"usvit": json.dumps({"adapter": adapter.content()}, sort_keys=True)}
            write_model(folder, lora_state(model), metadata, header)
        else:
            write_model(folder, model.state_dict(), metadata)
    run.enter(result.record(fold, times.rounded()))
    write_csv(folder / "predictions.csv", table)  # the last file: it marks the fold as complete
    checkpoint.unlink(missing_ok=True)
    return result


def _outputs(
    setup: CrossValidationSetup, subject: Subject, fabric: lightning_fabric.Fabric, at: NDArray[np.int64], wrapped: Any
) -> NetworkOutputs:
    return predict(wrapped, fabric, subject.prepare, eval_batches(subject.store, at, _eval_size(setup)))


def _logistic_head(
    setup: CrossValidationSetup,
    subject: Subject,
    validation: Validation,
    fabric: lightning_fabric.Fabric,
    units: TrainingUnits,
    loss_fn: WeightedCrossEntropy,
    at: NDArray[np.int64],
) -> FitResult:
    """Fit the head of a fold by logistic regression, and choose its strength on the inner validation images."""
    if not isinstance(subject.store, FeatureStore):
        first = setup.config.train.head_first
        raise UsvitError(
            f"{'train.head_first' if first else 'optim.name=logistic'} needs a network that ends in its classifier, "
            f"and {setup.spec.name} has other layers there. "
            f"{'Set it to false.' if first else 'Set model.features=last, or another optim.name.'}"
        )
    targets, votes = units.targets[at], units.votes(at)
    weights = loss_fn.class_weights.cpu().numpy().astype(np.float64)[targets]
    module = subject.module.to(fabric.device).eval()
    return fit_logistic_head(
        list(module.parts),  # type: ignore[arg-type]
        subject.store[at],
        targets,
        weights if votes is None else weights * votes,
        setup.config.optim.strengths,
        lambda: validation(fabric.setup_module(module)),
        setup.config.train.early_stopping,
        validation.keep,
    )


def _statistics(setup: CrossValidationSetup, store: PixelStore, device: torch.device) -> NDArray[np.float32]:
    return statistics_of(eval_batches(store, np.arange(len(store)), _eval_size(setup)), device)


def _eval_size(setup: CrossValidationSetup) -> int:
    """Return the batch size of inference."""
    return setup.config.train.micro_batch or setup.config.train.batch_size


def _conclude(setup: CrossValidationSetup, run: RunDirectory) -> None:
    """Pool the test predictions of all folds, in the order of the manifest, and write the metrics."""
    rows = setup.manifest.usable
    tables = [evaluation.read_predictions(run.fold(fold) / "predictions.csv") for fold in range(setup.n_folds)]
    everything = pd.concat(tables, ignore_index=True)
    pooled, inner = everything[everything.part == "test"], everything[everything.part == "val"]
    evaluation.check_complete(pooled, setup.folds[setup.folds.part == "test"], setup.n_folds)
    order = {key: index for index, key in enumerate(zip(rows.dataset, rows.image_id, strict=True))}
    position = np.array([order[key] for key in zip(pooled.dataset, pooled.image_id, strict=True)])
    pooled = pooled.iloc[np.lexsort((position, evaluation.repeats_of(pooled)))]
    write_csv(run.path / "predictions.csv", pooled)
    # The inner validation rows choose thresholds and fit temperatures; the test rows are measured.
    measured = pd.concat([pooled, inner], ignore_index=True)
    units = setup.units
    positive = setup.manifest.positive_class
    metrics = evaluation.summarise(measured, classes=setup.classes, positive=positive, columns=rows, units=units)
    save_record(run.path / "metrics.json", evaluation.with_contamination(metrics, setup.contamination))
    if setup.manifest.skipped:
        write_csv(run.path / "skipped.csv", pd.DataFrame([one.content() for one in setup.manifest.skipped_files]))


def _fold_line(setup: CrossValidationSetup, fold: int, result: FitResult) -> str:
    last = result.history[result.history.step == result.best_step]
    loss = f", inner validation loss {last.val_loss.iloc[0]:.3f}" if len(last) else ""
    return (
        f"{setup.fold_name(fold)}: {result.steps} steps in {result.seconds:.0f} s "
        f"({result.images_per_second:.1f} images/s), kept step {result.best_step}{loss}. Time: {result.phases.line()}"
    )
