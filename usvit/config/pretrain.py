"""The configuration of an upstream training: pre-training, and fine-tuning on general images."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from usvit.config.run import Training
from usvit.config.sections import EarlyStoppingConfig, LossConfig, ModelConfig, Section, TrainConfig

Share = Annotated[float, Field(ge=0, le=1)]
Objective = Literal["supervised", "mae", "beit", "tokenizer", "masked_patch", "grafit"]


class SourceConfig(Section):
    """Which images a network learns from."""

    name: str = "fractals"
    """``fractals`` and ``phantom`` (made on the fly), ``folder``, ``unlabeled``, ``shards``, a data set of
    ``usvit pretrain --list-sources`` (``imagenet``, ``cifar10``, ...), or ``data``: the training parts of
    ``data.dataset``, fold by fold. Several joined by '+' are unlabelled together: ``phantom+data``."""
    path: str | None = None
    """Folder of ``folder`` and ``unlabeled``; address of ``shards``, such as ``train-{0000..0146}.tar`` (a path or any
    URL). Data sets by name are found by ``--data-root``."""
    split: str = "train"
    """The part of a data set to learn from; several joined by '+': ``train+val``."""
    val: str | None = None
    """The part to validate on, of ``shards`` their address; null: none, or what ``val_share`` keeps back."""
    val_share: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Share of the training images kept back to validate on, drawn by the seed."""
    limit: Annotated[int, Field(ge=1)] | None = None
    """Only so many training images, drawn by the seed."""
    coarse: str | None = None
    """Learn coarse classes, keep the fine ones for evaluation (Grafit): a CSV with columns ``class,coarse``, or a level
    that the data set has itself (``superclass`` of ``cifar100``; ``kingdom`` to ``genus`` of ``inat18``)."""
    size: Annotated[int, Field(ge=1)] = 100_000
    """Images in an epoch of ``fractals`` and ``phantom``."""
    classes: Annotated[int, Field(ge=2)] = 1000
    """Classes of ``fractals``."""
    image_size: Annotated[int, Field(ge=32, le=1024)] = 256
    """Side at which ``fractals`` and ``phantom`` are made, in pixels."""
    exclude: tuple[str, ...] = ()
    """Data cards (``busi``) whose images, and copies of them, are left out: what is to be tested downstream."""
    hashes: bool = True
    """Keep the pixel hashes of what was seen in the metadata, so that no image of it can be a test later."""


class ViewsConfig(Section):
    """What is done to a training image, and how test images are cut: ImageNet-style, not ultrasound-safe."""

    crop: Literal["rrc", "src", "resize"] = "rrc"
    """``rrc``: random resized crop (Szegedy et al. 2015); ``src``: simple random crop (DeiT III: the short side to
    size, 4 px of reflection, a random square); ``resize``: squashed to the square."""
    scale: tuple[float, float] = (0.08, 1.0)
    """Of ``rrc``: range of the crop's share of the area."""
    ratio: tuple[float, float] = (0.75, 1.3333333333333333)
    """Of ``rrc``: range of width over height."""
    interpolation: Literal["bicubic", "bilinear", "random"] = "bicubic"
    hflip: Share = 0.5
    policy: Literal["none", "randaugment", "autoaugment", "three_augment"] = "none"
    layers: Annotated[int, Field(ge=1)] = 2
    """RandAugment: changes an image."""
    randaugment: Literal["timm", "original"] = "timm"
    """``timm``: changes that grow with the magnitude (DeiT and its successors); ``original``: those of the first code
    in TensorFlow, with cutout (Steiner et al. 2022)."""
    magnitude: Annotated[float, Field(ge=0, le=30)] = 9.0
    """RandAugment: 10 is the end of timm's scale, which goes on beyond it as the original code's does."""
    magnitude_std: Annotated[float, Field(ge=0)] = 0.0
    probability: Share = 0.5
    """RandAugment: that each change is made (timm's 0.5; 1 in the paper)."""
    color_jitter: Annotated[float, Field(ge=0)] = 0.0
    """Strength of brightness, contrast and saturation."""
    erasing: Share = 0.0
    """Probability of random erasing, with noise in each pixel (Zhong et al. 2020)."""
    repeats: Annotated[int, Field(ge=1)] = 1
    """Views of an image in one batch: repeated augmentation (Hoffer et al. 2020; Berman et al. 2019). An epoch then
    sees 1 / repeats of the images, as DeiT counts."""
    count: Annotated[int, Field(ge=1)] = 1
    """Views that belong together as one example: T of Grafit's instance loss."""
    test_crop: Annotated[float, Field(gt=0, le=1)] = 0.875
    """Test images: short side to size / this, central square."""
    on: Literal["auto", "cpu", "device"] = "auto"
    """Where flips, 3-Augment, and colour jitter are computed; ``auto``: on a GPU where there is one."""

    @model_validator(mode="after")
    def _ranges(self) -> "ViewsConfig":
        for name, (low, high), end in (("scale", self.scale, 1.0), ("ratio", self.ratio, float("inf"))):
            if not 0 < low <= high <= end:
                raise ValueError(
                    f"views.{name} is {low}, {high}: give the smaller first, above 0, the larger up to {end}"
                )
        return self


