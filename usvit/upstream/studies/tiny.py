"""``--scale tiny``: the runs of a study with tiny networks on generated images, in seconds each.

It shows that a study works from its first step to its page. Its figures say nothing about a paper.
"""

import math
import re
from typing import Any

from pydantic import BaseModel

from usvit.config import RunConfig
from usvit.models import find_model, is_named
from usvit.plain_data import Settings
from usvit.upstream.bench import find_protocol
from usvit.upstream.config.test import TestConfig
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.studies.steps import placeholders

SMALLEST = {
    "deit": "deit_ti",
    "hybrid": "r_ti16",
    "cait": "cait_xxs24",
    "resmlp": "resmlp_s2",
    "patchconvnet": "patchconvnet_s2",
    "cnn": "timm:test_resnet",
}
"""Family -> a small network, for the families whose shape cannot be set."""
BY_KIND = {
    r"resnetv2_.*_bit|usvit_bit": "tiny_bit",
    r"usvit_axial_resnet": "tiny_axial_resnet",
    r"vgg.*": "tiny_vgg",
    r"inception_v3": "tiny_inception",
    r"nasnet.*": "tiny_nasnet",
    r"regnety.*": "tiny_regnety",
    r"resnext.*": "tiny_resnext",
    r"r\d+_[a-z]+16": "tiny_hybrid16",
    r"r\d+_[a-z]+32": "tiny_hybrid32",
    r"swin_.*": "tiny_swin",
    r"pit_.*": "tiny_pit",
    r"convit_.*": "tiny_convit",
    r"tnt_.*": "tiny_tnt",
}
"""Pattern of a network's name, or of timm's name for its architecture -> a small network of the same kind."""
_SHALLOW = re.compile(r"(resmlp_[sb]|patchconvnet_[sbl])\d+")
"""Beginning of the names whose depth is free, so that the rest of the name stays."""
SHAPE: Settings = {"width": 48, "depth": 2, "heads": 3, "mlp": 96}
"""Shape of a plain ViT; its patches, stem, pool and other parts stay."""
IMAGES: Settings = {
    "name": "fractals",
    "path": None,
    "val_source": None,
    "coarse": None,
    "size": 48,
    "classes": 4,
    "image_size": 64,
}
BATCH, STEPS = 12, 2
_LOCAL_CROPS = 2
MAX_CELLS = 2
"""Number of cells of a sweep that are trained."""
OPTIM: Settings = {"warmup_steps": 1, "warmup_epochs": None}
SEGMENT: Settings = {"width": 8, "table": None, "test": None}
TEXT: Settings = {"width": 16, "depth": 1, "heads": 2, "steps": STEPS, "pairs": None, "prompts": {}}
PRETRAIN: Settings = {
    "distill": {"weights": "scratch", "image_size": None},
    "mae": {"decoder_width": 32, "decoder_depth": 1, "decoder_heads": 2},
    "beit": {"min_block": 1},
    "tokenizer": {"vocabulary": 64, "width": 32, "code_width": 8, "depth": 1},
    "grafit": {"hidden": 64, "width": 32},
    "dino": {"outputs": 64, "hidden": 64, "bottleneck": 16},
}


