"""Archives with random numbers, named and shaped as the JAX repositories write them."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[np.float32]]
WIDTH, HEADS, DEPTH, MLP = 24, 2, 2, 48
"""Of ``SMALL_VIT``."""


def arrays_of(shapes: dict[str, tuple[int, ...]]) -> Arrays:
    random = np.random.default_rng(3)
    return {key: random.normal(size=shape).astype(np.float32) for key, shape in shapes.items()}


def _attention(prefix: str) -> dict[str, tuple[int, ...]]:
    per_head = WIDTH // HEADS
    shapes: dict[str, tuple[int, ...]] = {}
    for name in ("query", "key", "value"):
        shapes |= {f"{prefix}{name}/kernel": (WIDTH, HEADS, per_head), f"{prefix}{name}/bias": (HEADS, per_head)}
    return shapes | {f"{prefix}out/kernel": (HEADS, per_head, WIDTH), f"{prefix}out/bias": (WIDTH,)}


def _mlp(prefix: str, hidden: int = MLP) -> dict[str, tuple[int, ...]]:
    return {
        f"{prefix}Dense_0/kernel": (WIDTH, hidden),
        f"{prefix}Dense_0/bias": (hidden,),
        f"{prefix}Dense_1/kernel": (hidden, WIDTH),
        f"{prefix}Dense_1/bias": (WIDTH,),
    }


def _norm(prefix: str) -> dict[str, tuple[int, ...]]:
    return {f"{prefix}scale": (WIDTH,), f"{prefix}bias": (WIDTH,)}


def _layer(attention: str, norm: str, mlp: str) -> dict[str, tuple[int, ...]]:
    return {**_norm("LayerNorm_0/"), **_attention(f"{attention}/"), **_norm(f"{norm}/"), **_mlp(f"{mlp}/")}


def augreg(grid: int = 2, patch: int = 16, n_classes: int = 5, in_width: int = 3) -> Arrays:
    """google-research/vision_transformer: what AugReg released; a class token."""
    layer = _layer("MultiHeadDotProductAttention_1", "LayerNorm_2", "MlpBlock_3")
    return arrays_of(
        {
            "embedding/kernel": (patch, patch, in_width, WIDTH),
            "embedding/bias": (WIDTH,),
            "cls": (1, 1, WIDTH),
            "Transformer/posembed_input/pos_embedding": (1, grid * grid + 1, WIDTH),
            **{f"Transformer/encoderblock_{i}/{key}": shape for i in range(DEPTH) for key, shape in layer.items()},
            **_norm("Transformer/encoder_norm/"),
            "pre_logits/kernel": (WIDTH, WIDTH),
            "pre_logits/bias": (WIDTH,),
            "head/kernel": (WIDTH, n_classes),
            "head/bias": (n_classes,),
        }
    )


def big_vision(
    root: str = "params/", map_head: bool = False, scanned: bool = False, token: bool = False, grid: int = 2
) -> Arrays:
    """google-research/big_vision: positions without a class token's (``token`` puts one before), perhaps a MAP head."""
    layer = _layer("MultiHeadDotProductAttention_0", "LayerNorm_1", "MlpBlock_0")
    if scanned:
        layers = {f"Transformer/encoderblock/{key}": (DEPTH, *shape) for key, shape in layer.items()}
    else:
        layers = {f"Transformer/encoderblock_{i}/{key}": shape for i in range(DEPTH) for key, shape in layer.items()}
    shapes: dict[str, tuple[int, ...]] = {
        "embedding/kernel": (16, 16, 3, WIDTH),
        "embedding/bias": (WIDTH,),
        "pos_embedding": (1, grid * grid, WIDTH),
        **layers,
        **_norm("Transformer/encoder_norm/"),
        "head/kernel": (WIDTH, 5),
        "head/bias": (5,),
    }
    if token:
        shapes["cls"] = (1, 1, WIDTH)
    if map_head:
        shapes["MAPHead_0/probe"] = (1, 1, WIDTH)
        shapes |= _attention("MAPHead_0/MultiHeadDotProductAttention_0/")
        shapes |= _norm("MAPHead_0/LayerNorm_0/") | _mlp("MAPHead_0/MlpBlock_0/")
    return arrays_of({f"{root}{key}": shape for key, shape in shapes.items()})


def _bottleneck(prefix: str, before: int, after: int, first: bool) -> dict[str, tuple[int, ...]]:
    inner = after // 4
    shapes: dict[str, tuple[int, ...]] = {
        f"{prefix}conv1/kernel": (1, 1, before, inner),
        f"{prefix}conv2/kernel": (3, 3, inner, inner),
        f"{prefix}conv3/kernel": (1, 1, inner, after),
    }
    for number, width in ((1, inner), (2, inner), (3, after)):
        shapes |= {f"{prefix}gn{number}/scale": (1, 1, 1, width), f"{prefix}gn{number}/bias": (1, 1, 1, width)}
    if first:
        shapes |= {f"{prefix}conv_proj/kernel": (1, 1, before, after)}
        shapes |= {f"{prefix}gn_proj/scale": (1, 1, 1, after), f"{prefix}gn_proj/bias": (1, 1, 1, after)}
    return shapes


def hybrid(layers: tuple[int, ...], grid: int, patch: int) -> Arrays:
    """AugReg's hybrids: a ResNet's stem, its blocks (none in R+Ti/16), and the ViT behind."""
    shapes: dict[str, tuple[int, ...]] = {
        "conv_root/kernel": (7, 7, 3, 64),
        "gn_root/scale": (1, 1, 1, 64),
        "gn_root/bias": (1, 1, 1, 64),
    }
    before = 64
    for stage, units in enumerate(layers):
        for unit in range(units):
            shapes |= _bottleneck(f"block{stage + 1}/unit{unit + 1}/", before, 256 * 2**stage, unit == 0)
            before = 256 * 2**stage
    return arrays_of(shapes) | augreg(grid, patch, in_width=before)


def bit(layers: tuple[int, ...] = (3, 4, 6, 3), n_classes: int = 5) -> Arrays:
    """google-research/big_transfer: a ResNet with group norms."""
    shapes: dict[str, tuple[int, ...]] = {"resnet/root_block/standardized_conv2d/kernel": (7, 7, 3, 64)}
    before = 64
    for stage, units in enumerate(layers):
        after = 256 * 2**stage
        for unit in range(units):
            prefix, inner = f"resnet/block{stage + 1}/unit{unit + 1:02d}/", after // 4
            for part, kernel, norm in (
                ("a", (1, 1, before, inner), before),
                ("b", (3, 3, inner, inner), inner),
                ("c", (1, 1, inner, after), inner),
            ):
                shapes[f"{prefix}{part}/standardized_conv2d/kernel"] = kernel
                shapes |= {f"{prefix}{part}/group_norm/{kind}": (norm,) for kind in ("gamma", "beta")}
            if unit == 0:
                shapes[f"{prefix}a/proj/standardized_conv2d/kernel"] = (1, 1, before, after)
            before = after
    shapes |= {f"resnet/group_norm/{kind}": (before,) for kind in ("gamma", "beta")}
    shapes |= {"resnet/head/conv2d/kernel": (1, 1, before, n_classes), "resnet/head/conv2d/bias": (n_classes,)}
    return arrays_of(shapes)


def write(path: Path, arrays: Arrays) -> Path:
    np.savez(path, **arrays)
    return path
