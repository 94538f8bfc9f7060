"""The networks of a run as one judge: mean probability, calibrated probability, spread, novelty, operating point."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from torch import nn

from usvit.data.images import UInt8
from usvit.data.preprocessing import Preprocessing
from usvit.data.seen import Gap, seen_by, together
from usvit.data.seen_copies import Described, copies_of_seen
from usvit.errors import UsvitError, unknown
from usvit.files import sha256_of_file, sha256_of_text
from usvit.metrics.clustered_wilson import pooled_rate
from usvit.metrics.thresholds import Rule
from usvit.models.appearance import picture_statistics
from usvit.models.novelty import Novelty, Observed, read_novelty
from usvit.models.penultimate import logits_and_features
from usvit.models.trained import TrainedModel, load_trained
from usvit.models.weights.runs import fold_folders
from usvit.score.calibration import Calibration, read_calibration
from usvit.score.operating_point import OperatingPoint, of_calibration, of_member, of_run, parse_rule
from usvit.train.device import Device, resolve_device

Float = NDArray[np.float64]


@dataclass(frozen=True)
class Scores:
    """What the networks say of B images."""

    prob: Float
    """(B, K) mean over the networks of softmax(logits): in [0, 1], rows sum to 1."""
    calibrated: Float
    """(B,) probability of the positive class after calibration (``Ensemble``)."""
    spread: Float
    """(B,) standard deviation (ddof 0) of the networks' calibrated probabilities; 0 for one network."""
    novelty: Float
    """(B,) median over the networks; the limit is 1. NaN where no network has it."""
    unusual: NDArray[np.bool_]
    """(B,) ``novelty`` above 1: of an odd number of networks the majority says so. False where there is none."""


@dataclass(frozen=True)
class Member:
    """One network, on its device."""

    fold: int
    trained: TrainedModel
    sha256: str
    """Of its weights file."""
    folder: Path = field(repr=False)
    novelty: Novelty | None = field(repr=False)

    @property
    def model(self) -> nn.Module:
        return self.trained.model

    def describe(self) -> dict[str, Any]:
        record = self.trained.passport.get("novelty") or {}
        return {
            "fold": self.fold,
            "weights_sha256": self.sha256,
            "architecture": self.trained.spec.name,
            "temperature": self.trained.temperature,
            "temperature_reason": self.trained.passport.get("temperature_reason"),
            "novelty": None
            if self.novelty is None
            else {
                "thresholds": self.novelty.limits,
                "left_out": self.novelty.left_out,
                "in_distribution": record.get("in_distribution"),
            },
            "novelty_reason": self.trained.passport.get("novelty_reason"),
        }


