"""Small files of weights, written by timm's own networks."""

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import save_file

from usvit.models.zoo import find_model


def write_weights(
    path: Path, name: str, n_classes: int, nested: bool = False, **options: Any
) -> dict[str, torch.Tensor]:
    """A network's random weights in a file of either kind; returns them."""
    torch.manual_seed(5)
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
