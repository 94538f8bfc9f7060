"""Configuration of every training (``Training``), and of a cross-validation or hold-out (``RunConfig``)."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from usvit.config.evaluation import UnitSettings
from usvit.config.fields import Option
from usvit.config.sections import (
    DataConfig,
    DistillConfig,
    InputConfig,
    LossConfig,
    ModelConfig,
    OptimConfig,
    Section,
    SplitConfig,
    TrainConfig,
)
from usvit.plain_data import Settings


class Training(Section):
    """Settings of every training."""

    panel = "Computing"

    recipe: str = "none"
    """Name of the recipe that it was built from; recorded in ``run.json``."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Seed of folds, weights, order and augmentation."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device that trains; ``auto``: a GPU if there is one."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """``auto``: bfloat16 autocast if the device supports it, otherwise float32."""
    workers: Annotated[int, Field(ge=0), Option(rare=True)] = 0
    """Processes that prepare batches; 0: the main process. The number does not change the result."""
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    loss: LossConfig = LossConfig()
    optim: OptimConfig = OptimConfig()
    train: TrainConfig = TrainConfig(steps=250)
    split: SplitConfig = SplitConfig()

    @model_validator(mode="after")
    def _one_average(self) -> "Training":
        if self.optim.name == "schedule_free_adamw" and self.train.ema is not None:
            raise ValueError(
                "optim.name=schedule_free_adamw already averages the weights: set train.ema to null, or another "
                "optim.name"
            )
        return self

    @model_validator(mode="after")
    def _initial_weights_of_fine_tuning(self) -> "Training":
        average = self.train.initial_share > 0
        for key, is_set, reset in (
            ("optim.decay_to", self.optim.decay_to != "zero", "zero"),
            ("train.initial_share", average, "0"),
            ("train.head_first", self.train.head_first, "false"),
        ):
            if not is_set:
                continue
            if not isinstance(self, RunConfig):
                raise ValueError(f"{key} is for 'usvit cv' and 'usvit train': set it to {reset}")
            for other, value in (("model.weights", self.model.weights), ("model.tune", self.model.tune)):
                if value in ("scratch", "head", "lora"):
                    raise ValueError(
                        f"{key} is about given weights that are trained further, and with {other}={value} there are "
                        f"none: set {key} to {reset}"
                    )
        if average and (self.optim.name == "schedule_free_adamw" or self.train.ema is not None):
            raise ValueError(
                "train.initial_share averages the weights with the initial ones, and optim.name=schedule_free_adamw or "
                "train.ema averages them in another way: set train.initial_share to 0, or leave out the other"
            )
        return self

    @model_validator(mode="after")
    def _masks_in_fine_tuning(self) -> "Training":
        if self.loss.mask_weight > 0 and not isinstance(self, RunConfig):
            raise ValueError(
                "loss.mask_weight is for 'usvit cv' and 'usvit train': set it to 0; the objective signs of 'usvit "
                "pretrain' has signs.mask_weight"
            )
        return self

    @model_validator(mode="after")
    def _units_in_fine_tuning(self) -> "Training":
        if self.loss.vote != "image" and not isinstance(self, RunConfig):
            raise ValueError("loss.vote is for 'usvit cv' and 'usvit train': set it to image")
        return self

    @property
    def batch_norm(self) -> Literal["as_is", "frozen", "recomputed"]:
        """``train.batch_norm``, with what ``auto`` means for this training."""
        return "as_is" if self.train.batch_norm == "auto" else self.train.batch_norm

    @property
    def split_seed(self) -> int:
        """Seed of the folds: ``data.split_seed`` if it is set, otherwise the run's seed."""
        return self.seed if self.data.split_seed is None else self.data.split_seed


