"""Classifier of two layers, for features that were learnt through a projector and may not be linearly separable.

Source: Touvron (2022), PhD thesis, section 2.4.6 ("Classifier"), Tables 2.15 and 2.16. The thesis does not state the
width of the hidden layer; here it is the width of the features.
"""

from collections.abc import Container

from torch import nn

from usvit.errors import UsvitError


def give_mlp_head(model: nn.Module) -> None:
    """Replace the classifier Linear (D, K) by Linear (D, D), batch normalisation, ReLU, Linear (D, K).

    The second linear layer is the old classifier, so a classifier of zeros stays zero. The weights of the first are
    drawn from torch's global generator. Running statistics are updated for each micro-batch, as in all batch
    normalisation.

    Args:
        model: Network with timm's interface; changed in place.

    Raises:
        UsvitError: If its classifier is not one linear layer (but two heads, a convolution, or absent).
    """
    name = _classifier(model)
    old = model.get_submodule(name) if isinstance(name, str) else None
    if not isinstance(old, nn.Linear):
        raise UsvitError(
            f"The classifier of this network ({type(model).__name__}) is not one linear layer, so model.head=mlp "
            "cannot replace it: set model.head to new."
        )
    width = old.in_features
    head = nn.Sequential(nn.Linear(width, width), nn.BatchNorm1d(width), nn.ReLU(inplace=True), old)
    owner, _, leaf = str(name).rpartition(".")
    setattr(model.get_submodule(owner), leaf, head)


def is_mlp_head(model: nn.Module, names: Container[str]) -> bool:
    """Return True if a checkpoint contains such a head.

    Args:
        model: Network of the checkpoint.
        names: Names of the checkpoint's tensors.
    """
    return f"{_classifier(model)}.0.weight" in names and f"{_classifier(model)}.3.weight" in names


def _classifier(model: nn.Module) -> object:
    """Return timm's name of the classifier; a tuple of two names for a network with two heads."""
    return (getattr(model, "pretrained_cfg", None) or {}).get("classifier")
