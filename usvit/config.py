"""The one configuration of a run: what may be set, to what, and what it means.

A run's configuration is built in three layers, later ones winning: a recipe (YAML in
``configs/``), the command line's own options, and ``--set key=value``. What results is
complete: every default is written into ``run.json``, so that a run never depends on
what a later usvit takes for granted.
"""

import contextlib
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from usvit.errors import UsvitError, unknown
from usvit.resources import configs_dir


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DataConfig(_Section):
    """Which images, and what is done to those that cannot be used as they are."""

    dataset: str = "phantom"
    """One data card's name or file, or several joined by '+': ``busi+b``, ``bus_bra+./ours.md``."""
    classes: tuple[str, ...] | None = None
    """Use these classes alone, in this order; images of others are left out: ``[benign, malignant]``."""
    manifest: str | None = None
    """A manifest that ``usvit data prepare`` wrote, instead of reading the data set's folder anew."""
    keep_list: str | None = None
    """CSV with a column image_id (and dataset, for a union): only these images are used; ``usvit data audit``
    writes one."""
    near_duplicates: Literal["group", "ignore"] = "group"
    """``group``: copies, crops, shifts and annotated versions of one frame stay in one part; ``ignore``: only
    pixel-identical images and images of one patient do."""
    split_seed: int | None = None
    """Seed of the folds; by default the run's seed."""
    keep_label_conflicts: bool = False
    """Keep pixel-identical images that carry different labels. By default all of them are left out."""
    skip_bad: bool = False
    """Leave out files that cannot be read, and list them, instead of stopping."""


Stem = Literal["linear", "hmlp_bn", "hmlp_ln", "conv_bn", "conv_ln"]
Pool = Literal["token", "avg", "map"]
Head = Literal["linear", "hidden"]
Position = Literal["none", "learned", "learned_2d", "sincos_2d", "relative"]
PositionAt = Literal["stem", "layers", "shared"]
Attention = Literal["global", "axial"]
Tune = Literal["full", "head", "attn", "ffn", "norm"]


class ViTConfig(_Section):
    """Parts of a ViT's shape to exchange; null: as the named model has it (``usvit.models.spec.ViTShape``)."""

    width: Annotated[int, Field(ge=1)] | None = None
    depth: Annotated[int, Field(ge=1)] | None = None
    mlp: Annotated[int, Field(ge=1)] | None = None
    heads: Annotated[int, Field(ge=1)] | None = None
    patch: Annotated[int, Field(ge=1)] | None = None
    """With pre-trained weights, the patch embedding is resized (FlexiViT, Beyer et al. 2023)."""
    branches: Annotated[int, Field(ge=1)] | None = None
    stem: Stem | None = None
    pool: Pool | None = None
    head: Head | None = None
    position: Position | None = None
    position_at: PositionAt | None = None
    attention: Attention | None = None
    layer_scale: Annotated[float, Field(gt=0)] | None = None
    class_position: bool | None = None


class ModelConfig(_Section):
    """Which network, from which weights, and what of it is tuned."""

    name: str = "vit_b32"
    """A name of ``usvit models list``, or ``timm:<any timm name>``."""
    weights: str = "hub"
    """``hub`` (the zoo's recommended weights), ``hub:UPSTREAM`` (of ``usvit models info``), ``scratch``, a file
    (``.safetensors``, ``.pth``, ``.npz``), or a run of usvit, whose fold k is where fold k begins."""
    weights_sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")] | None = None
    """The SHA-256 that the weights' file must have."""
    image_size: Annotated[int, Field(ge=32, le=2048)] = 224
    """Side of the square input, in pixels."""
    drop_path: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Stochastic depth rate, for networks that have it."""
    tune: Tune = "full"
    """What is trained: everything, the ``head`` alone, or the head with the attention layers (and position
    embeddings), the MLPs (``ffn``), or the normalisation layers."""
    grad_checkpointing: bool = False
    """Compute activations twice instead of keeping them: less memory, about a third more time, the same result."""
    vit: ViTConfig = ViTConfig()


class InputConfig(_Section):
    """What is done to an image between the file and the network."""

    resize: Literal["squash", "pad"] = "pad"
    """``squash`` to the square (what the 2022 study did) or ``pad`` to it, keeping the aspect ratio."""
    crop: Literal["tissue", "whole"] = "tissue"
    """``tissue``: DICOM frames are cut to the 2-D tissue region that their header describes; ``whole``: nothing is."""
    augment: Literal["none", "light", "us", "trivial"] = "none"
    """The augmentation policy of the training images (usvit/data/augment.py)."""
    cache_gb: Annotated[float, Field(ge=0)] = 4.0
    """Decoded images are kept in memory up to this many GB, above it in a memory-mapped file."""


class LossConfig(_Section):
    """Cross-entropy and its weights."""

    class_weights: Literal["balanced", "none"] = "balanced"
    """``balanced``: N / (K n_c), from the training part of the fold alone."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0


