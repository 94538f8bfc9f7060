"""What is exported: a trained network or one of the zoo, with everything that the receiver must know of it."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save as safetensors_bytes
from torch import nn

import usvit
from usvit.data.preprocessing import Preprocessing
from usvit.data.seen import FILES, GAPS, Seen, passed_on, seen_by, seen_by_weights
from usvit.errors import UsvitError, unknown
from usvit.files import read_bytes, write_json
from usvit.models.build import build_model, input_statistics
from usvit.models.novelty import FILE as NOVELTY_FILE
from usvit.models.novelty import MAX_BYTES, read_novelty
from usvit.models.spec import ModelSpec
from usvit.models.trained import load_trained
from usvit.models.weights import resolve_weights
from usvit.models.weights.runs import fold_folders
from usvit.models.zoo import find_model
from usvit.records import MetricsRecord, read_record

INTENDED_USE = "research only; not a medical device"


@dataclass(frozen=True)
class Source:
    """A network in eval mode on the CPU, and its passport."""

    model: nn.Module
    """From (B, 3, S, S) float32, normalised, to (B, K) logits."""
    passport: dict[str, Any]
    """As ``model.json`` has it."""
    preprocessing: Preprocessing
    weights: bytes
    """The content of ``model.safetensors``."""
    novelty: bytes | None = None
    """The content of ``novelty.safetensors``, where the passport names one."""
    seen: Seen = field(default_factory=Seen)
    """What the network has seen, some of it perhaps in files beside its passport."""

    def without_descriptions(self) -> "Source":
        """The same without the copy descriptions of what it has seen, for a receiver who must not get them."""
        seen = self.seen.without_descriptions()
        copies = {FILES: [], GAPS: [gap.entry() for gap in seen.gaps]}
        return replace(self, passport={**self.passport, "seen_copies": copies}, seen=seen)

    def write_passport(self, folder: Path, *, with_novelty: bool) -> None:
        """``model.json``, and the files of hashes and copy descriptions that it names.

        Args:
            folder: to write into.
            with_novelty: whether this format shows the features by which novelty is judged.
        """
        write_json(folder / "model.json", self.passport if with_novelty else without_novelty(self.passport))
        self.seen.copy_files(folder)

    @property
    def classes(self) -> tuple[str, ...]:
        return tuple(self.passport["classes"])

    @property
    def temperature(self) -> float:
        """What logits are divided by before the softmax; 1 for a network that was not calibrated."""
        return float(self.passport.get("temperature") or 1.0)

    def predict(self, pixels: torch.Tensor) -> torch.Tensor:
        """usvit's own prediction, by which every export is checked: (B, S, S, 3) uint8 -> (B, K) float32 logits."""
        with torch.inference_mode():
            logits: torch.Tensor = self.model(self.preprocessing.normalised(pixels)).float()
        return logits


def open_source(
    name: str,
    *,
    weights: str | None = None,
    classes: Sequence[str] = (),
    positive: str | None = None,
    image_size: int | None = None,
) -> Source:
    """Find what ``usvit models export`` is asked for.

    Args:
        name: a run with a single fold, a fold's folder, an earlier export, or a name of the zoo.
        weights: of a name of the zoo, as ``--weights`` has them; None for ``hub``.
        classes: of a name of the zoo: names of the outputs; its head is new.
        positive: of a name of the zoo: one of ``classes``; None for ``malignant``, or else the last of them.
        image_size: of a name of the zoo; None for 224.

    Raises:
        UsvitError: there is no such run or network, or the options do not fit it.
    """
    folder = Path(name)
    if any((folder / file).is_file() for file in ("run.json", "model.json")):
        given = {"--weights": weights, "--classes": classes or None, "--positive": positive, "--image-size": image_size}
        if unfit := [option for option, value in given.items() if value is not None]:
            raise UsvitError(f"{name} is a trained network with its own {', '.join(unfit)}: leave the option out.")
        return _of_run(folder)
    if folder.exists() and name != folder.name:
        raise UsvitError(
            f"{name} holds no trained network: there is neither run.json nor model.json. Give a run (runs/x), a "
            "fold of one (runs/x/fold-0), or a name of 'usvit models list'."
        )
    if folder.name != name and not name.startswith("timm:"):
        raise UsvitError(f"There is no run {name}. Give a run's folder, or a name of 'usvit models list'.")
    size = 224 if image_size is None else image_size
    return of_spec(find_model(name), weights or "hub", tuple(classes), positive=positive, image_size=size)


