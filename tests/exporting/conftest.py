"""A tiny network, as a source of exports and as the folder of a fold."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.models.conftest import _one_thread  # noqa: F401  (for every test here)
from tests.records.contents import content
from usvit.exporting import write_export
from usvit.exporting.exportable import ExportSource, of_spec, open_source
from usvit.models.zoo import find_model

CLASSES = ("benign", "malignant", "normal")


def tiny(name: str = "vit_ti16", vit: dict[str, Any] | None = None, size: int = 32, **options: Any) -> ExportSource:
    """An untrained network with a head that is not zero; ``options`` are timm's."""
    spec = find_model(name, vit)
    spec = dataclasses.replace(spec, options={**spec.options, **options})
    source = of_spec(spec, "scratch", CLASSES, image_size=size)
    head = source.model.get_classifier()  # type: ignore[operator]
    generator = torch.Generator().manual_seed(1)
    for classifier in head if isinstance(head, tuple) else (head,):
        for parameter in classifier.parameters():
            torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    return source


def metrics_of_the_fold() -> dict[str, Any]:
    """A ``metrics.json`` of one fold."""
    whole = content("metrics")
    figures = {
        "accuracy": figure(0.5),
        "balanced_accuracy": figure(0.25),
        "auc": {f"{name}_vs_rest": figure(0.75) for name in CLASSES},
    }
    return whole | {"folds": [whole["folds"][0] | figures | {"fold": 0, "n_images": 7, "n_groups": 5}]}


def figure(value: float) -> dict[str, Any]:
    """A point estimate."""
    return {"value": value, "ci95": None, "method": "point estimate", "n_groups": 5}


@pytest.fixture(scope="session")
def fold(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``run/fold-0`` as usvit writes it, of a network of two layers that keeps the aspect ratio."""
    source = tiny(vit={"depth": 2})
    folder = tmp_path_factory.mktemp("runs") / "run" / "fold-0"
    folder.mkdir(parents=True)
    state = {key: value.contiguous() for key, value in source.model.state_dict().items()}
    save_file(state, folder / "model.safetensors")
    metadata = {
        key: value for key, value in source.metadata.content().items() if key not in ("head", "exported", "measured")
    }
    metadata |= {"fold": 0, "steps": 2, "best_step": 2, "recipe": "none", "seed": 0, "tune": "full", "novelty": None}
    metadata |= {
        "data_licenses": {"phantom": "Apache-2.0"},
        "seen_sha256": {"train": ["ab"], "val": [], "upstream": []},
    }
    (folder / "model.json").write_text(json.dumps(metadata))
    (folder.parent / "metrics.json").write_text(json.dumps(metrics_of_the_fold()))
    return folder


@pytest.fixture(scope="session")
def onnx_export(fold: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("onnxscript")
    out = tmp_path_factory.mktemp("exports") / "onnx"
    write_export(open_source(str(fold)), "onnx", out)
    return out


@pytest.fixture(scope="session")
def bundle(fold: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("monai")
    out = tmp_path_factory.mktemp("exports") / "bundle"
    write_export(open_source(str(fold)), "monai", out)
    return out
