"""Views of images in the style of ImageNet: augmentation, crops and mixing."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from usvit.config.sections import Section

Share = Annotated[float, Field(ge=0, le=1)]
_ThreeAugmentPart = Literal["gray", "solarize", "blur"]
HOST_POLICIES = ("randaugment", "autoaugment", "trivialaugment", "dino")
"""Values of ``views.policy`` that PIL computes on the host, after the crop."""


class ViewsConfig(Section):
    """Augmentation of training images and cropping of test images, in the style of ImageNet; not ultrasound-safe."""

    crop: Literal["rrc", "inception", "squash_crop", "src", "resize"] = "rrc"
    """``rrc``: random resized crop, as in torchvision and timm; ``inception``: the same by TensorFlow's
    ``sample_distorted_bounding_box``, as in the code of ViT and AugReg (Szegedy et al. 2015; its boxes are smaller:
    their height is uniform, where that of ``rrc`` makes the area uniform); ``squash_crop``: squash the image to a
    larger square and crop a random square (BiT: Kolesnikov et al. 2020); ``src``: simple random crop (DeiT III: resize
    the short side, pad by 4 px of reflection, crop a random square); ``resize``: squash the image to the square."""
    scale: tuple[float, float] = (0.08, 1.0)
    """``rrc``, ``inception``: range of the crop's share of the image area."""
    ratio: tuple[float, float] = (0.75, 1.3333333333333333)
    """``rrc``, ``inception``: range of the crop's aspect ratio, width over height."""
    train_crop: Annotated[float, Field(gt=0, le=1)] = 0.875
    """``squash_crop``: the image is squashed to a square of the input size divided by this ratio (0.875: 256 px for an
    input of 224)."""
    interpolation: Literal["bicubic", "bilinear", "random"] = "bicubic"
    """``bicubic``, ``bilinear``, ``random``."""
    hflip: Share = 0.5
    """Probability of a left-right flip."""
    policy: Literal["none", "randaugment", "autoaugment", "trivialaugment", "three_augment", "dino"] = "none"
    """``randaugment`` (Cubuk et al. 2020), ``autoaugment`` (Cubuk et al. 2019), ``trivialaugment`` (the wide variant:
    Müller & Hutter 2021), ``three_augment`` (DeiT III), or ``dino`` (jitter, grey, blur and solarising, whose
    probabilities differ between the views of an example: Caron et al. 2021)."""
    three_augment: Annotated[tuple[_ThreeAugmentPart, ...], Field(min_length=1)] = ("gray", "solarize", "blur")
    """Parts of 3-Augment, of which each image gets exactly one, with equal probability."""
    layers: Annotated[int, Field(ge=1)] = 2
    """RandAugment: number of operations per image."""
    randaugment: Literal["timm", "original"] = "timm"
    """``timm``: operations whose strength grows with the magnitude (DeiT and its successors); ``original``: operations
    of the first TensorFlow code, with cutout (Steiner et al. 2022)."""
    magnitude: Annotated[float, Field(ge=0, le=30)] = 9.0
    """RandAugment: magnitude of the operations. 10 is the end of timm's scale; larger values extend it, as in the
    original code."""
    magnitude_std: Annotated[float, Field(ge=0)] = 0.0
    """RandAugment: standard deviation of the magnitude."""
    probability: Share = 0.5
    """RandAugment: probability of each operation (0.5 in timm, 1 in the paper)."""
    color_jitter: Annotated[float, Field(ge=0)] = 0.0
    """Colour jitter: strength of changes of brightness, contrast and saturation."""
    erasing: Share = 0.0
    """Probability of random erasing with noise in each pixel (Zhong et al. 2020)."""
    repeats: Annotated[int, Field(ge=1)] = 1
    """Number of views of an image in one batch (repeated augmentation; Hoffer et al. 2020; Berman et al. 2019). An
    epoch then contains 1 / repeats of the images, as in DeiT."""
    count: Annotated[int, Field(ge=1)] = 1
    """Number of views that form one example: T in Grafit's instance loss, the global crops of DINO."""
    local_count: Annotated[int, Field(ge=0)] = 0
    """Number of local crops that an example has besides its views (multi-crop, Caron et al. 2020; DINO)."""
    local_size: Annotated[int, Field(ge=8, le=2048)] | None = 96
    """Side of a local crop in pixels; null: the network's input size, for networks that take no other."""
    local_scale: tuple[float, float] = (0.05, 0.4)
    """``rrc``, ``inception``: range of a local crop's share of the image area."""
    test_crop: Annotated[float, Field(gt=0, le=1)] = 0.875
    """Test images: the short side is resized to the input size divided by this ratio, then the central square is
    cropped."""
    on: Literal["auto", "cpu", "device"] = "auto"
    """Device that computes flips, 3-Augment and colour jitter, and the crops of decoded images (``source.decoded``)
    unless ``policy`` is one of ``HOST_POLICIES``, which need PIL; ``auto``: the GPU if there is one."""

    @model_validator(mode="after")
    def _ranges(self) -> "ViewsConfig":
        ranges = (
            ("scale", self.scale, 1.0),
            ("local_scale", self.local_scale, 1.0),
            ("ratio", self.ratio, float("inf")),
        )
        for name, (low, high), end in ranges:
            if not 0 < low <= high <= end:
                raise ValueError(
                    f"views.{name} is {low}, {high}: give the smaller first, above 0, the larger up to {end}"
                )
        if len(set(self.three_augment)) < len(self.three_augment):
            raise ValueError(f"views.three_augment names a part twice: {', '.join(self.three_augment)}. Name each once")
        return self


class MixConfig(Section):
    """Mixing of images and labels within a batch."""

    mixup: Annotated[float, Field(ge=0)] = 0.0
    """Mixup: alpha of Beta(alpha, alpha) (Zhang et al. 2018); 0: off."""
    cutmix: Annotated[float, Field(ge=0)] = 0.0
    """CutMix: alpha of Beta(alpha, alpha) (Yun et al. 2019); 0: off."""
    probability: Share = 1.0
    """Probability that a batch is mixed."""
    switch: Share = 0.5
    """Probability of CutMix instead of Mixup if both are on."""
