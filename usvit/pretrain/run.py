"""A pre-training from images to a network with a passport: what ``usvit pretrain`` does.

The run is a run directory like any other, with one fold, or, where it learns from the training parts of a data
card's folds, one for each: ``usvit cv --weights RUN`` begins its fold k where fold k ended.
"""

import hashlib
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.torch import save as safetensors_bytes
from torch import Tensor

from usvit.config import PretrainConfig
from usvit.data.copies.compact import CompactDescriptions
from usvit.data.seen import write_seen
from usvit.data.sources.combine import made_on_the_fly
from usvit.data.sources.described import descriptions_of_source
from usvit.data.sources.examples import ViewExamples, readable
from usvit.data.sources.source import Source
from usvit.data.stream import Stream
from usvit.data.views.host import Views
from usvit.files import read_json, sha256_of_text, write_bytes, write_csv, write_json
from usvit.pretrain.copies import EXCLUDED, EXCLUDED_VAL, without_copies
from usvit.pretrain.job import PretrainJob, default_out, describe, new_objective, prepare
from usvit.pretrain.passport import passport
from usvit.pretrain.validate import validation_of
from usvit.progress import NoProgress, Progress
from usvit.report.upstream import report_upstream
from usvit.resources import process_rank, said_once
from usvit.run_dir import Outcome, RunDir, open_run
from usvit.seeding import derive_seed
from usvit.train.device import resolve_device, seed_everything
from usvit.train.distributed import Team, check_share, full_state, launch
from usvit.train.loop import FitResult, fit
from usvit.train.lost import lost_peers
from usvit.train.step_log import StepLog

SCHEMA_VERSION = "1.0"
RESULT = "pretrain.json"


def run_pretraining(
    config: PretrainConfig,
    *,
    roots: dict[str, Path],
    out: Path | None,
    command: str,
    progress: Progress,
) -> Outcome:
    """Run, or resume, a pre-training.

    Args:
        config: the complete configuration.
        roots: data set -> folder, "" for all.
        out: the run directory; None for ``runs/pretrain-<source>-<model>-<recipe>-seed<n>``.
        command: how the user asked, for the record.
        progress: where progress is shown.

    Raises:
        UsvitError: anything about the input; nothing has been written then, or the run can be resumed. Of several
            processes, all end, and one says why.
    """
    progress = progress if process_rank() == 0 else NoProgress()
    with said_once():
        check_share(config.train.batch_size, pairs=config.mix.mixup > 0 or config.mix.cutmix > 0)
        team = Team(launch(resolve_device(config.device, config.precision), config.train.strategy))
    with lost_peers():
        job = team.together(prepare, config, roots, progress)
        begun = time.monotonic()
        with _opened(out or default_out(config), describe(job, command), team) as run, readable():
            if not run.finished:
                _train_all(job, run, team, progress)
                team.first_does(_conclude, job, run, begun)
            team.first_does(report_upstream, run.path)
            found: Outcome = team.first_does(run.outcome, RESULT)
            return found


@contextmanager
def _opened(path: Path, record: dict[str, Any], team: Team) -> Iterator[RunDir]:
    """``open_run`` in the first process; the others, which write nothing, see what it made."""
    with ExitStack() as stack:
        opened: list[RunDir] = []

        def begin() -> dict[str, Any]:
            opened.append(stack.enter_context(open_run(path, record)))
            return opened[0].record

        found = team.first_does(begin)
        yield opened[0] if opened else RunDir(path, found)


def _train_all(job: PretrainJob, run: RunDir, team: Team, progress: Progress) -> None:
    if job.folds is not None:
        team.first_does(write_csv, run.path / "folds.csv", job.folds)
    todo = team.first_does(run.unfinished, len(job.sources), "model.json", progress)
    if job.weights.source != "scratch":
        progress.say(f"Weights {job.weights.name}: {job.loaded.line()}")
    for fold in todo:
        result = _run_fold(job, run, fold, team, progress)
        progress.say(
            f"{job.fold_name(fold)}: {result.steps} steps in {result.seconds:.0f} s "
            f"({result.images_per_second:.1f} images/s)"
        )


