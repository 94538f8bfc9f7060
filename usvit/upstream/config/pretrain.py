"""Configuration of an upstream training: pre-training, and fine-tuning on general images."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from usvit.config.fields import Option, TextOrPath
from usvit.config.run import Training
from usvit.config.sections import (
    AugmentPolicy,
    DistillConfig,
    EarlyStoppingConfig,
    LossConfig,
    ModelConfig,
    Section,
    TrainConfig,
)
from usvit.config.views import HOST_POLICIES, MixConfig, Share, ViewsConfig

Objective = Literal["supervised", "mae", "beit", "tokenizer", "masked_patch", "grafit", "dino", "signs"]


class SourceConfig(Section):
    """Images that a network is trained on."""

    name: str = "fractals"
    """``fractals`` or ``phantom`` (generated on the fly), ``folder``, ``unlabeled``, ``shards``, a data set of
    ``usvit pretrain --list-sources`` (``imagenet``, ``cifar10``, ...), or ``data``: the training splits of
    ``data.dataset``, fold by fold. Several joined by '+' are used without labels: ``phantom+data``."""
    path: Annotated[str | None, Option(metavar="DIR|URL")] = None
    """Folder of ``folder`` and ``unlabeled``; address of ``shards``, such as ``train-{0000..0146}.tar`` (a path or any
    URL). Named data sets are found through ``--data-root``."""
    split: str = "train"
    """Split of the data set to train on; several are joined by '+': ``train+val``."""
    val: str | None = None
    """Split to validate on (for ``shards``, its address); null: no validation, or the images that ``val_share`` holds
    out."""
    val_source: str | None = None
    """Another data set of ``usvit pretrain --list-sources``, of which ``val`` is a split (Steiner et al. 2022, section
    4.5: ``imagenet_v2`` for ``imagenet``); its classes are matched by name. null: ``val`` is a split of ``name``."""
    val_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the training images to hold out for validation, drawn with the seed."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Maximum number of training images, drawn with the seed; null: all."""
    coarse: str | None = None
    """Coarse classes to train on, while the fine ones are used for evaluation (Grafit): a CSV with columns
    ``class,coarse``, a level of the data set's own hierarchy (``superclass`` of ``cifar100``; ``kingdom`` to ``genus``
    of ``inat18``), or ``all``, a single class (the unsupervised case, thesis, Table 2.14)."""
    labels: str | None = None
    """CSV with columns ``image_id,label`` for every training image, whose labels replace those of the data set: the
    ``clusters.csv`` of ``usvit transfer --how clusters`` (ClusterFit)."""
    size: Annotated[int, Field(ge=1)] = 100_000
    """Number of images in an epoch of ``fractals`` and ``phantom``."""
    classes: Annotated[int, Field(ge=2)] = 1000
    """Classes of ``fractals``."""
    image_size: Annotated[int, Field(ge=32, le=1024)] = 256
    """Side of the images of ``fractals`` and ``phantom``, in pixels."""
    exclude: tuple[str, ...] = ()
    """Data cards (such as ``busi``) and named sets (``cifar10``, ``imagenet:val``; without a split, the one that is
    tested) whose images and their near-duplicates are left out because they will be tested downstream."""
    hashes: bool = True
    """Record the pixel hashes of the training images in the metadata, so that none of them can be tested later."""
    decoded: Literal["files", "auto", "memory", "device"] = "files"
    """``files``: training images are decoded whenever they are needed, at their own size. Otherwise each is decoded
    once, before the training, and kept at ``decoded_size``: in ``memory`` (or a memory-mapped file, see
    ``decoded_gb``), on the ``device``, or, with ``auto``, on a GPU if they take at most a quarter of its free memory,
    else in memory. Crops are then cut from the smaller image, so that they show less detail than those of the files,
    and a run has other results; where the images lie changes nothing. Validation and test images are always read from
    their files."""
    decoded_size: Annotated[int, Field(ge=32, le=2048)] | None = None
    """Longest side in pixels to which a decoded image is reduced; smaller ones keep their size. null: 1.5 times
    ``model.image_size``."""
    decoded_gb: Annotated[float, Field(ge=0)] | None = None
    """Decoded images stay in memory up to this many GB, or half of the free memory if that is less or this is null;
    more are kept in a memory-mapped file."""

    @model_validator(mode="after")
    def _val_of_its_source(self) -> "SourceConfig":
        if self.val_source is not None and self.val is None:
            raise ValueError(
                f"source.val_source={self.val_source} needs source.val, the split of {self.val_source} to validate on"
            )
        return self


