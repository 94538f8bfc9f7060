"""The house model: a ResNet-18-D at half the width, small enough to ship with usvit and to train on two cores.

timm's code, with three 3 x 3 convolutions as stem and average pooling in the shortcuts (ResNet-C and -D of He et al.
2019, Bag of Tricks). The width was chosen so that the weights in half precision take less than 6 MB.
"""

from typing import Any

from timm.models import build_model_with_cfg, generate_default_cfgs, register_model
from timm.models.resnet import BasicBlock, ResNet

from usvit.models.architectures.cfg import untrained

default_cfgs = generate_default_cfgs({"usvit_small.untrained": untrained("conv1.0", "fc", fixed_input_size=False)})


@register_model
def usvit_small(pretrained: bool = False, **options: Any) -> ResNet:
    """Build the house model; ``options`` are those of timm's ``ResNet``."""
    shape: dict[str, Any] = {
        "block": BasicBlock,
        "layers": (2, 2, 2, 2),
        "channels": (32, 64, 128, 256),
        "stem_type": "deep",
        "stem_width": 16,
        "avg_down": True,
    }
    network: ResNet = build_model_with_cfg(ResNet, "usvit_small", pretrained, **(shape | options))
    return network