class Ensemble:
    """One network or several of one run; ``load`` makes it.

    Without a ``calibration`` the calibrated probability is the mean over networks of softmax(logits / T), each with the
    temperature of its own inner validation images. If none of them has a temperature, T is 1; a mixture is refused.
    With a calibration, the logarithm of the mean probability is divided by its temperature instead, and that of each
    network's for ``spread``.

    Novelty is that of the image as it is; ``flip`` averages probabilities alone.
    """

    def __init__(
        self,
        members: list[Member],
        device: Device,
        *,
        flip: bool,
        calibration: Calibration | None,
        point: OperatingPoint,
        rule: Rule,
    ):
        first = members[0].trained
        self.members, self.flip, self.calibration, self._rule = members, flip, calibration, rule
        self._device, self._point = device, point
        self._on = torch.device(device.type)
        for member in members:
            member.model.to(self._on).eval()
        self.classes: tuple[str, ...] = first.classes
        self.positive: str = first.positive
        self.preprocessing: Preprocessing = first.preprocessing
        self.sha256 = ensemble_sha256([member.sha256 for member in members])
        self.n_members = len(members)
        self._seen = together(seen_by(member.trained.passport, member.folder) for member in members)

    @classmethod
    def load(
        cls,
        model: Path,
        *,
        folds: str = "all",
        device: str = "auto",
        precision: str = "auto",
        flip: bool = False,
        calibration: Path | None = None,
        rule: str = "sensitivity>=0.9",
    ) -> "Ensemble":
        """The networks of a run, or of one fold's folder (an export of it, too).

        Args:
            model: ``runs/x`` or ``runs/x/fold-0``.
            folds: of a run: ``all``, or numbers, ``0`` or ``0,2``.
            device, precision: as ``train.device.resolve_device``.
            flip: average each network's probabilities with those of the mirrored image.
            calibration: what ``usvit recalibrate`` wrote for these very networks.
            rule: ``sensitivity>=0.9``, ``specificity>=0.95``, ``youden``, or a threshold, ``0.4``.

        Raises:
            UsvitError: the folder holds no such networks, they do not belong together, some have a temperature and some
                have none, a passport disagrees with its weights, the calibration is another model's, there is no such
                rule, fold or device.
        """
        wanted, where = parse_rule(rule), resolve_device(device, precision)
        fit = None if calibration is None else read_calibration(calibration)
        members = [_member(folder) for folder in _chosen(model, folds)]
        _refuse_mixed(members)
        if fit is None:
            _refuse_mixed_temperatures(members)
        first = members[0].trained
        if fit is not None:
            fit.refuse_other(ensemble_sha256([member.sha256 for member in members]), first.classes, first.positive)
            point = of_calibration(fit, wanted)
        elif len(members) == 1:
            point = of_member(first, members[0].folder, members[0].fold, wanted)
        else:
            temperatures = {member.fold: member.trained.temperature for member in members}
            point = of_run(model, temperatures, first.classes, first.positive, wanted)
        if flip and fit is None and wanted.kind != "fixed" and point.threshold is not None:
            point = replace(point, origin=f"{point.origin}; without mirrored images, which --flip averages in")
        return cls(members, where, flip=flip, calibration=fit, point=point, rule=wanted)

    @property
    def threshold(self) -> float | None:
        """Of ``calibrated``: at least so much is positive. None where the rule has none."""
        return self._point.threshold

    @property
    def threshold_origin(self) -> str:
        """In a few words; where there is no threshold, ``none:`` and the reason."""
        return self._point.origin

    @property
    def device_name(self) -> str:
        """Where it computes and how precisely: what last bits depend on."""
        return f"{self._device.type} {self._device.precision}"

    def seen(self, pixel_sha256: str, group: str) -> bool:
        """Whether a network was fitted on an image, or the calibration on one of its group.

        Args:
            pixel_sha256: ``usvit.data.images.pixel_sha256``.
            group: ``calibration.group_of``; networks were trained under other pseudonyms, and know pixels alone.
        """
        fit = self.calibration
        return pixel_sha256 in self._seen or (fit is not None and fit.knows(pixel_sha256, group))

    def copies_of_seen(self, described: Described) -> set[str]:
        """Pixel hashes of images that are copies of what a network, or the calibration, was fitted on."""
        fit = self.calibration
        found = set(self._seen.copies_among(described))
        return found if fit is None else found | set(copies_of_seen(described, fit.fitted_on_copies))

    def score(self, pixels: UInt8) -> Scores:
        """Judge images.

        Args:
            pixels: (B, S, S, 3) uint8, as ``preprocessing.resized`` gives them, B >= 1.

        Raises:
            ValueError: another shape or type.
            UsvitError: a network's output is not finite.
        """
        side = self.preprocessing.image_size
        if pixels.dtype != np.uint8 or pixels.shape[1:] != (side, side, 3) or not len(pixels):
            raise ValueError(
                f"pixels are {pixels.dtype} of shape {pixels.shape}, expected uint8 (B, {side}, {side}, 3)"
            )
        with torch.inference_mode():
            images = torch.from_numpy(np.ascontiguousarray(pixels)).to(self._on)
            inputs = self.preprocessing.normalised(images)
            statistics = picture_statistics(images).cpu().numpy()
            probs, calibrated, novelty = [], [], []
            for member in self.members:
                logits, features = self._ask(member, inputs)
                views = [logits, self._ask(member, inputs.flip(3))[0]] if self.flip else [logits]
                prob = np.mean([softmax(view, axis=1) for view in views], axis=0)
                probs.append(prob)
                calibrated.append(self._calibrated(member, views, prob))
                if member.novelty is not None:
                    novelty.append(member.novelty.of(Observed(features, statistics)))
        prob, each = np.mean(probs, axis=0), np.stack(calibrated)
        middle = np.median(novelty, axis=0) if novelty else np.full(len(pixels), np.nan)
        k = self.classes.index(self.positive)
        return Scores(
            prob=prob,
            calibrated=each.mean(axis=0) if self.calibration is None else self.calibration.scaled(prob)[:, k],
            spread=each.std(axis=0),
            novelty=middle,
            unusual=middle > 1,
        )

    def describe(self) -> dict[str, Any]:
        """For ``summary.json``: what scored, and how its figures came about."""
        fit = self.calibration
        return {
            "sha256": self.sha256,
            "classes": list(self.classes),
            "positive_class": self.positive,
            "preprocessing": {
                "image_size": self.preprocessing.image_size,
                "resize": self.preprocessing.resize,
                "crop": self.preprocessing.crop,
                "mean": list(self.preprocessing.mean),
                "std": list(self.preprocessing.std),
            },
            "members": [member.describe() for member in self.members],
            "flip": self.flip,
            "calibration": None
            if fit is None
            else {
                "temperature": fit.temperature,
                "n_images": fit.n_images,
                "n_groups": fit.n_groups,
                "sha256": fit.sha256,
            },
            "rule": self._rule.name,
            "threshold": self.threshold,
            "threshold_origin": self.threshold_origin,
            "novelty": self._novelty(),
            "seen": self._record_of_seen(),
            "device": self._device.describe(),
        }

    def _ask(self, member: Member, inputs: torch.Tensor) -> tuple[Float, NDArray[np.float32] | None]:
        """(B, K) logits of one network, and its features."""
        with torch.autocast(self._on.type, torch.bfloat16, enabled=self._device.precision == "bf16"):
            logits, features = logits_and_features(member.model, inputs)
        found = logits.cpu().numpy().astype(np.float64)
        if not np.isfinite(found).all():
            raise UsvitError(
                f"The outputs of the network of fold {member.fold} are not finite. Pass --precision fp32; if that does "
                "not help, its weights are damaged."
            )
        return found, None if features is None else features.cpu().numpy()

    def _calibrated(self, member: Member, views: list[Float], prob: Float) -> Float:
        """(B,) calibrated probability of the positive class from one network."""
        k = self.classes.index(self.positive)
        if self.calibration is not None:
            return self.calibration.scaled(prob)[:, k]
        temperature = member.trained.temperature or 1.0
        return np.asarray(np.mean([softmax(view / temperature, axis=1)[:, k] for view in views], axis=0))

    def _record_of_seen(self) -> dict[str, Any]:
        """By what seen images are recognised, and of which of them too little is on record."""
        gaps = [gap.entry() for gap in self._seen.gaps]
        gaps += [Gap("upstream", "nothing", name).entry() for name in self._seen.unhashed]
        known = self._seen.known
        if known == "copies" and self.calibration is not None and not self.calibration.describes_all:
            known = "hashes"
            gaps.append(Gap("val", "hashes", "images that the calibration was fitted on").entry())
        return {
            "known": known,
            "n_hashes": len(self._seen),
            "n_descriptions": len(self._seen.descriptions),
            "gaps": gaps,
        }

    def _novelty(self) -> dict[str, Any] | None:
        """How often single networks flag images like their training images; None where none has a novelty."""
        able = [member for member in self.members if member.novelty is not None]
        if not able:
            return None
        records = [member.trained.passport["novelty"] for member in able]
        rates = [record["in_distribution"] for record in records if "in_distribution" in record]
        return {
            "threshold": 1.0,
            "combined": "median of the networks",
            "in_distribution": {
                "on": "test images of the networks' own folds, each judged by the one network that has not seen it",
                **pooled_rate(rates),
            },
        }


