"""Charts over the layers of a network: attention distance, norms of residual branches, linear maps over patches."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from usvit.explaining.attention import Distances
from usvit.explaining.mixing import THRESHOLD, Array, MixingLayer, central_patches
from usvit.explaining.pictures import save_figure
from usvit.explaining.residuals import BranchRatios
from usvit.explaining.token_layout import Grid

COLOUR, SECOND, THIRD = "#1f4e79", "#c55a11", "#7f7f7f"


def write_distances(path: Path, layers: Sequence[Distances], uniform: float, title: str) -> None:
    """Plot the attention distance of each head over its layer (Dosovitskiy et al. 2021, Fig. 7, right)."""
    figure = Figure(figsize=(6.4, 4), dpi=120, layout="constrained")
    axes = figure.add_subplot(
        title=title, xlabel="layer", ylabel="mean attention distance (pixels of the input)", ylim=(0, None)
    )
    means = [layer.distance.mean(dim=0).numpy() for layer in layers]
    numbers = np.concatenate([np.full(len(heads), index) for index, heads in enumerate(means)])
    distances = np.concatenate(means)
    axes.scatter(numbers, distances, s=22, color=COLOUR, label="a head")
    axes.axhline(uniform, color="0.45", linestyle="--", label="attention to all patches alike")
    axes.set_ylim(0, 1.08 * max(uniform, float(distances.max())))
    axes.set_xticks(range(0, len(layers), max(1, len(layers) // 12)))
    axes.legend(loc="lower right", frameon=False)
    save_figure(path, figure)


def write_ratios(path: Path, layers: Sequence[BranchRatios], title: str) -> None:
    """Plot the ratio of norms of both residual branches over their layer (Touvron 2022, thesis, Fig. 3.6)."""
    figure = Figure(figsize=(6.4, 6), dpi=120, layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for axes, label, values in (
        (above, "attention", [float(layer.attention.mean()) for layer in layers]),
        (below, "MLP", [float(layer.mlp.mean()) for layer in layers]),
    ):
        axes.plot(range(1, len(layers) + 1), values, marker="o", markersize=4, color=COLOUR)
        axes.set(ylabel=f"{label}: norm of branch / input", ylim=(0, None))
    _number_layers(below, len(layers))
    figure.suptitle(title, fontsize=10, wrap=True)
    save_figure(path, figure)


def write_sparsity(path: Path, layers: Sequence[MixingLayer], title: str) -> None:
    """Plot the shares of small weights over the layers (Touvron 2022, thesis, Fig. 4.3)."""
    figure = Figure(figsize=(6.4, 4), dpi=120, layout="constrained")
    axes = figure.add_subplot(ylabel=f"share of weights below {THRESHOLD:.0%} of the maximum", ylim=(0, 1))
    for label, colour, values in (
        ("A, over patches", COLOUR, [layer.sparsity for layer in layers]),
        ("B, first of the MLP", SECOND, [layer.mlp_sparsity[0] for layer in layers]),
        ("C, second of the MLP", THIRD, [layer.mlp_sparsity[1] for layer in layers]),
    ):
        axes.plot(range(1, len(layers) + 1), values, marker="o", markersize=4, color=colour, label=label)
    _number_layers(axes, len(layers))
    axes.legend(loc="best", frameon=False)
    figure.suptitle(title, fontsize=10, wrap=True)
    save_figure(path, figure)


def _number_layers(axes: Axes, n: int) -> None:
    axes.set_xlabel("layer")
    axes.set_xticks(range(1, n + 1, max(1, n // 12)))


def write_rows(path: Path, rows: Array, grid: Grid, title: str) -> None:
    """Plot the rows of the linear map of one layer as images of the central patches (thesis, Fig. 4.2).

    Args:
        path: path of the file.
        rows: (N, N), see ``MixingLayer``.
        grid: numbers of patches.
        title: title of the picture.
    """
    shown = central_patches(grid)
    largest = float(np.abs(rows[[patch for line in shown for patch in line]]).max()) or 1.0
    figure = Figure(figsize=(0.8 * len(shown[0]) + 1.4, 0.8 * len(shown) + 0.8), dpi=120, layout="constrained")
    tiles = figure.subplots(len(shown), len(shown[0]), squeeze=False)
    image = None
    for line, patches in zip(tiles, shown, strict=True):
        for axes, patch in zip(line, patches, strict=True):
            image = axes.imshow(rows[patch].reshape(grid), cmap="RdBu_r", vmin=-largest, vmax=largest)
            axes.set(xticks=[], yticks=[])
    assert image is not None
    figure.colorbar(image, ax=tiles, label="weight", shrink=0.8)
    figure.suptitle(title, fontsize=9, wrap=True)
    save_figure(path, figure)
