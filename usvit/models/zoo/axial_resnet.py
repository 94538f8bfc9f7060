"""AxialResNet-50 (Dosovitskiy et al. 2021, appendix D.6, Fig. 13), in the three widths of Wang et al. 2020.

The appendix does not say which width its Fig. 13 shows.
"""

from usvit.models.spec import ModelSpec
from usvit.models.zoo.common import DOSOVITSKIY

_FACTORS = {"s": 0.5, "m": 0.75, "l": 1.0}

MODELS = tuple(
    ModelSpec(f"axial_resnet50_{size}", "cnn", "usvit_axial_resnet", DOSOVITSKIY, {"factor": factor})
    for size, factor in _FACTORS.items()
)
