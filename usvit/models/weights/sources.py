"""Sources of a network's initial weights, and whether they are on this machine. It does not import torch."""

from dataclasses import dataclass
from pathlib import Path

from usvit.models.spec import ModelSpec
from usvit.models.weights.packages import is_installed
from usvit.models.weights.pins import pin_of
from usvit.resources import weights_dir

SHIPPED = "phantom"
"""Choice of the weights that ship with usvit."""
HUB_FILES = ("model.safetensors", "pytorch_model.bin")


@dataclass(frozen=True)
class WeightSource:
    """One place from which a network's initial weights can come."""

    choice: str
    """Value of ``--weights``: ``hub``, ``package``, ``phantom``, or ``hub:NAME=FILE`` for a file to download."""
    here: bool
    """Whether they are on this machine: in the hub's cache, in an installed package, or in usvit itself."""


def weight_sources(spec: ModelSpec) -> list[WeightSource]:
    """Return the sources of a network's weights; the list is empty if there are none.

    The cache of the hub is searched for any of the network's weights. No hash is computed.
    """
    found = []
    if repositories := [f"timm/{one.timm}" for one in spec.weights.values() if one.timm]:
        found.append(WeightSource("hub", any(map(_is_cached, repositories))))
    found += [WeightSource(f"hub:{name}=FILE", False) for name, one in spec.weights.items() if one.timm is None]
    if packages := [one.package for one in spec.weights.values() if one.package]:
        found.append(WeightSource("package", any(is_installed(name, pin_of(name)) for name in packages)))
    if spec.architecture == "usvit_small":
        found.append(WeightSource(SHIPPED, (weights_dir() / SHIPPED / "model.safetensors").is_file()))
    return found


def cached(repository: str, files: tuple[str, ...], revision: str | None) -> Path | None:
    """Return the path of weights in the Hugging Face cache, if they are there, without using the network."""
    from huggingface_hub import try_to_load_from_cache

    for file in files:
        path = try_to_load_from_cache(repository, file, revision=revision)
        if isinstance(path, str):
            return Path(path)
    return None


def _is_cached(repository: str) -> bool:
    pin = pin_of(repository)
    return cached(repository, *((HUB_FILES, None) if pin is None else ((pin.file,), pin.revision))) is not None
