"""Parameters and MACs of a plain Vision Transformer in closed form, for searches over many shapes.

``usvit.models.complexity.count`` builds the network and counts it; both agree wherever this module has a formula
(``tests/models/test_closed_form.py``).
"""

from usvit.config import ViTShape
from usvit.models.complexity import Complexity

_FORMULAS = {
    "stem": ("linear",),
    "head": ("linear",),
    "position": ("learned",),
    "position_at": ("stem",),
    "attention": ("global",),
    "layer_scale": (None,),
    "residual": ("layer_scale",),
    "class_at": (0,),
    "class_layers": (0,),
}
"""Fields of ``ViTShape`` and the values for which there is a formula."""


def count_plain(shape: ViTShape, image_size: int = 224, n_classes: int = 0) -> Complexity | None:
    """Count parameters and MACs of a plain ViT without building it.

    Matrix products and convolutions are counted, as ``usvit.models.complexity.count`` does.

    Args:
        shape: Shape of the network.
        image_size: Side of the square image in pixels.
        n_classes: Number of outputs of the head. With 0, the head is not counted.

    Returns:
        The counts, or None if the network has a part without a formula: a stem, a position embedding, attention or
        weights of residual branches other than those of the original ViT.
    """
    if any(getattr(shape, field) not in values for field, values in _FORMULAS.items()):
        return None
    width, mlp = shape.width, shape.mlp
    patches, pixels = (image_size // shape.patch) ** 2, 3 * shape.patch**2
    has_class = shape.pool == "token"
    tokens = patches + has_class
    attention, hidden = 4 * width**2, 2 * width * mlp
    block_params = attention + hidden + 9 * width + mlp
    block_macs = tokens * (attention + hidden) + 2 * tokens**2 * width
    positions = patches + (has_class and shape.class_position)
    params = pixels * width + width + has_class * width + positions * width
    params += shape.depth * shape.branches * block_params + 2 * width
    macs = patches * pixels * width + shape.depth * shape.branches * block_macs
    if shape.pool == "map":  # one query attends to all patches, then a residual MLP
        params += width + block_params - 2 * width
        macs += 2 * (patches + 1) * width**2 + 2 * patches * width + hidden
    if n_classes:
        params += (width + 1) * n_classes
        macs += width * n_classes
    return Complexity(params, macs)