class MixConfig(Section):
    """Mixing images and labels of a batch."""

    mixup: Annotated[float, Field(ge=0)] = 0.0
    """alpha of Beta(alpha, alpha) (Zhang et al. 2018)."""
    cutmix: Annotated[float, Field(ge=0)] = 0.0
    """alpha of Beta(alpha, alpha) (Yun et al. 2019)."""
    probability: Share = 1.0
    """That a batch is mixed."""
    switch: Share = 0.5
    """That it is cutmix, where both are on."""


class DistillConfig(Section):
    """Learning from a teacher (thesis, section 3.3; DeiT)."""

    kind: Literal["none", "soft", "hard", "token"] = "none"
    """``soft`` (eq. 3.2), ``hard`` (eq. 3.3), or ``token``: hard, by a distillation token with a head of its own."""
    teacher: str = "timm:regnety_160"
    """Any name of ``usvit models list``."""
    weights: str = "hub"
    """The teacher's: as ``model.weights``."""
    image_size: Annotated[int, Field(ge=32, le=2048)] | None = None
    """The teacher's input, in pixels; null: as the student's."""
    temperature: Annotated[float, Field(gt=0)] = 3.0
    """tau of the soft distillation."""
    balance: Share = 0.1
    """lambda of the soft distillation: weight of the Kullback-Leibler term."""


class MaeConfig(Section):
    """Masked auto-encoder (He et al. 2022)."""

    mask: Annotated[float, Field(gt=0, lt=1)] = 0.75
    decoder_width: Annotated[int, Field(ge=1)] = 512
    decoder_depth: Annotated[int, Field(ge=1)] = 8
    decoder_heads: Annotated[int, Field(ge=1)] = 16
    norm_pixels: bool = True
    """Each patch's pixels are normalised by their own mean and variance before they are targets."""


class BeitConfig(Section):
    """Masked prediction of visual tokens (Bao et al. 2022)."""

    tokenizer: str = ""
    """The run that trained the tokenizer (``objective: tokenizer``)."""
    mask: Annotated[float, Field(gt=0, lt=1)] = 0.4
    """Share of masked patches; blockwise."""
    min_block: Annotated[int, Field(ge=1)] = 16
    """Patches of the smallest block."""


class TokenizerConfig(Section):
    """A discrete auto-encoder whose codes are BEiT's targets (VQ-VAE, van den Oord et al. 2017)."""

    vocabulary: Annotated[int, Field(ge=2)] = 8192
    width: Annotated[int, Field(ge=1)] = 256
    code_width: Annotated[int, Field(ge=1)] = 32
    depth: Annotated[int, Field(ge=1)] = 4
    """ConvNeXt blocks of the encoder; the decoder has as many."""
    patch: Annotated[int, Field(ge=1)] = 16
    """Pixels a token stands for; the network's patch."""