def tiny_settings(kind: str, config: BaseModel, row_model: str | None, row: Settings) -> Settings:
    """Return the settings that make a run tiny, above those of the study and its rows.

    Args:
        kind: Kind of the run.
        config: Its complete configuration at the paper's scale.
        row_model: The network of the row, for a transfer that takes its network from another run.
        row: Settings of the row.
    """
    made: Any = config
    if kind == "bench":
        name, vit, side = tiny_network(made.name, made.model.vit, 224)
        return {
            "name": name,
            "model": {"vit": vit} if vit else {},
            "image_size": side,
            "batch": 2,
            "max_batch": None if find_protocol(made.protocol).search == "none" else 2,
            "repeats": 1,
            "seconds": 10.0,
            "device": "cpu",
        }
    if isinstance(config, TestConfig):
        sources = ["fractals:test"] if config.sources != ("data",) else ["data"]
        return {"sources": sources, "source": {key: IMAGES[key] for key in ("size", "classes", "image_size")}}
    model = _tiny_model(made, row_model, row)
    if isinstance(config, RunConfig):
        return {
            "model": model,
            "data": {"dataset": "phantom"},
            "split": {"folds": 2},
            "train": {"steps": STEPS, "batch_size": BATCH, "eval_every": 1},
        }
    images = dict(IMAGES)
    source = made.source
    train: Settings = {"steps": STEPS, "batch_size": BATCH, "micro_batch": None}
    if isinstance(config, TransferConfig):
        segmented = made.how == "segment"
        images |= {"split": "train", "val": None, "val_share": 0.25, "limit": None}
        if made.how == "fewshot":  # enough images for every number of shots
            images["size"] = 2 * images["classes"] * max(made.shots)
        if made.how == "segment":  # the generated images that have masks
            images = {"name": "data"}
        if made.how == "text":  # the generated images that have texts
            images["name"] = "phantom"
        return {
            "model": model,
            "source": images,
            "test": "test",
            "final": None,
            "train": train,
            "optim": OPTIM,
            "draws": 2,
            "k": [2, 3],
            "text": TEXT,
            **({"segment": SEGMENT, "data": {"dataset": "phantom"}, "split": {"folds": 3}} if segmented else {}),
        }
    images |= {"split": "train", "val": "val" if source.val or source.val_share else None, "limit": None}
    images["val_share"] = 0.0
    used = {key: PRETRAIN[key] for key in ("mae", "beit", "tokenizer", "grafit", "dino") if key == made.objective}
    if made.objective == "dino" and made.views.local_count:
        # A map of one pixel in a tiny CNN: PyTorch's bfloat16 convolution on CPUs then has NaN in its weight gradients.
        half = model["image_size"] // 2 if made.views.local_size and "vit" in model else None
        used["views"] = {"local_count": _LOCAL_CROPS, "local_size": half}
    if made.distill.kind != "none":
        teacher, shape, _ = tiny_network(made.distill.teacher, {}, 224)
        used["distill"] = {**PRETRAIN["distill"], "teacher": "timm:test_vit" if shape else teacher}
    return {"model": model, "source": images, "train": train, "optim": OPTIM, **used}


def _tiny_model(config: Any, row_model: str | None, row: Settings) -> Settings:
    """Return the section ``model``; the network of a transfer may be that of the run in its weights."""
    given = config.model
    of_run = isinstance(config, TransferConfig) and any(placeholders([given.weights, list(config.upstream)]))
    if of_run and "image_size" not in given.model_fields_set:
        return {}
    if of_run:
        vit = row.get("model", {}).get("vit", {})
        return {"image_size": tiny_network(row_model or given.name, vit, given.image_size)[2]}
    shape = given.vit.model_dump(exclude_none=True)
    each = [tiny_network(name, shape, given.image_size) for name in given.name.split("+")]  # one, or some side by side
    name, vit, side = "+".join(one for one, *_ in each), each[0][1], each[0][2]
    model: Settings = {"name": name, "image_size": side, **({"vit": vit} if vit else {})}
    return model | ({"weights": "scratch"} if is_named(given.weights) else {})


def tiny_network(name: str, vit: Settings, image_size: int) -> tuple[str, Settings, int]:
    """Return the name, the changed shape and the image size of the tiny network that stands for another.

    A plain ViT keeps everything but its width and depth. Other networks are replaced by a small member of their own
    family, so that two families of a table stay two runs; the sizes of one family may become one run. The side of the
    image is a few patches: larger if the network is trained at more than 224 pixels.
    """
    spec = find_model(name, vit)
    names = (name, spec.architecture)
    small = next((one for kind, one in BY_KIND.items() if any(re.fullmatch(kind, known) for known in names)), None)
    if small is not None:
        side = find_model(small).image_size
        return small, {}, side * (2 if image_size > 224 else 1)
    patch = 32 if spec.family == "hybrid" else 16
    chosen, shape = name, {}
    if spec.shape is not None:
        patch = spec.shape.patch
        shape = dict(SHAPE)
    elif name.endswith("_distilled"):
        chosen = "cait_xxs12_distilled" if spec.family == "cait" else "deit_ti_distilled"
    else:
        chosen = _SHALLOW.sub(r"\g<1>2", name) if _SHALLOW.match(name) else SMALLEST.get(spec.family, "timm:test_vit")
        patch = find_model(chosen).options.get("patch", patch)
    patches = max(2, math.ceil(32 / patch)) + (1 if image_size > 224 else 0)
    return chosen, shape, patch * patches
