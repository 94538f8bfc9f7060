"""Plain Vision Transformers (Dosovitskiy et al. 2021, Steiner et al. 2022), other stems, axial attention, FlexiViT."""

from usvit.models.spec import ModelSpec, PaperFigures, Pretrained
from usvit.models.zoo.common import (
    AUGREG_1K,
    AUGREG_21K,
    AUGREG_FT,
    BEYER,
    DOSOVITSKIY,
    GHEFLATI,
    ORIGINAL_21K,
    ORIGINAL_FT,
    SOVIT,
    STEINER,
    THESIS,
    THREE,
    TIMM_SIZE,
    figures,
    hub,
    ours,
    scaling,
    shape,
)

_UPSTREAMS = {
    "in21k": ("224.augreg_in21k", AUGREG_21K),
    "in21k_ft_in1k": ("224.augreg_in21k_ft_in1k", AUGREG_FT),
    "in21k_ft_in1k_384": ("384.augreg_in21k_ft_in1k", AUGREG_FT),
    "in1k": ("224.augreg_in1k", AUGREG_1K),
    "in1k_384": ("384.augreg_in1k", AUGREG_1K),
    "orig_in21k": ("224.orig_in21k", ORIGINAL_21K),
    "orig_in21k_ft_in1k": ("224.orig_in21k_ft_in1k", ORIGINAL_FT),
    "orig_in21k_ft_in1k_384": ("384.orig_in21k_ft_in1k", ORIGINAL_FT),
    "dino": ("224.dino", "Caron et al. 2021 (DINO), ImageNet-1k without labels"),
    "mae": ("224.mae", "He et al. 2022 (MAE), ImageNet-1k without labels"),
    "sam_in1k": ("224.sam_in1k", "Chen et al. 2022 (sharpness-aware minimisation), ImageNet-1k"),
}
"""Upstream -> the end of timm's name, and the authors of the weights."""

_AUGREG = "in21k in21k_ft_in1k in21k_ft_in1k_384"
_HIDDEN = "Steiner et al. count a hidden layer before the head (width^2 + width), which their 21k models do not have."
_ONE_DIGIT = "Computed from '9T GFLOPs' (one digit), two FLOPs per MAC."


def _vit(size: str, patch: int, source: str, upstreams: str, *paper: PaperFigures) -> ModelSpec:
    stem = f"vit_{TIMM_SIZE[size]}_patch{patch}_"
    weights = {key: Pretrained(stem + _UPSTREAMS[key][0], _UPSTREAMS[key][1]) for key in upstreams.split()}
    whole = shape(size, patch=patch)
    return ModelSpec(f"vit_{size}{patch}", "vit", f"{stem}224", source, weights=weights, shape=whole, paper=paper)


def _flexible(size: str, **upstreams: tuple[str, str]) -> ModelSpec:
    name = f"flexivit_{TIMM_SIZE[size]}"
    weights = hub(**{key: (f"{name}.{tag}", f"Beyer et al. 2023, {on}") for key, (tag, on) in upstreams.items()})
    whole = shape(size, class_position=False)
    return ModelSpec(f"flexivit_{size}", "vit", name, BEYER, weights=weights, shape=whole, image_size=240)


_FLEXIBLE_1K = {
    "in1k": ("1200ep_in1k", "ImageNet-1k, 1200 epochs"),
    "in1k_600ep": ("600ep_in1k", "ImageNet-1k, 600 epochs"),
    "in1k_300ep": ("300ep_in1k", "ImageNet-1k, 300 epochs"),
}
_FLEXIBLE_21K = {
    "in21k": ("1000ep_in21k", "ImageNet-21k, 1000 epochs"),
    "in21k_300ep": ("300ep_in21k", "ImageNet-21k, 300 epochs"),
}

_AXIAL = {"attention": "axial", "pool": "avg"}  # a class token belongs to no row and no column

