"""The main job: images -> folds -> a trained model each -> pooled predictions -> metrics -> report.

``usvit cv`` (k folds) and ``usvit train`` (one hold-out) are the same protocol over other folds.
In each fold, training, every choice (early stopping) and the test see three different parts, and no
group (patient, cluster of copies) is in two of them.
"""

import hashlib
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import lightning_fabric
import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from safetensors.torch import save as safetensors_bytes
from torch import nn

from usvit.config import RunConfig
from usvit.data.augment import make_augment
from usvit.data.loading import PixelStore, TrainBatches, eval_batches
from usvit.data.manifest_file import described_table
from usvit.data.seen import write_seen
from usvit.data.splits import check_folds, folds_sha256, read_folds, repeat_of, rows_of_part
from usvit.errors import UsvitError
from usvit.files import write_atomic, write_bytes, write_csv, write_json
from usvit.job import (
    Job,
    Kind,
    adapt,
    calibration_of,
    default_out,
    describe,
    new_model_with_report,
    novelty_of,
    passport,
    prepare,
)
from usvit.metrics.points import auc
from usvit.metrics.predictions import check_complete, predictions_table, read_predictions, repeats_of
from usvit.metrics.summary import summarise
from usvit.models import novelty
from usvit.models.appearance import statistics_of
from usvit.models.penultimate import logits_and_features, vectors
from usvit.progress import Progress, task
from usvit.pseudonyms import for_the_owner_alone
from usvit.report import write_report
from usvit.run_dir import Outcome, RunDir, open_run
from usvit.seeding import derive_seed
from usvit.train.device import seed_everything
from usvit.train.features import HeadTraining, Subject
from usvit.train.loop import FitResult, fit, predict_logits
from usvit.train.losses import WeightedCrossEntropy, balanced_class_weights
from usvit.train.objective import Classify


def run_protocol(
    kind: Kind,
    config: RunConfig,
    *,
    roots: dict[str, Path],
    out: Path | None,
    command: str,
    progress: Progress,
) -> Outcome:
    """Run, or resume, a cross-validation or a hold-out from images to report.

    Args:
        kind: ``cv`` or ``train``.
        config: the complete configuration.
        roots: data set -> folder, "" for all.
        out: the run directory; None for ``runs/<data set>-<model>-<recipe>-seed<n>``.
        command: how the user asked, for the record.
        progress: where progress is shown.

    Raises:
        UsvitError: anything about the input; nothing has been written then, or the run can be resumed.
    """
    job = prepare(kind, config, roots, progress)
    begun = time.monotonic()
    with (
        for_the_owner_alone() if job.manifest.is_private else nullcontext(),
        open_run(out or default_out(kind, config), describe(job, command)) as run,
    ):
        if not run.finished:
            _train_all(job, run, progress)
            _conclude(job, run, begun)
        if not (run.path / "report.html").is_file():
            write_report(run.path)
        return run.outcome("metrics.json")


def _train_all(job: Job, run: RunDir, progress: Progress) -> None:
    rows = job.manifest.usable
    folds_file = run.path / "folds.csv"
    if folds_file.is_file() and folds_sha256(read_folds(folds_file)) != folds_sha256(job.folds):
        raise UsvitError(f"{folds_file} has been changed since the run began. Restore it, or choose another --out.")
    if job.config.split.unit == "group":
        check_folds(job.folds, rows)
    write_csv(folds_file, job.folds)
    table = described_table(job.manifest, job.manifest.shown)
    write_atomic(run.path / "manifest.parquet", lambda file: table.to_parquet(file, index=False))
    todo = run.unfinished(job.n_folds, "predictions.csv", progress)
    if not todo:
        return
    store = PixelStore.build(
        job.manifest,
        job.preprocessing,
        memory_gb=job.config.input.cache_gb,
        folder=run.path,
        progress=progress,
        with_lesions=job.config.input.augment != "none",
    )
    fabric = job.device.fabric()
    heads = HeadTraining(
        store,
        fabric,
        job.preprocessing,
        augmented=job.config.input.augment != "none",
        batch_size=_eval_size(job),
        progress=progress,
    )
    if job.weights.source != "scratch":
        progress.say(f"Weights {job.weights.name}: {job.loaded.line()}")
    progress.say(str(job.tuned))
    statistics = statistics_of(eval_batches(store, np.arange(len(store)), _eval_size(job)), fabric.device)
    for fold in todo:
        result = _run_fold(job, run, fold, rows, store, statistics, heads, fabric, progress)
        progress.say(_fold_line(job, fold, result))


