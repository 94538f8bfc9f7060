"""Small networks of every kind that ``usvit.models.architectures`` makes."""

from typing import Any

import timm
import torch
from timm.models.resnet import BasicBlock
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

import usvit.models.architectures  # noqa: F401  (registers them)

TINY = {"width": 32, "depth": 2, "mlp": 48, "heads": 4, "patch": 16}

RESNET10 = {"layers": (1, 1, 1, 1), "block": BasicBlock}

CAIT = {"attention": "talking", "class_layers": 2, "class_position": False, "layer_scale": 1e-2}

RESMLP = {"width": 32, "depth": 2, "patch": 16}

SMALL: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("usvit_vit", {}),
    "vit-avg": ("usvit_vit", {"pool": "avg"}),
    "vit-map": ("usvit_vit", {"pool": "map"}),
    "vit-hidden": ("usvit_vit", {"head": "hidden"}),
    "vit-layerscale": ("usvit_vit", {"layer_scale": 1e-2, "class_position": False}),
    "vit-none": ("usvit_vit", {"position": "none"}),
    "vit-learned-layers": ("usvit_vit", {"position_at": "layers"}),
    "vit-learned-shared": ("usvit_vit", {"position_at": "shared"}),
    "vit-learned_2d": ("usvit_vit", {"position": "learned_2d"}),
    "vit-learned_2d-layers": ("usvit_vit", {"position": "learned_2d", "position_at": "layers"}),
    "vit-sincos_2d": ("usvit_vit", {"position": "sincos_2d"}),
    "vit-sincos_2d-shared": ("usvit_vit", {"position": "sincos_2d", "position_at": "shared"}),
    "vit-relative": ("usvit_vit", {"position": "relative"}),
    "vit-hmlp_bn": ("usvit_vit", {"stem": "hmlp_bn"}),
    "vit-hmlp_ln": ("usvit_vit", {"stem": "hmlp_ln"}),
    "vit-conv_bn": ("usvit_vit", {"stem": "conv_bn"}),
    "vit-conv_ln": ("usvit_vit", {"stem": "conv_ln"}),
    "vit-linear_bn": ("usvit_vit", {"stem": "linear_bn"}),
    "vit-linear_bn_gelu": ("usvit_vit", {"stem": "linear_bn_gelu"}),
    "vit-local": ("usvit_vit", {"stem": "local"}),
    "vit-rezero": ("usvit_vit", {"residual": "scalar", "layer_scale": 0.0}),
    "vit-fixup": ("usvit_vit", {"residual": "fixup"}),
    "vit-axial": ("usvit_vit", {"attention": "axial", "pool": "avg"}),
    "vit-axial-parallel": ("usvit_vit", {"attention": "axial", "pool": "map", "branches": 2}),
    "vit-parallel": ("usvit_vit", {"branches": 3, "layer_scale": 0.1}),
    "vit-parallel-relative": ("usvit_vit", {"branches": 2, "position": "relative"}),
    "vit-talking": ("usvit_vit", {"attention": "talking"}),
    "vit-late": ("usvit_vit", {"class_at": 1}),
    "vit-late-parallel-relative": ("usvit_vit", {"class_at": 1, "branches": 2, "position": "relative"}),
    "vit-class": ("usvit_vit", {"class_layers": 2}),
    "vit-class-patches": ("usvit_vit", {**CAIT, "class_keys": "patches", "class_layer_scale": False}),
    "hybrid-16": ("usvit_hybrid", {"layers": (1, 1, 1), **TINY, "patch": 1}),
    "hybrid-32": ("usvit_hybrid", {"layers": (1, 1, 1, 1), **TINY, "patch": 1, "head": "hidden"}),
    "patchconvnet": ("usvit_patchconvnet", {"width": 32, "depth": 3}),
    "patchconvnet-bn": ("usvit_patchconvnet", {"width": 32, "depth": 3, "norm": "bn"}),
    "patchconvnet-avg": ("usvit_patchconvnet", {"width": 32, "depth": 3, "pool": "avg"}),
    "patchconvnet-class": ("usvit_patchconvnet", {"width": 32, "depth": 3, "queries": "class"}),
    "patchconvnet-linear": ("usvit_patchconvnet", {"width": 32, "depth": 3, "stem": "linear", "pool_heads": 4}),
    "axial_resnet": ("usvit_axial_resnet", {"factor": 0.125, "layers": (1, 1)}),
    "resmlp": ("usvit_resmlp", RESMLP),
    **{f"resmlp-{mixing}": ("usvit_resmlp", {**RESMLP, "mixing": mixing}) for mixing in ("none", "mlp", "sepconv")},
    "resmlp-ln-class_mlp": ("usvit_resmlp", {**RESMLP, "norm": "ln", "pool": "class_mlp"}),
    "resnet50_attn": ("usvit_resnet50_attn", RESNET10),
    "resnet50_attn-class": ("usvit_resnet50_attn", {**RESNET10, "queries": "class"}),
}
"""Name -> architecture and options, beside a small size."""

SIZE, CLASSES = 64, 5


def small(kind: str, seed: int = 0, **others: Any) -> nn.Module:
    """A network of ``SMALL`` for 64 x 64 pixels and 5 classes, in evaluation mode."""
    architecture, options = SMALL[kind]
    base = TINY if architecture == "usvit_vit" else {}
    torch.manual_seed(seed)
    return timm.create_model(
        architecture, **{"num_classes": CLASSES, "img_size": SIZE, **base, **options, **others}
    ).eval()


def tiny_vit(seed: int = 0, **options: Any) -> nn.Module:
    torch.manual_seed(seed)
    return timm.create_model("usvit_vit", **{"num_classes": CLASSES, "img_size": SIZE, **TINY, **options}).eval()


def images(n: int = 2, height: int = SIZE, width: int = SIZE) -> Tensor:
    return torch.randn(n, 3, height, width, generator=torch.Generator().manual_seed(11))


def scramble(model: nn.Module) -> nn.Module:
    """Random values in all parameters and statistics, so that nothing is hidden by a zero, a one or a tiny scale."""
    generator = torch.Generator().manual_seed(3)
    for name, tensor in model.state_dict().items():
        if tensor.is_floating_point():
            noise = torch.randn(tensor.shape, generator=generator) * 0.2
            tensor.copy_(noise.abs() + 0.5 if "running_var" in name else tensor + noise)
    return model


def cost(architecture: str, size: int = 224, **options: Any) -> tuple[float, float]:
    """Millions of parameters, billions of multiplications and additions for one image, as the papers count FLOPs."""
    with torch.device("meta"):
        model = timm.create_model(architecture, **options).eval()
        with FlopCounterMode(display=False) as counter, torch.no_grad():
            model(torch.empty(1, 3, size, size))
    return sum(parameter.numel() for parameter in model.parameters()) / 1e6, counter.get_total_flops() / 2e9
