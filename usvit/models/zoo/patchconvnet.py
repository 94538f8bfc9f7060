"""PatchConvNet: a column of convolutions, then attention pooling (Touvron 2022, thesis, chapter 5)."""

import re

from usvit.models.spec import ModelSpec, PaperFigures
from usvit.models.zoo.common import THESIS, figures

PATTERN = re.compile(r"patchconvnet_(s|b|l)([1-9]\d{0,2})(?:(_multi)|(_avg)|_heads([1-9]\d{0,2}))?(_linear)?(_bn)?")
"""``patchconvnet_<size><depth>[_multi|_avg|_heads<n>][_linear][_bn]``."""

_WIDTHS = {"s": 384, "b": 768, "l": 1024}


def patchconvnet(name: str, *paper: PaperFigures) -> ModelSpec | None:
    """Return the network of a name such as ``patchconvnet_s60``; None if the name does not match the pattern.

    ``_multi`` means one query, and so one map, per class (section 5.2.2). Table 5.7 compares ``_avg``, average pooling;
    ``_heads8``, a pooling of 8 heads; ``_linear``, one projection of each patch in place of the convolutional stem; and
    ``_bn``, batch instead of layer normalisation (Table 5.8).
    """
    match = PATTERN.fullmatch(name)
    if not match:
        return None
    depth = int(match[2])
    options = {
        "width": _WIDTHS[match[1]],
        "depth": depth,
        # Public code: S60 1e-4, S120, B and L 1e-6; smaller networks are not in it, and follow S60.
        "layer_scale": 1e-4 if match[1] == "s" and depth <= 60 else 1e-6,
        "queries": "class" if match[3] else "one",
        "norm": "bn" if match[7] else "ln",
    }
    if match[4]:
        options["pool"] = "avg"
    if match[5]:
        options["pool_heads"] = int(match[5])
    if match[6]:
        options["stem"] = "linear"
    return ModelSpec(name, "patchconvnet", "usvit_patchconvnet", THESIS, options, paper=paper)


def _row(name: str, *paper: PaperFigures) -> ModelSpec:
    spec = patchconvnet(name, *paper)
    assert spec is not None
    return spec


def _finer(*rows: tuple[int, float, float]) -> tuple[PaperFigures, ...]:
    """Return the numbers of Table 5.2 from rows of image size, MACs and images per second."""
    return tuple(
        figures("Thesis, Table 5.2", macs=macs, size=size, v100_32gb_batch256_amp=speed) for size, macs, speed in rows
    )


MODELS = (
    _row("patchconvnet_s20"),
    _row("patchconvnet_s36"),
    _row(
        "patchconvnet_s60",
        figures("Thesis, Table 5.1", 25.2, 4.0, v100_32gb_batch256_amp=1125),
        *_finer((224, 4.0, 1129), (288, 6.6, 692), (384, 11.8, 388), (512, 20.9, 216)),
    ),
    _row("patchconvnet_s120", figures("Thesis, Table 5.1", 47.7, 7.5, v100_32gb_batch256_amp=580)),
    _row("patchconvnet_b36"),
    _row(
        "patchconvnet_b60",
        figures("Thesis, Table 5.1", 99.4, 15.8, v100_32gb_batch256_amp=541),
        *_finer((224, 15.8, 547), (288, 26.1, 328), (384, 46.5, 185)),
    ),
    _row(
        "patchconvnet_b120",
        figures("Thesis, Table 5.1", 188.6, 29.9, v100_32gb_batch256_amp=280),
        *_finer((224, 29.8, 280), (288, 49.3, 169), (384, 87.7, 96)),
    ),
    _row("patchconvnet_l60", *_finer((224, 28.1, 394), (288, 46.4, 237), (384, 82.5, 132))),
    _row("patchconvnet_l120", *_finer((224, 53.0, 204), (288, 87.5, 123), (384, 155.5, 68))),
    _row("patchconvnet_s60_multi"),
    _row("patchconvnet_s120_multi"),
    _row("patchconvnet_b60_multi"),
    _row("patchconvnet_b120_multi"),
    _row("patchconvnet_l60_multi"),
    _row("patchconvnet_l120_multi"),
    _row("patchconvnet_s60_bn"),
    _row("patchconvnet_s60_avg"),
    _row("patchconvnet_s60_heads8"),  # Table 5.7, "as used in CaiT", whose heads have 48 channels
    _row("patchconvnet_s60_linear"),
)
