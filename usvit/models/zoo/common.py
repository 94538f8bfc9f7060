"""Shared code of the zoo's files: sources, sizes of transformers, and helpers that specify weights and figures."""

import dataclasses
from collections.abc import Mapping

from usvit.config import ViTShape
from usvit.models.spec import Family, ModelSpec, PaperFigures, Pretrained

DOSOVITSKIY, STEINER, GHEFLATI = "Dosovitskiy 2021", "Steiner 2022", "Gheflati 2022"
THESIS, THREE, SOVIT = "Touvron 2022", "Three things 2022", "Alabdulmohsin 2023"
BEYER, LIU, TAN = "Beyer 2023", "Liu 2022", "Tan 2019"
_FOUNDATION_MODELS = {
    "Jiao 2024": "Jiao et al., USFM: a universal ultrasound foundation model generalized to tasks and organs towards "
    "label efficient image analysis, Medical Image Analysis 96, 2024",
    "Ma 2026": "Ma et al., TinyUSFM: towards compact and efficient ultrasound foundation models, IEEE Journal of "
    "Biomedical and Health Informatics, 2026",
    "Megahed 2026": "Megahed et al., USF-MAE: ultrasound self-supervised foundation model with masked autoencoding, "
    "Biomedical Signal Processing and Control 122, 2026",
    "Jiang 2025": "Jiang et al., From pretraining to privacy: federated ultrasound foundation model with "
    "self-supervised learning, npj Digital Medicine 8, 2025",
    "Siméoni 2025": "Siméoni et al., DINOv3, arXiv 2508.10104, 2025",
    "Bolya 2025": "Bolya et al., Perception Encoder: the best visual embeddings are not at the output of the network, "
    "arXiv 2504.13181, 2025",
    "Tschannen 2025": "Tschannen et al., SigLIP 2: multilingual vision-language encoders with improved semantic "
    "understanding, localization, and dense features, arXiv 2502.14786, 2025",
    "Zheng 2025": "Zheng et al., OpenUS: a fully open-source foundation model for ultrasound image analysis via "
    "self-adaptive masked contrastive learning, arXiv 2511.11510, 2025",
}
"""Papers of the entries of ``foundation.yaml``."""

USVIT = "usvit"

SOURCES = {
    DOSOVITSKIY: "Dosovitskiy et al., An image is worth 16x16 words, ICLR 2021",
    STEINER: "Steiner et al., How to train your ViT? Data, augmentation, and regularization (AugReg), TMLR 2022",
    GHEFLATI: "Gheflati & Rivaz, Vision transformers for classification of breast ultrasound images, EMBC 2022",
    THESIS: "Touvron, Architectures and training for visual understanding, PhD thesis, Sorbonne Université, 2022",
    THREE: "Touvron et al., Three things everyone should know about Vision Transformers, ECCV 2022",
    SOVIT: "Alabdulmohsin et al., Getting ViT in shape: scaling laws for compute-optimal model design, NeurIPS 2023",
    BEYER: "Beyer et al., FlexiViT: one model for all patch sizes, CVPR 2023",
    LIU: "Liu et al., A ConvNet for the 2020s, CVPR 2022",
    TAN: "Tan & Le, EfficientNet: rethinking model scaling for convolutional neural networks, ICML 2019; -lite is the "
    "authors' later variant for small devices",
    USVIT: "usvit, docs/explanation/small-model.md (a ResNet-D: He et al., Bag of Tricks, CVPR 2019)",
    **_FOUNDATION_MODELS,
}

SIZES = {
    "ti": (192, 12, 768, 3, 16),
    "s": (384, 12, 1536, 6, 16),
    "m": (512, 12, 2048, 8, 16),
    "b": (768, 12, 3072, 12, 16),
    "l": (1024, 24, 4096, 16, 16),
    "h": (1280, 32, 5120, 16, 14),
    "g": (1408, 40, 6144, 16, 14),
}
"""Letter -> width, depth, MLP, heads, patch. Ti, S: thesis, Table 3.1; B, L, H: Dosovitskiy et al. 2021, Table 1 (H
has patches of 14); M: DeiT III's; g: Zhai et al. 2022, as Alabdulmohsin et al. 2023 use it."""

TIMM_SIZE = {"ti": "tiny", "s": "small", "m": "medium", "b": "base", "l": "large", "h": "huge", "g": "giant"}

AUGREG_21K = "Steiner et al. 2022 (AugReg), ImageNet-21k, recommended model"
AUGREG_FT = "Steiner et al. 2022 (AugReg), ImageNet-21k, then ImageNet-1k"
AUGREG_1K = "Steiner et al. 2022 (AugReg), ImageNet-1k"
ORIGINAL_21K = "Dosovitskiy et al. 2021, ImageNet-21k"
ORIGINAL_FT = "Dosovitskiy et al. 2021, ImageNet-21k, then ImageNet-1k"

WHOLE_MILLIONS = "The table cuts parameters to whole millions."


def shape(size: str, **others: object) -> ViTShape:
    """Return the shape of a plain ViT by its letter, with some fields replaced: ``shape("s", patch=32)``."""
    width, depth, mlp, heads, patch = SIZES[size]
    return ViTShape(**{"width": width, "depth": depth, "mlp": mlp, "heads": heads, "patch": patch, **others})  # type: ignore[arg-type]


def layer_scale(depth: int) -> float:
    """Return the initial value of LayerScale by depth, CaiT's rule (thesis, section 3.5.1): 0.1, 1e-5 or 1e-6."""
    return 1e-1 if depth <= 18 else 1e-5 if depth <= 24 else 1e-6


def ours(name: str, family: Family, source: str, whole: ViTShape, *paper: PaperFigures) -> ModelSpec:
    """Specify a ViT that timm lacks; ``usvit_vit`` builds it from its shape."""
    return ModelSpec(name, family, "usvit_vit", source, dataclasses.asdict(whole), shape=whole, paper=paper)


def hub(**upstreams: tuple[str, str]) -> Mapping[str, Pretrained]:
    """Specify weights, the recommended first: ``hub(in21k=("vit_base_patch16_224.augreg_in21k", AUGREG_21K))``."""
    return {upstream: Pretrained(name, by) for upstream, (name, by) in upstreams.items()}


def figures(
    table: str, params: float | None = None, macs: float | None = None, size: int = 224, note: str = "", **speed: float
) -> PaperFigures:
    """Return a table's numbers: millions of parameters, billions of MACs, images per second by protocol."""
    return PaperFigures(table, params, macs, size, speed, note)


def scaling(exaflops: float, epochs: int = 7, note: str = "") -> PaperFigures:
    """Return the MACs that follow from the compute of pre-training on JFT-300M (Dosovitskiy et al. 2021, Table 6).

    The printed exaFLOPs are 303 million images x epochs x 6 x MACs: two FLOPs per MAC, and the backward pass costs two
    forward passes.
    """
    return PaperFigures("Dosovitskiy, Table 6", macs=round(exaflops / (6 * 0.303 * epochs), 2), note=note)


PADDING = "From exaFLOPs that omit products with the zeros of padding; without these our count is within 1.5 %."
"""Of Dosovitskiy et al. 2021, Table 6: as XLA counts, and as ``tests/models/zoo/test_listing.py`` recounts."""
