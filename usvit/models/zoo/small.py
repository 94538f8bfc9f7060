"""The house model of usvit."""

from usvit.models.spec import ModelSpec

_SOURCE = "usvit, with --weights phantom (docs/explanation/house-model.md); ResNet-D: He et al. 2019, Bag of Tricks"

MODELS = (
    ModelSpec("usvit_small", "cnn", "usvit_small", _SOURCE, image_size=128),
    ModelSpec(
        "usvit_small_multi", "cnn", "usvit_small", _SOURCE, {"halvings": 1, "head_stages": (3, 4)}, image_size=320
    ),
)