def _run_fold(
    job: Job,
    run: RunDir,
    fold: int,
    rows: pd.DataFrame,
    store: PixelStore,
    statistics: NDArray[np.float32],
    heads: HeadTraining,
    fabric: lightning_fabric.Fabric,
    progress: Progress,
) -> FitResult:
    """Train, choose and test one fold; its folder is complete once ``predictions.csv`` is there."""
    config, folder = job.config, run.fold(fold)
    at = {part: rows_of_part(job.folds, rows, part, fold) for part in ("train", "val", "test")}
    targets = np.array([job.classes.index(label) for label in rows.label], dtype=np.int64)

    model, _ = new_model_with_report(config, job.spec, job.weights, len(job.classes), fold)
    adapt(model, config)
    subject, optim = Subject(model, store, job.preprocessing.normalised), config.optim
    if config.model.tune == "head":
        # The head is the last layer: its own rate is not decayed.
        subject, optim = heads.subject(model), optim.model_copy(update={"layer_decay": None})
    balanced = config.loss.class_weights == "balanced"
    class_weights = balanced_class_weights(targets[at["train"]], len(job.classes)) if balanced else None
    loss_fn = WeightedCrossEntropy(class_weights, len(job.classes), config.loss.label_smoothing)
    batches = TrainBatches(
        subject.store,
        at["train"],
        targets[at["train"]],
        batch_size=config.train.batch_size,
        augment=make_augment(config.input.augment),
        seed=derive_seed(config.seed, "batches", fold),
        workers=config.workers,
    )

    def logits_of(wrapped: Any, which: NDArray[np.int64]) -> torch.Tensor:
        return predict_logits(wrapped, fabric, subject.prepare, eval_batches(subject.store, which, _eval_size(job)))

    # Checkpoints hold the generators' state, so that dropout goes on where it was.
    seed_everything(config.seed, "train", fold)
    checkpoint = folder / "state.pt"
    result = fit(
        Classify(subject.module, loss_fn.to(fabric.device), subject.prepare),
        fabric,
        batches,
        _validation(loss_fn, targets[at["val"]], lambda wrapped: logits_of(wrapped, at["val"])),
        train=config.train,
        optim=optim,
        checkpoint=checkpoint,
        name=job.fold_name(fold),
        progress=progress,
    )
    which = np.concatenate([at["val"], at["test"]])
    logits = logits_of(fabric.setup_module(subject.module), which).numpy()
    if not np.isfinite(logits).all():
        raise UsvitError("The trained model's outputs are not finite. Use --precision fp32 or a lower optim.lr.")
    part = ["val"] * len(at["val"]) + ["test"] * len(at["test"])
    repeat = repeat_of(job.folds, fold) if job.n_repeats > 1 else None
    table = predictions_table(rows.iloc[which], logits, classes=job.classes, fold=fold, part=part, repeat=repeat)

    write_csv(folder / "history.csv", result.history)
    state = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    weights = safetensors_bytes(state)
    seen = novelty.Observed(_features(job, fold, model, subject, fabric, progress), statistics)
    group = rows.group_id.to_numpy(object)
    found = novelty.fit_novelty(seen[at["train"]], targets[at["train"]], seen[at["val"]], group[at["val"]])
    content = b"" if isinstance(found, str) else found.save()
    learnt = {
        "weights_sha256": hashlib.sha256(weights).hexdigest(),
        **calibration_of(job, fold, rows.iloc[at["val"]], logits[: len(at["val"])]),
        **novelty_of(found, content, seen[at["test"]], group[at["test"]], repeat),
    }
    write_bytes(folder / "model.safetensors", weights)
    if content:
        write_bytes(folder / novelty.FILE, content)
    parts = {name: rows.sha256.iloc[at[name]].tolist() for name in ("train", "val")}
    known = write_seen(
        folder,
        parts,
        job.weights.of_fold(fold),
        described=job.manifest.descriptions,
        name=f"the images of {'+'.join(job.manifest.roots)}",
    )
    write_json(folder / "model.json", passport(job, fold, result, learnt, known))
    run.enter(fold, result.describe())
    write_csv(folder / "predictions.csv", table)  # last: it says that the fold is done
    checkpoint.unlink(missing_ok=True)
    return result