class OptimConfig(_Section):
    """How the weights move."""

    name: Literal["sgd", "adam", "adamw", "lamb"] = "sgd"
    lr: Annotated[float, Field(gt=0)] = 1e-3
    """Peak learning rate."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """SGD only (not Nesterov's)."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Never applied to biases and normalisation layers."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] | None = None
    """Each layer's learning rate is this times that of the layer above it (BEiT); null: one rate."""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """Global gradient norm above which gradients are scaled down; null: never."""
    schedule: Literal["cosine", "linear", "constant"] = "cosine"
    """Course of the learning rate after warm-up, per step; cosine and linear end at zero."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps of linear warm-up from zero."""


class EarlyStopping(_Section):
    """When to stop, judged on the inner validation part alone."""

    monitor: Literal["val_loss", "val_auc", "val_accuracy"] = "val_loss"
    patience: Annotated[int, Field(ge=1)] | None = 5
    """Stop after so many evaluations without a better one; null: run to the end (the best is kept all the same)."""
    keep: Literal["best", "last"] = "best"
    """Whose weights predict the test part."""


class TrainConfig(_Section):
    """How long, how often, in what portions."""

    batch_size: Annotated[int, Field(ge=1)] = 128
    micro_batch: Annotated[int, Field(ge=1)] | None = None
    """Images in memory at once; gradients are summed over the batch. null: the whole batch."""
    steps: Annotated[int, Field(ge=1)] | None = None
    epochs: Annotated[float, Field(gt=0)] | None = None
    """Length of the training: give ``steps`` or ``epochs``, not both."""
    eval_every: Annotated[int, Field(ge=1)] | None = None
    """Steps between evaluations; null: once an epoch."""
    early_stopping: EarlyStopping = EarlyStopping()
    checkpoint_seconds: Annotated[float, Field(ge=0)] = 60.0
    """A killed run loses at most this much work (0: a checkpoint after every step)."""

    @model_validator(mode="after")
    def _one_length(self) -> "TrainConfig":
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give exactly one of train.steps and train.epochs (set the other to null)")
        return self


class SplitConfig(_Section):
    """How images are dealt into training, inner validation and test."""

    folds: Annotated[int, Field(ge=2, le=100)] = 5
    """Test parts of the cross-validation (``usvit cv``)."""
    scheme: Literal["auto", "drawn", "official", "by_dataset", "by_device"] = "auto"
    """``auto``: the folds that a data set's authors drew where it has them for this number of folds, else drawn
    here. ``by_dataset`` and ``by_device``: each data set (device) is the test of one fold."""
    unit: Literal["group", "image"] = "group"
    """What stays together: the group (patient, copies of one frame), or nothing but the ``image``, which leaks: it is
    there to measure by how much."""
    file: str | None = None
    """Frozen folds (``usvit data split`` writes them) to be used as they are."""
    test_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Test part of the hold-out (``usvit train``)."""
    val_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.15
    """Inner validation part as a share of all images in the hold-out; in cross-validation the same
    proportion of validation to training is kept, val / (1 - test_fraction), within what the test fold leaves."""

    @model_validator(mode="after")
    def _leaves_training_images(self) -> "SplitConfig":
        if self.test_fraction + self.val_fraction >= 1:
            raise ValueError("split.test_fraction and split.val_fraction together leave nothing to train on")
        return self


class RunConfig(_Section):
    """Everything that decides a run's result, and, apart, what only decides its speed."""

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
    input: InputConfig = InputConfig()
    loss: LossConfig = LossConfig()
    optim: OptimConfig = OptimConfig()
    train: TrainConfig = TrainConfig(steps=250)
    split: SplitConfig = SplitConfig()

    @property
    def split_seed(self) -> int:
        """Of the folds: their own, or the run's."""
        return self.seed if self.data.split_seed is None else self.data.split_seed


SPEED_ONLY = ("workers", "input.cache_gb", "train.checkpoint_seconds")
"""Settings that cannot change a result: a run may be resumed with other values of these."""


def identity(config: dict[str, Any]) -> dict[str, Any]:
    """A dumped configuration, flat (``train.batch_size``), without ``SPEED_ONLY``: equal ones are the same run."""
    flat = _flat(config)
    return {key: value for key, value in flat.items() if key not in SPEED_ONLY}


def recipe_names() -> list[str]:
    """Names of the shipped fine-tuning recipes."""
    return sorted(path.stem for path in (configs_dir() / "finetune").glob("*.yaml"))


def load_recipe(name_or_file: str) -> dict[str, Any]:
    """A recipe's settings as nested dictionaries, not yet validated.

    Args:
        name_or_file: a name of ``recipe_names()``, or the path of a YAML file.

    Raises:
        UsvitError: there is no such recipe or file, or it is not a YAML mapping.
    """
    path = configs_dir() / "finetune" / f"{name_or_file}.yaml"
    if Path(name_or_file).suffix in (".yaml", ".yml"):
        path = Path(name_or_file)
        if not path.is_file():
            raise UsvitError(
                f"There is no recipe file {path}. Give a name ({', '.join(recipe_names())}) or a YAML file."
            )
    elif not path.is_file():
        raise unknown("recipe", name_or_file, recipe_names(), "A path to a .yaml file is accepted too.")
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UsvitError(f"The recipe {path} is not valid YAML: {' '.join(str(error).split())}") from error
    if not isinstance(settings, dict):
        raise UsvitError(f"The recipe {path} must be a mapping of sections (data, model, train, ...), see docs.")
    return {"recipe": path.stem, **settings}


def parse_overrides(pairs: list[str]) -> dict[str, Any]:
    """``["train.steps=10"]`` as nested dictionaries; values are read as YAML.

    Raises:
        UsvitError: a pair has no '=' or its value is not YAML.
    """
    overrides: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise UsvitError(f"--set takes key=value, such as --set train.steps=100; got '{pair}'.")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError as error:
            raise UsvitError(f"--set {key}: '{text}' is not a YAML value.") from error
        if isinstance(value, str):  # YAML 1.1 reads 1e-3 as a string; people mean a number
            with contextlib.suppress(ValueError):
                value = float(value)
        overrides = merge(overrides, _nest(key.strip().split("."), value))
    return overrides


def _nest(keys: list[str], value: Any) -> dict[str, Any]:
    for key in reversed(keys):
        value = {key: value}
    return value


def _flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in settings.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return flat


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """``base`` with ``over`` laid on it, section by section.

    Setting one of ``steps`` and ``epochs`` clears the other: they are two ways to say one thing.
    """
    merged = dict(base)
    for key, value in over.items():
        if isinstance(value, dict) and isinstance(merged.get(key), dict):
            merged[key] = merge(merged[key], value)
        else:
            merged[key] = value
    for given, other in (("steps", "epochs"), ("epochs", "steps")):
        if over.get(given) is not None and other not in over:
            merged.pop(other, None)
    return merged


def build_config(*layers: dict[str, Any]) -> RunConfig:
    """Merge layers of settings, later ones winning, and validate the result.

    Raises:
        UsvitError: a key is unknown (the nearest is named) or a value is out of range.
    """
    settings: dict[str, Any] = {}
    for layer in layers:
        settings = merge(settings, layer)
    try:
        return RunConfig.model_validate(settings)
    except ValidationError as error:
        raise _explain(error) from error


def config_keys(section: type[BaseModel] = RunConfig, prefix: str = "") -> list[str]:
    """Every key that can be set, dotted: ``train.batch_size``."""
    keys = []
    for name, field in section.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            keys += config_keys(field.annotation, f"{prefix}{name}.")
        else:
            keys.append(prefix + name)
    return keys


def _explain(error: ValidationError) -> UsvitError:
    problem = error.errors()[0]
    key = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "extra_forbidden":
        return unknown("setting", key, config_keys(), "All settings: docs/reference/configuration.md.")
    message = problem["msg"].removeprefix("Value error, ")
    given = "" if problem["type"] == "value_error" else f" (got {problem['input']!r})"
    return UsvitError(f"The setting {key} cannot be used: {message}{given}.")