class UpstreamDistillConfig(DistillConfig):
    """Distillation from a teacher (thesis, section 3.3; DeiT)."""

    teacher: str = "timm:regnety_160"
    """Name of the teacher, as for ``usvit models info``."""
    weights: str = "hub"
    """Weights of the teacher, as for ``model.weights``."""
    image_size: Annotated[int, Field(ge=32, le=2048)] | None = None
    """Side of the teacher's input in pixels; null: the student's."""


class FlexiConfig(Section):
    """Random patch sizes (FlexiViT, Beyer et al. 2023; Alabdulmohsin et al. 2023, section 5.5), for a plain ViT with a
    linear stem and learned positions. Validation has the model's own patch size (``model.vit.patch``)."""

    patches: Annotated[tuple[Annotated[int, Field(ge=1)], ...], Field(min_length=1)] | None = None
    """Patch sizes in pixels, one of which is drawn for each step (FlexiViT, Beyer et al. 2023), for objective
    ``supervised`` and a plain ViT with a linear stem and learned positions; validation has ``model.vit.patch``.
    null: the model's own patch size."""
    kernel: Annotated[int, Field(ge=1)] | None = None
    """Side of the learned patch embedding in pixels (32 in FlexiViT), which is resized to each patch size; null: the
    model's own patch size."""
    grid: Annotated[int, Field(ge=1)] | None = None
    """Side of the learned table of positions (7 in FlexiViT), which is resized to each grid; null: the model's own."""


class MaeConfig(Section):
    """Masked autoencoder (He et al. 2022)."""

    mask: Annotated[float, Field(gt=0, lt=1)] = 0.75
    """Share of masked patches."""
    decoder_width: Annotated[int, Field(ge=1)] = 512
    """Width of the decoder."""
    decoder_depth: Annotated[int, Field(ge=1)] = 8
    """Number of decoder layers."""
    decoder_heads: Annotated[int, Field(ge=1)] = 16
    """Number of attention heads of the decoder."""
    norm_pixels: bool = True
    """Normalise the target pixels of each patch by their mean and variance."""


class BeitConfig(Section):
    """Masked prediction of visual tokens (Bao et al. 2022)."""

    tokenizer: str = ""
    """Run that trained the tokenizer (``objective: tokenizer``)."""
    mask: Annotated[float, Field(gt=0, lt=1)] = 0.4
    """Share of masked patches at most, rounded down to whole patches; they are masked in blocks."""
    min_block: Annotated[int, Field(ge=1)] = 16
    """Number of patches of the smallest block."""


class TokenizerConfig(Section):
    """Discrete autoencoder whose codes are BEiT's targets (VQ-VAE, van den Oord et al. 2017)."""

    vocabulary: Annotated[int, Field(ge=2)] = 8192
    """Number of codes."""
    width: Annotated[int, Field(ge=1)] = 256
    """Width of encoder and decoder."""
    code_width: Annotated[int, Field(ge=1)] = 32
    """Dimension of a code."""
    depth: Annotated[int, Field(ge=1)] = 4
    """Number of ConvNeXt blocks of the encoder; the decoder has the same number."""
    patch: Annotated[int, Field(ge=1)] = 16
    """Side of the region that one token encodes, in pixels; it must equal the network's patch size."""


class MaskedPatchConfig(Section):
    """Masked patch prediction (Dosovitskiy et al. 2021, appendix B.1.2)."""

    corrupted: Annotated[float, Field(gt=0, lt=1)] = 0.5
    """Share of patches that are corrupted."""
    replaced: Share = 0.8
    """Share of the corrupted patches that are replaced by a learnt mask embedding."""
    swapped: Share = 0.1
    """Share of the corrupted patches that are replaced by another patch of the image; the rest are kept."""
    target: Literal["mean_colour", "downsized", "pixels"] = "mean_colour"
    """Prediction for each corrupted patch: the class of its ``mean_colour``; the classes of the 4 x 4 cells of the
    ``downsized`` patch; or its ``pixels``, by regression."""
    bits: Annotated[int, Field(ge=1, le=8)] = 3
    """Number of bits of each channel of a predicted colour; 3 bits give 512 classes."""