def ensemble_sha256(weights: list[str]) -> str:
    """What a set of networks is called: over the hashes of their weights files, in the order of the folds."""
    return sha256_of_text("\n".join(weights))


def _chosen(model: Path, folds: str) -> list[Path]:
    """The folders of the networks, in the order of the folds, each once."""
    there = fold_folders(model)
    if folds.strip() == "all":
        return there
    if there == [model]:
        raise UsvitError(f"{model} is the folder of one network: leave out --fold, or give the run.")
    known = {str(number): folder for number, folder in enumerate(there)}
    wanted = {number.strip() for number in folds.split(",")}
    for number in sorted(wanted):
        if number not in known:
            raise unknown("fold", number, known, "--fold takes 'all', or numbers from 0, such as 0,2.")
    return [folder for number, folder in known.items() if number in wanted]


def _member(folder: Path) -> Member:
    trained = load_trained(folder)
    fold = trained.passport.get("fold", 0)
    weights = sha256_of_file(folder / "model.safetensors")
    return Member(
        fold if isinstance(fold, int) else 0, trained, weights, folder, read_novelty(folder, trained.passport)
    )


def _refuse_mixed(members: list[Member]) -> None:
    """Refuse networks whose probabilities cannot be averaged."""
    first = members[0]
    for other in members[1:]:
        for what, one, two in (
            ("the classes", first.trained.classes, other.trained.classes),
            ("the positive class", first.trained.positive, other.trained.positive),
            ("the preprocessing", first.trained.preprocessing, other.trained.preprocessing),
        ):
            if one != two:
                raise UsvitError(
                    f"The networks do not belong together: {what} of {first.folder.name} is {one}, that of "
                    f"{other.folder.name} {two}. Choose folds that agree (--fold), or restore the run."
                )
        if first.trained.spec != other.trained.spec:
            raise UsvitError(
                f"The networks do not belong together: {first.folder.name} is {first.trained.spec.name}, "
                f"{other.folder.name} {other.trained.spec.name}, or of other parts. Restore the run."
            )
        if other.fold == first.fold:
            raise UsvitError(
                f"{first.folder.name} and {other.folder.name} are both fold {first.fold}. Restore the run."
            )


def _refuse_mixed_temperatures(members: list[Member]) -> None:
    """Refuse networks of which some scale their probabilities and others do not: their mean is of neither kind."""
    without = [member for member in members if member.trained.temperature is None]
    if not without or len(without) == len(members):
        return
    reasons = "; ".join(
        f"{member.folder.name}: {member.trained.passport.get('temperature_reason') or 'no reason is recorded'}"
        for member in without
    )
    able = ",".join(str(member.fold) for member in members if member.trained.temperature is not None)
    raise UsvitError(
        f"{len(without)} of {len(members)} networks have no temperature ({reasons}), so that the mean would mix "
        f"calibrated probabilities with others. Score with the networks that have one (--fold {able}); usvit "
        "recalibrate can then fit one temperature to their mean (--calibration)."
    )
