"""The networks of an ensemble: which of a run they are, and whether their probabilities can be averaged."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import nn

from usvit.errors import UsvitError, unknown
from usvit.files import sha256_of_file, sha256_of_text
from usvit.models import OodDetector, TrainedModel, fold_folders, load_trained, read_ood_detector


@dataclass(frozen=True)
class EnsembleMember:
    """One network of the ensemble, on its device."""

    fold: int
    trained: TrainedModel
    sha256: str
    """Hash of its weights file."""
    folder: Path = field(repr=False)
    ood: OodDetector | None = field(repr=False)

    @property
    def model(self) -> nn.Module:
        return self.trained.model

    def describe(self) -> dict[str, Any]:
        metadata = self.trained.metadata
        rate = None if metadata.novelty is None else metadata.novelty.in_distribution
        return {
            "fold": self.fold,
            "weights_sha256": self.sha256,
            "architecture": self.trained.spec.name,
            "temperature": self.trained.temperature,
            "temperature_reason": metadata.temperature_reason,
            "novelty": None
            if self.ood is None
            else {
                "thresholds": self.ood.limits,
                "left_out": self.ood.left_out,
                "in_distribution": None if rate is None else rate.content(),
            },
            "novelty_reason": metadata.novelty_reason,
        }


def load_members(model: Path, folds: str) -> list[EnsembleMember]:
    """Load the chosen networks of a run, in the order of the folds.

    Args:
        model: ``runs/x`` or ``runs/x/fold-0``.
        folds: ``all``, or numbers such as ``0`` or ``0,2``.

    Raises:
        UsvitError: The folder holds no networks, there is no such fold, model metadata does not match the weights, or
            the networks differ in classes, preprocessing or architecture.
    """
    members = [_member(folder) for folder in _chosen(model, folds)]
    _refuse_mixed(members)
    return members


def ensemble_sha256(weights: list[str]) -> str:
    """Return the hash of a set of networks, from the hashes of their weights files in the order of the folds."""
    return sha256_of_text("\n".join(weights))


def _chosen(model: Path, folds: str) -> list[Path]:
    """Return the folders of the chosen networks, in the order of the folds, each once."""
    there = fold_folders(model)
    if folds.strip() == "all":
        return there
    if there == [model]:
        raise UsvitError(f"{model} is the folder of one network. Leave out --fold, or pass the run.")
    known = {str(number): folder for number, folder in enumerate(there)}
    wanted = {number.strip() for number in folds.split(",")}
    for number in sorted(wanted):
        if number not in known:
            raise unknown("fold", number, known, "--fold takes 'all', or numbers from 0, such as 0,2.")
    return [folder for number, folder in known.items() if number in wanted]


def _member(folder: Path) -> EnsembleMember:
    trained = load_trained(folder)
    weights = sha256_of_file(folder / "model.safetensors")
    ood = read_ood_detector(folder, trained.metadata)
    return EnsembleMember(trained.metadata.fold or 0, trained, weights, folder, ood)


def _refuse_mixed(members: list[EnsembleMember]) -> None:
    """Raise ``UsvitError`` if the probabilities of the networks cannot be averaged."""
    first = members[0]
    for other in members[1:]:
        for what, one, two in (
            ("the classes", first.trained.classes, other.trained.classes),
            ("the positive class", first.trained.positive, other.trained.positive),
            ("the preprocessing", first.trained.preprocessing, other.trained.preprocessing),
        ):
            if one != two:
                raise UsvitError(
                    f"The networks do not belong together: {what} of {first.folder.name} is {one}, but that of "
                    f"{other.folder.name} is {two}. Choose folds that agree (--fold), or restore the run."
                )
        if first.trained.spec != other.trained.spec:
            raise UsvitError(
                f"The networks do not belong together: {first.folder.name} is {first.trained.spec.name}, "
                f"but {other.folder.name} is {other.trained.spec.name}, or has other model settings. Restore the run."
            )
        if other.fold == first.fold:
            raise UsvitError(
                f"{first.folder.name} and {other.folder.name} are both fold {first.fold}. Restore the run."
            )


def refuse_mixed_temperatures(members: list[EnsembleMember]) -> None:
    """Raise ``UsvitError`` if only some of the networks have a temperature."""
    without = [member for member in members if member.trained.temperature is None]
    if not without or len(without) == len(members):
        return
    reasons = "; ".join(
        f"{member.folder.name}: {member.trained.metadata.temperature_reason or 'no reason is recorded'}"
        for member in without
    )
    able = ",".join(str(member.fold) for member in members if member.trained.temperature is not None)
    raise UsvitError(
        f"{len(without)} of {len(members)} networks have no temperature ({reasons}), so that the mean would mix "
        f"calibrated probabilities with others. Score with the networks that have one (--fold {able}); usvit "
        "recalibrate can then fit one temperature to their mean (--calibration)."
    )
