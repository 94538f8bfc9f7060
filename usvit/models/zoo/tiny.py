"""Small members of families of CNNs, hybrids and transformers of which timm has none: for ``usvit study --scale tiny``.

They have no weights and no paper, so that no list of networks shows them. Their layers are those of the family; only
their number, their widths and the side of the image are smaller.
"""

from usvit.models.spec import ModelSpec

_SOURCE = "small member of its family, for --scale tiny"
_VIT = {"patch": 1, "width": 48, "depth": 2, "mlp": 96, "heads": 3}

_SPECS = (
    ModelSpec("tiny_vgg", "cnn", "vgg11", _SOURCE, {"mlp_ratio": 0.125}, image_size=32),
    # Batch statistics of two steps are far from those of the layers, so that the scores overflow in evaluation.
    ModelSpec("tiny_inception", "cnn", "inception_v3", _SOURCE, {"norm_layer": "groupnorm1"}, image_size=96),
    ModelSpec("tiny_nasnet", "cnn", "nasnetalarge", _SOURCE, {"stem_size": 8, "num_features": 192}, image_size=32),
    ModelSpec("tiny_bit", "cnn", "usvit_bit", _SOURCE, {"layers": (1, 1, 1, 1), "factor": 1}, image_size=32),
    ModelSpec(
        "tiny_axial_resnet", "cnn", "usvit_axial_resnet", _SOURCE,
        {"layers": (1, 1, 1, 1), "factor": 0.25}, image_size=32,
    ),
    ModelSpec(
        "tiny_resnext", "cnn", "resnext50_32x4d", _SOURCE, {"layers": (1, 1, 1, 1), "cardinality": 8}, image_size=32
    ),
    ModelSpec("tiny_regnety", "cnn", "regnety_002", _SOURCE, image_size=32),
    ModelSpec("tiny_hybrid16", "hybrid", "usvit_hybrid", _SOURCE, {"layers": (1, 1, 1), **_VIT}, image_size=32),
    ModelSpec("tiny_hybrid32", "hybrid", "usvit_hybrid", _SOURCE, {"layers": (1, 1, 1, 1), **_VIT}, image_size=64),
    ModelSpec(
        "tiny_swin", "hierarchical", "swin_tiny_patch4_window7_224", _SOURCE,
        {"embed_dim": 24, "depths": (1, 1, 1, 1)}, image_size=32,
    ),
    ModelSpec("tiny_pit", "hierarchical", "pit_ti_224", _SOURCE, image_size=32),
    ModelSpec(
        "tiny_convit", "vit", "convit_tiny", _SOURCE, {"embed_dim": 48, "depth": 2, "num_heads": 3}, image_size=32
    ),
    ModelSpec(
        "tiny_tnt", "vit", "tnt_s_legacy_patch16_224", _SOURCE,
        {"embed_dim": 48, "inner_dim": 8, "depth": 2, "num_heads_outer": 3, "num_heads_inner": 2}, image_size=32,
    ),
)  # fmt: skip

TINY: dict[str, ModelSpec] = {spec.name: spec for spec in _SPECS}
"""Name -> specification. ``image_size`` is the smallest side that the network takes here."""
