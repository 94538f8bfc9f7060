"""Our networks with the weights of the authors' public codes (``tests.oracles.authors``), head included."""

import dataclasses
import re
from typing import Any

import timm
import torch
from torch import nn

from tests.models.conftest import small
from tests.oracles import authors
from usvit.models.build import build_with_report
from usvit.models.heads import load_head
from usvit.models.spec import ModelSpec
from usvit.models.weights import Checkpoint, LoadReport, Weights
from usvit.models.zoo import find_model

N_CLASSES = 5
TIMM: dict[str, Any] = {"patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}
SHAPE: dict[str, Any] = {"patch": 8, "width": 32, "depth": 2, "mlp": 128, "heads": 2}
_PARALLEL = {"patch": 16, "stem": "hmlp_bn", "layer_scale": 0.1, "class_position": False}


def _zoo(name: str, **options: Any) -> ModelSpec:
    return dataclasses.replace(find_model(name), options=options)


NETWORKS: dict[str, ModelSpec] = {
    "deit_distilled": _zoo("deit_ti_distilled", **TIMM),
    "deit3": _zoo("deit3_ti16", **TIMM, init_values=0.1),
    "parallel_hmlp": find_model("vit_ti12x2", SHAPE | _PARALLEL),
    "cait": _zoo("cait_xxs24", **TIMM),
    "resmlp": _zoo("resmlp_s12", width=32, depth=2, patch=8),
    "mae_finetune_token": find_model("vit_ti16", SHAPE),
    "mae_finetune_mean": small("vit_tiny_patch16_224", **TIMM, global_pool="avg"),
}
"""Network of the authors with a classifier -> ours, whose files usvit reads."""
VIT = find_model("vit_ti16", SHAPE)
"""Our network of ``dino_vit`` and of MAE's encoder, which have no classifier."""


def load(name: str, spec: ModelSpec, checkpoint: Checkpoint | None = None) -> tuple[nn.Module, LoadReport]:
    """Build our network for images of 32 pixels with the weights of an authors' network, as runs and teachers do."""
    weights = Weights("file", name=name, content=checkpoint or authors.checkpoint_of(name))
    model, report = build_with_report(spec, weights, n_classes=N_CLASSES, image_size=32)
    if any(key.startswith("head") for key in weights.read().tensors):
        load_head(model, weights, N_CLASSES, name, "")
    return model.double().eval(), report


_PATCHCONVNET = (
    (r"^cls_token", "attn_pool.queries"),
    (r"^patch_embed\.proj\.(\d)\.0", r"patch_embed.\1"),
    (r"^(blocks\.\d)\.norm1", r"\1.norm"),
    (r"^(blocks\.\d)\.gamma_1", r"\1.ls.gamma"),
    (r"attn\.qkv_pos\.0", "conv1"),
    (r"attn\.qkv_pos\.2", "conv2"),
    (r"attn\.qkv_pos\.4\.conv_reduce", "se.fc1"),
    (r"attn\.qkv_pos\.4\.conv_expand", "se.fc2"),
    (r"attn\.qkv_pos\.5", "conv3"),
    (r"^blocks_token_only\.0\.(attn\.)?", "attn_pool."),
    (r"gamma_(\d)", r"ls\1.gamma"),
)


def patchconvnet_name(key: str) -> str:
    """Return our name of a tensor of the authors' PatchConvNet, whose files usvit does not read."""
    for pattern, ours in _PATCHCONVNET:
        key = re.sub(pattern, ours, key)
    return key


def patchconvnet(name: str) -> Any:
    """Build our PatchConvNet with the weights of ``patchconvnet`` or ``patchconvnet_multi``."""
    state = {patchconvnet_name(key): value for key, value in authors.state_of(name).items()}
    several = name.endswith("_multi")
    if several:  # a layer for each class there, a row for each class here
        for kind in ("weight", "bias"):
            state[f"head.{kind}"] = torch.cat([state.pop(f"head.{index}.{kind}") for index in range(N_CLASSES)])
    queries = "class" if several else "one"
    model = timm.create_model("usvit_patchconvnet", width=32, depth=2, queries=queries, num_classes=N_CLASSES)
    model.load_state_dict(state)
    return model.double().eval()