def _of_run(folder: Path) -> Source:
    trained = load_trained(folder)
    passport = {**trained.passport}
    if "measured" not in passport:
        passport["measured"] = _measured(folder, int(passport.get("fold", 0)))
    inside = fold_folders(folder)[0]
    source = _source(trained.model, passport, trained.preprocessing, paper=trained.spec.source)
    source = replace(source, seen=seen_by(passport, inside))
    if read_novelty(inside, passport) is None:
        return source
    return replace(source, novelty=read_bytes(inside / NOVELTY_FILE, MAX_BYTES))


def of_spec(
    spec: ModelSpec, weights: str, classes: tuple[str, ...], *, positive: str | None = None, image_size: int
) -> Source:
    """A network with a new head, to try out what takes it in; the arguments are those of ``open_source``."""
    if len(classes) < 2 or len(set(classes)) < len(classes) or not all(classes):
        raise UsvitError(
            f"The zoo's {spec.name} has no classes of its own, and its head is new: name at least two different ones, "
            "as in --classes benign,malignant. (To export a trained network, give its run's folder.)"
        )
    positive = positive or ("malignant" if "malignant" in classes else classes[-1])
    if positive not in classes:
        raise unknown("positive class", positive, classes, "It is one of --classes.")
    found = resolve_weights(weights, spec)
    torch.manual_seed(0)  # the same name gives the same export
    model = build_model(spec, found, n_classes=len(classes), image_size=image_size).eval()
    preprocessing = Preprocessing(image_size, "pad", *input_statistics(spec))
    seen = seen_by_weights(found)
    inherited = passed_on(seen)
    passport = {
        "schema_version": "1.0",
        "architecture": spec.name,
        "vit": dict(spec.changed),
        "timm": spec.architecture,
        "classes": list(classes),
        "positive_class": positive,
        "preprocessing": {
            "image_size": image_size,
            "resize": preprocessing.resize,
            "mean": list(preprocessing.mean),
            "std": list(preprocessing.std),
            "crop": preprocessing.crop,
        },
        "temperature": None,
        "thresholds": [],
        "head": "untrained",
        "upstream": found.describe(),
        "data_licenses": {},
        "seen_sha256": {"train": [], "val": [], **inherited["seen_sha256"]},
        "seen_copies": inherited["seen_copies"],
        "measured": None,
    }
    return replace(_source(model, passport, preprocessing, paper=spec.source), seen=seen)


def without_novelty(passport: dict[str, Any]) -> dict[str, Any]:
    """The passport of an export whose format shows no features, so that novelty cannot be judged."""
    if not passport.get("novelty"):
        return passport
    return {**passport, "novelty": None, "novelty_reason": "this format of export does not carry it"}


def _source(model: nn.Module, passport: dict[str, Any], preprocessing: Preprocessing, paper: str) -> Source:
    state = {key: value.detach().cpu().contiguous() for key, value in model.state_dict().items()}
    weights = safetensors_bytes(state)
    upstream = passport.get("upstream") or {}
    passport = {
        **passport,
        "intended_use": INTENDED_USE,
        "exported": {
            "usvit_version": usvit.__version__,
            "versions": {name: version(name) for name in ("torch", "timm")},
            "weights_sha256": hashlib.sha256(weights).hexdigest(),
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "paper": paper,
            "licenses": {"first_weights": upstream.get("license"), "data": passport.get("data_licenses") or {}},
        },
    }
    if "weights_sha256" in passport:  # the same numbers may be other bytes
        passport["weights_sha256"] = passport["exported"]["weights_sha256"]
    return Source(model.eval(), passport, preprocessing, weights)


def _measured(folder: Path, fold: int) -> dict[str, Any] | None:
    """What the run measured of this very network, on images that it had not seen; None where it is not finished."""
    file = next(
        (place / "metrics.json" for place in (folder, folder.parent) if (place / "metrics.json").is_file()), None
    )
    if file is None:
        return None
    metrics = read_record(file, MetricsRecord)
    row = next((row for row in metrics["folds"] if row["fold"] == fold), None)
    if row is None:
        return None
    positive = f"{metrics['positive_class']}_vs_rest"
    return {
        "images": row["n_images"],
        "groups": row["n_groups"],
        "accuracy": row["accuracy"]["value"],
        "balanced_accuracy": row["balanced_accuracy"]["value"],
        f"auc_{positive}": row["auc"][positive]["value"],
    }
