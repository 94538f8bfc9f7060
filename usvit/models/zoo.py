"""The zoo: the papers' names of networks, and what timm calls them.

The nine of Gheflati & Rivaz 2022 (Tables I and II); ``timm:<name>`` reaches every other.
"""

from dataclasses import dataclass
from typing import Literal

from usvit.errors import UsvitError, unknown

Family = Literal["vit", "hybrid", "cnn"]

GHEFLATI = "Gheflati & Rivaz 2022"
AUGREG = "Steiner et al. 2022 (AugReg), ImageNet-21k, recommended model"


@dataclass(frozen=True)
class ModelSpec:
    """One network of the zoo."""

    name: str
    """The name on the command line."""
    timm_name: str
    """timm's ``architecture.tag``; the tag names the pre-trained weights."""
    family: Family
    source: str
    """The paper that usvit takes it from."""
    upstream: str
    """Who pre-trained the ``hub`` weights, on what."""

    @property
    def architecture(self) -> str:
        """timm's name without the weights' tag."""
        return self.timm_name.partition(".")[0]


def _spec(name: str, timm_name: str, family: Family, upstream: str = AUGREG) -> ModelSpec:
    return ModelSpec(name, timm_name, family, GHEFLATI, upstream)


ZOO: dict[str, ModelSpec] = {
    spec.name: spec
    for spec in (
        _spec("vit_ti16", "vit_tiny_patch16_224.augreg_in21k", "vit"),
        _spec("vit_s32", "vit_small_patch32_224.augreg_in21k", "vit"),
        _spec("vit_b32", "vit_base_patch32_224.augreg_in21k", "vit"),
        _spec("r_ti16", "vit_tiny_r_s16_p8_224.augreg_in21k", "hybrid"),
        _spec("r26_s32", "vit_small_r26_s32_224.augreg_in21k", "hybrid"),
        _spec("resnet50", "resnet50.tv_in1k", "cnn", "torchvision, ImageNet-1k"),
        _spec("vgg16", "vgg16.tv_in1k", "cnn", "torchvision, ImageNet-1k"),
        _spec("inception_v3", "inception_v3.tv_in1k", "cnn", "torchvision, ImageNet-1k"),
        _spec("nasnet_large", "nasnetalarge.tf_in1k", "cnn", "TensorFlow, ImageNet-1k"),
    )
}

ERRATA = {
    "r26_s16": "Table II of Gheflati & Rivaz 2022 prints 'R26+S/16', but the recommended models that it draws from "
    "(Steiner et al. 2022, Table 2) hold R26+S/32, and no R26+S/16 was released: use r26_s32."
}
"""Names that a paper prints and that do not exist."""


def find_model(name: str) -> ModelSpec:
    """The specification of a network by its zoo name, or ``timm:<any timm name>``.

    Raises:
        UsvitError: no such network; the nearest names are given.
    """
    if name in ZOO:
        return ZOO[name]
    if name in ERRATA:
        raise UsvitError(f"The model '{name}' does not exist: {ERRATA[name]}")
    if not name.startswith("timm:"):
        raise unknown("model", name, ZOO, "'usvit models list' shows all; timm:<name> takes any of timm's.")
    import timm  # seconds to import: only when a name needs it

    timm_name = name.removeprefix("timm:")
    architecture, _, tag = timm_name.partition(".")
    if not timm.is_model(architecture):
        raise unknown("timm model", architecture, timm.list_models(), "The prefix 'timm:' is kept on the command line.")
    tags = [known.partition(".")[2] for known in timm.list_pretrained(f"{architecture}.*")]
    if tag and tag not in tags:
        raise unknown(f"weights of timm's {architecture}", tag, tags)
    module = timm.models.model_entrypoint(architecture).__module__.rpartition(".")[2]
    family: Family = (
        "hybrid" if "hybrid" in module else "vit" if "vision_transformer" in module or module == "deit" else "cnn"
    )
    return ModelSpec(name, timm_name, family, "timm", tag or "timm's default")
