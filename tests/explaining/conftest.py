"""Small networks to explain, and a run that was never trained."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import timm
import torch
from safetensors.torch import save_file

import usvit.models.architectures  # noqa: F401  (registers ours with timm)
from tests.records.contents import content
from tests.records.contents import network as model_json
from usvit.data.datasets.manifest import Manifest, build_manifest
from usvit.evaluation.predictions import predictions_table
from usvit.models.build import build_model
from usvit.models.weights import Weights
from usvit.models.zoo import find_model
from usvit.progress import NoProgress

HALF = (0.5, 0.5, 0.5)
SMALL_SHAPE = {"width": 24, "depth": 2, "heads": 2, "mlp": 48, "patch": 16}
SMALL = {"img_size": 64, "depth": 2}
SMALL_SWIN = {"embed_dim": 24, "depths": (1, 1), "num_heads": (2, 2)}

TRANSFORMERS: dict[str, tuple[str, dict[str, Any], int]] = {
    "vit_ti16": ("vit_tiny_patch16_224", SMALL, 1),
    "r_ti16": ("vit_tiny_r_s16_p8_224", SMALL | {"img_size": 96}, 1),
    "distilled": ("deit_tiny_distilled_patch16_224", SMALL, 2),
    "registers": ("vit_small_patch14_reg4_dinov2", {"img_size": 56, "depth": 2}, 5),
    "registers, mean": ("vit_medium_patch16_reg4_gap_256", SMALL, 4),
    "cait": ("cait_xxs24_224", SMALL, 1),
    "cait, distillation token": (
        "usvit_cait_distilled",
        {"img_size": 64, "width": 48, "depth": 2, "layer_scale": 0.5},
        2,
    ),
    "class attention": ("usvit_vit", {"img_size": 64, **SMALL_SHAPE, "class_layers": 2, "class_keys": "patches"}, 1),
    "late class token": ("usvit_vit", {"img_size": 64, **SMALL_SHAPE, "class_at": 1}, 1),
    "talking heads": ("usvit_vit", {"img_size": 64, **SMALL_SHAPE, "attention": "talking"}, 1),
    "map pooling": ("usvit_vit", {"img_size": 64, **SMALL_SHAPE, "pool": "map"}, 0),
    "parallel": ("usvit_vit", {"img_size": 64, **SMALL_SHAPE, "branches": 2}, 1),
    "relative": ("usvit_vit", {"img_size": 64, **SMALL_SHAPE, "position": "relative"}, 1),
    "axial": ("usvit_vit", {"img_size": 64, **SMALL_SHAPE, "attention": "axial", "pool": "avg"}, 0),
    "rotary": ("eva02_tiny_patch14_224", {"img_size": 56, "depth": 2}, 1),
}
"""Name -> timm's name, options, tokens before the patches."""


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def network(name: str, seed: int = 0, n_classes: int = 3, **options: Any) -> torch.nn.Module:
    """A network of random weights, its head's and LayerScale's among them, in evaluation mode."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = timm.create_model(name, num_classes=n_classes, **options).eval()
        for key, parameter in model.named_parameters():
            if "gamma" in key:  # LayerScale's, which begin at nothing
                torch.nn.init.constant_(parameter, 0.5)
            elif parameter.ndim > 1:
                torch.nn.init.trunc_normal_(parameter, std=0.1)
    return model


def transformer(kind: str) -> tuple[torch.nn.Module, torch.Tensor, int]:
    """One of ``TRANSFORMERS``, two images of its size, and its tokens before the patches."""
    name, options, n_prefix = TRANSFORMERS[kind]
    return network(name, **options), pictures(options["img_size"]), n_prefix


def pictures(size: int, n: int = 2) -> torch.Tensor:
    return torch.randn(n, 3, size, size, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="session")
def phantom_manifest(small_phantom: Path) -> Manifest:
    return build_manifest("phantom", {"": small_phantom}, NoProgress(), near_duplicates=False)


MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path, phantom_manifest: Manifest) -> MakeRun:
    """Writes a finished run of two folds on the small phantom, whose networks have random weights."""

    def make(
        model: str = "vit", vit: dict[str, Any] | None = None, licence: str = "Apache-2.0", name: str = "run"
    ) -> Path:
        run, manifest = tmp_path / name, phantom_manifest
        run.mkdir()
        shape = dict(vit or SMALL_SHAPE) if model == "vit" else {}
        rows, classes = manifest.usable, list(manifest.classes)
        groups = {group: index % 2 for index, group in enumerate(dict.fromkeys(rows.group_id))}
        fold = np.array([groups[group] for group in rows.group_id])
        listed = [
            rows[["image_id", "dataset"]].assign(fold=k, part=np.where(fold == k, "test", "train")) for k in (0, 1)
        ]
        pd.concat(listed).to_csv(run / "folds.csv", index=False)
        manifest.table.to_parquet(run / "manifest.parquet", index=False)
        data = {"dataset": "phantom", "manifest": None, "classes": None, "keep_list": None}
        record = content(
            "run", name=name, folds={"n": 2}, config={"seed": 0, "data": data, "model": {"image_size": 64}}
        )
        (run / "run.json").write_text(json.dumps(record))
        for k in (0, 1):
            folder = run / f"fold-{k}"
            folder.mkdir()
            torch.manual_seed(k)
            spec = find_model(model, shape)
            net = build_model(spec, Weights("scratch"), n_classes=len(classes), image_size=64).eval()
            for parameter in net.parameters():
                if parameter.ndim > 1:
                    torch.nn.init.trunc_normal_(parameter, std=0.1)
            save_file(net.state_dict(), folder / "model.safetensors")
            metadata = model_json(
                architecture=model,
                vit=shape,
                timm=spec.architecture,
                classes=classes,
                preprocessing={"image_size": 64, "resize": "pad", "crop": "tissue", "mean": HALF, "std": HALF},
                data_licenses={"phantom": licence},
                fold=k,
            )
            (folder / "model.json").write_text(json.dumps(metadata))
            test = rows[fold == k].reset_index(drop=True)
            logits = np.random.default_rng(k).normal(size=(len(test), len(classes)))
            predictions_table(test, logits, classes=classes, fold=k, part="test").to_csv(
                folder / "predictions.csv", index=False
            )
        return run

    return make
