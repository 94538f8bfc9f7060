"""From the bytes of a file that is not trusted to named tensors. No code in a file is run."""

import argparse
import io
import pickle
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from safetensors import SafetensorError, safe_open

from usvit.errors import UsvitError, shortened
from usvit.files import regular_file

FILE_SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".npz")
_TABLES = ("state_dict_ema", "model_ema", "state_dict", "model", "module")
"""Where training scripts put the weights in a checkpoint; averaged weights first, as timm takes them."""
_WRAPPERS = re.compile(r"\A(?:module\.|_orig_mod\.)+")
"""What DistributedDataParallel and ``torch.compile`` write before every name."""


_MOST_TABLES = 5
"""Tables in one another, as in ``{"state_dict": {"model": ...}}``."""
_MOST_TENSORS = 20_000
"""The largest networks of timm have fewer than 3,000."""
MAX_BYTES = 40_000_000_000
"""Of a weights file; the largest of timm has 18 GB."""
_LARGE = 1_000_000_000
_MAX_RATIO = 10
"""Unpacked over packed. Float32 weights compress to 0.9 of their size; a file half of zeros stays below 3."""
_MAX_UNPACKED = 100_000_000
"""Bytes below which the ratio does not matter."""


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a weights file, by the names that the file gives them."""

    tensors: dict[str, torch.Tensor] = field(repr=False)
    table: str | None = None
    """Which table of a training checkpoint they stood in (``model``, ``model_ema``, ...)."""
    flax: bool = False
    """Whether it is an ``.npz`` of AugReg, big_vision or BiT, with flax's names and axes."""


def read_state_dict(path: Path) -> dict[str, torch.Tensor]:
    """Parameter name -> tensor, from a file that is not trusted; see ``parse_weights``."""
    return parse_weights(weights_bytes(path), path).tensors


def weights_bytes(path: Path) -> bytes:
    """The bytes of a weights file; one in the hub's cache is a symbolic link, and is followed.

    Raises:
        UsvitError: as ``refuse_endless``, or there is too little memory for it.
    """
    refuse_endless(path)
    try:
        with regular_file(path, limit=MAX_BYTES, follow=True, what="file of weights") as file:
            return file.read()
    except MemoryError as error:
        raise UsvitError(f"There is too little memory to read the weights {path}.") from error


def refuse_endless(path: Path) -> None:
    """Refuse a weights file that is no regular file, or far larger than it can be, before it is hashed or read.

    A sparse file of terabytes takes no room, and hours to hash.

    Raises:
        UsvitError: it is absent, no regular file, has more than ``MAX_BYTES``, or (for safetensors of more than a
            gigabyte) another size than its header says.
    """
    with regular_file(path, limit=MAX_BYTES, follow=True, what="file of weights") as file:
        size = file.seek(0, io.SEEK_END)
    if size > _LARGE and path.suffix == ".safetensors":
        try:
            with safe_open(path, framework="pt"):
                pass
        except (SafetensorError, OSError, MemoryError) as error:
            raise UsvitError(f"The weights {path} are damaged: {' '.join(str(error).split())[:200]}.") from error


