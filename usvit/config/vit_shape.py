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

    __pydantic_config__: ClassVar = ConfigDict(strict=False)  # a record that is read accepts the JSON object

    width: _Size
    """Number of channels D of each token."""
    depth: _Size
    """Number of layers; each contains ``branches`` attention and ``branches`` MLP blocks."""
    mlp: _Size
    """Hidden width of the MLP."""
    heads: _Size
    patch: _Size
    """Side of a patch in pixels."""
    branches: _Size = 1
    """Number of parallel blocks in a layer (Touvron et al. 2022, Three things, eq. 2); 1 for a sequential network."""
    stem: Stem = "linear"
    """Layers that turn patches into tokens (Three things, section 5, Table 7): one projection, also with batch
    normalisation, GELU or both after it; the hierarchical MLP or the convolutions of LeViT, with batch or layer
    normalisation; or a small transformer within each patch (``local``)."""
    pool: Pool = "token"
    """Input of the head: the class token, the mean over patches, or attention pooling (MAP)."""
    head: Head = "linear"
    """``linear``, or ``hidden``: with one layer of width D and tanh before it (Dosovitskiy et al. 2021, sec. 3.1)."""
    position: Position = "learned"
    """Position embedding of the patches (Dosovitskiy et al. 2021, appendix D.4); ``learned`` is one-dimensional."""
    position_at: PositionAt = "stem"
    """Where positions are added: once (``stem``), or before every layer, each with its own embedding (``layers``) or
    all with the same one (``shared``)."""
    attention: Attention = "global"
    """``global``; ``axial``: along rows, then along columns (Dosovitskiy et al. 2021, appendix D.6); or ``talking``:
    global, with maps between the heads before and after the softmax (thesis, section 3.7)."""
    layer_scale: float | None = None
    """Initial value of the weights of ``residual`` (LayerScale: thesis, eq. 3.7); None for no weights."""
    residual: Residual = "layer_scale"
    """Weights of the residual branches (thesis, section 3.5): one for each channel, started at ``layer_scale``
    (``layer_scale``) or drawn from U[0, 2 ``layer_scale``] (``layer_scale_uniform``); one for each branch (``scalar``;
    with ``layer_scale`` 0 ReZero and SkipInit); or one for each branch, started at 1, with the initialisation of Fixup
    or T-Fixup (``fixup``, ``t_fixup``; without ``layer_scale``)."""
    class_position: bool = True
    """True if the class token has a position embedding; DeiT III's does not."""
    class_at: _Layers = 0
    """Number of layers before the class token is inserted, which see the patches alone (thesis, Table 3.13)."""
    class_layers: _Layers = 0
    """Number of layers of class attention after the ``depth`` layers, which then see the patches alone: 2 in CaiT
    (thesis, section 3.6)."""
    class_keys: ClassKeys = "all"
    """Keys of class attention: ``all`` tokens, or the ``patches`` without the class token (thesis, section 3.6.3)."""
    class_layer_scale: bool = True
    """False if class attention has no LayerScale although ``layer_scale`` is set (thesis, section 3.6.3)."""