class GrafitConfig(Section):
    """Grafit: fine-grained representations from coarse labels (thesis, chapter 2)."""

    projector: Literal["mlp", "linear", "none"] = "mlp"
    """Projector; ``linear`` is the paper's Grafit FC. ``none``: the network's features are the embedding."""
    width: Annotated[int, Field(ge=1)] = 256
    """Width of the embedding."""
    hidden: Annotated[int, Field(ge=1)] = 4096
    """Hidden width of the projector."""
    sigma: Annotated[float, Field(gt=0)] = 0.05
    """Temperature."""
    instance: Annotated[float, Field(ge=0)] = 1.0
    """Weight of L_inst (eq. 2.1); 0 is SNCA+ (SNCA with the linear projector)."""
    knn: Annotated[float, Field(ge=0)] = 1.0
    """Weight of L_knn (eq. 2.3)."""
    cross_entropy: Annotated[float, Field(ge=0)] = 0.0
    """Weight of L_CE, the cross-entropy of the network's own classifier on the coarse labels (Table 2.7, L_CE + L_inst;
    section 2.2)."""
    triplet: Annotated[float, Field(ge=0)] = 0.0
    """Weight of L_Triplet, which separates the images of a portion (section 2.2)."""
    margin: Annotated[float, Field(gt=0, le=4)] = 0.2
    """Margin of L_Triplet between squared distances (Schroff et al. 2015, FaceNet)."""
    memory: Literal["mean", "normalized"] = "mean"
    """Update of an image's entry m after a step: ``mean`` is the thesis's m <- (m + g) / 2; ``normalized`` scales the
    result to length one, as usvit did before this setting existed. Both are compared by their cosine."""
    target_decay: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """Decay tau of the target network's moving average."""


class SignsConfig(Section):
    """Supervised pre-training on phantoms with class, signs and lesion mask (``objective: signs``)."""

    weight: Annotated[float, Field(ge=0)] = 0.5
    """Weight of the loss of the signs (shape, margin, orientation, posterior features and others)."""
    mask_weight: Annotated[float, Field(ge=0)] = 1.0
    """Weight of the loss of the lesion mask, as ``loss.mask_weight`` in fine-tuning."""
    augment: AugmentPolicy = "us"
    """The augmentation policy, as ``input.augment`` in fine-tuning; ``views`` is not used."""
    least_height: Annotated[float, Field(gt=0, le=1)] = 0.62
    """Phantoms are cut to a random height, of at least this share of their width, because a scanner's image is often
    wider than deep; 1: they stay square."""


class DinoConfig(Section):
    """Self-distillation with no labels (DINO: Caron et al. 2021). The defaults are those of its public code."""

    hidden: Annotated[int, Field(ge=1)] = 2048
    """Width of the two hidden layers of the projection head."""
    bottleneck: Annotated[int, Field(ge=1)] = 256
    """Width of its last hidden vector, which is scaled to length one."""
    outputs: Annotated[int, Field(ge=2)] = 65_536
    """Number of outputs K of the projection head."""
    norm_last_layer: bool = True
    """Keep the rows of the last layer at length one; false: their lengths are learned, which can be unstable."""
    freeze_epochs: Annotated[int, Field(ge=0)] = 1
    """Number of epochs at the beginning in which the last layer is not changed."""
    student_temperature: Annotated[float, Field(gt=0)] = 0.1
    """Temperature of the student."""
    teacher_temperature: Annotated[float, Field(gt=0)] = 0.04
    """Temperature of the teacher after its warm-up."""
    teacher_temperature_start: Annotated[float, Field(gt=0)] = 0.04
    """Temperature of the teacher in the first epoch of its warm-up, from which it rises linearly, epoch by epoch."""
    teacher_warmup_epochs: Annotated[int, Field(ge=0)] = 0
    """Length of this warm-up in epochs."""
    teacher_decay: Annotated[float, Field(ge=0, le=1)] = 0.996
    """Decay of the teacher's moving average at the first step; it rises to 1 by a half cosine."""
    center_decay: Annotated[float, Field(ge=0, lt=1)] = 0.9
    """Decay of the center, the moving average of the teacher's outputs that is subtracted from them."""


class UpstreamLossConfig(LossConfig):
    """Loss of an upstream training, which does not weight the classes."""

    class_weights: Literal["balanced", "none"] = "none"


class UpstreamModelConfig(ModelConfig):
    """Network of an upstream training, which starts from scratch by default."""

    weights: str = "scratch"
    head: Literal["new", "kept", "mlp"] = "new"
    """``new``: a new linear classifier. ``kept``: the classifier of the initial weights, for the same classes, as in
    fine-tuning at another resolution (FixRes, Touvron et al. 2019). ``mlp``: a new classifier of two layers
    (``usvit.models.mlp_head``)."""
    layer_scale_from: str | None = None
    """Weights as for ``weights``, of a network of the same architecture: LayerScale has their values and is not
    trained, while the other layers start from ``weights`` (thesis, section 3.5.3, "Re-training"). null: LayerScale is
    trained."""


class UpstreamTrainConfig(TrainConfig):
    """Length of an upstream training, which runs to its end and keeps the last weights, as in the papers."""

    early_stopping: EarlyStoppingConfig = EarlyStoppingConfig(patience=None, keep="last")

    @model_validator(mode="after")
    def _keeps_statistics(self) -> "UpstreamTrainConfig":
        if self.batch_norm == "recomputed":
            raise ValueError(
                "train.batch_norm=recomputed is for 'usvit cv' and 'usvit train': set it to as_is or frozen"
            )
        return self


