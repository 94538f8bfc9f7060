"""Transfer: images and upstream weights -> figures and a network with its metadata, as ``usvit transfer`` runs it."""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from usvit.data.datasets import made_on_the_fly
from usvit.data.near_duplicates import CompactDescriptions
from usvit.data.splits import write_seen
from usvit.experiments import Experiment, Learnt, RunDirectory, RunResult, write_model
from usvit.files import copy_file, copy_folder, sha256_of_text, write_csv
from usvit.progress import Progress
from usvit.records import ModelMetadata, RunRecord, WeightsRecord, save_record
from usvit.records.run import FoldResultRecord
from usvit.training import FitResult
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.model_metadata import upstream_metadata
from usvit.upstream.records.training import TransferRecord, TransferRow
from usvit.upstream.reports.training_page import report_upstream
from usvit.upstream.transfer_learning import metrics
from usvit.upstream.transfer_learning.finetune import cell_config, finetune, forget_networks
from usvit.upstream.transfer_learning.probes import PROBES, FeatureSet, ProbeResult, needed
from usvit.upstream.transfer_learning.retrieval import searching
from usvit.upstream.transfer_learning.text import locked_image_tuning
from usvit.upstream.transfer_learning.transfer_setup import TransferSetup, default_out, prepare, run_record
from usvit.upstream.transfer_learning.upstream_selection import UpstreamCandidate, recommend, upstream_figures

logger = logging.getLogger(__name__)


class Transfer(Experiment[TransferSetup, ProbeResult, TransferRecord]):
    """A transfer of one network.

    Args:
        config: The complete configuration.
        model_named: Use the network ``config.model.name``; otherwise the metadata of the weights names the network.
        setup: The resolved transfer, if it has been prepared already.
        **arguments: Those of ``Experiment``.
    """

    result_model = TransferRecord

    def __init__(
        self,
        config: TransferConfig,
        *,
        model_named: bool = True,
        setup: TransferSetup | None = None,
        **arguments: Any,
    ):
        super().__init__(**arguments)
        self.config, self.model_named, self.setup = config, model_named, setup

    def prepare(self) -> TransferSetup:
        if self.setup is not None:
            return self.setup
        return prepare(self.config, self.roots, self.progress, model_named=self.model_named)[0]

    def default_out(self, setup: TransferSetup) -> Path:
        return default_out(setup.config)

    def new_record(self, setup: TransferSetup) -> RunRecord:
        return run_record(setup, self.command)

    def train(self, setup: TransferSetup, run: RunDirectory) -> ProbeResult:
        if setup.weights.source != "scratch":
            logger.info(f"Weights {setup.weights.name}: {setup.loaded.line()}")
        if setup.config.how == "finetune":
            return finetune(setup, run, self.roots, self.command, self.progress)
        return _probe(setup, run, self.progress)

    def conclude(self, setup: TransferSetup, run: RunDirectory, trained: ProbeResult) -> None:
        write_csv(run.path / "results.csv", metrics.results_table(trained.rows))
        for name, table in trained.tables.items():
            write_csv(run.path / name, table)
        missing = metrics.write_predictions(run.path / "predictions.csv", setup.splits.test, np.asarray(trained.logits))
        result = TransferRecord(
            how=setup.config.how,
            images=setup.splits.record(),
            dropped=setup.dropped,
            model=setup.spec.name,
            tune=_tuned(setup.config, trained),
            image_size=setup.config.model.image_size,
            weights=setup.weights.record(),
            upstream=upstream_figures(setup.config.model.weights),
            summary=trained.summary,
            chosen=trained.chosen,
            predictions="predictions.csv" if missing is None else None,
            predictions_missing=missing,
            recommended=None,
            text=trained.text,
            contamination=list(setup.contamination) or None,
        )
        save_record(run.path / "transfer.json", result)
        shutil.rmtree(run.path / "features", ignore_errors=True)
        run.enter(_fold(trained.summary))

    def report(self, run: RunDirectory) -> None:
        forget_networks(run.path)
        report_upstream(run.path)


_AllTransfers = list[tuple[UpstreamCandidate, RunResult[TransferRecord]]]


