"""Networks by name: ``list_models`` and ``create_model``. Importing this file does not import torch."""

from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, get_args

from usvit.arguments import checked_arguments
from usvit.errors import unknown
from usvit.models.spec import ZooFamily
from usvit.models.zoo import ZOO, find_model

if TYPE_CHECKING:
    from torch import nn


@checked_arguments
def list_models(pattern: str | None = None, family: str | None = None) -> list[str]:
    """List the names of the zoo's networks, family by family.

    Args:
        pattern: Shell pattern that the name must match, such as ``vit_*16``; None: every name.
        family: Family of the networks, such as ``vit``, ``deit`` or ``cnn``; None: every family.

    Returns:
        Names that ``create_model`` takes. It takes ``timm:<name>``, too, and names of ``usvit.models.zoo.PATTERNS``.

    Raises:
        UsvitError: If there is no such family.

    >>> list_models("resmlp_?24")
    ['resmlp_s24', 'resmlp_b24']
    >>> "vit_b16" in list_models(family="vit")
    True
    """
    if family is not None and family not in get_args(ZooFamily):
        raise unknown("family", family, get_args(ZooFamily))
    return [
        name
        for name, spec in ZOO.items()
        if family in (None, spec.family) and (pattern is None or fnmatchcase(name, pattern))
    ]


@checked_arguments
def create_model(
    name: str, *, n_classes: int, weights: str = "scratch", image_size: int | None = None, **vit: Any
) -> "nn.Module":
    """Build a network with a new classification head.

    Args:
        name: Name in ``list_models()``, one of the patterns of ``usvit models list``, or ``timm:<name>``.
        n_classes: Number of outputs K, at least 1.
        weights: Initial weights: ``scratch``, ``hub``, ``hub:UPSTREAM``, ``package``, a file, or the folder of a
            run.
        image_size: Side S of the square input in pixels; None: the size of the network's paper.
        **vit: Parts of a plain ViT to exchange, such as ``stem="hmlp_bn"`` (``model.vit`` in the configuration).

    Returns:
        Module from images (B, 3, S, S) float to logits (B, K), in training mode. Random numbers are drawn from torch's
        global generator.

    Raises:
        UsvitError: If there is no such network, if its parts or its size do not fit, or if the weights are missing or
            belong to another network.

    >>> import torch
    >>> model = create_model("vit_ti16", n_classes=2, image_size=64)
    >>> model(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 2])
    """
    from usvit.config import build_config
    from usvit.models.build import build_model
    from usvit.models.weights import resolve_weights

    checked = build_config({"model": {"name": name, "vit": vit}}).model.vit.model_dump(exclude_none=True)
    spec = find_model(name, checked)
    found = resolve_weights(weights, spec)
    return build_model(spec, found, n_classes=n_classes, image_size=image_size or spec.image_size)