def parse_weights(data: bytes, path: Path) -> Checkpoint:
    """The tensors in the bytes of a weights file; those in the table of a training checkpoint are unwrapped.

    Args:
        data: the file's bytes.
        path: its name, for its suffix (one of ``FILE_SUFFIXES``) and for errors.

    Raises:
        UsvitError: the file is damaged, unpacks to far more than it holds, or holds Python objects or tensors of
            another kind (complex, quantised, sparse) instead of plain tensors.
    """
    _refuse_bomb(data, path)
    try:
        content = _parse(data, path.suffix)
    except Exception as error:  # a file that is not trusted can make a parser raise anything
        if _asks_to_run_code(error, data):
            raise UsvitError(
                f"The weights {path} hold Python objects, which can run code when loaded, so they are refused. "
                "Ask for them as .safetensors, or save model.state_dict() alone."
            ) from error
        reason = f" ({error})" if isinstance(error, SafetensorError) else ""
        raise UsvitError(f"The weights {path} are damaged or no weights file{reason}. Copy the file again.") from error
    table, tensors = _unwrapped(content)
    if not tensors:
        raise UsvitError(f"The weights {path} hold no table of tensors. Save model.state_dict() alone.")
    if len(tensors) > _MOST_TENSORS:
        raise UsvitError(f"The weights {path} hold {len(tensors):,} tensors, and {_MOST_TENSORS:,} are read.")
    for name, tensor in tensors.items():
        if problem := _problem(tensor):
            raise UsvitError(
                f"The tensor '{shortened(name)}' in the weights {path} {problem}. Save model.state_dict() of a network "
                "of real numbers, on the CPU."
            )
    return Checkpoint(tensors, table, flax=path.suffix == ".npz")


def _parse(data: bytes, suffix: str) -> Any:
    if suffix == ".safetensors":
        return dict(sorted(safetensors.torch.load(data).items()))  # else in another order each time, and in run.json
    if suffix == ".npz":
        archive = np.load(io.BytesIO(data), allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("one array and no archive of arrays")
        return {key: _tensor(archive[key]) for key in archive.files}
    # The arguments of a training script stand in many published checkpoints; they are plain values.
    with torch.serialization.safe_globals([argparse.Namespace]):
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _tensor(array: np.ndarray) -> torch.Tensor:
    if array.dtype == np.dtype("V2"):  # how numpy keeps jax's bfloat16
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array)


def _asks_to_run_code(error: Exception, data: bytes) -> bool:
    if "Object arrays cannot be loaded" in str(error):  # numpy's word for a pickle in an archive
        return True
    refused = isinstance(error, pickle.UnpicklingError | RuntimeError) and "weights_only" in str(error)
    return refused and data.startswith((b"PK", b"\x80"))  # a web page or a text does not begin as PyTorch's files


def _unwrapped(content: Any) -> tuple[str | None, dict[str, torch.Tensor]]:
    """The table of tensors and where it stood; empty where there is none."""
    path: list[str] = []
    while isinstance(content, Mapping) and len(path) <= _MOST_TABLES:  # a table may hold itself
        inner = next((name for name in _TABLES if isinstance(content.get(name), Mapping)), None)
        if inner is None:
            break
        path.append(inner)
        content = content[inner]
    if not isinstance(content, Mapping) or len(path) > _MOST_TABLES:
        return None, {}
    tensors = {_WRAPPERS.sub("", str(key)): value for key, value in content.items()}
    if not all(isinstance(value, torch.Tensor) for value in tensors.values()):
        return None, {}
    return ".".join(path) or None, tensors


def _refuse_bomb(data: bytes, path: Path) -> None:
    """Refuse an archive (NumPy's and PyTorch's both are zip files) that unpacks to far more than trained weights do."""
    if not data.startswith(b"PK"):
        return
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(info.file_size for info in archive.infolist())
    except Exception:  # the parser says what is wrong with it
        return
    if unpacked > _MAX_UNPACKED and unpacked > _MAX_RATIO * len(data):
        raise UsvitError(
            f"The weights {path} have {len(data):,} bytes and would unpack to {unpacked:,}: trained weights hardly "
            "compress, so this file is damaged or made to harm. Ask for them as .safetensors."
        )


def _problem(tensor: torch.Tensor) -> str | None:
    """Why a tensor cannot be a weight, or None."""
    if tensor.is_meta:
        return "has no values"
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return "is sparse or quantised"
    if tensor.is_complex():
        return f"has complex numbers ({tensor.dtype}), whose imaginary part would be dropped"
    # Strides of zero let a few bytes stand for any number of values, which the first copy would fill memory with.
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return f"claims {tensor.numel():,} values and holds fewer"
    return None
