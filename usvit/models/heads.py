"""Heads of classification: whether a network has two, and those of weights, for a network that keeps them."""

from torch import nn

from usvit.errors import UsvitError
from usvit.models.mlp_head import give_mlp_head, is_mlp_head
from usvit.models.weights import HIDDEN, RenamedState, Weights, by_timm, head_of, to_network_names


def has_distillation_head(network: nn.Module) -> bool:
    """Return whether a network has two classifiers, one for the class token and one for the distillation token."""
    head = network.get_classifier() if hasattr(network, "get_classifier") else None  # type: ignore[operator]
    return hasattr(network, "set_distilled_training") and isinstance(head, tuple) and len(head) == 2


def load_head(model: nn.Module, weights: Weights, n_classes: int, who: str, hint: str) -> None:
    """Load the head of weights into a network; a head of two layers replaces the network's own.

    Args:
        model: a network of the zoo with a head of ``n_classes`` outputs; changed in place.
        weights: weights of the same network.
        n_classes: K.
        who: the network's name in error messages, such as ``The teacher deit_s``.
        hint: last sentence of error messages: what to do.

    Raises:
        UsvitError: the file has no head, its head has another number of classes, or its head has a hidden layer that
            the network lacks.
    """
    where = weights.path.name if weights.source == "file" and weights.path else weights.name
    named = to_network_names(weights.read(), model)
    if lacking := _place_hidden_layer(named, model):
        raise UsvitError(
            f"{who} has no hidden layer before its head, but {where} has one ({lacking}), without which its head would "
            f"give other scores. {hint}"
        )
    by_timm(named, model)
    if is_mlp_head(model, named.tensors):
        give_mlp_head(model)
    is_head = head_of(model)
    own = {key: value for key, value in model.state_dict().items() if is_head(key)}
    missing = [key for key in own if key not in named.tensors]
    if missing:
        raise UsvitError(
            f"{who} ({where}) has no head ({', '.join(missing[:3])}), so it cannot classify: its weights were not "
            f"trained on labels. {hint}"
        )
    head = {key: named.tensors[key] for key in own}
    wrong = [key for key, value in head.items() if value.shape != own[key].shape]
    if wrong:
        there = head[next((key for key in wrong if key.endswith("bias")), wrong[0])].shape[0]
        raise UsvitError(f"{who} ({where}) has {there} classes, but the images have {n_classes}. {hint}")
    model.load_state_dict(head, strict=False)


def _place_hidden_layer(named: RenamedState, model: nn.Module) -> str | None:
    """Give the hidden layer of a file's head our name; return the name of a tensor that the network has no place for.

    It is called ``pre_logits`` in the files of the original ViTs and ``hidden`` here. It is placed before timm's filter
    drops it without a word.
    """
    own, is_head = model.state_dict(), head_of(model)
    for key in [key for key in named.tensors if key.startswith(HIDDEN) and is_head(key) and key not in own]:
        ours = key.replace("pre_logits.", "hidden.", 1)
        if ours not in own:
            return named.source[key]
        named.move(key, ours)
    return None


def head_outputs(model: nn.Module, weights: Weights) -> int | None:
    """Return the number of outputs of the head in weights; None if they have no head.

    Args:
        model: a network of the same architecture, with a head of any size.
        weights: the weights.
    """
    named = to_network_names(weights.read(), model)
    by_timm(named, model)
    classifier = (getattr(model, "pretrained_cfg", None) or {}).get("classifier") or "head"
    for name in [classifier] if isinstance(classifier, str) else list(classifier):
        for key in (f"{name}.3.weight", f"{name}.weight"):  # of two layers (``give_mlp_head``), or of one
            if key in named.tensors:
                return int(named.tensors[key].shape[0])
    return None


def check_classes(weights: Weights, classes: tuple[str, ...], who: str, hint: str) -> None:
    """Raise if the metadata of weights names other classes than the images have, or another order of them.

    Args:
        weights: the weights. Without metadata, nothing is checked.
        classes: classes of the images, in order; empty if they are unknown.
        who, hint: see ``load_head``.

    Raises:
        UsvitError: the classes differ; the message names the first difference.
    """
    theirs = weights.metadata and weights.metadata.classes
    if not classes or not theirs or tuple(theirs) == classes:
        return
    pairs = enumerate(zip(theirs, classes, strict=False))
    different = (f"class {at} is {its} there and {ours} here" for at, (its, ours) in pairs if its != ours)
    first = next(different, f"{len(theirs)} there and {len(classes)} here")
    raise UsvitError(f"{who} was trained on other classes than the images have: {first}. {hint}")
