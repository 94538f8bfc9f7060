"""Specification of a network in the zoo: its construction, its pre-trained weights, and its paper's numbers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from usvit.config import ViTShape
from usvit.models.foundation import FoundationModel

ZooFamily = Literal["vit", "hybrid", "deit", "deit3", "parallel", "sovit", "cait", "resmlp", "patchconvnet", "cnn"]
Family = ZooFamily | Literal["hierarchical", "mlp"]
"""Family of a network. ``timm:`` names have ``vit`` (transformers with tokens of one width), ``hierarchical``
(transformers in stages, such as Swin), ``hybrid``, ``mlp`` (MLP-Mixer and its kin) or ``cnn``."""

PROTOCOLS = {
    "v100_16gb_best": "one V100 of 16 GB, the largest batch that fits, mean of 30 runs (thesis, Table 3.5)",
    "v100_32gb_batch32": "one V100 of 32 GB, batch 32 (thesis, Table 4.1, which repeats speeds of Table 3.5)",
    "v100_32gb_batch256_amp": "one V100 of 32 GB, batch 256, mixed precision (thesis, Tables 5.1, 5.2, 6.7 and 6.8)",
    "v100_best_batch": "one V100, the batch that is fastest, in timm (Steiner et al. 2022, Table 3)",
    "three_things_table1": "hardware and batch not stated (Three things, Table 1)",
    **{
        f"v100_batch{batch}_{how}": f"one V100, batch {batch}, branches {text} (Three things, Table 4)"
        for batch in (1, 2, 4, 8, 16, 32, 64)
        for how, text in (("seq", "one after the other"), ("par", "at once"))
    },
}
"""Conditions under which the papers measured images per second; figures of different protocols are not comparable."""


@dataclass(frozen=True)
class Pretrained:
    """Pre-trained weights on the hub, and perhaps in a Python package, too."""

    timm: str | None
    """timm's ``architecture.tag``; ``timm/<this>`` is the repository on the Hugging Face hub. None if timm does not
    have these weights: then the user downloads the file from ``foundation.address``."""
    by: str
    """Authors of the weights, and the images they were pre-trained on."""
    foundation: FoundationModel | None = None
    """Entry of a foundation model: its licence, statistics, and the data sets that it was pre-trained on."""
    package: str | None = None
    """Python package (its name in a registry) that holds the same weights, for ``--weights package``; it is pinned."""


@dataclass(frozen=True)
class PaperFigures:
    """A paper's numbers for a network with a head of 1,000 classes; digits as printed (22.0 is not 22)."""

    table: str
    """Place in the paper, such as ``Three things, Table 1``."""
    params: float | None = None
    """Millions."""
    macs: float | None = None
    """MACs in billions for one image of ``image_size``; the papers call them FLOPs."""
    image_size: int = 224
    images_per_second: Mapping[str, float] = field(default_factory=dict)
    """Key of ``PROTOCOLS`` -> speed on the paper's hardware."""
    note: str = ""
    """Reason if our count differs by more than 1 %; otherwise empty."""


@dataclass(frozen=True)
class ModelSpec:
    """Specification of one network in the zoo."""

    name: str
    """Name on the command line."""
    family: Family
    architecture: str
    """Name that ``timm.create_model`` builds; usvit's own (``usvit_...``) are registered there, too."""
    source: str
    """Paper of the network."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of ``timm.create_model``."""
    weights: Mapping[str, Pretrained] = field(default_factory=dict)
    """Upstream (in1k, in21k, in21k_ft_in1k, ...) -> weights on the hub; the first is recommended."""
    shape: ViTShape | None = None
    """Shape if this is a plain ViT, whose parts can be exchanged (``model.vit``)."""
    changed: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``shape`` that were exchanged -> their values."""
    parts: tuple["ModelSpec", ...] = ()
    """Networks whose frozen features a head sees, the one that finds the lesion last; empty for one network."""
    features: Mapping[str, Any] = field(default_factory=dict)
    """``ModelConfig.frozen_features``: which features these are."""
    paper: tuple[PaperFigures, ...] = ()
    image_size: int = 224
    """Side of the input in the paper, or of the recommended weights, in pixels."""

    @property
    def implementation(self) -> Literal["timm", "usvit"]:
        """Package that contains the network's code: ``timm`` or ``usvit``."""
        return "usvit" if self.architecture.startswith("usvit_") else "timm"

    @property
    def recommended(self) -> Pretrained | None:
        """Weights that ``--weights hub`` selects; None if there are none on the hub."""
        return next(iter(self.weights.values()), None)
