"""The networks of one or several runs as an ensemble: mean and calibrated probability, spread, OOD score, threshold."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import softmax

from usvit.config.keywords import takes_settings
from usvit.config.scoring import NetworkSettings
from usvit.data.io import UInt8
from usvit.data.splits import Described, copies_of_seen, seen_by, together
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError
from usvit.metrics.clustered_wilson import METHOD as RATE_METHOD
from usvit.metrics.clustered_wilson import pooled_rate
from usvit.metrics.threshold_choice import Rule
from usvit.models import Observed, picture_statistics, several_logits_and_features
from usvit.publishing import refuse_unsigned
from usvit.records import (
    EnsembleOod,
    FlaggedImages,
    ModelSeen,
    ScoringCalibration,
    ScoringCompanion,
    ScoringModelRecord,
    ScoringPreprocessing,
    SeenGap,
    UnitPointRecord,
)
from usvit.scoring.calibration import LocalCalibration, read_calibration, scaled
from usvit.scoring.companions import Companion, ConceptSource, LesionSegmenter
from usvit.scoring.dicom_out.network_maps import lesions_of, without_mask
from usvit.scoring.ensemble_members import (
    FoldModel,
    ensemble_sha256,
    load_members,
    sharing_backbones,
    with_one_calibration,
)
from usvit.scoring.items import DECIDES, UNIT_IDS, ReadSettings
from usvit.scoring.operating_point import (
    ScoringThreshold,
    UnitPoint,
    of_calibration,
    of_fold,
    of_run,
    of_several_runs,
    of_unit,
    parse_rule,
    units_of_calibration,
)
from usvit.scoring.outputs import Float, Outputs, Scores
from usvit.scoring.view_pooling import ViewPooling
from usvit.training import Device, resolve_device


class Ensemble:
    """One or several networks of one or several runs; ``load`` creates it.

    Without a ``calibration``, the calibrated probability is the mean over networks of softmax(logits / T), each with
    the temperature of its own inner validation images. If any of them has no temperature, T is 1 for all.
    In an ensemble of ``usvit ensemble``, the weighted mean of the networks of each fold takes the place of a network,
    and its logarithm that of the logits.
    With a calibration, the logarithm of the mean probability is divided by the temperature of the calibration instead;
    for ``spread``, that of each network.

    ``flip`` averages only the probabilities; the OOD score is that of the original image.
    """

    def __init__(
        self,
        folds: list[FoldModel],
        device: Device,
        *,
        flip: bool,
        calibration: LocalCalibration | None,
        point: ScoringThreshold,
        rule: Rule,
        of_unit: UnitPoint | None = None,
    ):
        members = [member for fold in folds for member in fold.members]
        first = members[0].trained
        self.folds, self.members = folds, members
        self.flip, self.calibration, self._rule = flip, calibration, rule
        self.shares: tuple[float, ...] = tuple(weight / len(folds) for fold in folds for weight in fold.weights)
        """Share of each network in the mean; they sum to 1."""
        self._device, self._point = device, point
        self.unit_point = of_unit
        """The threshold of files, studies (exams), patients or another unit, if the run or the calibration has one."""
        self.torch_device = torch.device(device.type)
        for member in members:
            member.model.to(self.torch_device).eval()
        self.classes: tuple[str, ...] = first.classes
        self.positive: str = first.positive
        self.preprocessing: Preprocessing = first.preprocessing
        self.sha256 = ensemble_sha256([fold.identity for fold in folds])
        self.n_members = len(members)
        self._together = sharing_backbones(members)
        self._seen = together(seen_by(member.trained.metadata, member.folder) for member in members)
        self.segmenter: LesionSegmenter | None = None
        """What marks the lesion instead of the networks."""
        self.concepts: ConceptSource | None = None
        """What scores concepts."""

    @classmethod
    @takes_settings
    def load(cls, model: Path | Sequence[Path], settings: NetworkSettings) -> "Ensemble":
        """Load the networks of a run, of one fold, of an export as safetensors, or of several of them.

        Args:
            model: ``runs/x``, ``runs/x/fold-0``, a folder of ``usvit ensemble``, or several of these.
            settings: see ``NetworkSettings``.

        Raises:
            UsvitError: the folder holds no networks, the networks differ in classes or preprocessing, those of one run
                also in architecture, model metadata does not match the weights, a member
                of an ensemble is missing or changed, the calibration belongs to another model, or there is no such
                rule, fold or device. With ``require_signature``: a model is not signed with that key.
        """
        wanted = parse_rule(settings.operating_point)
        where = resolve_device(settings.device, settings.precision)
        fit = None if settings.calibration is None else read_calibration(settings.calibration)
        models = [model] if isinstance(model, Path) else list(model)
        if settings.require_signature is not None:
            for one in models:
                refuse_unsigned(one, settings.require_signature)
        chosen = load_members(models, settings.folds)
        if fit is None:
            chosen = with_one_calibration(chosen)
        first = chosen[0].members[0].trained
        if fit is not None:
            fit.refuse_other(ensemble_sha256([fold.identity for fold in chosen]), first.classes, first.positive)
            point = of_calibration(fit, wanted)
        elif len(models) > 1:
            point = of_several_runs(len(models), wanted)
        elif len(chosen) == 1:
            point = of_fold(chosen[0], first.classes, first.positive, wanted)
        else:
            temperatures = {fold.fold: fold.temperature for fold in chosen}
            what = "folds of the ensemble" if chosen[0].of_ensemble else "networks"
            point = of_run(models[0], temperatures, first.classes, first.positive, wanted, what)
        if settings.flip and fit is None and wanted.kind != "fixed" and point.threshold is not None:
            point = replace(point, origin=f"{point.origin}; without mirrored images, which --flip averages in")
        unit = None
        if fit is not None:
            unit = units_of_calibration(fit, wanted)
        elif len(models) == 1:
            unit = of_unit(models[0], chosen, first.classes, first.positive, wanted)
        return cls(chosen, where, flip=settings.flip, calibration=fit, point=point, rule=wanted, of_unit=unit)

    def use_segmenter(self, segmenter: LesionSegmenter) -> None:
        """Let a segmenter mark the lesion; the images that it has seen count as seen, too.

        Raises:
            UsvitError: its crop is not that of the networks.
        """
        if segmenter.preprocessing.crop != self.preprocessing.crop:
            raise UsvitError(
                f"The segmenter {segmenter.name} sees images with input.crop={segmenter.preprocessing.crop}, and the "
                f"model with {self.preprocessing.crop}: each image is cut once for both. Choose a model and a "
                "segmenter of the same input.crop."
            )
        self.segmenter, self._seen = segmenter, together([self._seen, segmenter.seen])

    def use_concepts(self, concepts: ConceptSource) -> None:
        """Let a text tower score concepts; the images that it has seen count as seen, too."""
        self.concepts, self._seen = concepts, together([self._seen, concepts.seen])

    @property
    def companions(self) -> dict[str, Companion]:
        """The segmenter and the text tower that accompany the networks, by what they are."""
        both: dict[str, Companion | None] = {"segmenter": self.segmenter, "concepts": self.concepts}
        return {name: one for name, one in both.items() if one is not None}

    @property
    def concept_names(self) -> tuple[str, ...]:
        """The values that are scored, such as ``margin: spiculated``."""
        return () if self.concepts is None else self.concepts.concepts

    @property
    def marks_lesions(self) -> bool:
        """Whether there is a segmenter, or all networks predict the mask of the lesion."""
        return self.segmenter is not None or not without_mask([member.trained for member in self.members])

    def draws_lesions(self, products: Collection[str]) -> bool:
        """Return whether products hold masks of lesions: segmentations, and outlines if there is a source of them."""
        return "seg" in products or ("gsps" in products and self.marks_lesions)

    @property
    def threshold(self) -> float | None:
        """Smallest ``calibrated`` that counts as positive; None if the rule gives no threshold."""
        return self._point.threshold

    @property
    def threshold_origin(self) -> str:
        """The rule and the images on which it was chosen; ``none:`` and the reason if there is no threshold."""
        return self._point.origin

    @property
    def pools(self) -> bool:
        """Whether the images of a file, study or patient are pooled otherwise than by their mean or highest.

        The mean of the networks' highest is not the highest of their mean, so that several networks pool by ``max``.
        """
        own, several = self.unit_point, len(self.members) > 1 and self.calibration is None
        plain = ("mean",) if several else ("mean", "max")
        return own is not None and own.pooling not in plain and own.unit in UNIT_IDS

    @property
    def attends(self) -> bool:
        """Whether attention pools the images of a study or patient."""
        return self.pools and self.unit_point is not None and self.unit_point.pooling == "attention"

    def view_pooling(self, *, abstain: bool) -> ViewPooling | None:
        """Return how the images of a file, study or patient are pooled; None if by their mean or highest."""
        if self.unit_point is None or not self.pools:
            return None
        unit, pooling = UNIT_IDS[self.unit_point.unit], self.unit_point.pooling
        attentions = tuple(one.attention for one in self.members if one.attention) if self.attends else ()
        return ViewPooling(unit, self.positive, self.classes.index(self.positive), abstain, pooling, attentions)

    @property
    def device_name(self) -> str:
        """Device type and precision, on which the last bits of the scores depend."""
        return f"{self._device.type} {self._device.precision}"

    def seen(self, pixel_sha256: str, group: str) -> bool:
        """Return whether a network was fitted on an image, or the calibration on an image of its group.

        Args:
            pixel_sha256: ``usvit.data.io.image_hashes.pixel_sha256`` of the image.
            group: ``calibration.group_of`` of the image. It is compared with the calibration only, because the
                networks were trained with other pseudonyms.
        """
        fit = self.calibration
        return pixel_sha256 in self._seen or (fit is not None and fit.knows(pixel_sha256, group))

    def copies_of_seen(self, described: Described) -> set[str]:
        """Return the pixel hashes of near-duplicates of images that a network or the calibration was fitted on."""
        fit = self.calibration
        found = set(self._seen.copies_among(described))
        return found if fit is None else found | set(copies_of_seen(described, fit.fitted_on_copies))

    def read_settings(self, frames: str, **thumbnails: Any) -> ReadSettings:
        """Return the settings for reading images for these networks.

        Args:
            frames: the frame policy.
            thumbnails: ``thumbnail_side``, ``pictures`` and ``keep_words`` of ``ReadSettings``.
        """
        own = self.preprocessing
        others = {name: one.preprocessing for name, one in self.companions.items()}
        return ReadSettings(own.image_size, own.resize, own.crop, frames, others=others, **thumbnails)

    def score(self, pixels: UInt8) -> Scores:
        """Score a batch of images.

        Args:
            pixels: (B, S, S, 3) uint8, resized by ``preprocessing.resized``, B >= 1.

        Raises:
            ValueError: the array has another shape or type.
            UsvitError: the output of a network is not finite.
        """
        side = self.preprocessing.image_size
        if pixels.dtype != np.uint8 or pixels.shape[1:] != (side, side, 3) or not len(pixels):
            raise ValueError(
                f"pixels are {pixels.dtype} of shape {pixels.shape}, expected uint8 (B, {side}, {side}, 3)"
            )
        return self.combine(self.forward(torch.from_numpy(np.ascontiguousarray(pixels))))

    def forward(self, pixels: torch.Tensor) -> Outputs:
        """Run the networks. On a GPU the work is only launched, on the current stream.

        Args:
            pixels: (B, S, S, 3) uint8 in host memory, as in ``score``; a GPU reads pinned memory without waiting.
        """
        with torch.inference_mode():
            images = pixels.to(self.torch_device, non_blocking=True)
            rated = any(member.ood is not None for member in self.members)
            statistics = _to_host(picture_statistics(images)) if rated else None
            logits: list[list[torch.Tensor]] = [[] for _ in self.members]
            features: list[torch.Tensor | None] = [None] * len(self.members)
            for numbers in self._together:
                inputs = self.members[numbers[0]].trained.preprocessing.normalised(images)
                for k, (own, seen) in zip(numbers, self._ask(numbers, inputs), strict=True):
                    logits[k].append(own)
                    features[k] = seen
                if self.flip:
                    for k, (own, _) in zip(numbers, self._ask(numbers, inputs.flip(3)), strict=True):
                        logits[k].append(own)
            copied = None
            if self.torch_device.type == "cuda":
                copied = torch.cuda.Event()
                copied.record()
        return Outputs(logits, features, statistics, copied)

    def lesion_maps(self, images: Sequence[UInt8]) -> NDArray[np.float32]:
        """Return the probability that a pixel belongs to the lesion, (B, S, S) in [0, 1].

        Args:
            images: B images (S, S, 3) uint8, ``Frame.for_mask``.
        """
        batch = torch.from_numpy(np.stack(images))
        if self.segmenter is not None:
            return self.segmenter.maps(batch)
        return self.mean_of([lesions_of(member.trained, batch) for member in self.members]).astype(np.float32)

    def concept_scores(self, images: Sequence[UInt8]) -> NDArray[np.float64] | None:
        """Return the score of each of V ``concept_names``, (B, V) in [0, 1]; None if nothing scores concepts.

        Args:
            images: B images (S, S, 3) uint8, ``Frame.for_concepts``.
        """
        return None if self.concepts is None else self.concepts.scores(torch.from_numpy(np.stack(images)))

    def mean_of(self, each: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Return the mean of an array of each network, by their shares."""
        equal = len(set(self.shares)) == 1
        return np.asarray(np.average(each, axis=0, weights=None if equal else self.shares))

    def combine(self, outputs: Outputs) -> Scores:
        """Compute scores from the outputs of the networks; wait for those of a GPU.

        Raises:
            UsvitError: the output of a network is not finite.
        """
        outputs.wait()
        probs, calibrated, each, ood, described = [], [], [], [], []
        k, views = self.classes.index(self.positive), self._views(outputs)
        for fold in self.folds:
            own = [next(views) for _ in fold.members]
            prob, positive, single = self._of_fold(fold, own)
            probs.append(prob)
            calibrated.append(positive)
            each += single
        for member, features in zip(self.members, outputs.features, strict=True):
            if member.ood is not None and outputs.statistics is not None:
                seen = None if features is None else features.numpy()
                ood.append(member.ood.of(Observed(seen, outputs.statistics.numpy())))
            if self.attends and member.attention is not None and features is not None:
                with torch.inference_mode():
                    described.append(member.attention.described(features).double().numpy())
        prob = np.mean(probs, axis=0)
        if self.calibration is not None:
            calibrated = [self.calibration.scaled(prob)]
        middle = np.median(ood, axis=0) if ood else np.full(len(prob), np.nan)
        return Scores(
            prob=prob,
            calibrated=np.stack([one[:, k] for one in calibrated]).mean(axis=0),
            spread=_spread(np.stack(each), self.shares),
            ood=middle,
            unusual=middle > 1,
            views=np.stack(calibrated, axis=1) if self.pools else None,
            described=np.stack(described, axis=1) if described else None,
            lesions=outputs.lesions,
            concepts=outputs.concepts,
        )

    def record(self) -> ScoringModelRecord:
        """Return the entry of the ensemble in ``summary.json``."""
        fit, several = self.calibration, len({member.run for member in self.members}) > 1
        own = self.preprocessing
        return ScoringModelRecord(
            sha256=self.sha256,
            classes=list(self.classes),
            positive_class=self.positive,
            preprocessing=ScoringPreprocessing(
                image_size=own.image_size, resize=own.resize, crop=own.crop, mean=list(own.mean), std=list(own.std)
            ),
            members=[one for fold in self.folds for one in fold.records(name_run=several)],
            flip=self.flip,
            **{
                name: ScoringCompanion(name=one.name, sha256=one.sha256, networks=one.n_networks)
                for name, one in self.companions.items()
            },
            calibration=None
            if fit is None
            else ScoringCalibration(
                temperature=fit.temperature, n_images=fit.n_images, n_groups=fit.n_groups, sha256=fit.sha256
            ),
            rule=self._rule.name,
            threshold=self.threshold,
            threshold_origin=self.threshold_origin,
            unit=None
            if self.unit_point is None
            else UnitPointRecord(
                unit=self.unit_point.unit,
                pooling=self.unit_point.pooling,
                threshold=self.unit_point.point.threshold,
                origin=self.unit_point.point.origin,
                decides=DECIDES.get(self.unit_point.unit),
            ),
            novelty=self._novelty(),
            seen=self._record_of_seen(),
            device=self._device.record().content(),
        )

    def _ask(self, numbers: Sequence[int], inputs: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor | None]]:
        """Return the (B, K) logits of networks with one backbone, and their features, in host memory (``Outputs``)."""
        networks = [self.members[k].model for k in numbers]
        with torch.autocast(self.torch_device.type, torch.bfloat16, enabled=self._device.precision == "bf16"):
            found = several_logits_and_features(networks, inputs)
        return [(_to_host(logits), None if seen is None else _to_host(seen)) for logits, seen in found]

    def _views(self, outputs: Outputs) -> Iterator[list[Float]]:
        """Yield the logits of each network: (B, K) for the images and, with ``flip``, for their mirror images."""
        for member, logits in zip(self.members, outputs.logits, strict=True):
            views = [view.numpy().astype(np.float64) for view in logits]
            if not all(np.isfinite(view).all() for view in views):
                raise UsvitError(
                    f"The outputs of the network of fold {member.fold} are not finite. Pass --precision fp32. If that "
                    "does not help, its weights are damaged."
                )
            yield views

    def _of_fold(self, fold: FoldModel, logits: list[list[Float]]) -> tuple[Float, Float, list[Float]]:
        """Return the (B, K) mean probabilities of a fold, not calibrated and calibrated.

        Args:
            fold: the networks of the fold.
            logits: for each of its networks, the logits of each view of the images.

        Returns:
            The probabilities, the calibrated ones, and that of the positive class of each network for ``spread``.
        """
        k, temperature = self.classes.index(self.positive), fold.temperature or 1.0
        prob_of = [[softmax(view, axis=1) for view in views] for views in logits]
        means = [np.mean(views, axis=0) for views in prob_of]
        if not fold.of_ensemble:
            if self.calibration is not None:
                own = self.calibration.scaled(means[0])
            else:
                own = np.asarray(np.mean([softmax(view / temperature, axis=1) for view in logits[0]], axis=0))
            return means[0], own, [own[:, k]]
        prob = np.average(means, axis=0, weights=fold.weights)
        if self.calibration is not None:
            return prob, self.calibration.scaled(prob), [self.calibration.scaled(one)[:, k] for one in means]
        mixed = [np.average(views, axis=0, weights=fold.weights) for views in zip(*prob_of, strict=True)]
        own = np.mean([scaled(view, temperature) for view in mixed], axis=0)
        single = [np.mean([scaled(view, temperature)[:, k] for view in views], axis=0) for views in prob_of]
        return prob, own, single

    def _record_of_seen(self) -> ModelSeen:
        """Describe how seen images are recognised, and which of them are not fully recorded."""
        gaps = [*self._seen.gaps]
        gaps += [SeenGap(part="upstream", known="nothing", what=name) for name in self._seen.unhashed]
        known = self._seen.known
        if known == "copies" and self.calibration is not None and not self.calibration.describes_all:
            known = "hashes"
            gaps.append(SeenGap(part="val", known="hashes", what="images that the calibration was fitted on"))
        return ModelSeen(
            known=known,
            n_hashes=len(self._seen),
            n_descriptions=len(self._seen.descriptions),
            gaps=gaps,
            collections=list(self._seen.collections) or None,
        )

    def _novelty(self) -> EnsembleOod | None:
        """Return how often single networks flag in-distribution images; None if none has an OOD detector."""
        # Several runs test the same images: count those of the first one.
        run = self.members[0].run
        own = [member for member in self.members if member.run == run and member.ood is not None]
        records = [member.trained.metadata.novelty for member in own]
        if not records:
            return None
        rates = [record.in_distribution for record in records if record is not None]
        rate = pooled_rate([rate for rate in rates if rate is not None])
        flagged = FlaggedImages(
            on="test images of the networks' own folds, each judged by the one network that has not seen it",
            n_images=rate.n_images,
            n_groups=rate.n_groups,
            n_flagged=rate.n_hits,
            rate=rate.share,
            ci95=rate.interval(),
            method=RATE_METHOD,
        )
        return EnsembleOod(threshold=1.0, combined="median of the networks", in_distribution=flagged)


def _spread(each: Float, shares: tuple[float, ...]) -> Float:
    """Return the (B,) standard deviation of (M, B) values with the share of each network."""
    if len(set(shares)) == 1:
        return np.asarray(each.std(axis=0))
    middle = np.average(each, axis=0, weights=shares)
    return np.asarray(np.sqrt(np.average((each - middle) ** 2, axis=0, weights=shares)))


def _to_host(values: torch.Tensor) -> torch.Tensor:
    """Start a copy to pinned host memory; on a CPU, return the values themselves."""
    return values.to("cpu", non_blocking=True)
