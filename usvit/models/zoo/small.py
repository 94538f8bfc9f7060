"""The house model of usvit, whose weights ship with usvit (``--weights phantom``)."""

from usvit.models.spec import ModelSpec
from usvit.models.zoo.common import HOUSE

MODELS = (
    ModelSpec("usvit_small", "cnn", "usvit_small", HOUSE, image_size=128),
    ModelSpec(
        "usvit_small_multi",
        "cnn",
        "usvit_small",
        HOUSE,
        {"scales": (1.0, 0.8, 0.5), "head_stages": (3, 4), "standardized": True},
        image_size=320,
    ),
)
