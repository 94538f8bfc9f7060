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

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

import usvit.evaluation as evaluation
import usvit.reports as reports
from usvit.config import RunConfig
from usvit.data.datasets import described_table
from usvit.data.loading import PixelStore, eval_batches
from usvit.data.splits import check_folds, folds_sha256, read_folds, repeat_of, write_seen
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
from usvit.experiments.fold_masks import MASKS, fold_masks, mask_record, pooled_masks
from usvit.experiments.fold_training import FoldTrainer
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
from usvit.experiments.training_units import view_scores, write_attention
from usvit.files import for_the_owner_alone, write_atomic, write_bytes, write_csv
from usvit.models import lora_state, ood, statistics_of
from usvit.progress import Progress
from usvit.records import MetricsRecord, ModelMetadata, RunRecord, save_record
from usvit.seeding import derive_seed
from usvit.training import (
    FitResult,
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
            with_lesions=setup.config.input.augment != "none" or setup.config.learns_masks,
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
    trainer = FoldTrainer(setup, decoded, progress, gpu, copies)

    @cache
    def measured() -> NDArray[np.float32]:
        return _statistics(setup, decoded, trainer.fabric.device) if statistics is None else statistics

    def train(run: RunDirectory, fold: int) -> FitResult:
        return _run_fold(setup, run, fold, trainer, measured)

    return train


def _run_fold(
    setup: CrossValidationSetup,
    run: RunDirectory,
    fold: int,
    trainer: FoldTrainer,
    statistics: Callable[[], NDArray[np.float32]],
) -> FitResult:
    """Train and test one fold; its folder is complete once it holds ``predictions.csv``."""
    config, folder, rows = setup.config, run.fold(fold), setup.manifest.usable
    checkpoint = folder / "state.pt"
    trained = trainer.train(fold, checkpoint)
    units, at, result = trained.units, trained.at, trained.result
    times = result.phases
    with times.phase("prediction"):
        wrapped = trainer.fabric.setup_module(trained.subject.module)
        outputs_of = partial(trainer.outputs, trained.subject, wrapped=wrapped)
        # A resumed training may have evaluated the kept weights in an earlier process.
        val = trained.validation.outputs(config.train.early_stopping.keep) or outputs_of(at["val"])
        fitted = ood.training_sample(at["train"], derive_seed(config.seed, "novelty", fold))
        outputs = val + outputs_of(np.concatenate([at["test"], fitted]))
        attention = units.attention(
            trained.task,
            outputs_of,
            at["train"],
            (val, at["val"]),
            trained.loss_fn.class_weights,
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
            *setup.teacher_of(fold),
            described=setup.manifest.descriptions,
            name=f"the images of {'+'.join(setup.manifest.roots)}",
        )
        learnt, own = Learnt(result, weights_sha256, seen), replace(calibrated, of_units=of_units)
        return downstream_metadata(setup, fold, learnt, own, novelty, described)

    with times.phase("files"):
        if adapter := adapter_of(config, setup.weights.of_fold(fold)):
            header = {"usvit": json.dumps({"adapter": adapter.content()}, sort_keys=True)}
            write_model(folder, lora_state(trained.model), metadata, header)
        else:
            write_model(folder, trained.model.state_dict(), metadata)
    if config.loss.mask_weight > 0:
        with times.phase("masks"):
            masks = fold_masks(setup, fold, trained, trainer.fabric.device)
        write_csv(folder / MASKS, masks)
    run.enter(result.record(fold, times.rounded()))
    write_csv(folder / "predictions.csv", table)  # the last file: it marks the fold as complete
    checkpoint.unlink(missing_ok=True)
    return result


def _statistics(setup: CrossValidationSetup, store: PixelStore, device: torch.device) -> NDArray[np.float32]:
    return statistics_of(eval_batches(store, np.arange(len(store)), setup.inference_batch), device)


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
    if setup.config.loss.mask_weight > 0:
        write_csv(run.path / MASKS, masks := pooled_masks([run.fold(fold) / MASKS for fold in range(setup.n_folds)]))
        metrics = metrics.model_copy(update={"masks": mask_record(masks)})
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
