"""The head of a checkpoint: other trainings leave it behind, a teacher needs it, a change of resolution keeps it."""

from typing import Any

from torch import nn

from usvit.errors import UsvitError
from usvit.models.mlp_head import give_mlp_head, is_mlp_head
from usvit.models.weights import Weights
from usvit.models.weights.load import head_of
from usvit.models.weights.names import by_timm, to_network_names


def load_head(model: nn.Module, weights: Weights, n_classes: int, who: str, hint: str) -> None:
    """Put the head of a checkpoint into a network; one of two layers takes the place of the network's own.

    Args:
        model: of the zoo, with a head of ``n_classes``; changed in place.
        weights: of the same network.
        n_classes: K.
        who: the network, for an error: ``The teacher deit_s``.
        hint: what to do about it.

    Raises:
        UsvitError: the file has no head, or one of other classes.
    """
    where = weights.path.name if weights.source == "file" and weights.path else weights.name
    named = to_network_names(weights.read(), model)
    by_timm(named, model)
    if is_mlp_head(model, named.tensors):
        give_mlp_head(model)
    is_head = head_of(model)
    own: dict[str, Any] = {key: value for key, value in model.state_dict().items() if is_head(key)}
    missing = [key for key in own if key not in named.tensors]
    if missing:
        raise UsvitError(
            f"{who} ({where}) has no head ({', '.join(missing[:3])}), so it cannot name classes: its weights were "
            f"not trained on labels. {hint}"
        )
    head = {key: named.tensors[key] for key in own}
    wrong = [key for key, value in head.items() if value.shape != own[key].shape]
    if wrong:
        there = head[next((key for key in wrong if key.endswith("bias")), wrong[0])].shape[0]
        raise UsvitError(f"{who} ({where}) knows {there} classes, and the images have {n_classes}. {hint}")
    model.load_state_dict(head, strict=False)


def check_classes(weights: Weights, classes: tuple[str, ...], who: str, hint: str) -> None:
    """Refuse a head whose passport names other classes than the images have, or in another order.

    Args:
        weights: with a passport, or without: then nothing is known.
        classes: of the images, in order; empty: not known.
        who, hint: as of ``load_head``.

    Raises:
        UsvitError: the first class that differs is named.
    """
    theirs = (weights.passport or {}).get("classes")
    if not classes or not isinstance(theirs, list) or not theirs or tuple(map(str, theirs)) == classes:
        return
    pairs = enumerate(zip(theirs, classes, strict=False))
    different = (f"class {at} is {its} there and {ours} here" for at, (its, ours) in pairs if str(its) != ours)
    first = next(different, f"{len(theirs)} there and {len(classes)} here")
    raise UsvitError(f"{who} was trained on other classes than the images have: {first}. {hint}")
