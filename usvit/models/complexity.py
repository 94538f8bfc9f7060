"""Count parameters and multiply-accumulate operations (MACs) on networks without memory (device ``meta``).

``python -m usvit.models.complexity`` counts the whole zoo and writes ``zoo/counts.json``, which ``usvit models list``
displays.
"""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import timm
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode

import usvit.models.architectures  # noqa: F401  registers our networks with timm
from usvit.files import write_json
from usvit.models.build import build_model, count_parameters
from usvit.models.spec import ModelSpec
from usvit.models.weights import Weights
from usvit.models.zoo import ZOO, find_model
from usvit.plain_data import Json

COUNTS = Path(__file__).parent / "zoo" / "counts.json"
OUTSIDE_THE_ZOO = (
    *("timm:resnet18", "timm:resnext50_32x4d", "timm:resnext50d_32x4d"),
    *("timm:regnety_040", "timm:regnety_080", "timm:regnety_120"),
    *(f"patchconvnet_{size}_bn" for size in ("s20", "s36", "s120", "b36", "b60", "b120")),
    *("timm:pit_s_224", "timm:pit_b_224", "timm:tnt_s_patch16_224", "timm:tnt_b_patch16_224"),
    *("timm:convit_small", "timm:convit_base"),
    *("timm:swin_small_patch4_window7_224", "timm:swin_base_patch4_window7_224"),
)
"""Networks of the shipped studies that ``usvit models list`` does not list; counting them takes ten seconds."""


@dataclass(frozen=True)
class Cost:
    """Number of multiply-accumulate operations of a training step for one example."""

    trained: int
    """MACs of one forward pass of the trained network; its backward pass counts as two more."""
    frozen: int = 0
    """MACs of one forward pass of networks that are not trained: a teacher or a tokenizer."""

    @property
    def operations(self) -> int:
        """Number of FLOPs of the forward and backward passes: two per MAC (Chowdhery et al. 2022, PaLM, appendix B).

        Normalisation, activation, augmentation and a recomputed forward pass are not counted.
        """
        return 6 * self.trained + 2 * self.frozen


@dataclass(frozen=True)
class Complexity:
    """Cost of a network."""

    params: int
    """Number of parameters."""
    macs: int
    """Number of multiply-accumulate operations of one image's forward pass; the papers call them FLOPs."""


def count(spec: ModelSpec, image_size: int = 224, n_classes: int = 1000) -> Complexity:
    """Count parameters and MACs of a network with a head of ``n_classes``, for one image.

    Matrix products and convolutions are counted, as the papers do; normalisation, activation and pooling are not.
    The network is built on the meta device, so that even the largest needs no memory.

    Args:
        spec: Specification of the network.
        image_size: Side of the square image in pixels.
        n_classes: Number of outputs of the head.

    Raises:
        UsvitError: If the network does not support this size.
    """
    with torch.device("meta"), _ShapesAlone():
        model = build_model(spec, Weights("scratch"), n_classes=n_classes, image_size=image_size)
    return Complexity(count_parameters(model), forward_macs(model, blank(image_size)))


class _ShapesAlone(TorchFunctionMode):
    """Skip what draws and scales the first weights, and what changes values and no shape.

    On the device ``meta`` neither changes anything that is counted, but PyTorch spends most of a count on it.
    """

    SKIPPED = frozenset(
        (
            *("uniform_", "normal_", "erfinv_", "mul_", "add_", "clamp_", "fill_", "zero_"),
            *("gelu", "relu", "relu_", "silu", "silu_", "hardswish", "sigmoid", "sigmoid_", "softmax", "dropout"),
            *("layer_norm", "batch_norm", "group_norm"),
        )
    )

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__name__", "") in self.SKIPPED:
            tensor = args[0] if args else kwargs.get("tensor")  # so torch.nn.init names it
            if isinstance(tensor, torch.Tensor) and tensor.is_meta:
                return tensor
        return func(*args, **kwargs)


def forward_macs(module: nn.Module, *inputs: torch.Tensor) -> int:
    """Count the MACs of one forward pass in evaluation mode, on a copy without memory; the module does not change.

    Args:
        module: Module on any device, whose forward pass does not depend on values (no ``nonzero``, no ``item``).
        inputs: Its inputs; only their shapes and types matter.
    """
    numbers = [*module.parameters(), *module.buffers()]
    empty: dict[int, Any] = {id(one): torch.empty_like(one, device="meta", requires_grad=False) for one in numbers}
    # Gradients are disabled because the counter's hooks fail on a leaf that is another layer's input.
    empty |= {id(one): nn.Parameter(empty[id(one)], requires_grad=False) for one in module.parameters()}
    copied = copy.deepcopy(module, empty).eval()
    for part in copied.modules():
        if getattr(part, "fused_attn", False):
            part.__dict__["fused_attn"] = False  # count matrix products, whatever kernel this machine would use
    with FlopCounterMode(display=False) as counter, torch.no_grad(), _ShapesAlone():
        copied(*(given.to("meta") for given in inputs))
    return int(counter.get_total_flops()) // 2


def blank(side: int) -> torch.Tensor:
    """Return an image (1, 3, side, side) on the device ``meta``, for ``forward_macs``."""
    return torch.empty(1, 3, side, side, device="meta")


def sizes(spec: ModelSpec) -> list[int]:
    """Return the image sides for which MACs are shown: the network's default, and those of the papers' tables."""
    return sorted({spec.image_size, *(one.image_size for one in spec.paper if one.params or one.macs)})


def _count_zoo() -> Json:
    """Compute the content of ``counts.json``: parameters and MACs by image size, and the licences of the weights.

    The number of parameters depends on the image size if positions, or ResMLP's maps over patches, are learned.
    """
    counts = {}
    for spec in (*ZOO.values(), *map(find_model, OUTSIDE_THE_ZOO)):
        by_size = {size: count(spec, size) for size in sizes(spec)}
        counts[spec.name] = {str(size): [one.params, one.macs] for size, one in by_size.items()}
    weights = [one for spec in ZOO.values() for one in spec.weights.values()]
    names = sorted({one.timm for one in weights if one.timm is not None})
    return {"counts": counts, "licenses": {name: licence(name) for name in names}}


def licence(name: str) -> str | None:
    """Return the licence that timm states for weights; None if it states none."""
    config = timm.get_pretrained_cfg(name)
    return config.license if config else None


if __name__ == "__main__":
    write_json(COUNTS, _count_zoo())
    print(f"counted: {len(ZOO)} networks in {COUNTS.name}")
