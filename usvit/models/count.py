"""Parameters and multiply-accumulate operations, counted on networks that hold no numbers.

``python -m usvit.models.count`` counts the whole zoo anew into ``zoo/counts.json``, which ``usvit models list`` shows.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timm
import torch
from torch.utils.flop_counter import FlopCounterMode

import usvit.models.architectures  # noqa: F401  registers our networks with timm
from usvit.files import write_json
from usvit.models.build import build_model, count_parameters
from usvit.models.spec import ModelSpec
from usvit.models.weights import Weights
from usvit.models.zoo import ZOO

COUNTS = Path(__file__).parent / "zoo" / "counts.json"


@dataclass(frozen=True)
class Counts:
    """The cost of a network."""

    params: int
    """Numbers that are trained."""
    macs: int
    """Multiply-accumulate operations of one image's forward pass: what the papers call FLOPs."""


def count(spec: ModelSpec, image_size: int = 224, n_classes: int = 1000) -> Counts:
    """Parameters and MACs of a network with a head of ``n_classes``, for one image.

    Matrix products and convolutions are counted, as the papers do; normalisation, activation and pooling are not.
    The network is made on the meta device, so that a giant takes no memory.

    Args:
        spec: which network.
        image_size: side of the square image, in pixels.
        n_classes: outputs of the head.

    Raises:
        UsvitError: the network cannot take this size.
    """
    with torch.device("meta"):
        model = build_model(spec, Weights("scratch"), n_classes=n_classes, image_size=image_size)
    model.eval().requires_grad_(False)  # the counter's hooks fail on a leaf that is another layer's input
    for module in model.modules():
        if getattr(module, "fused_attn", False):
            module.__dict__["fused_attn"] = False  # matrix products, whatever kernel this machine has
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(torch.zeros(1, 3, image_size, image_size, device="meta"))
    return Counts(count_parameters(model), counter.get_total_flops() // 2)


def sizes(spec: ModelSpec) -> list[int]:
    """Sides of the images for which a network's MACs are shown: its own, and those of the papers' tables."""
    return sorted({spec.image_size, *(one.image_size for one in spec.paper if one.params or one.macs)})


def count_zoo() -> dict[str, Any]:
    """What ``counts.json`` holds: of each network parameters and MACs by size of the image, and the weights' licences.

    Parameters depend on the image's size where positions, or ResMLP's maps over patches, are learned.
    """
    counts = {}
    for spec in ZOO.values():
        by_size = {size: count(spec, size) for size in sizes(spec)}
        counts[spec.name] = {str(size): [one.params, one.macs] for size, one in by_size.items()}
    names = sorted({weights.timm for spec in ZOO.values() for weights in spec.weights.values()})
    return {"counts": counts, "licenses": {name: licence(name) for name in names}}


def licence(name: str) -> str | None:
    """The licence that timm states for weights by their name there; None where it states none."""
    config = timm.get_pretrained_cfg(name)
    return config.license if config else None


if __name__ == "__main__":
    write_json(COUNTS, count_zoo())
    print(f"counted: {len(ZOO)} networks in {COUNTS.name}")