MODELS = (
    # It has no weights; it exists so that its parts (model.vit.*) can be set.
    ModelSpec("vit", "vit", "vit_base_patch16_224", DOSOVITSKIY, shape=shape("b")),
    _vit(
        "ti", 16, f"{STEINER}, {GHEFLATI}", _AUGREG,
        figures("Steiner, Table 1", 5.8, note=_HIDDEN),
        figures("Three things, Table 1", 5.7, 1.3, three_things_table1=3796),
        figures("Steiner, Table 3", v100_best_batch=3097),
        figures("Steiner, Table 3", size=384, v100_best_batch=610),
    ),
    _vit(
        "s", 8, THESIS, "dino",
        figures("Thesis, Table 4.2", 22, 22.4),
    ),
    _vit(
        "s", 16, STEINER, f"{_AUGREG} in1k in1k_384 dino",
        figures("Steiner, Table 1", 22.2, note=_HIDDEN),
        figures("Three things, Table 1", 22.1, 4.6, three_things_table1=1827),
        figures("Thesis, Table 4.2", 22, 4.6),
        figures("Steiner, Table 3", v100_best_batch=1508),
        figures("Steiner, Table 3", size=384, v100_best_batch=300),
    ),
    _vit(
        "s", 32, f"{STEINER}, {GHEFLATI}", _AUGREG,
        figures("Steiner, Table 3", v100_best_batch=8342),
        figures("Steiner, Table 3", size=384, v100_best_batch=2154),
    ),
    _vit(
        "b", 16, f"{DOSOVITSKIY}, {STEINER}",
        f"{_AUGREG} in1k in1k_384 orig_in21k orig_in21k_ft_in1k orig_in21k_ft_in1k_384 dino mae sam_in1k",
        figures("Dosovitskiy, Table 1", 86),
        scaling(224),
        figures("Steiner, Table 1", 86),
        figures("Steiner, Table 3", v100_best_batch=659),
        figures("Steiner, Table 3", size=384, v100_best_batch=138),
        figures("Three things, Table 1", 86.6, 17.6, three_things_table1=799),
        figures("Three things, Table 7", macs=17.58),
        figures("Thesis, Table 3.17", 86, 55.4, 384, v100_16gb_best=85.9),
        figures("Thesis, Table 4.2", 87, 17.5),
        figures("Thesis, Table 6.8", 86.6, 17.6, v100_32gb_batch256_amp=831),
        figures("Thesis, Table 6.8", 86.7, 55.5, 384, v100_32gb_batch256_amp=190),
    ),
    _vit(
        "b", 32, f"{DOSOVITSKIY}, {STEINER}, {GHEFLATI}", f"{_AUGREG} in1k in1k_384 orig_in21k sam_in1k",
        scaling(55, note="From 55 exaFLOPs; our count gives 56. The other ViTs agree to the last digit."),
        figures("Steiner, Table 3", v100_best_batch=3597),
        figures("Steiner, Table 3", size=384, v100_best_batch=955),
        figures("Thesis, Table 3.7", size=384, v100_16gb_best=394.5),
    ),
    _vit(
        "l", 16, f"{DOSOVITSKIY}, {STEINER}", f"{_AUGREG} orig_in21k mae",
        figures("Dosovitskiy, Table 1", 307),
        scaling(783),
        scaling(1567, epochs=14),
        figures("Steiner, Table 1", 307),
        figures("Steiner, Table 3", v100_best_batch=228),
        figures("Steiner, Table 3", size=384, v100_best_batch=50),
        figures("Three things, Table 1", 304.4, 61.6, three_things_table1=277),
        figures("Thesis, Table 3.17", 307, 190.7, 384, v100_16gb_best=27.3),
        figures("Thesis, Table 6.8", 304.4, 61.6, v100_32gb_batch256_amp=277),
        figures("Thesis, Table 6.8", 304.8, 191.1, 384, v100_32gb_batch256_amp=67),
    ),
    _vit(
        "l", 32, DOSOVITSKIY, "orig_in21k orig_in21k_ft_in1k_384",
        scaling(196),
        figures("Thesis, Table 3.7", size=384, v100_16gb_best=124.1),
    ),
    _vit(
        "h", 14, DOSOVITSKIY, "orig_in21k mae",
        figures("Dosovitskiy, Table 1", 632),
        scaling(4262, epochs=14),
    ),
    _vit(
        "g", 14, SOVIT, "",
        figures("Alabdulmohsin, section 5", macs=281, note=_ONE_DIGIT),
    ),
    ours("vit_b16_hmlp", "vit", THREE, shape("b", stem="hmlp_bn"), figures("Three things, Table 7", macs=17.73)),
    ours("vit_b16_hmlp_ln", "vit", THREE, shape("b", stem="hmlp_ln"), figures("Three things, Table 7", macs=17.73)),
    ours("vit_b16_conv", "vit", THREE, shape("b", stem="conv_bn"), figures("Three things, Table 7", macs=19.07)),
    ours("vit_b16_conv_ln", "vit", THREE, shape("b", stem="conv_ln"), figures("Three things, Table 7", macs=19.07)),
    ours("vit_b16_axial", "vit", DOSOVITSKIY, shape("b", **_AXIAL)),
    ours("vit_b32_axial", "vit", DOSOVITSKIY, shape("b", patch=32, **_AXIAL)),
    _flexible("s", **_FLEXIBLE_1K),
    _flexible("b", **_FLEXIBLE_21K, **_FLEXIBLE_1K),
    _flexible("l", **_FLEXIBLE_1K),
)  # fmt: skip
