"""Loading of a checkpoint into a network: rename, resize, compare, load and report."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from math import prod
from typing import Any

from torch import nn

from usvit.errors import UsvitError
from usvit.models.weights.read import Checkpoint
from usvit.models.weights.renaming import RenamedState, by_timm, to_network_names
from usvit.models.weights.resize import POSITIONS, resize_embeddings
from usvit.records.weights_origin import LoadedRecord, ResizedTensor, SkippedTensors

Shape = tuple[int, ...]
_SHOWN = 3
"""Number of names of each kind that an error message or a line quotes."""
HIDDEN = ("pre_logits", "hidden")
"""Names of a head's hidden layer, in the original repositories' ViTs and in our networks."""


@dataclass(frozen=True)
class LoadReport:
    """Report of which tensors of a checkpoint were loaded, and which tensors of the network are new."""

    loaded: int = 0
    """Number of the network's tensors that were loaded from the file."""
    renamed: tuple[tuple[str, str], ...] = ()
    """(name in the file, name in the network)."""
    resized: tuple[tuple[str, Shape, Shape], ...] = ()
    """(name, shape in the file, shape in the network)."""
    skipped: tuple[tuple[str, str], ...] = ()
    """(name in the file, reason why it is not used)."""
    new: tuple[str, ...] = ()
    """Tensors of the network that are newly initialised: those of the head."""
    table: str | None = None
    """Table of a training checkpoint that held the tensors (``model``, ``model_ema``, ...)."""

    def line(self) -> str:
        """Return one line of text: ``150 tensors loaded, 1 resized (pos_embed 197 -> 5 tokens), ... , head new``."""
        parts = [f"{self.loaded} tensors loaded" + (f" from its '{self.table}'" if self.table else "")]
        parts += [f"{len(self.renamed)} renamed"] if self.renamed else []
        if self.resized:
            shown = [f"{key} {_shape(old)} -> {_shape(new)}" for key, old, new in self.resized[:_SHOWN]]
            parts.append(f"{len(self.resized)} resized ({'; '.join(shown)}{_more(self.resized)})")
        if self.skipped:
            reasons = list(dict.fromkeys(why for _, why in self.skipped))
            parts.append(f"{len(self.skipped)} not used ({'; '.join(reasons[:_SHOWN])}{_more(reasons)})")
        parts.append(f"{len(self.new)} new (the head's)")
        return ", ".join(parts)

    def joined(self, other: "LoadReport", prefix: str) -> "LoadReport":
        """Return the report of this loading and that of a part of the network, whose names get a prefix."""
        return LoadReport(
            self.loaded + other.loaded,
            self.renamed + tuple((old, prefix + new) for old, new in other.renamed),
            self.resized + tuple((prefix + name, old, new) for name, old, new in other.resized),
            self.skipped + other.skipped,
            self.new + tuple(prefix + name for name in other.new),
        )

    def record(self) -> LoadedRecord:
        """Return the entry of ``run.json``: counts, and the names of tensors that were not loaded unchanged."""
        reasons = dict.fromkeys(why for _, why in self.skipped)
        return LoadedRecord(
            tensors=self.loaded,
            table=self.table,
            renamed=len(self.renamed),
            resized=[ResizedTensor(name=key, from_=list(old), to=list(new)) for key, old, new in self.resized],
            skipped=[
                SkippedTensors(why=why, names=[key for key, its in self.skipped if its == why]) for why in reasons
            ],
            new=list(self.new),
        )


