"""DeiT III: plain ViTs with LayerScale (Touvron 2022, thesis, chapter 6); weights from timm."""

from usvit.models.spec import ModelSpec, PaperFigures
from usvit.models.zoo.common import THESIS, TIMM_SIZE, figures, hub, shape

_LAYER_SCALE = 1e-4
"""Initial value of LayerScale for all sizes (thesis, section 6.2); timm's default is 1e-6."""

_BY = "Touvron 2022 (DeiT III), ImageNet-1k"
_BY_21K = "Touvron 2022 (DeiT III), ImageNet-21k, then ImageNet-1k"


def _deit3(size: str, *paper: PaperFigures) -> ModelSpec:
    whole = shape(size, layer_scale=_LAYER_SCALE, class_position=False)
    timm = f"deit3_{TIMM_SIZE[size]}_patch{whole.patch}"
    finer = {} if size in "mh" else {
        "in21k_ft_in1k_384": (f"{timm}_384.fb_in22k_ft_in1k", _BY_21K),
        "in1k_384": (f"{timm}_384.fb_in1k", _BY),
    }  # fmt: skip
    weights = hub(in21k_ft_in1k=(f"{timm}_224.fb_in22k_ft_in1k", _BY_21K), in1k=(f"{timm}_224.fb_in1k", _BY), **finer)
    options: dict[str, object] = {"init_values": _LAYER_SCALE}
    return ModelSpec(f"deit3_{size}{whole.patch}", "deit3", f"{timm}_224", THESIS, options, weights, whole, paper=paper)


MODELS = (
    # timm has no DeiT III Ti, so its S is built with a smaller width.
    ModelSpec(
        "deit3_ti16",
        "deit3",
        "deit3_small_patch16_224",
        THESIS,
        {"init_values": _LAYER_SCALE, "embed_dim": 192, "num_heads": 3},
        shape=shape("ti", layer_scale=_LAYER_SCALE, class_position=False),
        paper=(figures("Thesis, Table 6.14", 5.7, 1.3),),
    ),
    _deit3(
        "s",
        figures("Thesis, Table 6.7", 22.0, 4.6, v100_32gb_batch256_amp=1891),
        figures("Thesis, Table 6.7", 22.0, 15.5, 384, "At 384 pixels the table repeats the count of 224.",
                v100_32gb_batch256_amp=424),
    ),
    _deit3("m"),
    _deit3(
        "b",
        figures("Thesis, Table 6.7", 86.6, 17.5, v100_32gb_batch256_amp=831),
        figures("Thesis, Table 6.7", 86.9, 55.5, 384, v100_32gb_batch256_amp=190),
    ),
    _deit3(
        "l",
        figures("Thesis, Table 6.7", 304.4, 61.6, v100_32gb_batch256_amp=277),
        figures("Thesis, Table 6.7", 304.8, 191.2, 384, v100_32gb_batch256_amp=67),
    ),
    _deit3("h", figures("Thesis, Table 6.7", 632.1, 167.4, v100_32gb_batch256_amp=112)),
)  # fmt: skip
