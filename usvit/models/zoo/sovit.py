"""Shape-optimised ViTs (Alabdulmohsin et al. 2023, section 4): patches of 14, 16 heads, attention pooling (MAP)."""

from collections.abc import Mapping

from usvit.config import ViTShape
from usvit.models.spec import ModelSpec, PaperFigures, Pretrained
from usvit.models.zoo.common import SOVIT, figures, hub

_TIMM = "vit_so400m_patch14_siglip_224"
# The paper's own weights, pre-trained on JFT-3B, were not released.
_WEIGHTS = hub(
    webli=(f"{_TIMM}.webli", "Zhai et al. 2023 (SigLIP), images with texts of WebLI"),
    webli_v2=(f"{_TIMM}.v2_webli", "Tschannen et al. 2025 (SigLIP 2), images with texts of WebLI"),
)


def _sovit(
    name: str, width: int, depth: int, mlp: int, weights: Mapping[str, Pretrained], *paper: PaperFigures
) -> ModelSpec:
    whole = ViTShape(width, depth, mlp, heads=16, patch=14, pool="map", class_position=False)
    options = {"embed_dim": width, "depth": depth, "mlp_ratio": mlp / width}
    return ModelSpec(name, "sovit", _TIMM, SOVIT, options, weights, whole, paper=paper)


MODELS = (
    _sovit(
        "sovit_150m_14", 880, 18, 2320, {},
        figures("Alabdulmohsin, section 4.1", 150, note="The name's '150m' is a round figure."),
    ),
    _sovit(
        "sovit_400m_14", 1152, 27, 4304,
        _WEIGHTS,
        figures("Alabdulmohsin, section 4.1", 400, note="The name's '400m' is a round figure."),
        figures(
            "Alabdulmohsin, section 5", macs=112,
            note="Computed from '9T GFLOPs' (one digit) for 40 billion images, two FLOPs per MAC.",
        ),
    ),
)  # fmt: skip