class RunConfig(Training):
    """Configuration of a cross-validation or hold-out."""

    input: InputConfig = InputConfig()
    units: UnitSettings = UnitSettings()
    distill: DistillConfig = DistillConfig()
    shots: Annotated[int, Field(ge=1)] | None = None
    """Train on N images of each class alone, drawn from the training images of each fold with the seed; null: on all.
    The inner validation part and the test part stay whole."""
    allow_contaminated: Annotated[bool, Option(rare=True)] = False
    """Test also on data sets that a foundation model behind the initial weights was pre-trained on, by its published
    list; every record and page says so."""
    folds_at_once: Annotated[int, Field(ge=1, le=100)] | None = None
    """Number of folds that are trained at the same time, each in a process of its own. null: on a CPU, what takes the
    least time on its cores, and one after another if a fold has fewer than 1,000 training images (steps times batch
    size); on a GPU, 1. The result is that of one fold after another with as many threads, which ``folds.threads`` of
    ``run.json`` states."""

    @property
    def batch_norm(self) -> Literal["as_is", "frozen", "recomputed"]:
        """``train.batch_norm``, with what ``auto`` means for this run."""
        if self.train.batch_norm != "auto":
            return self.train.batch_norm
        averages = self.optim.name == "schedule_free_adamw" or self.train.initial_share > 0
        return "recomputed" if averages else "as_is"

    @property
    def learns_masks(self) -> bool:
        """Whether something learns lesion masks."""
        return self.loss.mask_weight > 0 or self.model.lesion_steps > 0

    @model_validator(mode="after")
    def _adapts_trained_weights(self) -> "RunConfig":
        if self.model.tune == "lora" and self.model.weights == "scratch":
            raise ValueError(
                "model.tune=lora adapts trained weights, but model.weights is scratch: name the weights to adapt "
                "(--weights hub, a file or a run), or train all of a random network with model.tune=full"
            )
        if self.model.tune == "lora" and self.optim.name == "lamb":
            raise ValueError(
                "optim.name=lamb moves a matrix by a fraction of its own norm, and one matrix of each adapter of "
                "model.tune=lora begins at zero: set optim.name=adamw"
            )
        return self

    @model_validator(mode="after")
    def _logistic_regression_is_of_a_head(self) -> "RunConfig":
        for key, value, wanted in (
            ("model.tune", self.model.tune, "head"),
            ("input.augment", self.input.augment, "none"),
            ("loss.kind", self.loss.kind, "ce"),
            ("loss.label_smoothing", self.loss.label_smoothing, 0),
            ("loss.attention", "none" if self.loss.attention != "trained" else "trained", "none"),
            ("train.early_stopping.keep", self.train.early_stopping.keep, "best"),
            ("train.batch_norm", self.batch_norm, "as_is"),
        ):
            if self.optim.name == "logistic" and value != wanted:
                raise ValueError(
                    f"optim.name=logistic fits a head on features that are computed once, and chooses its strength on "
                    f"inner validation images, but {key} is {value}: set {key} to {wanted}, or another optim.name"
                )
        if self.optim.refit and self.optim.name != "logistic":
            raise ValueError(
                f"optim.refit fits the head of optim.name=logistic once more, but optim.name is {self.optim.name}: set "
                "optim.refit to false, or optim.name to logistic"
            )
        if self.optim.refit and self.shots is not None:
            raise ValueError(
                f"optim.refit trains on the inner validation images, too, beside shots={self.shots} images of each "
                "class: set optim.refit to false, or shots to null"
            )
        return self

    @model_validator(mode="after")
    def _keeps_trained_statistics(self) -> "RunConfig":
        if self.train.batch_norm == "frozen" and self.model.weights == "scratch":
            raise ValueError(
                "train.batch_norm=frozen keeps the statistics of the initial weights, but model.weights is scratch: "
                "name the weights to start from (--weights), or set train.batch_norm to as_is or recomputed"
            )
        return self

    @model_validator(mode="after")
    def _learns_from_a_teacher(self) -> "RunConfig":
        if (self.distill.kind == "none") != (self.distill.weights is None):
            raise ValueError(
                "distill.weights names the teacher, and distill.kind says how it is learnt from (soft, hard, token): "
                "set both, or neither"
            )
        if self.distill.kind == "none":
            return self
        for key, value, wanted in (
            ("model.tune", self.model.tune == "head", "full"),
            ("loss.mask_weight", self.loss.mask_weight > 0, "0"),
            ("loss.attention", self.loss.attention == "trained", "none"),
        ):
            if value:
                raise ValueError(
                    f"a teacher is asked about images, and its answers are added to the loss of the classes: set {key} "
                    f"to {wanted}, or distill.kind to none and distill.weights to null"
                )
        return self

    @model_validator(mode="after")
    def _masks_are_decoded(self) -> "RunConfig":
        if self.loss.mask_weight == 0:
            return self
        for key, value, wanted in (
            ("model.tune", self.model.tune, "full"),
            ("optim.layer_decay", self.optim.layer_decay, None),
            ("input.augment_on", self.input.augment_on, "cpu" if self.input.augment_on == "cpu" else "auto"),
        ):
            if value != wanted:
                raise ValueError(
                    f"loss.mask_weight trains the whole network with a decoder of masks, one learning rate, and masks "
                    f"that are moved with the images on the host, but {key} is {value}: set {key} to "
                    f"{'null' if wanted is None else wanted}, or loss.mask_weight to 0"
                )
        return self

    @model_validator(mode="after")
    def _units_are_whole(self) -> "RunConfig":
        if self.units.pooling == "attention" and (self.loss.attention == "none" or self.loss.vote != self.units.unit):
            raise ValueError(
                f"units.pooling=attention needs an attention over the views of the unit, but loss.attention is "
                f"{self.loss.attention} and loss.vote is {self.loss.vote}: set loss.vote to the unit (--unit), and "
                "loss.attention to trained or fitted"
            )
        if self.loss.attention != "trained":
            return self
        for key, value in (
            ("train.micro_batch", self.train.micro_batch),
            ("optim.layer_decay", self.optim.layer_decay if self.model.tune != "head" else None),
        ):
            if value is not None:
                raise ValueError(
                    f"loss.attention=trained keeps the views of a unit in one batch and has one learning rate, but "
                    f"{key} is {value}: set {key} to null, or loss.attention to fitted"
                )
        return self


SPEED_ONLY = (
    "workers",
    "data.cache",
    "folds_at_once",
    "input.cache_gb",
    "input.device_store",
    "source.decoded_gb",
    "train.checkpoint_seconds",
    "train.log_every",
    "train.loggers",
    "train.peak_tflops",
)
"""Settings that cannot change a result: a run may be resumed with other values of these."""


_HASHED = ("data.keep_ids",)
"""Settings whose effect is part of the hash of the images. That hash is compared separately, so runs that were begun
before pseudonyms existed can be resumed with ``data.keep_ids``."""


def identity(config: Settings) -> Settings:
    """Flatten a dumped configuration to dotted keys (``train.batch_size``), without ``SPEED_ONLY`` and ``_HASHED``.

    Two configurations with equal identities describe the same run.
    """
    return {key: value for key, value in flattened(config) if key not in (*SPEED_ONLY, *_HASHED)}


def flattened(settings: Settings, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted key and the value of each setting in nested dictionaries; empty dictionaries have none."""
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from flattened(value, f"{prefix}{key}.")
        else:
            yield prefix + str(key), value
