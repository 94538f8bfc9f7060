"""A pre-training from images to a network with a passport: what ``usvit pretrain`` does.

The run is a run directory like any other, with one fold, or, where it learns from the training parts of a data
card's folds, one for each: ``usvit cv --weights RUN`` begins its fold k where fold k ended.
"""

import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from safetensors.torch import save as safetensors_bytes

from usvit.config import PretrainConfig
from usvit.data.seen import write_seen
from usvit.data.sources.examples import ViewExamples, readable
from usvit.data.sources.source import Source
from usvit.data.stream import Stream
from usvit.data.views.host import make_views
from usvit.files import sha256_of_text, write_atomic, write_csv, write_json
from usvit.pretrain.copies import EXCLUDED, EXCLUDED_VAL, without_copies
from usvit.pretrain.job import PretrainJob, default_out, describe, new_objective, prepare
from usvit.pretrain.passport import passport
from usvit.pretrain.validate import validation_of
from usvit.progress import NoProgress, Progress
from usvit.resources import process_rank, said_once
from usvit.run_dir import RunDir, open_run
from usvit.seeding import derive_seed
from usvit.train.device import resolve_device, seed_everything
from usvit.train.distributed import Team, check_share, full_state, launch
from usvit.train.loop import FitResult, fit
from usvit.train.lost import lost_peers
from usvit.train.step_log import StepLog

SCHEMA_VERSION = "1.0"


@dataclass(frozen=True)
class Outcome:
    """What a pre-training came to."""

    path: Path
    metrics: dict[str, Any]
    """The content of ``pretrain.json``."""
    record: dict[str, Any]
    """The content of ``run.json``."""


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
            return Outcome(run.path, team.first_does(_metrics, run.path), run.record)


def _metrics(path: Path) -> dict[str, Any]:
    return dict(json.loads((path / "pretrain.json").read_text(encoding="utf-8")))


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
    todo = team.from_first([fold for fold in range(len(job.sources)) if not (run.fold(fold) / "model.json").is_file()])
    if len(todo) < len(job.sources):
        progress.say(f"Resuming {run.path}: {len(job.sources) - len(todo)} of {len(job.sources)} folds are done.")
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
    views = make_views(config.views, config.model.image_size, on_device=job.inputs.on_device)
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
            macs=job.macs,
            world=team.world,
            stated_peak=config.train.peak_tflops,
        ),
        identity=_identity(run.record, fold),
    )
    state = {
        key: value.contiguous()
        for key, value in full_state(objective.network(objective.module), keep=team.first).items()
    }
    beside = getattr(objective, "beside", None)  # what else of the module is worth keeping: Grafit's projector
    others = {name: full_state(part, keep=team.first) for name, part in (beside() if beside else {}).items()}

    def keep() -> None:
        write_csv(folder / "history.csv", result.history)
        for name, other in others.items():
            content = safetensors_bytes({key: value.contiguous() for key, value in other.items()})
            write_atomic(folder / f"{name}.safetensors", partial(_write, content=content))
        _write_network(job, run, fold, (source, validation), result, safetensors_bytes(state), progress)
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
    write_atomic(folder / "model.safetensors", partial(_write, content=weights))
    parts = dict(zip(("train", "val"), images, strict=True))
    hashes: dict[str, list[str]] = {"train": []}
    if job.config.source.hashes:
        hashes |= {part: source.hashes(progress) or [] for part, source in parts.items() if source is not None}
    seen = write_seen(folder, hashes, job.weights.of_fold(fold), *job.learnt_from)
    run.record["results"] = [
        *(done for done in run.record["results"] if done["fold"] != fold),
        {
            "fold": fold,
            "steps": result.steps,
            "best_step": result.best_step,
            "seconds": round(result.seconds, 1),
            "images_per_second": round(result.images_per_second, 1),
        },
    ]
    run.save()
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
        passport_of = json.loads((run.fold(fold) / "model.json").read_text(encoding="utf-8"))
        kept = history[history.step == passport_of["best_step"]]
        row = (kept if len(kept) else history).iloc[-1]
        folds.append({"fold": fold, **{key: _number(value) for key, value in row.items()}})
    write_json(run.path / "pretrain.json", {"schema_version": SCHEMA_VERSION, "kept": folds})
    for leftover in [*run.path.glob("fold-*/state.pt"), *run.path.glob("fold-*/.*.partial*")]:
        leftover.unlink()
    run.record["results"].sort(key=lambda result: result["fold"])
    run.finish(time.monotonic() - begun)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def _number(value: Any) -> float | int | None:
    if pd.isna(value):
        return None
    return int(value) if float(value).is_integer() else float(value)
