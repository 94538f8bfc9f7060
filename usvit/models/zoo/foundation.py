"""Networks of the foundation models, built from the entries of ``foundation.yaml``; each has its own weights only."""

from usvit.config import ViTShape
from usvit.models.foundation import FoundationModel, FoundationNetwork, foundation_models
from usvit.models.spec import ModelSpec, Pretrained
from usvit.models.zoo.common import shape


def _shape(network: FoundationNetwork) -> ViTShape | None:
    if network.shape is None:
        return None
    own = {} if network.shape.heads is None else {"heads": network.shape.heads}
    return shape(network.shape.size, pool=network.shape.pool, **own)


def _spec(entry: FoundationModel, network: FoundationNetwork) -> ModelSpec:
    return ModelSpec(
        entry.name,
        "vit",
        network.architecture,
        entry.source,
        network.options,
        {entry.name: Pretrained(entry.timm, entry.by, entry)},
        _shape(network),
        image_size=entry.image_size or 224,
    )


MODELS = tuple(_spec(entry, entry.network) for entry in foundation_models().values() if entry.network is not None)

WITHOUT_NETWORK = {entry.name: entry for entry in foundation_models().values() if entry.network is None}
"""Entries of networks that usvit does not have, which only hold a list of data sets."""
