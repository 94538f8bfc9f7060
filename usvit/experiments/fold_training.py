"""Training of a fold: from its images to the weights that it keeps. No test image is read here."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from usvit.data.loading import PixelStore, eval_batches, place_pixels, train_batches
from usvit.data.splits import draw_shots, rows_of_split
from usvit.data.transforms import make_augment, resolve_on
from usvit.errors import UsvitError
from usvit.experiments.cross_validation_setup import CrossValidationSetup
from usvit.experiments.lesion_training import teach_lesions
from usvit.experiments.training_units import TrainingUnits
from usvit.experiments.validation import Validation
from usvit.models import UpstreamModel, WithMaskHead, load_trained
from usvit.progress import Progress
from usvit.seeding import derive_seed
from usvit.training import (
    ClassificationTask,
    DistillationTask,
    FeatureStore,
    FitResult,
    HeadSample,
    HeadTraining,
    MaskedClassificationTask,
    NetworkOutputs,
    Subject,
    Teacher,
    Trainer,
    WeightedCrossEntropy,
    fit_logistic_head,
    predict,
    recompute_statistics,
    seed_everything,
)

Rows = NDArray[np.int64]


@dataclass(frozen=True)
class TrainedFold:
    """A trained network with what belongs to its fold."""

    model: nn.Module
    """The whole network, with the weights that the training kept."""
    subject: Subject
    """What was trained: the network on images, or its head on features."""
    task: ClassificationTask
    loss_fn: WeightedCrossEntropy
    units: TrainingUnits
    at: dict[str, Rows]
    """``train``, ``val`` and ``test`` -> rows of the images."""
    validation: Validation
    """Holds the outputs of the inner validation images."""
    result: FitResult


class FoldTrainer:
    """Trains the folds of a run in this process; all folds share the pixels, and frozen networks their features.

    Args:
        setup: The resolved run.
        decoded: The images.
        progress: Shows the progress.
        gpu: Number of the GPU; None for the first, and for a CPU.
        copies: Number of processes that train folds on this device.
    """

    def __init__(
        self,
        setup: CrossValidationSetup,
        decoded: PixelStore,
        progress: Progress,
        gpu: int | None = None,
        copies: int = 1,
    ):
        config = setup.config
        self._setup, self._progress, self.fabric = setup, progress, setup.device.fabric(gpu)
        self._store = place_pixels(decoded, self.fabric.device, config.input.device_store, copies)
        self._heads = HeadTraining(
            self._store,
            self.fabric,
            setup.preprocessing,
            augmented=config.input.augment != "none" and not config.train.head_first,
            batch_size=setup.inference_batch,
            progress=progress,
            cache=config.data.cache if setup.manifest.is_public else None,
        )

    def train(self, fold: int, checkpoint: Path) -> TrainedFold:
        """Train the network of a fold.

        Args:
            fold: Number of the fold.
            checkpoint: File of the state of the training, from which it is resumed if the file exists.

        Raises:
            UsvitError: ``optim.name=logistic`` or ``train.head_first`` needs a network that ends in its classifier.
        """
        setup, config, fabric = self._setup, self._setup.config, self.fabric
        rows = setup.manifest.usable
        at = {split: rows_of_split(setup.folds, rows, split, fold) for split in ("train", "val", "test")}
        units = TrainingUnits.of(config.loss, rows, setup.classes, setup.manifest.positive_class)
        if config.shots is not None:
            at["train"] = at["train"][draw_shots(units.image_targets[at["train"]], config.shots, config.seed, fold)]
        model = setup.network(fold)
        if config.model.lesion_steps:
            teach_lesions(setup, model, self._store, at, fold, fabric, self._progress, checkpoint.parent)
        subject, optim = Subject(model, self._store, setup.preprocessing.normalised), config.optim
        if config.model.tune == "head":
            # The head is the last layer, whose learning rate is not decayed.
            subject, optim = self._heads.subject(model), optim.model_copy(update={"layer_decay": None})
        class_weights = units.class_weights(at["train"])
        loss_fn = WeightedCrossEntropy(class_weights, len(setup.classes), config.loss.label_smoothing)
        with_masks = config.loss.mask_weight > 0
        on_device = resolve_on(config.input.augment_on, fabric.device.type) and not with_masks
        batches = train_batches(
            subject.store,
            at["train"],
            units.targets[at["train"]],
            batch_size=config.train.batch_size,
            augment=make_augment(config.input.augment),
            seed=derive_seed(config.seed, "batches", fold),
            workers=config.workers,
            device=fabric.device if on_device else None,
            units=units.of_rows(at["train"]),
            masked=rows.mask_path.notna().to_numpy() if with_masks else None,
        )
        validation = Validation(loss_fn, units, at["val"], partial(self.outputs, subject, at["val"]))
        # Checkpoints hold the state of the random generators, so that a resumed training draws the same dropout masks.
        seed_everything(config.seed, "train", fold)
        loss_fn = loss_fn.to(fabric.device)
        task = units.task(
            subject, loss_fn, lambda module, which: self.outputs(subject, which, fabric.setup_module(module))
        )
        for teacher in setup.teacher_of(fold):
            task = DistillationTask(model, loss_fn, subject.prepare, self._teacher(teacher), config.distill)
        if with_masks:
            decoded = WithMaskHead(model, config.model.image_size, setup.spec.name)
            task = MaskedClassificationTask(decoded, loss_fn, subject.prepare, config.loss.mask_weight)
        if config.optim.name == "logistic":
            result = self._fit_head(subject, validation, units, loss_fn, at)
        else:
            if config.train.head_first and not checkpoint.is_file():
                frozen = self._heads.subject(model)
                chosen = Validation(loss_fn, units, at["val"], partial(self.outputs, frozen, at["val"]))
                self._fit_head(frozen, chosen, units, loss_fn, at)
            recompute = partial(self.recompute_statistics, subject, at["train"], fold)
            result = Trainer(
                task,
                fabric,
                batches,
                validation,
                train=config.train.model_copy(update={"batch_norm": config.batch_norm}),
                optim=optim,
                checkpoint=checkpoint,
                name=setup.fold_name(fold),
                progress=self._progress,
                on_best=validation.keep,
                statistics=recompute if config.batch_norm == "recomputed" else None,
            ).fit()
        return TrainedFold(model, subject, task, loss_fn, units, at, validation, result)

    def _teacher(self, teacher: UpstreamModel) -> Teacher:
        assert teacher.path is not None, "it has been loaded before"
        trained, own = load_trained(teacher.path.parent), self._setup.preprocessing
        return Teacher(
            trained.model,
            image_size=trained.preprocessing.image_size,
            mean=trained.preprocessing.mean,
            std=trained.preprocessing.std,
            student=(own.mean, own.std),
            device=self.fabric.device,
            bf16=self._setup.device.precision == "bf16",
        )

    def outputs(self, subject: Subject, at: Rows, wrapped: Any) -> NetworkOutputs:
        """Compute the outputs of the images ``at`` with the subject's module, or a copy of it, as Fabric wraps it."""
        batches = eval_batches(subject.store, at, self._setup.inference_batch)
        return predict(wrapped, self.fabric, subject.prepare, batches)

    def recompute_statistics(self, subject: Subject, train: Rows, fold: int, wrapped: Any) -> None:
        """Compute the statistics of batch normalisation again, over the training images ``train`` of a fold."""
        size, seed = self._setup.inference_batch, derive_seed(self._setup.config.seed, "statistics", fold)
        order = np.random.default_rng(seed).permutation(train)
        whole = order[: len(order) // size * size] if len(order) > size else order  # batches of one size
        recompute_statistics(wrapped, self.fabric, subject.prepare, eval_batches(subject.store, whole, size))

    def _fit_head(
        self,
        subject: Subject,
        validation: Validation,
        units: TrainingUnits,
        loss_fn: WeightedCrossEntropy,
        at: dict[str, Rows],
    ) -> FitResult:
        """Fit the head of a fold by logistic regression, and choose its strength on the inner validation images."""
        config, store = self._setup.config, subject.store
        if not isinstance(store, FeatureStore):
            first = config.train.head_first
            raise UsvitError(
                f"{'train.head_first' if first else 'optim.name=logistic'} needs a network that ends in its "
                f"classifier, and {self._setup.spec.name} has other layers there. "
                f"{'Set it to false.' if first else 'Set model.features=last, or another optim.name.'}"
            )
        by_class = loss_fn.class_weights.cpu().numpy().astype(np.float64)

        def of(rows: Rows) -> HeadSample:
            targets, votes = units.targets[rows], units.votes(rows)
            weights = by_class[targets]
            return HeadSample(store[rows], targets, weights if votes is None else weights * votes)

        module = subject.module.to(self.fabric.device).eval()
        return fit_logistic_head(
            list(module.parts),  # type: ignore[arg-type]
            of(at["train"]),
            config.optim.strengths,
            lambda: validation(self.fabric.setup_module(module)),
            config.train.early_stopping,
            validation.keep,
            of(np.concatenate([at["train"], at["val"]])) if config.optim.refit else None,
        )
