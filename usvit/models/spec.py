"""What the zoo knows of a network: how it is made, who pre-trained it, and what its paper prints."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from usvit.config import Attention, Head, Pool, Position, PositionAt, Stem

Family = Literal["vit", "hybrid", "deit", "deit3", "parallel", "sovit", "cait", "resmlp", "patchconvnet", "cnn"]

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
"""How the papers measured the images per second of ``PaperFigures``; they do not compare with one another."""


@dataclass(frozen=True)
class ViTShape:
    """A Vision Transformer, whole: what ``usvit_vit`` builds."""

    width: int
    """D, of every token."""
    depth: int
    """Layers; each holds ``branches`` attention and ``branches`` MLP blocks."""
    mlp: int
    """Hidden width of the MLP."""
    heads: int
    patch: int
    """Side of a patch, in pixels."""
    branches: int = 1
    """Blocks side by side in a layer (Touvron et al. 2022, Three things, eq. 2); 1: one after the other."""
    stem: Stem = "linear"
    """What makes tokens of patches: one projection, the hierarchical MLP or the convolutions of LeViT, with batch
    or layer normalisation (Three things, section 5, Table 7)."""
    pool: Pool = "token"
    """What the head reads: the class token, the mean over patches, or attention pooling (MAP)."""
    head: Head = "linear"
    """``hidden``: one more layer of width D with tanh before it (Dosovitskiy et al. 2021, section 3.1)."""
    position: Position = "learned"
    """Of the patches (Dosovitskiy et al. 2021, appendix D.4); ``learned`` is one-dimensional."""
    position_at: PositionAt = "stem"
    """Added once, or before every layer: another one in each (``layers``), or the same (``shared``)."""
    attention: Attention = "global"
    """``axial``: along rows, then along columns (Dosovitskiy et al. 2021, appendix D.6)."""
    layer_scale: float | None = None
    """First value of LayerScale (thesis, eq. 3.7); None: there is none."""
    class_position: bool = True
    """Whether the class token has a position embedding (DeiT III's has none)."""


@dataclass(frozen=True)
class Pretrained:
    """Weights of the hub."""

    timm: str
    """timm's ``architecture.tag``; with ``timm/`` before it, the repository on the Hugging Face hub."""
    by: str
    """Who pre-trained them, on what."""


@dataclass(frozen=True)
class PaperFigures:
    """What a paper prints of a network, with a head of 1,000 classes; digits as printed (22.0 is not 22)."""

    table: str
    """Where: ``Three things, Table 1``."""
    params: float | None = None
    """Millions."""
    macs: float | None = None
    """Billions, for one image of ``image_size``; the papers call them FLOPs."""
    image_size: int = 224
    images_per_second: Mapping[str, float] = field(default_factory=dict)
    """Of ``PROTOCOLS`` -> speed on the paper's own hardware."""
    note: str = ""
    """Why ours differs by more than 1 %, where it does."""


@dataclass(frozen=True)
class ModelSpec:
    """One network of the zoo."""

    name: str
    """The name on the command line."""
    family: Family
    architecture: str
    """What ``timm.create_model`` builds; ours (``usvit_...``) are registered there, too."""
    source: str
    """The paper that it comes from."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of ``timm.create_model``."""
    weights: Mapping[str, Pretrained] = field(default_factory=dict)
    """Upstream (in1k, in21k, in21k_ft_in1k, ...) -> weights of the hub; the first is the recommended one."""
    shape: ViTShape | None = None
    """Of a plain ViT, so that parts of it can be exchanged (``model.vit``)."""
    changed: Mapping[str, Any] = field(default_factory=dict)
    """What of ``shape`` was exchanged."""
    paper: tuple[PaperFigures, ...] = ()
    image_size: int = 224
    """Side of the input that the paper, or the recommended weights, have, in pixels."""

    @property
    def implementation(self) -> str:
        """Whose code the network is: ``timm`` or ``usvit``."""
        return "usvit" if self.architecture.startswith("usvit_") else "timm"

    @property
    def recommended(self) -> Pretrained | None:
        """The hub's weights that ``--weights hub`` takes."""
        return next(iter(self.weights.values()), None)
