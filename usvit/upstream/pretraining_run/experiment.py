"""Pre-training: images -> a network with its metadata, as the command ``usvit pretrain`` runs it.

The run has one fold or, if it trains on the training splits of a data card's folds, one for each of these folds. Fold k
of ``usvit cv --weights RUN`` then begins with the weights of fold k of this run.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd

from usvit.data.datasets import UpstreamDataset, made_on_the_fly
from usvit.data.loading import readable
from usvit.data.near_duplicates import CompactDescriptions
from usvit.data.splits import write_seen
from usvit.experiments import Experiment, Learnt, RunDirectory, RunResult, tensor_bytes, write_model
from usvit.files import read_csv, sha256_of_text, write_bytes, write_csv
from usvit.progress import NO_PROGRESS, Progress
from usvit.records import ModelMetadata, RunRecord, load_record, save_record
from usvit.resources import process_rank, said_once
from usvit.training import (
    FitResult,
    StepLog,
    Trainer,
    World,
    check_share,
    full_state,
    launch,
    lost_peers,
    resolve_device,
    seed_everything,
)
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.model_metadata import upstream_metadata
from usvit.upstream.pretraining_run.batches import training_batches
from usvit.upstream.pretraining_run.exclusions import EXCLUDED, EXCLUDED_VAL, without_near_duplicates
from usvit.upstream.pretraining_run.setup import PretrainingSetup, default_out, new_task, prepare, run_record
from usvit.upstream.pretraining_run.validation import validation_of
from usvit.upstream.records.training import KeptWeights, PretrainRecord
from usvit.upstream.reports.training_page import report_upstream
from usvit.upstream.sources.near_duplicates import descriptions_of_source

logger = logging.getLogger(__name__)


class Pretraining(Experiment[PretrainingSetup, None, PretrainRecord]):
    """A pre-training, in one process or in the processes that ``torchrun`` starts.

    Args:
        config: The complete configuration.
        **arguments: Those of ``Experiment``.
    """

    result_model = PretrainRecord
    world: World

    def __init__(self, config: PretrainConfig, **arguments: Any):
        super().__init__(**arguments)
        self.config = config
        if process_rank() != 0:
            self.progress = NO_PROGRESS

    def run(self) -> RunResult[PretrainRecord]:
        """Run or resume the pre-training.

        Raises:
            UsvitError: The input cannot be used (then nothing has been written), or the run has to be resumed. If
                there are several processes, all of them end, and one of them reports the error.
        """
        config = self.config
        with said_once():
            check_share(config.train.batch_size, pairs=config.mix.mixup > 0 or config.mix.cutmix > 0)
            self.world = World(launch(resolve_device(config.device, config.precision), config.train.strategy))
        with lost_peers():
            return super().run()

    def prepare(self) -> PretrainingSetup:
        found: PretrainingSetup = self.world.together(prepare, self.config, self.roots, self.progress)
        return found

    def default_out(self, setup: PretrainingSetup) -> Path:
        return default_out(self.config)

    def new_record(self, setup: PretrainingSetup) -> RunRecord:
        return run_record(setup, self.command)

    @contextmanager
    def opened(self, setup: PretrainingSetup) -> Iterator[RunDirectory]:
        """Open the run directory in the main process; the others, which write nothing, get its record."""
        with ExitStack() as stack:
            found: list[RunDirectory] = []

            def begin() -> RunRecord:
                found.append(stack.enter_context(super(Pretraining, self).opened(setup)))
                return found[0].record

            record = self.world.on_main(begin)
            with readable():
                yield found[0] if found else RunDirectory(self.out or default_out(self.config), record)

    def train(self, setup: PretrainingSetup, run: RunDirectory) -> None:
        _train_all(setup, run, self.world, self.progress)

    def conclude(self, setup: PretrainingSetup, run: RunDirectory, trained: None) -> None:
        _write_figures(setup, run)

    def report(self, run: RunDirectory) -> None:
        report_upstream(run.path)

    def on_main(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return self.world.on_main(function, *arguments)


def _train_all(setup: PretrainingSetup, run: RunDirectory, world: World, progress: Progress) -> None:
    if setup.folds is not None:
        world.on_main(write_csv, run.path / "folds.csv", setup.folds)
    todo = world.on_main(run.unfinished, len(setup.sources), "model.json")
    if setup.weights.source != "scratch":
        logger.info(f"Weights {setup.weights.name}: {setup.loaded.line()}")
    for fold in todo:
        result = _run_fold(setup, run, fold, world, progress)
        logger.info(
            f"{setup.fold_name(fold)}: {result.steps} steps in {result.seconds:.0f} s "
            f"({result.images_per_second:.1f} images/s)"
        )


def _run_fold(setup: PretrainingSetup, run: RunDirectory, fold: int, world: World, progress: Progress) -> FitResult:
    """Train one fold; its folder is complete once it holds ``model.json``."""
    config, folder = setup.config, run.fold(fold)
    source, validation = (
        without_near_duplicates(setup, setup.sources[fold], folder / EXCLUDED, world, progress),
        setup.validation,
    )
    if validation is not None:
        validation = without_near_duplicates(setup, validation, folder / EXCLUDED_VAL, world, progress)
    task = new_task(setup, fold, len(source), world.fabric.device)
    stream = training_batches(config, source, fold, run.path, world, progress)
    checkpoint = folder / "state.pt"
    seed_everything(config.seed, "train", fold)
    result = Trainer(
        task,
        world.fabric,
        stream,
        validation_of(task, setup, validation, world),
        train=config.train,
        optim=config.optim,
        checkpoint=checkpoint,
        name=setup.fold_name(fold),
        progress=progress,
        log=StepLog(
            folder,
            device=world.fabric.device,
            cost=setup.cost,
            world=world.size,
            stated_peak=config.train.peak_tflops,
        ),
        identity=_identity(run.record, fold),
    ).fit()
    weights = full_state(task.network(task.module), keep=world.is_main)
    others = {name: full_state(part, keep=world.is_main) for name, part in task.extra_modules().items()}

    def keep() -> None:
        write_csv(folder / "history.csv", result.history)
        for name, other in others.items():
            write_bytes(folder / f"{name}.safetensors", tensor_bytes(other))
        write_model(
            folder, weights, lambda sha256: _metadata(setup, run, fold, (source, validation), result, sha256, progress)
        )
        checkpoint.unlink(missing_ok=True)

    world.on_main(keep)
    return result


def _metadata(
    setup: PretrainingSetup,
    run: RunDirectory,
    fold: int,
    images: tuple[UpstreamDataset, UpstreamDataset | None],
    result: FitResult,
    weights_sha256: str,
    progress: Progress,
) -> ModelMetadata:
    """Write the record of the training and validation images, and return the metadata of the fold's network."""
    hashes: dict[str, list[str]] = {"train": []}
    unhashed: set[str] = set()
    described: dict[str, CompactDescriptions] = {}
    if setup.config.source.hashes:
        for split, source in zip(("train", "val"), images, strict=True):
            if source is not None:
                hashes[split] = source.hashes(progress) or []
                described |= descriptions_of_source(source, progress)
    else:
        unhashed = {source.name for source in images if source is not None and not made_on_the_fly(source)}
    seen = write_seen(
        run.fold(fold),
        hashes,
        setup.weights.of_fold(fold),
        *setup.learnt_from,
        unhashed=unhashed,
        described=described,
        name=images[0].name,
    )
    run.enter(result.record(fold))
    learnt = Learnt(result, weights_sha256, seen)
    return upstream_metadata(setup, fold, images[0], learnt, [one.record() for one in setup.learnt_from])


def _identity(record: RunRecord, fold: int) -> str:
    """Return the hash of everything that the checkpoint of a fold must have been made with."""
    others = record.learnt_from and record.learnt_from.sha256
    return sha256_of_text(str((record.config_sha256, record.data.sha256, record.model.weights.sha256, others, fold)))


def _write_figures(setup: PretrainingSetup, run: RunDirectory) -> None:
    """Write the figures of each fold at the step whose weights were kept."""
    folds = []
    for fold in range(len(setup.sources)):
        history = read_csv(run.fold(fold) / "history.csv", text=False)
        kept = history[history.step == load_record(run.fold(fold) / "model.json", ModelMetadata).best_step]
        row = (kept if len(kept) else history).iloc[-1]
        figures = {str(key): _number(value) for key, value in row.items()}
        folds.append(KeptWeights.model_validate({"fold": fold, **figures}))
    save_record(run.path / "pretrain.json", PretrainRecord(kept=folds))


def _number(value: Any) -> float | int | None:
    if pd.isna(value):
        return None
    number = float(value)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
