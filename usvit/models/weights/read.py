"""Reading of named tensors from untrusted weights files. No code in a file is run."""

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
"""Keys of the weights in training checkpoints; averaged weights come first, as in timm."""
_WRAPPERS = re.compile(r"\A(?:module\.|_orig_mod\.)+")
"""Prefixes that DistributedDataParallel and ``torch.compile`` put before every name."""

_MOST_TABLES = 5
"""Maximum number of nested tables, as in ``{"state_dict": {"model": ...}}``."""
_MOST_TENSORS = 20_000
"""Maximum number of tensors; the largest networks of timm have fewer than 3,000."""
MAX_BYTES = 40_000_000_000
"""Maximum size of a weights file; the largest of timm has 18 GB."""
_LARGE = 1_000_000_000
_MAX_RATIO = 10
"""Maximum of unpacked / packed size. Float32 weights have 1.1; a file half of zeros stays below 3."""
_MAX_UNPACKED = 100_000_000
"""Unpacked size in bytes up to which the ratio is not checked."""


@dataclass(frozen=True)
class Checkpoint:
    """Tensors of a weights file under their names in the file."""

    tensors: dict[str, torch.Tensor] = field(repr=False)
    table: str | None = None
    """Table of a training checkpoint that held them (``model``, ``model_ema``, ...)."""
    flax: bool = False
    """True for an ``.npz`` of AugReg, big_vision or BiT, with flax's names and axes."""


def read_state_dict(path: Path) -> dict[str, torch.Tensor]:
    """Read an untrusted file as parameter name -> tensor; see ``parse_weights``."""
    return parse_weights(weights_bytes(path), path).tensors


def weights_bytes(path: Path) -> bytes:
    """Return the bytes of a weights file; symbolic links, such as those in the hub's cache, are followed.

    Raises:
        UsvitError: As ``refuse_endless``, or there is too little memory.
    """
    refuse_endless(path)
    try:
        with regular_file(path, limit=MAX_BYTES, follow=True, what="file of weights") as file:
            return file.read()
    except MemoryError as error:
        raise UsvitError(f"There is too little memory to read the weights {path}.") from error


def refuse_endless(path: Path) -> None:
    """Refuse a weights file that is not a regular file or is far too large, before it is hashed or read.

    A sparse file of terabytes takes up no disk space, but hashing it takes hours.

    Raises:
        UsvitError: The file is missing, is not a regular file, has more than ``MAX_BYTES``, or (for safetensors of more
            than a gigabyte) does not have the size that its header states.
    """
    with regular_file(path, limit=MAX_BYTES, follow=True, what="file of weights") as file:
        try:
            size = file.seek(0, io.SEEK_END)
        except OSError as error:  # a file of /proc, which has no end
            raise UsvitError(f"The weights {path} cannot be read: {error.strerror}. Copy the file again.") from error
    if size > _LARGE and path.suffix == ".safetensors":
        try:
            with safe_open(path, framework="pt"):
                pass
        except (SafetensorError, OSError, MemoryError) as error:
            raise UsvitError(f"The weights {path} are damaged: {' '.join(str(error).split())[:200]}.") from error


def parse_weights(data: bytes, path: Path) -> Checkpoint:
    """Parse the bytes of a weights file; a table of weights inside a training checkpoint is unwrapped.

    Args:
        data: the file's bytes.
        path: path of the file, for its suffix (one of ``FILE_SUFFIXES``) and for error messages.

    Raises:
        UsvitError: The file is damaged, unpacks to far more than its size, or contains Python objects or complex,
            quantised or sparse tensors instead of plain ones.
    """
    _refuse_bomb(data, path)
    try:
        content = _parse(data, path.suffix)
    except Exception as error:  # an untrusted file can make a parser raise anything
        if _asks_to_run_code(error, data):
            raise UsvitError(
                f"The weights {path} hold Python objects, which can run code when loaded, so they are refused. "
                "Ask for them as .safetensors, or save model.state_dict() alone."
            ) from error
        reason = f" ({error})" if isinstance(error, SafetensorError) else ""
        raise UsvitError(
            f"The weights {path} are damaged or are not a weights file{reason}. Copy the file again."
        ) from error
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
        return dict(
            sorted(safetensors.torch.load(data).items())
        )  # otherwise the order changes each time, also in run.json
    if suffix == ".npz":
        archive = np.load(io.BytesIO(data), allow_pickle=False)
        if not isinstance(archive, np.lib.npyio.NpzFile):
            raise ValueError("one array instead of an archive of arrays")
        return {key: _tensor(archive[key]) for key in archive.files}
    # Many published checkpoints contain the arguments of the training script, which are plain values.
    with torch.serialization.safe_globals([argparse.Namespace]):
        return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _tensor(array: np.ndarray) -> torch.Tensor:
    if array.dtype == np.dtype("V2"):  # numpy's type for jax's bfloat16
        return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
    return torch.from_numpy(array)


def _asks_to_run_code(error: Exception, data: bytes) -> bool:
    if "Object arrays cannot be loaded" in str(error):  # numpy's message for a pickle in an archive
        return True
    refused = isinstance(error, pickle.UnpicklingError | RuntimeError) and "weights_only" in str(error)
    return refused and data.startswith(
        (b"PK", b"\x80")
    )  # PyTorch's files begin with these bytes; a web page or a text does not


def _unwrapped(content: Any) -> tuple[str | None, dict[str, torch.Tensor]]:
    """Return the path of the table of tensors and the table, which is empty if there is none."""
    path: list[str] = []
    while isinstance(content, Mapping) and len(path) <= _MOST_TABLES:  # a table may contain itself
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
    """Refuse a zip archive (as NumPy and PyTorch write) that unpacks to far more than trained weights do."""
    if not data.startswith(b"PK"):
        return
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            unpacked = sum(info.file_size for info in archive.infolist())
    except Exception:  # the parser reports what is wrong with it
        return
    if unpacked > _MAX_UNPACKED and unpacked > _MAX_RATIO * len(data):
        raise UsvitError(
            f"The weights {path} have {len(data):,} bytes and would unpack to {unpacked:,}: trained weights hardly "
            "compress, so this file is damaged or malicious. Ask for them as .safetensors."
        )


def _problem(tensor: torch.Tensor) -> str | None:
    """Return why a tensor cannot be a weight, or None."""
    if tensor.is_meta:
        return "has no values"
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return "is sparse or quantised"
    if tensor.is_complex():
        return f"has complex numbers ({tensor.dtype}), whose imaginary part would be dropped"
    # With strides of zero a few bytes represent any number of values, and the first copy would fill the memory.
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        return f"claims {tensor.numel():,} values and holds fewer"
    return None