class UpstreamSelection(Experiment[list[TransferSetup], _AllTransfers, TransferRecord]):
    """A transfer of each of several networks, in a folder of its own, and the choice of one of them.

    Args:
        config: The complete configuration, with several weights in ``upstream``.
        model_named: As in ``Transfer``.
        **arguments: Those of ``Experiment``.
    """

    result_model = TransferRecord

    def __init__(self, config: TransferConfig, *, model_named: bool = True, **arguments: Any):
        super().__init__(**arguments)
        self.config, self.model_named = config, model_named

    def prepare(self) -> list[TransferSetup]:
        return prepare(self.config, self.roots, self.progress, model_named=self.model_named)

    def default_out(self, setup: list[TransferSetup]) -> Path:
        return default_out(self.config)

    def new_record(self, setup: list[TransferSetup]) -> RunRecord:
        first = run_record(replace(setup[0], config=self.config), self.command)
        together = sha256_of_text("\n".join(str(one.weights.sha256) for one in setup))
        # The hash alone says which networks there are, of which one is kept.
        model = first.model.model_copy(update={"weights": WeightsRecord.model_validate({"sha256": together})})
        return first.model_copy(update={"model": model})

    def train(self, setup: list[TransferSetup], run: RunDirectory) -> _AllTransfers:
        found = []
        for number, one in enumerate(setup):
            choice = one.config.model.weights
            logger.info(f"Upstream {number + 1} of {len(setup)}: {choice}")
            name = f"{number}-{_name_of(choice)}"
            shared: dict[str, Any] = {"roots": self.roots, "command": self.command, "progress": self.progress}
            outcome = Transfer(one.config, setup=one, out=run.path / "upstream" / name, **shared).run()
            found.append((UpstreamCandidate(name, choice, outcome.path, outcome.result, one.splits.test), outcome))
        return found

    def conclude(self, setup: list[TransferSetup], run: RunDirectory, trained: _AllTransfers) -> None:
        recommended = recommend([candidate for candidate, _ in trained])
        kept = next(outcome for candidate, outcome in trained if candidate.name == recommended.kept)
        result = kept.result.model_copy(update={"recommended": recommended})
        copy_folder(kept.path / "fold-0", run.fold(0))
        for file in ("predictions.csv", "results.csv"):
            if (kept.path / file).is_file():
                copy_file(kept.path / file, run.path / file)
        save_record(run.path / "transfer.json", result)
        # The record names the network that is kept; the hash of the weights remains that of all candidates.
        weights = run.record.model.weights
        run.save(model=kept.record.model.model_copy(update={"weights": weights}))
        run.enter(_fold(result.summary))

    def report(self, run: RunDirectory) -> None:
        report_upstream(run.path)


def _probe(setup: TransferSetup, run: RunDirectory, progress: Progress) -> ProbeResult:
    """Classify the features of the network, and write the network with the classifier as its head."""
    model = setup.network()
    extractor, splits = setup.extractor(progress), setup.splits
    retrieval = setup.config.how == "retrieval"
    embedding = searching(model, setup.weights, setup.config) if retrieval else model
    seen = {
        split.name: FeatureSet(split, extractor.features(embedding, split, run.path / "features" / f"{split.name}.npy"))
        for split in needed(setup.config, splits)
    }
    probe = locked_image_tuning if setup.config.how == "text" else PROBES[setup.config.how]
    probed = probe(setup.config, splits, seen, progress)
    model = model.cpu()
    if probed.head is not None:
        probed.head.write_into(model)
    for module in probed.modules:
        module.write(run.fold(0))
    _write_network(setup, run, model, probed, progress)
    return probed


def _write_network(
    setup: TransferSetup, run: RunDirectory, model: nn.Module, probed: ProbeResult, progress: Progress
) -> None:
    source = setup.splits.train.source
    result = FitResult(
        steps=0,
        best_step=0,
        history=metrics.results_table(probed.rows),
        seconds=0.0,
        images_per_second=0.0,
    )

    def metadata(weights_sha256: str) -> ModelMetadata:
        hashes: dict[str, list[str]] = {"train": []}
        unhashed: set[str] = set()
        described: dict[str, CompactDescriptions] = {}
        for split in (setup.splits.train, setup.splits.val):
            if split is not None and split.name in probed.learnt_from:
                if setup.config.source.hashes:
                    hashes[split.name] = split.hashes(progress) or []
                    described |= split.descriptions(progress)
                elif not made_on_the_fly(split.source):
                    unhashed.add(split.source.name)
        seen = write_seen(run.fold(0), hashes, setup.weights, unhashed=unhashed, described=described, name=source.name)
        found = upstream_metadata(setup.of_head(), 0, source, Learnt(result, weights_sha256, seen))
        return found.model_copy(update={"objective": setup.config.how})

    write_model(run.fold(0), model.state_dict(), metadata)


def _tuned(config: TransferConfig, trained: ProbeResult) -> str:
    """Return which layers were trained: those of the chosen cell, or the head of a probe."""
    if config.how != "finetune":
        return "head"
    return cell_config(config, config.cells.get(trained.chosen.cell or "", {})).model.tune


def _fold(summary: Sequence[TransferRow]) -> FoldResultRecord:
    """Return the entry of ``run.json``: the printed table."""
    return FoldResultRecord.model_validate({"fold": 0, "summary": [line.content() for line in summary]})


def _name_of(choice: str) -> str:
    return "".join(char if char.isalnum() or char in "._-" else "-" for char in choice.rstrip("/").rsplit("/", 1)[-1])
