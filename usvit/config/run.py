"""The configuration of a run: of every training, and of a cross-validation."""

from typing import Annotated, Any, Literal

from pydantic import Field

from usvit.config.sections import (
    DataConfig,
    InputConfig,
    LossConfig,
    ModelConfig,
    OptimConfig,
    Section,
    SplitConfig,
    TrainConfig,
)


class Training(Section):
    """What every training is told."""

    recipe: str = "none"
    """Name of the recipe it was built from, for the record."""
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """``auto``: bfloat16 autocast where the device computes in it, else float32."""
    workers: Annotated[int, Field(ge=0)] = 0
    """Processes that prepare batches; 0: the main process. Never changes the result."""
    data: DataConfig = DataConfig()
    model: ModelConfig = ModelConfig()
    loss: LossConfig = LossConfig()
    optim: OptimConfig = OptimConfig()
    train: TrainConfig = TrainConfig(steps=250)
    split: SplitConfig = SplitConfig()

    @property
    def split_seed(self) -> int:
        """Of the folds: their own, or the run's."""
        return self.seed if self.data.split_seed is None else self.data.split_seed


class RunConfig(Training):
    """Everything that decides a cross-validation's result, and, apart, what only decides its speed."""

    input: InputConfig = InputConfig()


SPEED_ONLY = ("workers", "input.cache_gb", "train.checkpoint_seconds", "train.log_every", "train.peak_tflops")
"""Settings that cannot change a result: a run may be resumed with other values of these."""


HASHED = ("data.keep_ids",)
"""Settings whose effect stands in the hash of the images, which is compared beside the configuration: so runs that were
begun before there were pseudonyms are resumed with ``data.keep_ids``."""


def identity(config: dict[str, Any]) -> dict[str, Any]:
    """A dumped configuration, flat (``train.batch_size``): equal ones are the same run.

    Left out are ``SPEED_ONLY`` and ``HASHED``.
    """
    flat = _flat(config)
    return {key: value for key, value in flat.items() if key not in (*SPEED_ONLY, *HASHED)}


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat
