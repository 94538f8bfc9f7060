"""Networks that timm lacks. Importing this package registers them with timm, so ``timm.create_model`` can build them.

Entry points, which take keyword options only:

- ``usvit_vit``: any Vision Transformer (``vit.py``)
- ``usvit_hybrid``: a ResNet followed by a Vision Transformer (``hybrid.py``)
- ``usvit_axial_resnet`` (``axial_resnet.py``): a ResNet-50 with axial attention
- ``usvit_cait_distilled`` (``cait.py``): CaiT with a distillation token
- ``usvit_frozen_features`` (``frozen_features.py``): a classifier on the features of frozen networks
- ``usvit_patchconvnet`` (``patchconvnet.py``), ``usvit_resnet50_attn`` (``resnet_attention.py``): attention pooling
- ``usvit_resmlp`` (``resmlp.py``): a ResMLP of any depth and patch size, with the parts that its ablation compares
- ``usvit_small`` (``small.py``): the small offline model, a ResNet-18-D at half the width
- ``usvit_bit`` (``timm_sizes.py``): timm's class at sizes that timm does not offer
"""

from usvit.models.architectures.axial_resnet import usvit_axial_resnet
from usvit.models.architectures.cait import usvit_cait_distilled
from usvit.models.architectures.frozen_features import usvit_frozen_features
from usvit.models.architectures.hybrid import usvit_hybrid
from usvit.models.architectures.parallel import fuse_branches
from usvit.models.architectures.patchconvnet import usvit_patchconvnet
from usvit.models.architectures.resmlp import usvit_resmlp
from usvit.models.architectures.resnet_attention import usvit_resnet50_attn
from usvit.models.architectures.small import usvit_small
from usvit.models.architectures.timm_sizes import usvit_bit
from usvit.models.architectures.vit import usvit_vit

__all__ = [
    "fuse_branches",
    "usvit_axial_resnet",
    "usvit_bit",
    "usvit_cait_distilled",
    "usvit_frozen_features",
    "usvit_hybrid",
    "usvit_patchconvnet",
    "usvit_resmlp",
    "usvit_resnet50_attn",
    "usvit_small",
    "usvit_vit",
]
