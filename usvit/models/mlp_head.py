"""A classifier of two layers, for features that were learnt through a projector and so need not be linearly separable.

Source: Touvron (2022), PhD thesis, section 2.4.6 ("Classifier"), Tables 2.15 and 2.16. Not stated there, chosen here:
the hidden layer is as wide as the features.
"""

from collections.abc import Container

from torch import nn

from usvit.errors import UsvitError


def give_mlp_head(model: nn.Module) -> None:
    """Put Linear (D, D), batch normalisation, ReLU, Linear (D, K) in the place of the classifier Linear (D, K).

    The second layer is the classifier that was there, so what starts at zero still does. The first draws its weights
    from torch's global generator. Running statistics see portions of a batch, as batch normalisation does everywhere.

    Args:
        model: with timm's interface; changed in place.

    Raises:
        UsvitError: its classifier is not one linear layer (two heads, a convolution, none).
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
    """Check that a checkpoint has such a head.

    Args:
        model: the network that it is of.
        names: of its tensors.
    """
    return f"{_classifier(model)}.0.weight" in names and f"{_classifier(model)}.3.weight" in names


def _classifier(model: nn.Module) -> object:
    """Return timm's name of the classifier; a network with two heads has two."""
    return (getattr(model, "pretrained_cfg", None) or {}).get("classifier")
