"""A transfer from images to numbers and a network with a passport: what ``usvit transfer`` does."""

import hashlib
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from safetensors.torch import save as safetensors_bytes
from torch import nn

from usvit.config import TransferConfig
from usvit.data.copies.compact import CompactDescriptions
from usvit.data.seen import write_seen
from usvit.data.sources.combine import made_on_the_fly
from usvit.errors import UsvitError
from usvit.files import copy_file, copy_folder, sha256_of_text, write_bytes, write_csv, write_json
from usvit.job import head_of_record
from usvit.pretrain.passport import passport
from usvit.progress import Progress
from usvit.report.upstream import report_upstream
from usvit.run_dir import Outcome, RunDir, open_run
from usvit.train.loop import FitResult
from usvit.transfer import judge
from usvit.transfer.finetune import finetune, forget_networks
from usvit.transfer.job import TransferJob, checked, default_out, describe, prepare, with_model_of
from usvit.transfer.parts import open_parts
from usvit.transfer.probes import PROBES, Judged, Seen, needed
from usvit.transfer.retrieval import searching
from usvit.transfer.select import Candidate, recommend, upstream_figures

SCHEMA_VERSION = "1.0"
RESULT = "transfer.json"


def run_transfer(
    config: TransferConfig,
    *,
    roots: dict[str, Path],
    out: Path | None,
    command: str,
    progress: Progress,
    model_named: bool = True,
) -> Outcome:
    """Run, or resume, a transfer; from several first weights, one after the other, and then choose.

    Args:
        config: the complete configuration.
        roots: data set -> folder, "" for all.
        out: the run directory; None for ``default_out``.
        command: how the user asked, for the record.
        progress: where progress is shown.
        model_named: ``config.model.name`` is what the user wants; else the passport of the first weights decides.

    Raises:
        UsvitError: anything about the input; nothing has been written then, or the run can be resumed.
        LeakageError: the test images are among those that the network has seen, or learns from.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1:
        raise UsvitError("usvit transfer runs in one process: start it without torchrun.")
    parts = open_parts(config, roots, progress)
    jobs = []
    for choice in config.upstream or (config.model.weights,):
        one = with_model_of(config.model_copy(update={"upstream": ()}), choice, named=model_named)
        jobs.append(prepare(one, parts))
        if config.upstream and jobs[-1].weights.path is not None:  # many networks are not kept in memory
            jobs[-1] = replace(jobs[-1], weights=replace(jobs[-1].weights, content=None))
    jobs = checked(jobs, progress)
    if config.upstream:
        return _several(config, jobs, roots, out or default_out(config), command, progress)
    return _one(jobs[0], roots, out or default_out(jobs[0].config), command, progress)


def _one(job: TransferJob, roots: dict[str, Path], out: Path, command: str, progress: Progress) -> Outcome:
    begun = time.monotonic()
    with open_run(out, describe(job, command)) as run:
        if not run.finished:
            if job.weights.source != "scratch":
                progress.say(f"Weights {job.weights.name}: {job.loaded.line()}")
            if job.config.how == "finetune":
                judged = finetune(job, run, roots, command, progress)
            else:
                judged = _probe(job, run, progress)
            _conclude(job, run, judged, begun)
        report_upstream(run.path)
        return run.outcome(RESULT)


def _probe(job: TransferJob, run: RunDir, progress: Progress) -> Judged:
    """Features of every part, the probe on them, and the network with the probe as its head."""
    model = job.network()
    eye, parts = job.eye(progress), job.parts
    looking = searching(model, job.weights, job.config.model.image_size) if job.config.how == "retrieval" else model
    seen = {
        part.name: Seen(part, eye.features(looking, part, run.path / "features" / f"{part.name}.npy"))
        for part in needed(job.config, parts)
    }
    judged = PROBES[job.config.how](job.config, parts, seen, progress)
    model = model.cpu()
    if judged.head is not None:
        judged.head.write_into(model)
    _write_network(job, run, model, judged, progress)
    return judged


def _write_network(job: TransferJob, run: RunDir, model: nn.Module, judged: Judged, progress: Progress) -> None:
    folder = run.fold(0)
    state = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    content = safetensors_bytes(state)
    write_bytes(folder / "model.safetensors", content)
    learnt: dict[str, list[str]] = {}
    unhashed: set[str] = set()
    for part in (job.parts.train, job.parts.val):
        if part is not None and part.name in judged.learnt_from:
            if job.config.source.hashes:
                learnt[part.name] = part.hashes(progress) or []
            elif not made_on_the_fly(part.source):
                unhashed.add(part.source.name)
    history = judge.results_table(judged.rows)
    result = FitResult(steps=0, best_step=0, history=history, seconds=0.0, images_per_second=0.0)
    described: dict[str, CompactDescriptions] = {}
    for part in (job.parts.train, job.parts.val):
        if part is not None and part.name in learnt:
            described |= part.descriptions(progress)
    seen = write_seen(
        folder,
        {"train": [], **learnt},
        job.weights,
        unhashed=unhashed,
        described=described,
        name=job.parts.train.source.name,
    )
    sha256 = hashlib.sha256(content).hexdigest()
    description = passport(job.of_head(), 0, job.parts.train.source, result, sha256, seen)
    write_json(folder / "model.json", {**description, "objective": job.config.how})


def _conclude(job: TransferJob, run: RunDir, judged: Judged, begun: float) -> None:
    """Everything else that the run consists of; ``run.json`` says last that it is finished."""
    write_csv(run.path / "results.csv", judge.results_table(judged.rows))
    missing = judge.write_predictions(run.path / "predictions.csv", job.parts.test, np.asarray(judged.logits))
    write_json(
        run.path / RESULT,
        {
            "schema_version": SCHEMA_VERSION,
            "how": job.config.how,
            "images": {key: value for key, value in job.parts.describe().items() if key != "parts"},
            "dropped": job.dropped,
            "model": job.spec.name,
            "tune": job.config.model.tune if job.config.how == "finetune" else "head",
            "image_size": job.config.model.image_size,
            "weights": job.weights.describe(),
            "upstream": upstream_figures(job.config.model.weights),
            "summary": judged.summary,
            "chosen": judged.chosen,
            "predictions": "predictions.csv" if missing is None else None,
            "predictions_missing": missing,
            "recommended": None,
        },
    )
    shutil.rmtree(run.path / "features", ignore_errors=True)
    run.enter(0, {"summary": judged.summary})
    run.finish(time.monotonic() - begun)
    forget_networks(run.path)


def _several(
    config: TransferConfig,
    jobs: Sequence[TransferJob],
    roots: dict[str, Path],
    out: Path,
    command: str,
    progress: Progress,
) -> Outcome:
    """One transfer for each of several first weights, in a folder of its own; then which of them to take."""
    begun = time.monotonic()
    record = describe(jobs[0], command)
    record |= head_of_record("transfer", default_out(config), config, jobs[0].device, command)
    record["model"]["weights"] = {"sha256": sha256_of_text("\n".join(str(job.weights.sha256) for job in jobs))}
    with open_run(out, record) as run:
        if not run.finished:
            candidates, records = [], {}
            for number, job in enumerate(jobs):
                choice = job.config.model.weights
                progress.say(f"Upstream {number + 1} of {len(jobs)}: {choice}")
                name = f"{number}-{_name_of(choice)}"
                outcome = _one(job, roots, run.path / "upstream" / name, command, progress)
                candidates.append(Candidate(name, choice, outcome.path, outcome.result, job.parts.test))
                records[name] = outcome.record["model"]
            result = recommend(candidates)
            chosen = next(one for one in candidates if one.name == result["recommended"]["kept"])
            copy_folder(chosen.path / "fold-0", run.fold(0))
            for file in ("predictions.csv", "results.csv"):
                if (chosen.path / file).is_file():
                    copy_file(chosen.path / file, run.path / file)
            write_json(run.path / RESULT, result)
            # The network in fold-0 is that of the kept one; the hash stays that of all first weights.
            run.record["model"] = records[chosen.name] | {"weights": record["model"]["weights"]}
            run.enter(0, {"summary": result["summary"]})
            run.finish(time.monotonic() - begun)
        report_upstream(run.path)
        return run.outcome(RESULT)


def _name_of(choice: str) -> str:
    return "".join(char if char.isalnum() or char in "._-" else "-" for char in choice.rstrip("/").rsplit("/", 1)[-1])