class MaskedPatchConfig(Section):
    """Masked patch prediction (Dosovitskiy et al. 2021, appendix B.1.2)."""

    corrupted: Annotated[float, Field(gt=0, lt=1)] = 0.5
    replaced: Share = 0.8
    """Of the corrupted: by a learnt mask embedding."""
    swapped: Share = 0.1
    """Of the corrupted: by another patch of the image; the rest is kept."""
    bits: Annotated[int, Field(ge=1, le=8)] = 3
    """Of each channel of the mean colour that is predicted: 3 give 512 classes."""


class GrafitConfig(Section):
    """Coarse labels to fine representations (thesis, chapter 2)."""

    projector: Literal["mlp", "linear"] = "mlp"
    """``linear`` is Grafit FC."""
    width: Annotated[int, Field(ge=1)] = 256
    """Of the embedding."""
    hidden: Annotated[int, Field(ge=1)] = 4096
    sigma: Annotated[float, Field(gt=0)] = 0.05
    instance: Annotated[float, Field(ge=0)] = 1.0
    """Weight of L_inst (eq. 2.1); 0 is SNCA+."""
    knn: Annotated[float, Field(ge=0)] = 1.0
    """Weight of L_knn (eq. 2.3)."""
    target_decay: Annotated[float, Field(ge=0, lt=1)] = 0.99
    """tau of the target network's running mean."""


class UpstreamLossConfig(LossConfig):
    """Upstream classes are not weighted."""

    class_weights: Literal["balanced", "none"] = "none"


class UpstreamModelConfig(ModelConfig):
    """Upstream training begins from scratch unless told otherwise."""

    weights: str = "scratch"
    head: Literal["new", "kept", "mlp"] = "new"
    """``kept``: go on with the classifier of the first weights, for the same classes: fine-tuning at another resolution
    (FixRes, Touvron et al. 2019). ``mlp``: a new one of two layers (``usvit.models.mlp_head``)."""


class UpstreamTrainConfig(TrainConfig):
    """Upstream training runs to its end and keeps the last weights, as the papers do."""

    early_stopping: EarlyStoppingConfig = EarlyStoppingConfig(patience=None, keep="last")


class PretrainConfig(Training):
    """Everything that decides an upstream training's result, and, apart, what only decides its speed."""

    objective: Objective = "supervised"
    source: SourceConfig = SourceConfig()
    views: ViewsConfig = ViewsConfig()
    mix: MixConfig = MixConfig()
    distill: DistillConfig = DistillConfig()
    mae: MaeConfig = MaeConfig()
    beit: BeitConfig = BeitConfig()
    tokenizer: TokenizerConfig = TokenizerConfig()
    masked_patch: MaskedPatchConfig = MaskedPatchConfig()
    grafit: GrafitConfig = GrafitConfig()
    model: UpstreamModelConfig = UpstreamModelConfig()
    loss: UpstreamLossConfig = UpstreamLossConfig()
    train: UpstreamTrainConfig = UpstreamTrainConfig(epochs=300)

    @model_validator(mode="after")
    def _fits_together(self) -> "PretrainConfig":
        mixes = self.mix.mixup > 0 or self.mix.cutmix > 0
        if self.objective != "supervised" and (mixes or self.distill.kind != "none"):
            raise ValueError(f"objective {self.objective} has no labels to mix or to distil: turn mix and distill off")
        if self.objective != "supervised" and self.model.head == "mlp":
            raise ValueError(f"objective {self.objective} trains no classifier: set model.head=new")
        if mixes and self.train.batch_size % 2:
            raise ValueError("mix pairs the images of a batch: set an even train.batch_size")
        return self