def _features(
    job: Job, fold: int, model: nn.Module, subject: Subject, fabric: lightning_fabric.Fabric, progress: Progress
) -> NDArray[np.float32] | None:
    """(N, D) penultimate features of all images of the run; None where the network shows none.

    A head that was trained on kept features has them already; else it is one more pass, in the training's precision.
    """
    rows, kept = np.arange(len(subject.store)), []
    wrapped = fabric.setup_module(model).eval() if subject.module is model else None
    with (
        task(progress, f"{job.fold_name(fold)}: features", len(rows), "images") as advance,
        torch.inference_mode(),
    ):
        for batch in eval_batches(subject.store, rows, _eval_size(job)):
            inputs = subject.prepare(batch.to(fabric.device))
            features = logits_and_features(model, inputs, through=wrapped)[1] if wrapped else vectors(inputs)
            if features is None:
                return None
            kept.append(features.cpu().numpy())
            advance(sum(map(len, kept)))
    return np.concatenate(kept)


def _eval_size(job: Job) -> int:
    """Images at once where nothing is learnt."""
    return job.config.train.micro_batch or job.config.train.batch_size


def _validation(
    loss_fn: WeightedCrossEntropy, targets: NDArray[np.int64], logits_of: Callable[[Any], torch.Tensor]
) -> Callable[[nn.Module], dict[str, float | None]]:
    """The figures of the inner validation part: the training's weighted loss, accuracy, macro one-vs-rest AUC."""

    def evaluate(wrapped: nn.Module) -> dict[str, float | None]:
        logits = logits_of(wrapped)
        expected = torch.from_numpy(targets)
        weights = loss_fn.class_weights.cpu()
        loss = nn.functional.cross_entropy(logits, expected, weights, label_smoothing=loss_fn.label_smoothing)
        prob = logits.double().softmax(1).numpy()
        areas = [auc(targets == k, prob[:, k]) for k in range(prob.shape[1])]
        known = [area for area in areas if area is not None]
        return {
            "val_loss": float(loss) if torch.isfinite(loss) else None,
            "val_accuracy": float((prob.argmax(1) == targets).mean()),
            "val_auc": float(np.mean(known)) if known else None,
        }

    return evaluate


def _conclude(job: Job, run: RunDir, begun: float) -> None:
    """Pool the folds' test rows and measure; in the manifest's order, so that runs can be compared by eye."""
    rows = job.manifest.usable
    tables = [read_predictions(run.fold(fold) / "predictions.csv") for fold in range(job.n_folds)]
    everything = pd.concat(tables, ignore_index=True)
    pooled, inner = everything[everything.part == "test"], everything[everything.part == "val"]
    check_complete(pooled, job.folds[job.folds.part == "test"], job.n_folds)
    order = {key: index for index, key in enumerate(zip(rows.dataset, rows.image_id, strict=True))}
    position = np.array([order[key] for key in zip(pooled.dataset, pooled.image_id, strict=True)])
    pooled = pooled.iloc[np.lexsort((position, repeats_of(pooled)))]
    write_csv(run.path / "predictions.csv", pooled)
    # The inner validation rows choose thresholds and fit temperatures; what is measured are the test rows.
    measured = pd.concat([pooled, inner], ignore_index=True)
    metrics = summarise(measured, classes=job.classes, positive=job.manifest.positive_class, columns=rows)
    write_json(run.path / "metrics.json", metrics)
    if job.manifest.skipped:
        write_csv(run.path / "skipped.csv", pd.DataFrame(job.manifest.skipped_rows))
    run.finish(time.monotonic() - begun)


def _fold_line(job: Job, fold: int, result: FitResult) -> str:
    last = result.history[result.history.step == result.best_step]
    loss = f", inner validation loss {last.val_loss.iloc[0]:.3f}" if len(last) else ""
    return (
        f"{job.fold_name(fold)}: {result.steps} steps in {result.seconds:.0f} s "
        f"({result.images_per_second:.1f} images/s), kept step {result.best_step}{loss}"
    )
