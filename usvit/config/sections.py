"""What every kind of training has: the sections of a configuration, and what each of their keys means."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator


class Section(BaseModel):
    """Keys that are known, values that are finite; frozen."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class DataConfig(Section):
    """Which images, and what is done to those that cannot be used as they are."""

    dataset: str = "phantom"
    """One data card's name or file, or several joined by '+': ``busi+b``, ``bus_bra+./ours.md``."""
    classes: tuple[str, ...] | None = None
    """Use these classes alone, in this order; images of others are left out: ``[benign, malignant]``."""
    manifest: str | None = None
    """A manifest that ``usvit data prepare`` wrote, instead of reading the data set's folder again."""
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
    keep_ids: bool = False
    """Call the images and patients of private data sets (folder, table, dicom) as these do, instead of by pseudonyms:
    the run is then as private as the images."""


Stem = Literal["linear", "hmlp_bn", "hmlp_ln", "conv_bn", "conv_ln"]
Pool = Literal["token", "avg", "map"]
Head = Literal["linear", "hidden"]
Position = Literal["none", "learned", "learned_2d", "sincos_2d", "relative"]
PositionAt = Literal["stem", "layers", "shared"]
Attention = Literal["global", "axial"]
Tune = Literal["full", "head", "attn", "ffn", "norm"]


class ViTConfig(Section):
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


class ModelConfig(Section):
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
    drop_path_schedule: Literal["model", "linear", "uniform"] = "model"
    """Over the layers: from 0 to ``drop_path``, or ``drop_path`` in each; ``model``: as the network's code does."""
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """After each MLP and attention block's projections and the position embedding, for networks that have it."""
    tune: Tune = "full"
    """What is trained: everything, the ``head`` alone, or the head with the attention layers (and position
    embeddings), the MLPs (``ffn``), or the normalisation layers."""
    grad_checkpointing: bool = False
    """Compute activations twice instead of keeping them: less memory, about a third more time, the same result."""
    vit: ViTConfig = ViTConfig()


class InputConfig(Section):
    """What is done to an image between the file and the network."""

    resize: Literal["squash", "pad"] = "pad"
    """``squash`` to the square (what the 2022 study did) or ``pad`` to it, keeping the aspect ratio."""
    crop: Literal["tissue", "whole"] = "tissue"
    """``tissue``: DICOM frames are cut to the 2-D tissue region that their header describes; ``whole``: nothing is."""
    augment: Literal["none", "light", "us", "trivial"] = "none"
    """The augmentation policy of the training images (usvit/data/augment.py)."""
    cache_gb: Annotated[float, Field(ge=0)] = 4.0
    """Decoded images are kept in memory up to this many GB, above it in a memory-mapped file."""


class LossConfig(Section):
    """Cross-entropy and its weights."""

    kind: Literal["ce", "bce"] = "ce"
    """Cross-entropy over the classes, or binary cross-entropy of each class (DeiT III; Wightman et al. 2021, RSB)."""
    bce_threshold: Annotated[float, Field(ge=0, lt=1)] | None = None
    """``bce``: mixed labels above it count as 1, others as 0 (DeiT III: 0); null: they stay as they were mixed."""
    class_weights: Literal["balanced", "none"] = "balanced"
    """``balanced``: N / (K n_c), from the training part of the fold alone."""
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = 0.0


class OptimConfig(Section):
    """How the weights move."""

    name: Literal["sgd", "adam", "adamw", "lamb"] = "sgd"
    lr: Annotated[float, Field(gt=0)] = 1e-3
    """Peak learning rate."""
    lr_batch: Annotated[int, Field(ge=1)] | None = None
    """The batch size that ``lr`` and ``min_lr`` are meant for: they are scaled by ``train.batch_size`` / this
    (Goyal et al. 2017). null: they are taken as they are."""
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """SGD only."""
    nesterov: bool = False
    """SGD only: Nesterov's momentum."""
    betas: tuple[float, float] | None = None
    """Adam, AdamW and LAMB; null: (0.9, 0.999)."""
    eps: Annotated[float, Field(gt=0)] | None = None
    """Adam, AdamW and LAMB; null: the optimiser's own."""
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    """Never applied to biases and normalisation layers."""
    layer_decay: Annotated[float, Field(gt=0, le=1)] | None = None
    """Each layer's learning rate is this times that of the layer above it (BEiT); null: one rate."""
    clip_norm: Annotated[float, Field(gt=0)] | None = None
    """Global gradient norm above which gradients are scaled down; null: never, but by LAMB itself, above 1."""
    schedule: Literal["cosine", "linear", "step", "constant"] = "cosine"
    """Course of the learning rate after warm-up, per step; cosine and linear end at ``min_lr``; ``step``: a tenth after
    each third of the training (He et al. 2016: after 30 and 60 of 90 epochs), or where ``drops`` says."""
    drops: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    """``step``: after these steps the rate falls to a tenth (BiT's rule); null: after each third."""
    min_lr: Annotated[float, Field(ge=0)] = 0.0
    """Where cosine and linear end."""
    warmup_steps: Annotated[int, Field(ge=0)] = 0
    """Steps of linear warm-up from zero."""
    warmup_epochs: Annotated[float, Field(ge=0)] | None = None
    """The same in epochs; if given, it counts instead of ``warmup_steps``."""

    @model_validator(mode="after")
    def _drops_of_step(self) -> "OptimConfig":
        if self.drops is not None and self.schedule != "step":
            raise ValueError(f"optim.drops belongs to the schedule step, not {self.schedule}: set optim.schedule=step")
        return self


class EarlyStopping(Section):
    """When to stop, judged on the inner validation part alone."""

    monitor: Literal["val_loss", "val_auc", "val_accuracy"] = "val_loss"
    patience: Annotated[int, Field(ge=1)] | None = 5
    """Stop after so many evaluations without a better one; null: run to the end (the best is kept all the same)."""
    keep: Literal["best", "last"] = "best"
    """Whose weights predict the test part."""


class TrainConfig(Section):
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
    ema: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay of a running mean of the weights, which is evaluated and kept in place of them (Polyak averaging)."""
    log_every: Annotated[int, Field(ge=1)] = 50
    """Steps between rows of the step log, and between looks whether the loss is still finite."""
    compile: bool = False
    """``torch.compile``: faster steps after a slow first one; the result differs by rounding."""
    channels_last: bool = False
    """Layout of pictures in memory: faster convolutions on GPUs; the result differs by rounding."""
    strategy: Literal["auto", "ddp", "fsdp"] = "auto"
    """Several processes under ``torchrun``: whole copies of the network (``ddp``, what ``auto`` means), or its
    parameters dealt out over them (``fsdp``)."""
    peak_tflops: Annotated[float, Field(gt=0)] | None = None
    """What the device computes at most, per device, for the step log's MFU; null: known for some GPUs."""

    @model_validator(mode="after")
    def _one_length(self) -> "TrainConfig":
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give exactly one of train.steps and train.epochs (set the other to null)")
        return self


class SplitConfig(Section):
    """How images are dealt into training, inner validation and test."""

    folds: Annotated[int, Field(ge=2, le=100)] = 5
    """Test parts of the cross-validation (``usvit cv``)."""
    repeats: Annotated[int, Field(ge=1, le=100)] = 1
    """Complete cross-validations, each with folds and a training of its own. From 2 on, intervals count what another
    training would have given, too."""
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