def load_checkpoint(model: nn.Module, checkpoint: Checkpoint, *, file: str, name: str) -> LoadReport:
    """Load a checkpoint into a network, except its head, which is not changed.

    Args:
        model: a network as timm builds them (with ``pretrained_cfg``).
        checkpoint: tensors from any of the repositories that ``to_network_names`` knows.
        file: name of the weights, for error messages.
        name: name of the network, for error messages.

    Raises:
        UsvitError: Apart from the head, the network has a tensor that the file lacks, the file has one that the network
            lacks, or a shape differs.
    """
    named = to_network_names(checkpoint, model)
    shapes = {key: tuple(value.shape) for key, value in named.tensors.items()}
    sources = {source: shapes[key] for key, source in named.source.items()}
    is_head = head_of(model)
    for key in [key for key in named.tensors if is_head(key) and key.startswith(HIDDEN)]:
        named.skip(key, "the head is new")  # before timm's filter drops it silently
    _to_network(named, model)
    for key in [key for key in named.tensors if is_head(key)]:
        named.skip(key, "the head is new")
    own = model.state_dict()
    kept = {key: value for key, value in own.items() if not is_head(key)}
    # The shapes in the file itself, before any tensor was resized.
    there = {key: sources.get(named.source[key], tuple(value.shape)) for key, value in named.tensors.items()}
    wrong = {key for key in kept if key in named.tensors and kept[key].shape != named.tensors[key].shape}
    differences = _differences({key: tuple(value.shape) for key, value in kept.items()}, there, wrong)
    if differences:
        raise UsvitError(_misfit(file, name, differences))
    model.load_state_dict(named.tensors, strict=False)
    pairs = [(named.source[key], key) for key in named.tensors]
    return LoadReport(
        loaded=len(named.tensors),
        renamed=tuple((old, new) for old, new in pairs if old != new),
        resized=tuple(
            (new, sources[old], tuple(own[new].shape))
            for old, new in pairs
            if old in sources and prod(sources[old]) != own[new].numel()
        ),
        skipped=tuple(named.skipped.items()),
        new=tuple(key for key in own if is_head(key)),
        table=checkpoint.table,
    )


def head_of(model: nn.Module) -> Callable[[str], bool]:
    """Return a function that tells if a tensor belongs to the head: to a classifier (of up to two) or hidden layer."""
    classifiers = getattr(model, "pretrained_cfg", {}).get("classifier") or "head"
    names = [classifiers] if isinstance(classifiers, str) else list(classifiers)
    if hasattr(model, "blocks"):  # VGG's pre_logits are two layers of the network itself
        names += list(HIDDEN)
    elif isinstance(getattr(model, "hidden", None), nn.Module):
        names.append("hidden")
    prefixes = tuple(f"{name}." for name in names)
    return lambda key: key.startswith(prefixes)


def _to_network(named: RenamedState, model: nn.Module) -> None:
    """Resize the embeddings and let timm convert the rest, except the positions, whose grid timm would guess."""
    if "register_tokens" in named.tensors:  # DINOv2's: timm splits the positions and resizes what is left
        by_timm(named, model)
        return
    resize_embeddings(named.tensors, model)
    withheld = {key: (named.tensors.pop(key), named.source.pop(key)) for key in (POSITIONS,) if key in named.tensors}
    by_timm(named, model)
    for key, (tensor, source) in withheld.items():
        named.tensors[key], named.source[key] = tensor, source


def _differences(own: dict[str, Shape], there: dict[str, Shape], wrong: set[str]) -> list[str]:
    """Describe what does not fit, if anything. Counters of batches may be missing, as in older files."""
    missing = [key for key in own if key not in there and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in there if key not in own]
    found = []
    if wrong:
        shown = [
            f"{_name(key)} is {_shape(there[key])} there and {_shape(own[key])} here" for key in own if key in wrong
        ]
        found.append(f"{'; '.join(shown[:_SHOWN])}{_more(shown)}")
    for keys, shapes, what in ((missing, own, "missing there"), (unexpected, there, "unknown here")):
        if keys:
            shown = [f"{_name(key)} ({_shape(shapes[key])})" for key in keys]
            found.append(f"{what}: {', '.join(shown[:_SHOWN])}{_more(shown)}")
    return found


def _misfit(file: str, name: str, differences: Iterable[str]) -> str:
    return (
        f"The weights {file} do not fit the model {name}. Name the model that they were trained as (--model), with its "
        f"own parts (model.vit) and, where it cannot be resized, its image size; or give other weights. "
        f"What differs: {'. '.join(differences)}."
    )


def _name(key: str) -> str:
    """Shorten the name of a tensor, since a foreign file may have names of any length."""
    return key if len(key) <= 100 else f"{key[:97]}..."


def _shape(shape: Iterable[int]) -> str:
    return " x ".join(map(str, shape)) or "a number"


def _more(items: Any) -> str:
    return f" and {len(items) - _SHOWN} more" if len(items) > _SHOWN else ""
