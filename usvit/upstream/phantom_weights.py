"""Make the weights that ship with usvit (``--weights phantom``): pre-training on phantoms, rounded to half precision.

``python -m usvit.upstream.phantom_weights --out weights/phantom`` makes both files from the recipe and its seed. The
same machine, versions and seed give the same bytes. No image of a person is read.
"""

import argparse
import hashlib
import tempfile
from pathlib import Path

from safetensors.torch import load
from torch import Tensor

from usvit.config import parse_overrides
from usvit.errors import UsvitError
from usvit.experiments import tensor_bytes
from usvit.files import read_bytes, write_bytes
from usvit.progress import make_progress
from usvit.records import ModelMetadata, load_record, save_record
from usvit.upstream.api import pretrain

_RECIPE = "phantom_signs"
MAX_BYTES = 6_000_000
"""Largest size of the weights' file."""


def make_phantom_weights(out: str | Path, *, seed: int = 0, set_: list[str] | None = None) -> Path:
    """Pre-train by the recipe ``phantom_signs`` and write the weights in half precision.

    Args:
        out: Folder to write ``model.safetensors`` and ``model.json`` to; files that it already has are refused.
        seed: Seed of phantoms and training.
        set_: Changes of the recipe, such as ``["source.size=48"]``.

    Returns:
        ``out``.

    Raises:
        UsvitError: ``out`` already has weights, or they would be larger than ``MAX_BYTES``.
    """
    out = Path(out)
    if (out / "model.safetensors").exists():
        raise UsvitError(f"{out} already has weights, and usvit does not overwrite files. Remove them, or pass --out.")
    with tempfile.TemporaryDirectory() as folder:
        run = pretrain(
            _RECIPE,
            seed=seed,
            out=Path(folder) / "run",
            overrides=parse_overrides(set_ or []),
            progress=make_progress(),
        ).path
        tensors = load(read_bytes(run / "fold-0" / "model.safetensors", 100 * MAX_BYTES))
        metadata = load_record(run / "fold-0" / "model.json", ModelMetadata)
    content = tensor_bytes({name: _halved(tensor) for name, tensor in tensors.items()})
    if len(content) > MAX_BYTES:
        raise UsvitError(f"The weights take {len(content)} bytes; {MAX_BYTES} fit. Choose a smaller model.")
    out.mkdir(parents=True, exist_ok=True)
    write_bytes(out / "model.safetensors", content)
    hashed = {"weights_sha256": hashlib.sha256(content).hexdigest()}
    save_record(out / "model.json", metadata.model_copy(update=hashed))
    return out


def _halved(tensor: Tensor) -> Tensor:
    return tensor.half() if tensor.is_floating_point() else tensor


def _main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", default="weights/phantom", help="folder to write (default: weights/phantom)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--set", action="append", dest="set_", metavar="KEY=VALUE", help="change a setting of the recipe"
    )
    arguments = parser.parse_args()
    print(make_phantom_weights(arguments.out, seed=arguments.seed, set_=arguments.set_))


if __name__ == "__main__":
    _main()
