"""ResMLP with other parts (Touvron 2022, thesis, chapter 4, Table 4.3); none of these networks was released."""

import re

from usvit.models.spec import ModelSpec, PaperFigures
from usvit.models.zoo.common import THESIS, figures, layer_scale

_MIXINGS = ("none", "mlp", "conv", "dwconv", "sepconv")
"""Communication across patches in place of the linear map."""

PATTERN = re.compile(
    rf"resmlp_(s|b)([1-9]\d?)(?:_(8|14|16|32))?(?:_({'|'.join(_MIXINGS)}))?(_ln)?(_class_mlp)?",
)
"""``resmlp_<size><depth>[_<patch>][_<mixing>][_ln][_class_mlp]``."""

_WIDTHS = {"s": 384, "b": 768}


def resmlp_ablation(name: str, *paper: PaperFigures) -> ModelSpec | None:
    """Return the network of a name such as ``resmlp_s12_conv``; None if the name does not match or names no part."""
    match = PATTERN.fullmatch(name)
    if not match or not any(match.groups()[3:]):
        return None
    options = {
        "width": _WIDTHS[match[1]],
        "depth": int(match[2]),
        "patch": int(match[3] or 16),
        "layer_scale": layer_scale(int(match[2])),
        "mixing": match[4] or "linear",
        "norm": "ln" if match[5] else "aff",
        "pool": "class_mlp" if match[6] else "avg",
    }
    return ModelSpec(name, "resmlp", "usvit_resmlp", THESIS, options, paper=paper)


def _row(name: str, params: float, macs: float, note: str = "") -> ModelSpec:
    spec = resmlp_ablation(name, figures("Thesis, Table 4.3", params, macs, note=note))
    assert spec is not None
    return spec


_ROUNDED = "Rounded: activations and affine layers, which are not counted here, bring 4.2498 above 4.25."

MODELS = (
    _row("resmlp_s12_ln", 15.4, 3.0),
    _row("resmlp_s12_class_mlp", 17.7, 3.0),
    _row("resmlp_s12_none", 14.9, 2.8),
    _row("resmlp_s12_mlp", 18.6, 4.3, _ROUNDED),
    _row("resmlp_s12_conv", 30.8, 6.0),
    _row("resmlp_s12_dwconv", 14.9, 2.8),
    _row("resmlp_s12_sepconv", 16.7, 3.2),
)
