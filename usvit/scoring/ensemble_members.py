"""The networks of an ensemble: which of a run, or of several runs, they are, and whether they can be averaged."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import nn

from usvit.errors import UsvitError, unknown
from usvit.evaluation import is_ensemble, load_ensemble, network_folder
from usvit.files import sha256_of_file, sha256_of_text
from usvit.models import (
    OodDetector,
    TrainedModel,
    ViewAttention,
    fold_folders,
    load_trained,
    read_attention,
    read_ood_detector,
    same_backbone,
)
from usvit.records import MemberOod, ScoringMember, ThresholdRecord, UnitThresholds

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class EnsembleMember:
    """One network of the ensemble, on its device."""

    fold: int
    trained: TrainedModel
    sha256: str
    """Hash of its weights file."""
    folder: Path = field(repr=False)
    ood: OodDetector | None = field(repr=False)
    attention: ViewAttention | None = field(default=None, repr=False)
    """Over the views of a study or patient; on the CPU."""

    @property
    def model(self) -> nn.Module:
        return self.trained.model

    @property
    def run(self) -> Path:
        """Folder of the run that trained it; its own folder if it is an export."""
        return self.folder.parent if (self.folder.parent / "run.json").is_file() else self.folder

    @property
    def record(self) -> ScoringMember:
        """The entry of ``summary.json``."""
        metadata = self.trained.metadata
        rate = None if metadata.novelty is None else metadata.novelty.in_distribution
        return ScoringMember(
            fold=self.fold,
            weights_sha256=self.sha256,
            architecture=self.trained.spec.name,
            temperature=self.trained.temperature,
            temperature_reason=metadata.temperature_reason,
            novelty=None
            if self.ood is None
            else MemberOod(thresholds=self.ood.limits, left_out=self.ood.left_out, in_distribution=rate),
            novelty_reason=metadata.novelty_reason,
        )


@dataclass(frozen=True)
class FoldModel:
    """What stands for one fold: the network of a run, or the weighted networks of the members of ``usvit ensemble``."""

    fold: int
    folder: Path
    """Folder with the ``predictions.csv`` of the fold."""
    members: tuple[EnsembleMember, ...]
    weights: tuple[float, ...]
    """Weight of each network in the mean of the probabilities, above 0; they sum to 1."""
    temperature: float | None
    """Divisor of the logits, or of the logarithm of the weighted mean; None if none was fitted."""
    temperature_reason: str | None
    thresholds: Mapping[str, ThresholdRecord]
    """Rule -> threshold of this fold alone."""
    of_units: UnitThresholds | None = None
    """The thresholds of the unit of this fold alone; None without a unit."""
    of_ensemble: bool = False
    """Whether the weighted mean has the temperature, instead of a single network."""

    @property
    def identity(self) -> str:
        """Hash of its networks and their weights; for the network of a run, that of its weights file."""
        if not self.of_ensemble:
            return self.members[0].sha256
        lines = [f"{weight!r} {one.sha256}" for weight, one in zip(self.weights, self.members, strict=True)]
        return sha256_of_text("\n".join(lines))

    def records(self, *, name_run: bool) -> list[ScoringMember]:
        """Return the entry of each of its networks in ``summary.json``; ``name_run`` adds the name of its run."""
        own = {"temperature": self.temperature, "temperature_reason": self.temperature_reason}
        return [
            one.record.model_copy(
                update={
                    **own,
                    "run": one.run.name if name_run or self.of_ensemble else None,
                    "weight": weight if self.of_ensemble else None,
                }
            )
            for weight, one in zip(self.weights, self.members, strict=True)
        ]


def load_members(models: Sequence[Path], folds: str) -> list[FoldModel]:
    """Load the chosen networks of one or several runs, in the order of the runs and their folds.

    Args:
        models: Folders of runs, of folds (``runs/x/fold-0``), of exports, or of ensembles.
        folds: Folds of each run: ``all``, or numbers such as ``0`` or ``0,2``.

    Raises:
        UsvitError: A folder holds no networks, there is no such fold, model metadata does not match the weights, a
            member of an ensemble is missing or was changed, or the networks cannot be averaged.
    """
    found: list[FoldModel] = []
    for model in models:
        if is_ensemble(model):
            own = _of_ensemble(model, folds)
        else:
            own = [_of_network(_member(folder)) for folder in _chosen(fold_folders(model), folds, model)]
            _refuse_mixed([one.members[0] for one in own])
        found += own
    if len({one.run for each in found for one in each.members}) > 1:
        _refuse_other_runs([one for each in found for one in each.members])
    if len(models) > 1:
        _refuse_twice(found)
    return found


def ensemble_sha256(weights: list[str]) -> str:
    """Return the hash of a set of networks, from the hashes of their weights files in the order of the folds."""
    return sha256_of_text("\n".join(weights))


def _of_network(member: EnsembleMember) -> FoldModel:
    trained = member.trained
    reason = trained.metadata.temperature_reason
    own = (member.fold, member.folder, (member,), (1.0,))
    return FoldModel(*own, trained.temperature, reason, trained.thresholds, trained.metadata.unit_thresholds)


def _of_ensemble(folder: Path, folds: str) -> list[FoldModel]:
    """Load the networks of an ensemble that have a weight above 0."""
    record = load_ensemble(folder)
    by_folder = {folder / f"fold-{one.fold}": one for one in record.folds}
    found = []
    for own in _chosen(list(by_folder), folds, folder):
        fold = by_folder[own]
        members, weights = [], []
        for run, weight in zip(record.members, fold.weights, strict=True):
            if weight > 0:
                network = next(one for one in run.networks if one.fold == fold.fold)
                members.append(_member(network_folder(folder, run, network)))
                weights.append(weight)
        found.append(
            FoldModel(
                fold.fold,
                own,
                tuple(members),
                tuple(weights),
                fold.temperature,
                fold.temperature_reason,
                {one.rule: one for one in fold.thresholds},
                fold.unit_thresholds,
                of_ensemble=True,
            )
        )
    first = found[0].members[0].trained
    if first.classes != tuple(record.classes) or first.positive != record.positive_class:
        raise UsvitError(f"{folder} and its members name different classes. Make the ensemble again.")
    return found


def _chosen(there: list[Path], folds: str, model: Path) -> list[Path]:
    """Return the folders of the chosen folds, in the order of the folds, each once."""
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
    ood, attention = read_ood_detector(folder, trained.metadata), read_attention(folder, trained.metadata)
    return EnsembleMember(trained.metadata.fold or 0, trained, weights, folder, ood, attention)


def _refuse_mixed(members: list[EnsembleMember]) -> None:
    """Raise ``UsvitError`` if the probabilities of the networks of one run cannot be averaged."""
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


def _refuse_other_runs(members: list[EnsembleMember]) -> None:
    """Raise ``UsvitError`` if networks of different runs answer different questions, or see different pixels.

    Architecture and normalisation may differ, because each network has its own. The image size, the way of resizing and
    the crop may not, because each image is read and resized once for all networks.
    """
    first = members[0]
    for other in members[1:]:
        one, two = first.trained, other.trained
        if one.classes != two.classes or one.positive != two.positive:
            same = set(one.classes) == set(two.classes) and one.positive == two.positive
            raise UsvitError(
                f"The networks of {first.run} and {other.run} cannot be averaged: the first have the classes "
                f"{', '.join(one.classes)} with '{one.positive}' as the positive one, the second "
                f"{', '.join(two.classes)} with '{two.positive}'{', in another order' if same else ''}. An "
                "ensemble needs runs of the same classes in the same order."
            )
        a, b = one.preprocessing, two.preprocessing
        if (a.image_size, a.resize, a.crop) != (b.image_size, b.resize, b.crop):
            raise UsvitError(
                f"The networks of {first.run} and {other.run} cannot be averaged: the first see images of "
                f"{a.image_size} pixels (resize {a.resize}, crop {a.crop}), the second of {b.image_size} (resize "
                f"{b.resize}, crop {b.crop}), and usvit score prepares each image once. Choose runs with the same "
                "model.image_size, input.resize and input.crop."
            )


def _refuse_twice(found: list[FoldModel]) -> None:
    known: dict[str, Path] = {}
    for one in (member for each in found for member in each.members):
        if one.sha256 in known:
            both = f"{known[one.sha256]} and {one.folder} hold the same weights"
            raise UsvitError(
                f"{f'{one.folder} is named twice' if known[one.sha256] == one.folder else both}, so that one network "
                "would count twice. Name each run once."
            )
        known[one.sha256] = one.folder


def with_one_calibration(folds: list[FoldModel]) -> list[FoldModel]:
    """Leave out the temperatures, with a warning, if only some of the networks have one.

    A mean of calibrated and other probabilities would be neither.
    """
    without = [one for one in folds if one.temperature is None]
    if not without or len(without) == len(folds):
        return folds
    several = len({one.folder.parent for one in folds}) > 1
    what = "folds of the ensemble" if all(one.of_ensemble for one in folds) else "networks"
    who: dict[str, list[str]] = {}
    for one in without:
        name = f"{one.folder.parent.name}/{one.folder.name}" if several else one.folder.name
        who.setdefault(one.temperature_reason or "no reason is recorded", []).append(name)
    reason = f"{len(without)} of {len(folds)} {what} have no temperature"
    reasons = "; ".join(f"{', '.join(names)}: {why}" for why, names in who.items())
    logger.warning(
        f"{reason} ({reasons}), so no temperature is used: the probabilities are not calibrated. usvit recalibrate "
        "fits one temperature to the mean of all networks."
    )
    reasons_of = [one.temperature_reason if one.temperature is None else reason for one in folds]
    return [replace(one, temperature=None, temperature_reason=why) for one, why in zip(folds, reasons_of, strict=True)]


def sharing_backbones(members: Sequence[EnsembleMember]) -> list[list[int]]:
    """Return the numbers of the networks in groups of those that see the same input and differ in their heads alone."""
    groups: list[list[int]] = []
    for number, member in enumerate(members):
        for group in groups:
            first = members[group[0]].trained
            alike = first.spec == member.trained.spec and first.preprocessing == member.trained.preprocessing
            if alike and same_backbone(first.model, member.model):
                group.append(number)
                break
        else:
            groups.append([number])
    return groups
