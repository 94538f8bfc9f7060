"""The house model of usvit."""

from usvit.models.spec import ModelSpec

MODELS = (
    ModelSpec(
        "usvit_small",
        "cnn",
        "usvit_small",
        "usvit (docs/explanation/house-model.md); ResNet-D: He et al. 2019, Bag of Tricks",
        image_size=128,
    ),
)
