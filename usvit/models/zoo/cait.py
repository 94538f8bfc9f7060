"""CaiT: LayerScale, talking heads and class attention (Touvron 2022, thesis, sections 3.5 to 3.7)."""

import re

from usvit.models.spec import ModelSpec, PaperFigures, Pretrained
from usvit.models.zoo.common import THESIS, figures, layer_scale

_OF_WIDTH = {
    "xxs": "cait_xxs24_224",
    "xs": "cait_xs24_384",
    "s": "cait_s24_224",
    "m": "cait_m36_384",
    "b": "cait_m36_384",
}
"""Size -> timm's network of that width (192, 288, 384, 768; heads of 48 channels), whose depth is exchanged."""

_BY = "Touvron 2022 (CaiT), ImageNet-1k, distilled from RegNetY-16GF"


def _cait(size: str, depth: int, released: tuple[int, ...], *paper: PaperFigures) -> ModelSpec:
    name = f"cait_{size}{depth}"
    weights = {
        "in1k" if side == 224 else f"in1k_{side}": Pretrained(f"{name}_{side}.fb_dist_in1k", _BY) for side in released
    }
    options: dict[str, object] = {"depth": depth, "init_values": layer_scale(depth)}
    return ModelSpec(name, "cait", _OF_WIDTH[size], THESIS, options, weights, paper=paper)


PATTERN = re.compile(r"(cait_(xxs|xs|s|m|b)(12|24|36|48))_distilled")
"""``cait_<size><depth>_distilled``."""

_WIDTHS = {"xxs": 192, "xs": 288, "s": 384, "m": 768, "b": 768}


def distilled(name: str, *paper: PaperFigures) -> ModelSpec | None:
    """Return the CaiT with a distillation token (Table 3.14) of a name such as ``cait_xxs24_distilled``, or None."""
    match = PATTERN.fullmatch(name)
    if not match:
        return None
    depth = int(match[3])
    options = {"width": _WIDTHS[match[2]], "depth": depth, "layer_scale": layer_scale(depth)}
    return ModelSpec(name, "cait", "usvit_cait_distilled", THESIS, options, paper=paper)


def _distilled(name: str) -> ModelSpec:
    spec = distilled(name)
    assert spec is not None
    return spec


_NARROW = "At 384 pixels the paper prints 1 % less for the narrowest networks than its own formula gives."


def _complexity(params: float, at_224: float, at_384: float, note: str = "") -> tuple[PaperFigures, PaperFigures]:
    """Return the numbers of a row of Table 3.15: one parameter count, and MACs at two image sizes."""
    finer = figures("Thesis, Table 3.15", macs=at_384, size=384, note=note)
    return figures("Thesis, Table 3.15", params, at_224), finer


MODELS = (
    _cait("xxs", 24, (224, 384), *_complexity(12.0, 2.5, 9.5, _NARROW)),
    _cait("xxs", 36, (224, 384), *_complexity(17.3, 3.8, 14.2)),
    _cait(
        "xs", 24, (384,),
        *_complexity(26.6, 5.4, 19.3),
        figures("Thesis, Table 4.1", 27, 5.4, v100_32gb_batch32=447.6),
    ),
    _cait("xs", 36, (), *_complexity(38.6, 8.1, 28.8)),
    _cait("s", 24, (224, 384), *_complexity(46.9, 9.4, 32.2)),
    _cait("s", 36, (384,), *_complexity(68.2, 13.9, 48.0)),
    _cait("s", 48, (), *_complexity(89.5, 18.6, 63.8)),
    _cait("m", 24, (), *_complexity(185.9, 36.0, 116.1)),
    _cait("m", 36, (384,), *_complexity(270.9, 53.7, 173.3), figures("Thesis, Table 3.17", 271, 247.8, 448)),
    _cait(
        "m", 48, (448,),
        figures("Thesis, Tables 3.17 and 4.1", 356, 329.6, 448, v100_32gb_batch32=5.4),
    ),
    _cait("b", 12, (), figures("Thesis, Table 6.13", 100.0, 18.2)),
    _distilled("cait_xxs24_distilled"),
    _distilled("cait_m24_distilled"),
)  # fmt: skip
