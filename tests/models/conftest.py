"""Small files of weights, written by timm's own networks."""

import dataclasses
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from usvit.models.build import build_with_report
from usvit.models.spec import ModelSpec
from usvit.models.weights import Checkpoint, LoadReport, Weights
from usvit.models.zoo import find_model


def write_weights(
    path: Path, name: str, n_classes: int, nested: bool = False, seed: int = 5, **options: Any
) -> dict[str, torch.Tensor]:
    """A network's random weights in a file of either kind; returns them."""
    torch.manual_seed(seed)
    state = timm.create_model(find_model(name).architecture, num_classes=n_classes, **options).state_dict()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save({"model": state, "epoch": 3} if nested else state, path)
    return state


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Networks this small are made faster by one thread than by several that wait for each other."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectionRefusedError("the network is blocked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def small(name: str, **options: Any) -> ModelSpec:
    """A network of timm's, small: a specification with its options."""
    return dataclasses.replace(find_model(f"timm:{name}"), options=options)


SMALL_VIT: dict[str, Any] = {"embed_dim": 24, "depth": 2, "num_heads": 2, "mlp_ratio": 2}
"""Options of timm's ViTs; 24 can be divided by all that they need."""


def random_state(name: str, n_classes: int = 5, image_size: int = 32, **options: Any) -> dict[str, torch.Tensor]:
    """Tensors of a network of timm's by timm's names, all random: a network's own begin partly as zeros and ones."""
    model = timm.create_model(name, num_classes=n_classes, img_size=image_size, **options)
    generator = torch.Generator().manual_seed(7)
    return {
        key: torch.randn(value.shape, generator=generator) if value.is_floating_point() else value
        for key, value in model.state_dict().items()
    }


def checkpoint_of(state: dict[str, Any], table: str | None = None) -> Checkpoint:
    return Checkpoint(dict(state), table)


def load_into(
    spec: ModelSpec, checkpoint: Checkpoint, image_size: int = 32, n_classes: int = 3
) -> tuple[torch.nn.Module, LoadReport]:
    """Build a network and load a checkpoint into it, as a run does."""
    weights = Weights("file", name="w", content=checkpoint)
    return build_with_report(spec, weights, n_classes=n_classes, image_size=image_size)
