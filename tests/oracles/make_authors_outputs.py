"""Outputs of small networks and functions of the authors' public codes, made once.

Not run by the tests; they read authors_outputs.json beside it. To make it again, clone facebookresearch/dino, /deit and
/mae and google-research/big_vision, and in an environment of usvit to which jax, flax, einops and ml_collections were
added:
    python -m tests.oracles.make_authors_outputs --dino DIR --deit DIR --mae DIR --big-vision DIR

The authors' code runs as it is, in double precision. It was written for older libraries, so names that these have moved
are given back first. The blocks of MAE and of DeiT's distilled network, and the latter's list of parameters without
weight decay, are those of the timm that is installed; all other networks have theirs in the authors' files.
"""

import argparse
import importlib
import json
import subprocess
import sys
import types
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import timm.layers
import timm.models
import timm.models._efficientnet_blocks
import timm.models._registry
import timm.models.vision_transformer
import torch
from timm.optim import param_groups_weight_decay
from torch import nn

from tests.oracles.authors import FILE, images, numbers, weights

LICENCES = {
    "dino": "Apache-2.0",
    "deit": "Apache-2.0",
    "mae": "CC-BY-NC-4.0",
    "big_vision": "Apache-2.0",
}
"""Licences of the codes, of which nothing is stored but numbers that they computed."""
NORM = partial(nn.LayerNorm, eps=1e-6)
"""As in the authors' functions that build their networks of the paper."""
TINY = {"embed_dim": 32, "depth": 2, "num_heads": 2, "qkv_bias": True, "norm_layer": NORM}


def give_back_old_names() -> None:
    """Alias modules that timm renamed, options that its block lost, and what numpy dropped."""
    sys.modules["timm.models.layers"] = timm.layers
    sys.modules["timm.models.registry"] = timm.models._registry
    sys.modules["timm.models.efficientnet_blocks"] = timm.models._efficientnet_blocks
    block = timm.models.vision_transformer.Block
    timm.models.vision_transformer.Block = lambda *sizes, qk_scale=None, **options: block(*sizes, **options)
    vars(np)["float"] = float
    # The parts of big_vision that the networks use do without this module, which needs TensorFlow.
    sys.modules["big_vision.utils"] = types.ModuleType("big_vision.utils")


@contextmanager
def checkout(folder: Path) -> Iterator[Callable[[str], Any]]:
    """Import modules from a clone, and forget them afterwards: several codes have a ``utils``."""
    sys.path.insert(0, str(folder))
    before = set(sys.modules)
    yield importlib.import_module
    sys.path.remove(str(folder))
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
            del sys.modules[name]


def fill(model: nn.Module) -> dict[str, list[int]]:
    """Fill a network by formula, except for what does not train; return the shapes of what was filled."""
    fixed = {name for name, parameter in model.named_parameters() if not parameter.requires_grad}
    shapes = {}
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point() and name not in fixed:
                tensor.copy_(torch.from_numpy(weights(name, tuple(tensor.shape))))
                shapes[name] = list(tensor.shape)
    model.double().eval()
    return shapes


def rounded(tensor: Any) -> Any:
    """Return nested lists with seven significant digits."""
    array = tensor.detach().numpy() if isinstance(tensor, torch.Tensor) else np.asarray(tensor)
    if array.ndim == 0:
        return float(f"{float(array):.7g}")
    return [rounded(row) for row in array]


def with_decay(groups: Iterable[dict[str, Any]], model: nn.Module) -> list[str]:
    """Return the names of the parameters in groups with weight decay."""
    drawn = {id(parameter) for group in groups if group.get("weight_decay", 1) for parameter in group["params"]}
    return [name for name, parameter in model.named_parameters() if id(parameter) in drawn]


def by_timm(model: nn.Module, *, named: bool = True) -> list[str]:
    """Return the names of the parameters with weight decay in DeiT's main.py, which leaves this to timm."""
    own = getattr(model, "no_weight_decay", None)
    groups = param_groups_weight_decay(model, 0.1, no_weight_decay_list=own() if named and own else ())
    return with_decay(groups, model)


