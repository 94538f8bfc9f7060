"""A transfer from one network, resolved and checked before anything is written."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import nn

from usvit.config import PretrainConfig, TransferConfig
from usvit.data.manifest import Manifest
from usvit.data.preprocessing import Preprocessing
from usvit.data.seen import passport_beside, seen_by_weights
from usvit.data.sources.catalog import DATA
from usvit.errors import UsvitError
from usvit.files import sha256_of_text
from usvit.job import head_of_record, in_runs, model_of_record
from usvit.models.build import build_with_report, count_parameters, input_statistics
from usvit.models.mlp_head import give_mlp_head
from usvit.models.spec import ModelSpec
from usvit.models.weights import LoadReport, Weights, resolve_weights
from usvit.models.weights.runs import fold_folders
from usvit.models.zoo import find_model
from usvit.progress import Progress
from usvit.train.device import Device, resolve_device, seed_everything
from usvit.transfer import probes
from usvit.transfer.features import Eye
from usvit.transfer.parts import Parts, without_leaks
from usvit.transfer.retrieval import forbidden, searching


@dataclass(frozen=True)
class TransferJob:
    """Everything resolved and checked, before anything is written."""

    config: TransferConfig
    spec: ModelSpec
    weights: Weights
    device: Device
    parts: Parts
    dropped: dict[str, int | None]
    """Test images that were left out, and why (``without_leaks``)."""
    preprocessing: Preprocessing
    n_parameters: int
    loaded: LoadReport

    def network(self) -> nn.Module:
        """The network with its first weights and a new head, on the CPU; the same each time."""
        return _build(self.config, self.spec, self.weights, len(self.parts.classes))[0]

    def eye(self, progress: Progress, config: PretrainConfig | None = None) -> Eye:
        """How the network sees images, as the transfer's configuration, or that of a cell, has it."""
        config = config or self.config
        preprocessing = replace(self.preprocessing, image_size=config.model.image_size)
        return Eye(preprocessing, config.views.test_crop, self.device.fabric(), progress)

    @property
    def classes(self) -> tuple[str, ...]:
        return self.parts.classes

    @property
    def manifest(self) -> Manifest | None:
        return self.parts.manifest

    @property
    def inputs(self) -> Preprocessing:
        return self.preprocessing

    def of_head(self) -> "TransferJob":
        """The same as a training of the head alone, for the passport of what comes out of a probe."""
        model = self.config.model.model_copy(update={"tune": "head"})
        return replace(self, config=self.config.model_copy(update={"model": model}))


def default_out(config: TransferConfig) -> Path:
    """``runs/transfer-fewshot-cifar10-vit_ti16-seed0``; with the recipe's name, and that of first weights from disk."""
    images = config.data.dataset if config.source.name == DATA else config.source.name
    images = "+".join(Path(name).stem for name in images.split("+"))
    origin = "several" if config.upstream else _origin(config.model.weights)
    recipe = "" if config.recipe == "none" else config.recipe
    model = "" if config.upstream else config.model.name  # several may be several networks
    return in_runs("transfer", config.how, images, model, origin, recipe, f"seed{config.seed}")


def with_model_of(config: TransferConfig, choice: str, *, named: bool) -> TransferConfig:
    """The configuration for first weights that usvit trained: their passport says which network they are of, and, where
    no setting does, of which input size.

    Args:
        config: the configuration.
        choice: first weights: a file, a run, ``hub``, ``scratch``.
        named: the user named the model, which then stays.

    Raises:
        UsvitError: the passport is damaged, or the run is not finished.
    """
    passport = None
    if choice != "scratch" and not choice.startswith("hub"):
        path = Path(choice)
        if path.is_dir():
            passport = passport_beside(fold_folders(path)[0] / "model.safetensors")
        elif path.is_file():
            passport = passport_beside(path)
    update: dict[str, Any] = {"weights": choice}
    if passport is not None and "image_size" not in config.model.model_fields_set:
        update["image_size"] = int((passport.get("preprocessing") or {}).get("image_size", config.model.image_size))
    if passport is not None and not named:
        vit = passport.get("vit") or {}
        if not passport.get("architecture"):
            raise UsvitError(
                f"The passport (model.json) of --weights {choice} is damaged: it does not say 'architecture', which "
                "network it is of. Copy it again, or pass --model."
            )
        update |= {"name": str(passport["architecture"]), "vit": config.model.vit.model_copy(update=vit)}
    return config.model_copy(update={"model": config.model.model_copy(update=update)})


def prepare(config: TransferConfig, parts: Parts) -> TransferJob:
    """Resolve and check everything but leaks, the cheap first: a transfer that cannot be made stops here."""
    device = resolve_device(config.device, config.precision)
    spec = find_model(config.model.name, config.model.vit.model_dump(exclude_none=True))
    weights = resolve_weights(config.model.weights, spec, config.model.weights_sha256)
    if weights.warning:
        progress.say(weights.warning)
    if weights.folds:
        raise UsvitError(
            f"--weights {config.model.weights} is a run of {len(weights.folds)} folds, each with a network of its own. "
            f"Name one: {config.model.weights}/fold-0."
        )
    mean, std = input_statistics(spec, weights)
    probes.check(config, parts)
    model, loaded = _build(config, spec, weights, len(parts.classes))
    if config.how == "retrieval":
        searching(model, weights, config.model.image_size)  # a run that is not whole shows now
    preprocessing = Preprocessing(config.model.image_size, "squash", mean, std)
    return TransferJob(config, spec, weights, device, parts, {}, preprocessing, count_parameters(model), loaded)


def checked(jobs: Sequence[TransferJob], progress: Progress) -> list[TransferJob]:
    """The same transfers without test images that leak (``without_leaks``): all are tested on the same ones.

    Raises:
        LeakageError: there are such images, and they are not to be dropped.
    """
    seen_of = forbidden if jobs[0].config.how == "retrieval" else seen_by_weights
    seen = {f"The network of --weights {job.config.model.weights}": seen_of(job.weights) for job in jobs}
    parts, dropped = without_leaks(jobs[0].parts, jobs[0].config, seen, progress)
    return [replace(job, parts=parts, dropped=dropped) for job in jobs]


def describe(job: TransferJob, command: str) -> dict[str, Any]:
    """What ``run.json`` says of a transfer before it begins."""
    parts = job.parts.describe()
    # Where no class is the one that is looked for, the first stands in front in tables that need one.
    positive = job.parts.classes[0] if job.manifest is None else job.manifest.positive_class
    return {
        **head_of_record("transfer", default_out(job.config), job.config, job.device, command),
        "data": {
            **parts,
            "positive_class": positive,
            "dropped": job.dropped,
            "sha256": sha256_of_text(str((parts, job.dropped))),
        },
        "folds": {"n": 1},
        "model": model_of_record(job.spec, job.n_parameters, None, job.weights, job.loaded),
    }


def _build(config: TransferConfig, spec: ModelSpec, weights: Weights, n_classes: int) -> tuple[nn.Module, LoadReport]:
    seed_everything(config.seed, "model", 0)
    model, report = build_with_report(spec, weights, n_classes=n_classes, image_size=config.model.image_size)
    if config.how == "finetune" and config.model.head == "mlp":
        give_mlp_head(model)
    return model, report


def _origin(choice: str) -> str:
    return choice.replace(":", "-") if choice == "scratch" or choice.startswith("hub") else Path(choice).stem