def _run_fold(job: PretrainJob, run: RunDir, fold: int, team: Team, progress: Progress) -> FitResult:
    """Train one fold; its folder is complete once ``model.json`` is there."""
    config, folder = job.config, run.fold(fold)
    source, validation = without_copies(job, job.sources[fold], folder / EXCLUDED, team, progress), job.validation
    if validation is not None:
        validation = without_copies(job, validation, folder / EXCLUDED_VAL, team, progress)
    objective = new_objective(job, fold, len(source), team.fabric.device)
    views = Views(config.views, config.model.image_size, on_device=job.inputs.on_device)
    stream = Stream(
        ViewExamples(source, views, config.views.count),
        batch_size=config.train.batch_size,
        seed=derive_seed(config.seed, "batches", fold),
        workers=config.workers,
        repeats=config.views.repeats,
        rank=team.rank,
        world=team.world,
    )
    checkpoint = folder / "state.pt"
    seed_everything(config.seed, "train", fold)
    result = fit(
        objective,
        team.fabric,
        stream,
        validation_of(objective, job, validation, team),
        train=config.train,
        optim=config.optim,
        checkpoint=checkpoint,
        name=job.fold_name(fold),
        progress=progress,
        log=StepLog(
            folder,
            device=team.fabric.device,
            cost=job.cost,
            world=team.world,
            stated_peak=config.train.peak_tflops,
        ),
        identity=_identity(run.record, fold),
    )
    weights = full_state(objective.network(objective.module), keep=team.first)
    beside = getattr(objective, "beside", None)  # what else of the module is worth keeping: Grafit's projector
    others = {name: full_state(part, keep=team.first) for name, part in (beside() if beside else {}).items()}

    def keep() -> None:
        write_csv(folder / "history.csv", result.history)
        for name, other in others.items():
            write_bytes(folder / f"{name}.safetensors", _content(other))
        _write_network(job, run, fold, (source, validation), result, _content(weights), progress)
        checkpoint.unlink(missing_ok=True)

    team.first_does(keep)
    return result


def _write_network(
    job: PretrainJob,
    run: RunDir,
    fold: int,
    images: tuple[Source, Source | None],
    result: FitResult,
    weights: bytes,
    progress: Progress,
) -> None:
    """The network of a fold and its passport; ``images``: what it learnt from, and what it was validated on."""
    folder = run.fold(fold)
    write_bytes(folder / "model.safetensors", weights)
    parts = dict(zip(("train", "val"), images, strict=True))
    hashes: dict[str, list[str]] = {"train": []}
    unhashed: set[str] = set()
    if job.config.source.hashes:
        hashes |= {part: source.hashes(progress) or [] for part, source in parts.items() if source is not None}
    else:
        unhashed = {source.name for source in images if source is not None and not made_on_the_fly(source)}
    described: dict[str, CompactDescriptions] = {}
    if job.config.source.hashes:
        for source in filter(None, images):
            described |= descriptions_of_source(source, progress)
    seen = write_seen(
        folder,
        hashes,
        job.weights.of_fold(fold),
        *job.learnt_from,
        unhashed=unhashed,
        described=described,
        name=images[0].name,
    )
    run.enter(fold, result.describe())
    description = passport(job, fold, images[0], result, hashlib.sha256(weights).hexdigest(), seen)
    if job.learnt_from:
        description["learnt_from"] = [one.describe() for one in job.learnt_from]
    write_json(folder / "model.json", description)  # last: it says that the fold is done


def _identity(record: dict[str, Any], fold: int) -> str:
    """Of a fold's training: what its checkpoint must have been made with."""
    others, weights = record.get("learnt_from", {}), record["model"]["weights"].get("sha256")
    return sha256_of_text(str((record["config_sha256"], record["data"]["sha256"], weights, others.get("sha256"), fold)))


def _conclude(job: PretrainJob, run: RunDir, begun: float) -> None:
    """What came out, in one file; each fold's last figures and those of the step that was kept."""
    folds = []
    for fold in range(len(job.sources)):
        history = pd.read_csv(run.fold(fold) / "history.csv")
        kept = history[history.step == read_json(run.fold(fold) / "model.json")["best_step"]]
        row = (kept if len(kept) else history).iloc[-1]
        folds.append({"fold": fold, **{key: _number(value) for key, value in row.items()}})
    write_json(run.path / RESULT, {"schema_version": SCHEMA_VERSION, "kept": folds})
    run.finish(time.monotonic() - begun)


def _content(state: dict[str, Tensor]) -> bytes:
    """A file of tensors."""
    return safetensors_bytes({key: value.contiguous() for key, value in state.items()})


def _number(value: Any) -> float | int | None:
    if pd.isna(value):
        return None
    number = float(value)
    return int(number) if number.is_integer() and abs(number) < 2**53 else number
