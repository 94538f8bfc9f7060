"""Complete shape of a plain Vision Transformer; ``ViTConfig`` exchanges parts of it."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import ConfigDict, Field

from usvit.config.sections import Attention, ClassKeys, Head, Pool, Position, PositionAt, Residual, Stem

_Size = Annotated[int, Field(ge=1, le=10**15)]
_Layers = Annotated[int, Field(ge=0)]


@dataclass(frozen=True)
class ViTShape:
    """Complete shape of a Vision Transformer, as ``usvit_vit`` builds it."""

    # ViTConfig has the same fields and describes them. There, null means "as in the named model"; a type of its own
    # saves the code that builds a network from asking for it. layer_scale is None for no LayerScale.

    __pydantic_config__: ClassVar = ConfigDict(strict=False)  # a record that is read accepts the JSON object

    width: _Size
    depth: _Size
    mlp: _Size
    heads: _Size
    patch: _Size
    branches: _Size = 1
    stem: Stem = "linear"
    pool: Pool = "token"
    head: Head = "linear"
    position: Position = "learned"
    position_at: PositionAt = "stem"
    attention: Attention = "global"
    layer_scale: float | None = None
    residual: Residual = "layer_scale"
    class_position: bool = True
    class_at: _Layers = 0
    class_layers: _Layers = 0
    class_keys: ClassKeys = "all"
    class_layer_scale: bool = True
