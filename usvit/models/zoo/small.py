"""The small offline model of usvit, whose weights ship with usvit (``--weights phantom``)."""

from usvit.models.spec import ModelSpec
from usvit.models.zoo.common import USVIT

MODELS = (
    ModelSpec("usvit_small", "cnn", "usvit_small", USVIT, image_size=128),
    ModelSpec(
        "usvit_small_multi",
        "cnn",
        "usvit_small",
        USVIT,
        {"scales": (1.0, 0.8, 0.5), "head_stages": (3, 4), "standardized": True},
        image_size=320,
    ),
)
