"""Parallel ViTs: ``branches`` attention and MLP blocks side by side in a layer (Three things, section 3)."""

import re

from usvit.models.spec import ModelSpec, PaperFigures
from usvit.models.zoo.common import THESIS, THREE, figures, ours, shape

PATTERN = re.compile(r"vit_(ti|s|m|b|l|h)([1-9]\d{0,2})x([1-9]\d?)")
"""Pattern ``vit_<size><depth>x<branches>`` (Three things, section 3.3, "Notation")."""


def parallel(name: str, *paper: PaperFigures) -> ModelSpec | None:
    """Return the network of a name such as ``vit_s18x2``; None if the name does not match the pattern.

    Networks with one or two branches are timm's; those with more are ours. Patches have 16 pixels, for H 14
    (``model.vit.patch`` changes them). None has LayerScale, as in the paper's 300 epochs (section 2.2, Table 2, rows
    "x"); ``model.vit.layer_scale`` adds it, as the recipe ``three_things_ls`` does.
    """
    match = PATTERN.fullmatch(name)
    if not match:
        return None
    size, depth, branches = match[1], int(match[2]), int(match[3])
    source = f"{THREE}, {THESIS}" if size == "h" else THREE
    whole = shape(size, depth=depth, branches=branches)
    if branches > 2:
        return ours(name, "parallel", source, whole, *paper)
    options = {
        "patch_size": whole.patch,
        "embed_dim": whole.width,
        "depth": depth,
        "num_heads": whole.heads,
        "init_values": 0.0,  # no LayerScale; timm's default is 1e-5, and ``create_model`` drops None
    }
    timm = "vit_small_patch16_18x2_224" if branches == 2 else "vit_small_patch16_36x1_224"
    return ModelSpec(name, "parallel", timm, source, options, shape=whole, paper=paper)


def _latency(sequential: str, at_once: str) -> PaperFigures:
    """Return the images per second of Three things, Table 4, at batch sizes 1, 2, 4, ... 64."""
    both = {"seq": sequential.split(), "par": at_once.split()}
    speed = {f"v100_batch{2**i}_{how}": float(value) for how, row in both.items() for i, value in enumerate(row)}
    return PaperFigures("Three things, Table 4", images_per_second=speed)


def _row(name: str, *paper: PaperFigures) -> ModelSpec:
    spec = parallel(name, *paper)
    assert spec is not None
    return spec


_ROUND = "The text says 'billion-parameter', which is a round figure."

MODELS = (
    _row("vit_s36x1"),
    _row(
        "vit_s18x2",
        _latency("44 84 168 334 569 616 647", "61 123 245 474 518 556 575"),
    ),
    _row("vit_s12x3"),
    _row("vit_s9x4"),
    _row("vit_s48x1", figures("Three things, Table 3", 85.9, 18.3)),
    _row("vit_s24x2", figures("Three things, Table 3", 85.9, 18.3)),
    _row("vit_s60x1"),
    _row("vit_s30x2"),
    _row("vit_s20x3"),
    _row("vit_b13x1", figures("Three things, Table 7", macs=19.04)),
    _row("vit_b24x1"),
    _row("vit_b12x2"),
    _row("vit_b36x1", figures("Three things, Table 3", 256.7, 52.5)),
    _row(
        "vit_b18x2",
        figures("Three things, Table 3", 256.7, 52.5),
        _latency("42 80 155 230 266 276 286", "61 117 187 211 231 245 248"),
    ),
    _row("vit_l24x1", figures("Three things, Table 3", 304.4, 61.6)),
    _row("vit_l12x2"),
    _row("vit_h52x1", figures("Thesis, section 6.5", 1000, note=_ROUND)),
    _row("vit_h26x2", figures("Thesis, section 6.3.2.3", 1000, note=_ROUND)),
)
