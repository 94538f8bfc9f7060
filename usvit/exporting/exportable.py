"""The source of an export: a trained network or one of the zoo, with its model metadata."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path

import torch
from safetensors.torch import save as safetensors_bytes
from torch import nn

import usvit
from usvit.config.exporting import ExportSettings
from usvit.config.fields import given_fields
from usvit.data.splits import SeenImages, passed_on, seen_by, seen_by_weights
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError, unknown
from usvit.files import read_bytes
from usvit.models import (
    ATTENTION_FILE,
    MAX_BYTES,
    NOVELTY_FILE,
    ModelSpec,
    build_model,
    find_model,
    input_statistics,
    load_trained,
    only_fold,
    read_attention,
    read_ood_detector,
    resolve_weights,
)
from usvit.records import ClassifierMetadata, ExportedMetadata, MetricsRecord, load_record, save_record
from usvit.records.model import ExportedLicenses, ExportedRecord, MeasuredRecord
from usvit.records.seen_images import SeenCopies

_INTENDED_USE = "research only; not a medical device"


@dataclass(frozen=True)
class ExportSource:
    """A network in eval mode on the CPU, and its metadata."""

    model: nn.Module
    """Maps (B, 3, S, S) float32, normalised, to (B, K) logits."""
    metadata: ExportedMetadata = field(repr=False)
    """Content of ``model.json``."""
    preprocessing: Preprocessing
    weights: bytes
    """Content of ``model.safetensors``."""
    beside: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    """Name -> content of the files that the metadata names: ``novelty.safetensors`` and ``attention.safetensors``."""
    seen: SeenImages = field(default_factory=SeenImages)
    """The images that the network has seen, including those listed in files beside its metadata."""

    def without_descriptions(self) -> "ExportSource":
        """Return a copy without the near-duplicate descriptions of the images that the network has seen."""
        seen = self.seen.without_descriptions()
        copies = SeenCopies(files=[], gaps=list(seen.gaps))
        return replace(self, metadata=self.metadata.model_copy(update={"seen_copies": copies}), seen=seen)

    def write_metadata(self, folder: Path, *, with_features: bool) -> None:
        """Write ``model.json``, and the files that it names.

        Args:
            folder: folder to write into.
            with_features: whether the format provides the features for OOD detection and attention.
        """
        save_record(folder / "model.json", self.metadata if with_features else _without_features(self.metadata))
        for name, content in self.beside.items() if with_features else ():
            (folder / name).write_bytes(content)
        self.seen.copy_files(folder)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.metadata.classes)

    @property
    def temperature(self) -> float:
        """Divisor of the logits before the softmax; 1 for a network that was not calibrated."""
        return self.metadata.temperature or 1.0

    def predict(self, pixels: torch.Tensor) -> torch.Tensor:
        """Predict (B, K) float32 logits from (B, S, S, 3) uint8; every export is compared with this prediction."""
        with torch.inference_mode():
            logits: torch.Tensor = self.model(self.preprocessing.normalised(pixels)).float()
        return logits


USUAL = ExportSettings()


def open_source(name: str, settings: ExportSettings = USUAL) -> ExportSource:
    """Open the network to export.

    Args:
        name: a run with a single fold, the folder of a fold, an earlier export, or a name of the zoo.
        settings: which weights and classes a network of the zoo has.

    Raises:
        UsvitError: the run or network does not exist, or the options do not apply to it.
    """
    folder = Path(name)
    if any((folder / file).is_file() for file in ("run.json", "model.json")):
        given = given_fields(settings) - {"descriptions"}
        if unfit := [f"--{field.replace('_', '-')}" for field in ExportSettings.model_fields if field in given]:
            raise UsvitError(f"{name} is a trained network with its own {', '.join(unfit)}: leave the option out.")
        return _of_run(folder)
    if folder.exists() and name != folder.name:
        raise UsvitError(
            f"{name} holds no trained network: there is neither run.json nor model.json. Give a run (runs/x), a "
            "fold of one (runs/x/fold-0), or a name of 'usvit models list'."
        )
    if folder.name != name and not name.startswith("timm:"):
        raise UsvitError(f"There is no run {name}. Give a run's folder, or a name of 'usvit models list'.")
    return of_spec(
        find_model(name),
        settings.weights or "hub",
        settings.classes,
        positive=settings.positive,
        image_size=settings.image_size or 224,
    )


def _of_run(folder: Path) -> ExportSource:
    trained, inside = load_trained(folder), only_fold(folder)
    metadata = load_record(inside / "model.json", ClassifierMetadata)
    changes: dict[str, object] = {"adapter": None}  # the exported weights are whole: adapters are merged into the base
    if "measured" not in metadata.model_fields_set:
        changes["measured"] = _measured(folder, trained.metadata.fold or 0)
    metadata = metadata.model_copy(update=changes)
    source = _source(trained.model, metadata, trained.preprocessing, paper=trained.spec.source)
    source = replace(source, seen=seen_by(trained.metadata, inside))
    named = {NOVELTY_FILE: read_ood_detector, ATTENTION_FILE: read_attention}
    there = [name for name, read in named.items() if read(inside, trained.metadata) is not None]
    return replace(source, beside={name: read_bytes(inside / name, MAX_BYTES) for name in there})


def of_spec(
    spec: ModelSpec, weights: str, classes: tuple[str, ...], *, positive: str | None = None, image_size: int
) -> ExportSource:
    """Build a network with a new head, to test other tools; see ``open_source`` for the arguments."""
    if len(classes) < 2 or len(set(classes)) < len(classes) or not all(classes):
        raise UsvitError(
            f"The zoo's {spec.name} has no classes of its own, and its head is new: name at least two different ones, "
            "as in --classes benign,malignant. (To export a trained network, give its run's folder.)"
        )
    positive = positive or ("malignant" if "malignant" in classes else classes[-1])
    if positive not in classes:
        raise unknown("positive class", positive, classes, "It is one of --classes.")
    found = resolve_weights(weights, spec)
    torch.manual_seed(0)  # so that the same name gives the same export
    model = build_model(spec, found, n_classes=len(classes), image_size=image_size).eval()
    preprocessing = Preprocessing(image_size, "pad", *input_statistics(spec))
    seen = seen_by_weights(found)
    metadata = ClassifierMetadata(
        architecture=spec.name,
        vit=dict(spec.changed),
        timm=spec.architecture,
        classes=list(classes),
        positive_class=positive,
        preprocessing=preprocessing.record(),
        temperature=None,
        thresholds=[],
        head="untrained",
        upstream=found.record(),
        data_licenses={},
        **dict(passed_on(seen)),
        intended_use=_INTENDED_USE,
        measured=None,
    )
    return replace(_source(model, metadata, preprocessing, paper=spec.source), seen=seen)


def _without_features(metadata: ExportedMetadata) -> ExportedMetadata:
    """Return the metadata for a format that provides no features: without OOD detection and attention."""
    changes: dict[str, object] = {"attention": None} if metadata.attention else {}
    if metadata.novelty is not None:
        changes |= {"novelty": None, "novelty_reason": "this format of export does not carry it"}
    return metadata.model_copy(update=changes) if changes else metadata


def _source(model: nn.Module, metadata: ClassifierMetadata, preprocessing: Preprocessing, paper: str) -> ExportSource:
    state = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    weights = safetensors_bytes(state)
    exported = ExportedRecord(
        usvit_version=usvit.__version__,
        versions={name: version(name) for name in ("torch", "timm")},
        weights_sha256=hashlib.sha256(weights).hexdigest(),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        paper=paper,
        licenses=ExportedLicenses(first_weights=metadata.upstream.license, data=metadata.data_licenses),
    )
    changes: dict[str, object] = {"intended_use": _INTENDED_USE, "exported": exported}
    if metadata.weights_sha256 is not None:  # the same weights may be stored as different bytes
        changes["weights_sha256"] = exported.weights_sha256
    content = metadata.model_copy(update=changes).content()
    return ExportSource(model.eval(), ExportedMetadata.model_validate(content), preprocessing, weights)


def _measured(folder: Path, fold: int) -> MeasuredRecord | None:
    """Return the test metrics of this network from its run; None if the run is not finished."""
    file = next(
        (place / "metrics.json" for place in (folder, folder.parent) if (place / "metrics.json").is_file()), None
    )
    if file is None:
        return None
    metrics = load_record(file, MetricsRecord)
    row = next((row for row in metrics.folds if row.fold == fold), None)
    if row is None:
        return None
    positive = f"{metrics.positive_class}_vs_rest"
    return MeasuredRecord(
        images=row.n_images,
        groups=row.n_groups,
        accuracy=row.accuracy.value,
        balanced_accuracy=row.balanced_accuracy.value,
        **{f"auc_{positive}": row.auc[positive].value},
    )
