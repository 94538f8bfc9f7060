"""ResMLP (Touvron 2022, thesis, chapter 4); patches have 16 pixels unless the name ends with another size."""

import re

from usvit.models.spec import ModelSpec, PaperFigures, Pretrained
from usvit.models.zoo.common import THESIS, figures, layer_scale

PATTERN = re.compile(r"resmlp_(s|b)([1-9]\d?)(?:_(8|14|16|32))?")
"""``resmlp_<size><depth>[_<patch>]``."""

_WIDTHS = {"s": 384, "b": 768}

# timm has these networks, but no option to change their depth, patch size or LayerScale.
_IN_TIMM = {
    ("s", 12, 16): "resmlp_12_224",
    ("s", 24, 16): "resmlp_24_224",
    ("s", 36, 16): "resmlp_36_224",
    ("b", 24, 8): "resmlp_big_24_224",
}

_OTHER_START = ("resmlp_12_224", "resmlp_big_24_224")
"""timm starts LayerScale of these at 1e-4 and 1e-6, not by depth as the thesis does (section 4.3.1: "as a function of
the depth by following CaiT"), so ours are built, which have the same tensors."""

_TAGS = {
    "in1k_distilled": ("fb_distilled_in1k", "Touvron 2022 (ResMLP), ImageNet-1k, distilled from RegNetY-16GF"),
    "in1k": ("fb_in1k", "Touvron 2022 (ResMLP), ImageNet-1k"),
    "in21k_ft_in1k": ("fb_in22k_ft_in1k", "Touvron 2022 (ResMLP), ImageNet-21k, then ImageNet-1k"),
    "dino": ("fb_dino", "Touvron 2022 (ResMLP), DINO on ImageNet-1k without labels"),
}


def resmlp(name: str, upstreams: str = "", *paper: PaperFigures) -> ModelSpec | None:
    """Return the network of a name such as ``resmlp_s24`` or ``resmlp_b24_8``; None if the name does not match."""
    match = PATTERN.fullmatch(name)
    if not match:
        return None
    size, depth, patch = match[1], int(match[2]), int(match[3] or 16)
    timm = _IN_TIMM.get((size, depth, patch))
    weights = {key: Pretrained(f"{timm}.{_TAGS[key][0]}", _TAGS[key][1]) for key in upstreams.split()}
    if timm is not None and timm not in _OTHER_START:
        return ModelSpec(name, "resmlp", timm, THESIS, weights=weights, paper=paper)
    options = {"width": _WIDTHS[size], "depth": depth, "patch": patch, "layer_scale": layer_scale(depth)}
    return ModelSpec(name, "resmlp", "usvit_resmlp", THESIS, options, weights, paper=paper)


def _row(name: str, upstreams: str = "", *paper: PaperFigures) -> ModelSpec:
    spec = resmlp(name, upstreams, *paper)
    assert spec is not None
    return spec


MODELS = (
    _row(
        "resmlp_s12",
        "in1k_distilled in1k dino",
        figures("Thesis, Table 4.1", 15, 3.0, v100_32gb_batch32=1415.1),
        figures("Thesis, Table 4.3", 15.4, 3.0),
    ),
    _row(
        "resmlp_s24",
        "in1k_distilled in1k dino",
        figures("Thesis, Table 4.1", 30, 6.0, v100_32gb_batch32=715.4),
        figures("Thesis, Table 4.3", 30.0, 6.0),
        figures("Thesis, Table 5.1", 30.0, 6.0, v100_32gb_batch256_amp=1681),
    ),
    _row("resmlp_s36", "in1k_distilled in1k"),
    _row(
        "resmlp_b24",
        "",
        figures("Thesis, Table 4.1", 116, 23.0, v100_32gb_batch32=231.3),
        figures("Thesis, Table 4.3", 115.7, 23.0),
        figures("Thesis, Table 5.1", 116.0, 23.0, v100_32gb_batch256_amp=1120),
    ),
    _row("resmlp_s12_14", "", figures("Thesis, Table 4.3", 15.6, 4.0)),
    _row("resmlp_s12_8", "", figures("Thesis, Table 4.3", 22.1, 14.0)),
    _row("resmlp_s24_8"),
    _row("resmlp_s36_8"),
    _row("resmlp_b24_8", "in21k_ft_in1k in1k_distilled in1k", figures("Thesis, Table 4.3", 129.1, 100.2)),
)
