"""Rows of ``usvit models list``: the zoo with our counts beside the papers' numbers. It does not import torch."""

import functools
import json
from dataclasses import dataclass
from importlib.resources import files
from typing import get_args

from usvit.config.keywords import takes_settings
from usvit.config.models_commands import ModelFilter
from usvit.errors import unknown
from usvit.models.spec import ModelSpec, PaperFigures, Pretrained, ZooFamily
from usvit.models.weights import WeightSource, weight_sources
from usvit.models.zoo import ZOO
from usvit.models.zoo.common import SOURCES
from usvit.plain_data import Json


@dataclass(frozen=True)
class _ZooRow:
    """One network in the list."""

    name: str
    family: str
    source: str
    """Papers of the network, joined by ', '."""
    implementation: str
    """Package that contains the code: timm or usvit."""
    params: int
    """Number of parameters with a head of 1,000 classes, for an image of ``input_size``."""
    macs: int
    """Number of multiply-accumulate operations of one image."""
    input_size: int
    """Side of the image in pixels."""
    weights: tuple[str, ...]
    """Upstreams on the hub, the recommended first; empty if the network can only be trained from scratch."""
    license: str | None
    """Licence of the recommended weights."""
    sources: tuple[WeightSource, ...]
    """Where the weights can come from, and whether they are on this machine."""


@dataclass(frozen=True)
class Comparison:
    """One row of a paper's table and our counts."""

    name: str
    figures: PaperFigures
    params: int
    macs: int

    @property
    def deviations(self) -> dict[str, float]:
        """Relative deviations (ours - printed) / printed of ``params`` and ``macs``, as far as they are printed."""
        printed = {"params": (self.figures.params, self.params / 1e6), "macs": (self.figures.macs, self.macs / 1e9)}
        return {key: (own - theirs) / theirs for key, (theirs, own) in printed.items() if theirs}

    @property
    def largest(self) -> float:
        return max(map(abs, self.deviations.values()))


@takes_settings
def rows(*, settings: ModelFilter) -> list[_ZooRow]:
    """Return the networks of the zoo that meet all given conditions.

    Args:
        settings: Family, one of ``ZooFamily``, and the other conditions; case is ignored.

    Raises:
        UsvitError: If there is no such family or source.
    """
    family, search, source, max_params = settings.family, settings.search, settings.source, settings.max_params
    if family is not None and family not in get_args(ZooFamily):
        raise unknown("family", family, get_args(ZooFamily))
    if source is not None and not any(source.lower() in known.lower() for known in SOURCES):
        raise unknown("source", source, SOURCES)
    found = []
    for spec in ZOO.values():
        row = _row(spec)
        text = " ".join((spec.name, spec.architecture, *spec.weights)).lower()
        if (
            (family is None or spec.family == family)
            and (search is None or search.lower() in text)
            and (source is None or source.lower() in spec.source.lower())
            and (max_params is None or row.params <= max_params * 1e6)
        ):
            found.append(row)
    return found


def comparisons() -> list[Comparison]:
    """Compare every parameter and MAC count in the papers with ours; the largest deviation is last."""
    lines = [
        Comparison(spec.name, printed, *counted(spec.name, printed.image_size))
        for spec in ZOO.values()
        for printed in spec.paper
        if printed.params is not None or printed.macs is not None
    ]
    return sorted(lines, key=lambda line: line.largest)


def counted(name: str, image_size: int) -> tuple[int, int]:
    """Return the parameters and MACs of a network of the zoo from ``counts.json``."""
    return zoo_counts(name)[image_size]


def _row(spec: ModelSpec) -> _ZooRow:
    best = spec.recommended
    return _ZooRow(
        spec.name,
        spec.family,
        spec.source,
        spec.implementation,
        *counted(spec.name, spec.image_size),
        spec.image_size,
        tuple(spec.weights),
        _license(best),
        tuple(weight_sources(spec)),
    )


def _license(weights: Pretrained | None) -> str | None:
    if weights is None:
        return None
    if weights.foundation is not None:
        return weights.foundation.license
    license_: str | None = _facts()["licenses"][weights.timm]
    return license_


def zoo_counts(name: str) -> dict[int, tuple[int, int]]:
    """Return the parameters and MACs of a network of the zoo by image size; empty for other names."""
    return {int(size): (params, macs) for size, (params, macs) in _facts()["counts"].get(name, {}).items()}


@functools.cache
def _facts() -> Json:
    """Read ``counts.json``, which ``python -m usvit.models.complexity`` writes."""
    text = (files("usvit.models.zoo") / "counts.json").read_text(encoding="utf-8")
    facts: Json = json.loads(text)
    return facts