def dino(load: Callable[[str], Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    vits, utils, main = load("vision_transformer"), load("utils"), load("main_dino")
    vit = vits.VisionTransformer(img_size=[32], patch_size=8, **TINY)
    networks = {"dino_vit": {"tensors": fill(vit), "decayed": with_decay(utils.get_params_groups(vit), vit)}}
    networks["dino_vit"]["features"] = {str(side): rounded(vit(images(side))) for side in (32, 16, 48)}
    table = vit.interpolate_pos_encoding
    networks["dino_vit"]["positions"] = {
        str(side): rounded(table(torch.zeros(1, 1 + (side // 8) ** 2, 32), side, side)[0, 1:, :3]) for side in (16, 48)
    }
    head = vits.DINOHead(32, 12, norm_last_layer=False, hidden_dim=24, bottleneck_dim=16)
    features = torch.from_numpy(numbers("features", (4, 32))).double()
    networks["dino_head"] = {"tensors": fill(head), "decayed": with_decay(utils.get_params_groups(head), head)}
    networks["dino_head"]["outputs"] = rounded(head(features))

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    loss = main.DINOLoss(10, 4, 0.04, 0.07, 3, 6)
    student, teacher = (torch.from_numpy(numbers(name, (n, 10))) for name, n in (("student", 8), ("teacher", 4)))
    steps = []
    for epoch in range(5):
        value = loss(student, teacher + epoch, epoch)
        steps.append({"loss": rounded(value), "center": rounded(loss.center[0])})
    schedule = utils.cosine_scheduler
    return networks, {
        "dino_loss": steps,
        "dino_teacher_decay": rounded(schedule(0.996, 1, 4, 5)),
        "dino_weight_decay": rounded(schedule(0.04, 0.4, 4, 5)),
        "dino_learning_rate": rounded(schedule(0.0005, 1e-6, 4, 5, warmup_epochs=1)),
    }


def deit(load: Callable[[str], Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    networks: dict[str, Any] = {}

    def add(name: str, model: nn.Module, side: int, **more: Any) -> None:
        networks[name] = {"tensors": fill(model), "decayed": by_timm(model), "logits": rounded(model(images(side)))}
        networks[name] |= {key: rounded(compute(model)) for key, compute in more.items()}

    sizes = {"img_size": 32, "patch_size": 8, "num_classes": 5}
    distilled = load("models").DistilledVisionTransformer(**sizes, **TINY)
    add("deit_distilled", distilled, 32, both=lambda model: torch.stack(model.train()(images(32))))
    v2, cait, resmlp, conv = map(load, ("models_v2", "cait_models", "resmlp_models", "patchconvnet_models"))
    add("deit3", v2.vit_models(**sizes, **TINY, block_layers=v2.Layer_scale_init_Block), 32)
    merged = {**TINY, "img_size": 32, "patch_size": 16, "num_classes": 5, "Patch_layer": v2.hMLP_stem}
    add("parallel_hmlp", v2.vit_models(**merged, block_layers=v2.Layer_scale_init_Block_paralx2), 32)
    add("cait", cait.cait_models(**sizes, **TINY, depth_token_only=2), 32)
    add("resmlp", resmlp.resmlp_models(**sizes, embed_dim=32, depth=2), 32)
    patches = {"num_classes": 5, **TINY, "num_heads": 1, "Attention_block": conv.Conv_blocks_se}
    many = partial(conv.Learned_Aggregation_Layer_multi, num_classes=5)
    add("patchconvnet", conv.PatchConvnet(**patches), 64)
    add("patchconvnet_multi", conv.PatchConvnet(**patches, multiclass=True, Attention_block_token_only=many), 64)

    outputs = [torch.from_numpy(numbers(name, (3, 5)) * 4).double() for name in ("class head", "distillation head")]
    teacher = torch.from_numpy(numbers("teacher", (3, 5)) * 4).double()
    losses = {
        kind: load("losses").DistillationLoss(nn.CrossEntropyLoss(), lambda inputs: teacher, kind, alpha, 3.0)
        for kind, alpha in (("soft", 0.1), ("hard", 0.5))
    }
    labels = torch.tensor([0, 4, 2])
    return networks, {"deit_distillation": {kind: rounded(f(None, outputs, labels)) for kind, f in losses.items()}}


def mae(load: Callable[[str], Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    models, finetune, positions = load("models_mae"), load("models_vit"), load("util.pos_embed")
    decay, rate = load("util.lr_decay"), load("util.lr_sched")
    sizes = {"img_size": 32, "patch_size": 8, **{key: TINY[key] for key in ("embed_dim", "depth", "num_heads")}}
    model = models.MaskedAutoencoderViT(
        **sizes, decoder_embed_dim=24, decoder_depth=1, decoder_num_heads=2, norm_layer=NORM
    )
    tensors = fill(model)
    torch.manual_seed(0)
    loss, predicted, mask = model(images(32))
    model.norm_pix_loss = True
    networks: dict[str, Any] = {
        "mae": {
            "tensors": tensors,
            "decayed": by_timm(model, named=False),
            "mask": mask.int().tolist(),
            "loss": {"pixels": rounded(loss), "normalised": rounded(model.forward_loss(images(32), predicted, mask))},
            "predicted": rounded(predicted[:, ::3, ::24]),
        }
    }
    for name, pooled in (("mae_finetune_token", False), ("mae_finetune_mean", True)):
        vit = finetune.VisionTransformer(**sizes, num_classes=5, qkv_bias=True, norm_layer=NORM, global_pool=pooled)
        tensors = fill(vit)
        groups = decay.param_groups_lrd(vit, 0.05, vit.no_weight_decay(), 0.75)
        scales = {id(one): group["lr_scale"] for group in groups for one in group["params"]}
        networks[name] = {
            "tensors": tensors,
            "decayed": with_decay(groups, vit),
            "rates": {key: scales[id(one)] for key, one in vit.named_parameters()},
            "logits": rounded(vit.head(vit.forward_features(images(32)))),  # timm's own ``forward`` was this
        }
    kept = {}
    for count, share in ((196, 0.75), (256, 0.75), (196, 0.9), (49, 0.6), (16, 0.75)):
        kept[f"{count} {share}"] = model.random_masking(torch.zeros(1, count, 1), share)[0].shape[1]
    holder = types.SimpleNamespace(patch_embed=types.SimpleNamespace(num_patches=36), pos_embed=torch.zeros(1, 37, 4))
    table = {"pos_embed": torch.from_numpy(numbers("positions", (1, 17, 4))).double()}
    positions.interpolate_pos_embed(holder, table)
    settings = types.SimpleNamespace(warmup_epochs=2, epochs=6, lr=0.0005, min_lr=1e-6)
    nothing = types.SimpleNamespace(param_groups=[])
    return networks, {
        "mae_positions": rounded(positions.get_2d_sincos_pos_embed(16, 3)),
        "mae_kept": kept,
        "mae_enlarged_positions": rounded(table["pos_embed"][0, 1:]),
        "mae_learning_rate": rounded([rate.adjust_learning_rate(nothing, step / 5, settings) for step in range(30)]),
    }


def big_vision(load: Callable[[str], Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    jax, flatten = load("jax"), load("flax").traverse_util.flatten_dict
    jax.config.update("jax_enable_x64", True)
    vit = load("big_vision.models.vit")
    image = images(32).permute(0, 2, 3, 1).numpy()
    networks = {}
    parts = {
        "tok": {"pool_type": "tok"},
        "hidden": {"pool_type": "tok", "rep_size": True},
        "map": {"pool_type": "map"},
        "gap": {"pool_type": "gap", "posemb": "sincos2d"},
    }
    sizes = {"patch_size": (8, 8), "width": 32, "depth": 2, "mlp_dim": 64, "num_heads": 2, "dtype_mm": "float64"}
    for name, options in parts.items():
        model = vit.Model(5, **sizes, **options)
        shapes = flatten(model.init(jax.random.key(0), image)["params"], sep="/")
        filled = {key: weights(key, value.shape).astype(np.float64) for key, value in shapes.items()}
        tree = load("flax").traverse_util.unflatten_dict(filled, sep="/")
        networks[f"big_vision_{name}"] = {
            "tensors": {key: list(value.shape) for key, value in filled.items()},
            "logits": rounded(model.apply({"params": tree}, image)[0]),
        }
    return networks, {"big_vision_positions": rounded(vit.posemb_sincos_2d(4, 4, 32)[0])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in LICENCES:
        parser.add_argument(f"--{name.replace('_', '-')}", type=Path, required=True, help=f"clone of {name}")
    folders = vars(parser.parse_args())
    give_back_old_names()
    repositories, networks, functions = {}, {}, {}
    for run in (dino, deit, mae, big_vision):
        name, folder = run.__name__, folders[run.__name__].resolve()
        commit = subprocess.run(
            ["git", "-C", folder, "rev-parse", "HEAD"], check=True, capture_output=True, text=True
        ).stdout.strip()
        repositories[name] = {"commit": commit, "licence": LICENCES[name]}
        with checkout(folder) as load:
            made, values = run(load)
        networks |= {key: {"repository": name, **network} for key, network in made.items()}
        functions |= values
    head = {"made_by": f"tests/oracles/make_authors_outputs.py, timm {timm.__version__}", "repositories": repositories}
    lines = [f"{json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
    for key, table in (("networks", networks), ("values", functions)):
        rows = ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in table.items())
        lines.append(f'"{key}": {{\n{rows}\n}}')
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
