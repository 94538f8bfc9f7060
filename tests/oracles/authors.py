"""Outputs of the authors' public codes, which ``make_authors_outputs.py`` stored, and the weights that gave them.

The weights are not stored. A tensor's name in the authors' code and its shape give its numbers, in the script that ran
the authors' code and in the tests, which load them through usvit's own reading of the authors' files.
"""

import json
import re
from math import prod
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch

from usvit.models.weights import Checkpoint

FILE = Path(__file__).with_name("authors_outputs.json")
Shape = tuple[int, ...]

_SCALE = re.compile(r"weight|scale|alpha|gamma_.*|running_var|weight_g")
"""Last part of the names of tensors with one axis (or one for the rows of a matrix) that multiply."""


def numbers(name: str, shape: Shape) -> np.ndarray:
    """Draw float32 numbers in [-1, 1) by SplitMix64, whose state begins at the name's CRC-32."""
    with np.errstate(over="ignore"):
        state = np.arange(1, prod(shape) + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        state += np.uint64(crc32(name.encode()) << 32)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            state = (state ^ (state >> np.uint64(shift))) * np.uint64(factor)
    bits = (state ^ (state >> np.uint64(31))) >> np.uint64(40)
    return (bits.astype(np.float32) * np.float32(2.0**-23) - np.float32(1)).reshape(shape)


def weights(name: str, shape: Shape) -> np.ndarray:
    """Return the numbers of a tensor: scales in [0.5, 1.5), all others in [-0.25, 0.25); none is 0 or 1 throughout."""
    last = re.split(r"[./]", name)[-1]
    if _SCALE.fullmatch(last) and (len(shape) == 1 or last == "weight_g"):
        return 1 + numbers(name, shape) / 2
    return numbers(name, shape) / 4


def images(side: int, count: int = 2) -> torch.Tensor:
    """Return the input, (count, 3, side, side) float64 in [-1, 1)."""
    return torch.from_numpy(numbers(f"images of {side}", (count, 3, side, side))).double()


def network(name: str) -> dict[str, Any]:
    """Return what is stored of a network: ``tensors`` (name -> shape), and what the authors' code computed."""
    found: dict[str, Any] = json.loads(FILE.read_text())["networks"][name]
    return found


def values(name: str) -> Any:
    """Return the stored numbers of an authors' function."""
    return json.loads(FILE.read_text())["values"][name]


def state_of(name: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a network by their names in the authors' code."""
    return {key: torch.from_numpy(weights(key, tuple(shape))) for key, shape in network(name)["tensors"].items()}


def checkpoint_of(name: str) -> Checkpoint:
    """Return the file of weights that the authors' code would write."""
    return Checkpoint(state_of(name), flax=network(name)["repository"] == "big_vision")
