"""The skeleton that all experiments share: prepare, describe, open the run directory, train, conclude, report."""

import hashlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from safetensors.torch import save
from torch import Tensor, nn

from usvit.config import Training, identity
from usvit.experiments.run_directory import Result, RunDirectory, RunResult, begun, open_run, outcome
from usvit.files import sha256_of_text, write_bytes
from usvit.models import (
    LoadReport,
    ModelSpec,
    TuneReport,
    UpstreamModel,
    Weights,
    add_lora,
    build_with_report,
    checkpoint_gradients,
    set_trainable,
    start_off_zero,
)
from usvit.plain_data import Json
from usvit.progress import Progress, shown_progress
from usvit.records import ModelMetadata, Record, RunRecord, save_record
from usvit.records.run import Config, Data, LearntFrom, Model
from usvit.training import Device, check_optimizer, check_trackers, seed_everything

Setup = TypeVar("Setup")
Trained = TypeVar("Trained")


class _SeededConfig(Protocol):
    """A configuration with a seed."""

    @property
    def seed(self) -> int: ...

    def model_dump(self, *, mode: str) -> Json: ...


class Experiment(ABC, Generic[Setup, Trained, Result]):
    """A run from a configuration to a finished run directory.

    ``run`` is the same for all experiments; a subclass implements the steps that it calls. ``Setup`` is what
    ``prepare`` resolves, ``Trained`` is what ``train`` hands to ``conclude`` (None if everything is on disk), and
    ``Result`` is the model of the result.

    Args:
        roots: Folder of each data set by its name; the key "" is the folder of all others.
        out: The run directory; None for ``default_out``.
        command: What the user called, for ``run.json``.
        progress: Where progress is shown.
    """

    result_model: type[Result]
    """The model of the result, such as ``metrics.json`` or ``test.json``, which ``conclude`` writes."""

    def __init__(
        self,
        *,
        roots: Mapping[str, Path] | None = None,
        out: Path | None = None,
        command: str = "",
        progress: Progress | None = None,
    ):
        self.roots, self.out, self.command = dict(roots or {}), out, command
        self.progress = shown_progress(progress)

    def run(self) -> RunResult[Result]:
        """Run the experiment, or resume it if the run directory holds a part of it.

        Raises:
            UsvitError: The input cannot be used (then nothing has been written), or the run has to be resumed.
        """
        setup = self.prepare()
        begun = time.monotonic()
        with self.opened(setup) as run:
            if not run.finished:
                trained = self.train(setup, run)
                self.on_main(self._finish, setup, run, trained, begun)
            self.on_main(self.report, run)
            result: RunResult[Result] = self.on_main(outcome, run.path, self.result_model)
            return result

    @abstractmethod
    def prepare(self) -> Setup:
        """Resolve and check everything before anything is written, the cheapest checks first."""

    @abstractmethod
    def default_out(self, setup: Setup) -> Path:
        """Return the run directory that is used if the user names none."""

    @abstractmethod
    def new_record(self, setup: Setup) -> RunRecord:
        """Return the content of ``run.json`` before the training begins."""

    def opened(self, setup: Setup) -> AbstractContextManager[RunDirectory]:
        """Create or open the run directory, and hold its lock."""
        return open_run(self.out or self.default_out(setup), self.new_record(setup))

    @abstractmethod
    def train(self, setup: Setup, run: RunDirectory) -> Trained:
        """Train what the run directory does not hold yet."""

    @abstractmethod
    def conclude(self, setup: Setup, run: RunDirectory, trained: Trained) -> None:
        """Write the results of the whole run, the file of ``result_model`` among them."""

    @abstractmethod
    def report(self, run: RunDirectory) -> None:
        """Write the report of a finished run."""

    def on_main(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function that writes files; an experiment of several processes does so in the main process only."""
        return function(*arguments)

    def _finish(self, setup: Setup, run: RunDirectory, trained: Trained, begun: float) -> None:
        self.conclude(setup, run, trained)
        run.finish(time.monotonic() - begun)


def write_model(
    folder: Path,
    state: Mapping[str, Tensor],
    metadata: Callable[[str], ModelMetadata],
    header: Mapping[str, str] | None = None,
) -> None:
    """Write ``model.safetensors`` and, after it, the metadata ``model.json``.

    Args:
        folder: The folder of the fold.
        state: The tensors by name, on any device.
        metadata: Returns the content of ``model.json``. It is called with the SHA-256 of ``model.safetensors`` after
            that file has been written, and may write further files: ``model.json`` is the last.
        header: Texts for the header of ``model.safetensors``.
    """
    content = tensor_bytes(state, header)
    write_bytes(folder / "model.safetensors", content)
    save_record(folder / "model.json", metadata(hashlib.sha256(content).hexdigest()))


def tensor_bytes(state: Mapping[str, Tensor], header: Mapping[str, str] | None = None) -> bytes:
    """Return the content of a safetensors file, with texts in its header."""
    tensors = {key: value.detach().cpu().contiguous() for key, value in state.items()}
    return save(tensors, metadata=None if header is None else dict(header))


def in_runs(*parts: str) -> Path:
    """Join the non-empty parts to a folder of ``runs``: ``runs/busi-timm-resnet50-none-seed0``."""
    return Path("runs") / "-".join(filter(None, parts)).replace(":", "-").replace("/", "-")


def learnt_from_record(networks: Sequence[UpstreamModel]) -> LearntFrom | None:
    """Return the entry of ``run.json`` for the other networks that a training learns from; None without one."""
    records = [one.record() for one in networks]
    hashed = sha256_of_text(str([one.content() for one in records]))
    return LearntFrom(networks=records, sha256=hashed) if records else None


def new_record(
    kind: str,
    out: Path,
    config: _SeededConfig,
    device: Device,
    command: str,
    data: Data,
    **sections: Record | None,
) -> RunRecord:
    """Return the content of a new ``run.json``.

    Args:
        kind: The kind of the run: ``cv``, ``train``, ``pretrain``, ``transfer`` or ``test``.
        out: Its default run directory, which gives the run its name.
        config: The complete configuration.
        device: The resolved device.
        command: What the user called.
        data: The images.
        **sections: Further sections, such as ``folds`` and ``model``.
    """
    settings = config.model_dump(mode="json")
    return begun(
        kind=kind,
        name=out.name,
        command=command,
        config=Config.model_validate(settings),
        config_sha256=sha256_of_text(str(sorted(identity(settings).items()))),
        seed=config.seed,
        device=device.record(),
        data=data,
        **sections,
    )


def model_record(
    spec: ModelSpec, n_parameters: int, tuned: TuneReport | None, weights: Weights, loaded: LoadReport
) -> Model:
    """Return the entry ``model`` of ``run.json``; ``tuned`` is None if the run itself trains no part of the network."""
    return Model(
        name=spec.name,
        vit=dict(spec.changed),
        timm=spec.architecture,
        params=n_parameters,
        trainable=None if tuned is None else tuned.trainable,
        weights=weights.record(None if weights.source == "scratch" else loaded.record()),
    )


def new_model_with_report(
    config: Training, spec: ModelSpec, weights: Weights, n_classes: int, fold: int
) -> tuple[nn.Module, LoadReport]:
    """Build the network with which a fold begins; the same seed and fold give the same network.

    Returns:
        The network on the CPU, and a report of the weights that were loaded into it.
    """
    seed_everything(config.seed, "model", fold)
    return build_with_report(
        spec,
        weights.of_fold(fold),
        n_classes=n_classes,
        image_size=config.model.image_size,
        drop_path=config.model.drop_path,
        drop_path_schedule=config.model.drop_path_schedule,
        dropout=config.model.dropout,
    )


def adapt(model: nn.Module, config: Training) -> TuneReport:
    """Prepare a new network for its training: freeze the parts that are not tuned, and set gradient checkpointing.

    With ``model.tune=lora`` it gets adapters. A head that starts at zero gets small random weights if LAMB trains it.

    Raises:
        UsvitError: The network has no such parts, or does not support a setting or the optimizer; or a tracker is
            not installed.
    """
    check_trackers(config.train.loggers)
    if config.model.grad_checkpointing:
        checkpoint_gradients(model)
    if config.optim.name == "lamb":
        start_off_zero(model)
    if config.model.tune == "lora":
        add_lora(model, config.model.lora, config.model.image_size)
    tuned = set_trainable(model, config.model.tune)
    check_optimizer(model, config)
    return tuned
