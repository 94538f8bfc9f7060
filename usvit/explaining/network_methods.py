"""Methods that show a network, by its parameters or by means over images: compute, draw, and describe."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from usvit.explaining.attention import Distances, attention_distances, choose_layers, patch_distances
from usvit.explaining.layer_charts import write_distances, write_ratios, write_rows, write_sparsity
from usvit.explaining.methods import SOURCES
from usvit.explaining.mixing import THRESHOLD, mixing_layers
from usvit.explaining.parameters import filter_components, position_similarity
from usvit.explaining.pictures import write_filters, write_similarity
from usvit.explaining.residuals import BranchRatios, branch_ratios
from usvit.explaining.token_layout import anatomy_of
from usvit.progress import Progress, task
from usvit.records import ExplanationRecord
from usvit.records.explain import BranchNorms, LayerRecord, MixingRecord

_Layer = TypeVar("_Layer", Distances, BranchRatios)


@dataclass(frozen=True)
class ExplainedNetwork:
    """A network to explain, with what pictures and records say about it."""

    model: nn.Module = field(repr=False)
    """In evaluation mode."""
    name: str
    """Its name in titles and error messages."""
    origin: str
    """Fold or weights, in titles."""
    fold: int | None
    """Fold of its run; None for other weights."""
    image_size: int


@dataclass(frozen=True)
class ImageBatches:
    """Images over which a method averages."""

    batches: Iterable[Tensor]
    """(B, 3, S, S) each, normalised."""
    n: int
    told: str
    """What they are, in titles."""


def show_parameters(method: str, subject: ExplainedNetwork, folder: Path, layers: Sequence[str]) -> ExplanationRecord:
    """Draw ``positions``, ``filters`` or ``mixing`` into a folder and return the entry of explain.json.

    Raises:
        UsvitError: the method does not support the network; nothing has been written.
    """
    if method == "positions":
        return _positions(subject, folder)
    return _filters(subject, folder) if method == "filters" else _mixing(subject, folder, layers)


def show_means(
    method: str, subject: ExplainedNetwork, folder: Path, images: ImageBatches, progress: Progress
) -> ExplanationRecord:
    """Draw ``distance`` or ``residuals`` into a folder and return the entry of explain.json.

    Raises:
        UsvitError: the method does not support the network; nothing has been written.
    """
    return (_distance if method == "distance" else _residuals)(subject, folder, images, progress)


def _per_layer(
    measure: Callable[[nn.Module, Tensor, str], list[_Layer]],
    what: str,
    subject: ExplainedNetwork,
    images: ImageBatches,
    progress: Progress,
) -> list[_Layer]:
    """Measure each layer on all images, whose values are the first axis of each tensor of ``_Layer``."""
    parts, done = [], 0
    with task(progress, what, images.n, "images") as advance:
        for batch in images.batches:
            parts.append(measure(subject.model, batch, subject.name))
            advance(done := done + len(batch))
    names = [field.name for field in fields(parts[0][0]) if field.name != "layer"]
    return [
        replace(of_layer[0], **{name: torch.cat([getattr(one, name) for one in of_layer]) for name in names})
        for of_layer in zip(*parts, strict=True)
    ]


def _distance(subject: ExplainedNetwork, folder: Path, images: ImageBatches, progress: Progress) -> ExplanationRecord:
    layers = _per_layer(attention_distances, "attention distance", subject, images, progress)
    anatomy = anatomy_of(subject.model, subject.name)
    uniform = float(patch_distances(anatomy, subject.image_size).mean())
    name = "distance.png"
    write_distances(folder / name, layers, uniform, f"{subject.name}, {subject.origin}: {images.told}")
    return ExplanationRecord(
        source=SOURCES["distance"],
        uniform=uniform,
        image_size=subject.image_size,
        layers=[
            LayerRecord(
                layer=layer.layer,
                heads=layer.distance.double().mean(dim=0).tolist(),
                prefix_share=layer.prefix_share.double().mean(dim=0).tolist(),
            )
            for layer in layers
        ],
        file=name,
    )


def _residuals(subject: ExplainedNetwork, folder: Path, images: ImageBatches, progress: Progress) -> ExplanationRecord:
    layers = _per_layer(branch_ratios, "residual branches", subject, images, progress)
    name = "residuals.png"
    write_ratios(folder / name, layers, f"{subject.name}, {subject.origin}: {images.told}")
    return ExplanationRecord(
        source=SOURCES["residuals"],
        image_size=subject.image_size,
        residuals=[
            BranchNorms(layer=layer.layer, attention=float(layer.attention.mean()), mlp=float(layer.mlp.mean()))
            for layer in layers
        ],
        file=name,
    )


def _positions(subject: ExplainedNetwork, folder: Path) -> ExplanationRecord:
    similarity = position_similarity(subject.model, subject.name)
    name = "positions.png"
    write_similarity(folder / name, similarity, f"{subject.name}, {subject.origin}: position embeddings")
    same_row, same_column, others = similarity.mean_of_pairs()
    return ExplanationRecord(
        source=SOURCES["positions"],
        fold=subject.fold,
        grid=list(similarity.grid),
        same_row=same_row,
        same_column=same_column,
        others=others,
        file=name,
    )


def _filters(subject: ExplainedNetwork, folder: Path) -> ExplanationRecord:
    filters = filter_components(subject.model, subject.name)
    name = "filters.png"
    title = f"{subject.name}, {subject.origin}: components of {filters.n_filters} filters ({filters.layer})"
    write_filters(folder / name, filters, title)
    return ExplanationRecord(
        source=SOURCES["filters"],
        fold=subject.fold,
        layer=filters.layer,
        n_filters=filters.n_filters,
        size=list(filters.components.shape[1:3]),
        explained=filters.explained.tolist(),
        file=name,
    )


def _mixing(subject: ExplainedNetwork, folder: Path, layers: Sequence[str]) -> ExplanationRecord:
    grid, found = mixing_layers(subject.model, subject.name)
    drawn = choose_layers([one.layer for one in found], layers or ("all",), subject.name)
    files = {at: f"mixing-{at + 1:02d}.png" for at in drawn}
    for at, file in files.items():
        title = f"{subject.name}, {subject.origin}: rows of the map over patches ({found[at].layer})"
        write_rows(folder / file, found[at].rows, grid, title)
    name = "mixing-sparsity.png"
    write_sparsity(folder / name, found, f"{subject.name}, {subject.origin}: sparsity")
    return ExplanationRecord(
        source=SOURCES["mixing"],
        fold=subject.fold,
        grid=list(grid),
        threshold=THRESHOLD,
        mixing=[
            MixingRecord(
                layer=one.layer, sparsity=one.sparsity, mlp_sparsity=list(one.mlp_sparsity), file=files.get(at)
            )
            for at, one in enumerate(found)
        ],
        file=name,
    )