class PretrainConfig(Training):
    """All settings of an upstream training: those that affect the result, and those that only affect speed."""

    objective: Objective = "supervised"
    """What the network learns: ``supervised``, ``mae``, ``beit``, ``tokenizer``, ``masked_patch``, ``grafit``,
    ``dino``, ``signs``."""
    source: SourceConfig = SourceConfig()
    views: ViewsConfig = ViewsConfig()
    mix: MixConfig = MixConfig()
    distill: UpstreamDistillConfig = UpstreamDistillConfig()
    flexi: FlexiConfig = FlexiConfig()
    mae: MaeConfig = MaeConfig()
    beit: BeitConfig = BeitConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    masked_patch: MaskedPatchConfig = MaskedPatchConfig()
    grafit: GrafitConfig = GrafitConfig()
    dino: DinoConfig = DinoConfig()
    signs: SignsConfig = SignsConfig()
    model: UpstreamModelConfig = UpstreamModelConfig()
    loss: UpstreamLossConfig = UpstreamLossConfig()
    train: UpstreamTrainConfig = UpstreamTrainConfig(epochs=300)

    @model_validator(mode="after")
    def _fits_together(self) -> "PretrainConfig":
        mixes = self.mix.mixup > 0 or self.mix.cutmix > 0
        if self.objective != "supervised" and (mixes or self.distill.kind != "none"):
            raise ValueError(f"objective {self.objective} uses no labels to mix or distil: turn mix and distill off")
        if self.objective != "supervised" and self.flexi.patches:
            raise ValueError(f"objective {self.objective} has one patch size: set flexi.patches to null")
        if not self.flexi.patches and (self.flexi.kernel or self.flexi.grid):
            raise ValueError("flexi.kernel and flexi.grid need flexi.patches")
        if self.objective != "supervised" and self.model.head == "mlp":
            raise ValueError(f"objective {self.objective} trains no classifier: set model.head=new")
        if self.objective != "dino" and self.views.local_count:
            raise ValueError(f"objective {self.objective} has no local crops: set views.local_count to 0")
        if self.objective == "tokenizer" and self.model.layer_scale_from is not None:
            raise ValueError("objective tokenizer trains a network without LayerScale: set model.layer_scale_from=null")
        if self.model.features is not None:
            raise ValueError("model.features are for 'usvit cv' and 'usvit train': set model.features to null")
        if self.model.tune == "lora":
            raise ValueError(
                "model.tune=lora is for 'usvit cv' and 'usvit train': an upstream training saves whole networks, so "
                "set model.tune=attn, or another part"
            )
        if self.objective == "signs" and self.source.name != "phantom":
            raise ValueError(
                f"objective signs learns the signs of phantoms, but source.name is {self.source.name}: set source.name "
                "to phantom"
            )
        if mixes and self.train.batch_size % 2:
            raise ValueError("mix pairs the images of a batch: set an even train.batch_size")
        if self.source.decoded == "device" and (self.views.on == "cpu" or self.views.policy in HOST_POLICIES):
            why = "views.on is cpu" if self.views.on == "cpu" else f"PIL computes views.policy={self.views.policy}"
            raise ValueError(
                f"source.decoded=device crops images on the device, but {why}, on the host: set source.decoded=memory"
            )
        return self

    @property
    def decoded_size(self) -> int | None:
        """Longest side of decoded images in pixels; None if images are read from their files."""
        if self.source.decoded == "files":
            return None
        return self.source.decoded_size or round(1.5 * self.model.image_size)


class PretrainArguments(Section):
    """What a pre-training starts from; None: as the recipe says."""

    source: Annotated[str | None, Option(metavar="S[+S]")] = None
    """Training images: a name of ``usvit pretrain --list-sources``, or several joined by '+'. (default: the
    recipe's)"""
    dataset: Annotated[str | None, Option(metavar="D[+D]")] = None
    """With the source ``data``: the data set whose training splits to use. (default: the phantom)"""
    weights: Annotated[TextOrPath, Option(metavar="W")] = None
    """Initial weights: scratch, hub, hub:UPSTREAM, a file, or a run. (default: the recipe's, usually scratch)"""
    folds: Annotated[TextOrPath, Option(metavar="FILE")] = None
    """With the source ``data``: folds that 'usvit data split' wrote."""
    cell: Annotated[str | None, Option(metavar="NAME")] = None
    """With a sweep recipe: a cell, ``recommended``, or ``all``. (default: the recipe's own settings)"""
    seed: int | None = None
    """Seed of folds, weights, order and augmentation. (default: the recipe's, usually 0)"""
