"""Pictures of maps beside their image, in a perceptually uniform colour scale."""

import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor
from torch.nn import functional as F

from usvit.data.io import UInt8
from usvit.explaining.mask_agreement import Map, Mask, is_blank
from usvit.explaining.parameters import Filters, Similarity
from usvit.files import write_atomic, write_bytes

_Font = ImageFont.ImageFont | ImageFont.FreeTypeFont

COLOURS = "inferno"
"""A perceptually uniform colour scale, dark for low values, so that the image shows through."""
OPACITY = 0.5
OUTLINE = (0, 255, 255)
"""Cyan, which does not occur in the colour scale."""
SMALLEST = 224
"""Minimum side of a panel in pixels; small inputs are enlarged by whole factors."""
_GAP, _LINE, _BAR = 6, 17, 10
_MOST_TILES = 7
"""Maximum number of rows and columns of position embeddings, as in Dosovitskiy et al. (2021), Fig. 7."""


@dataclass(frozen=True)
class Panel:
    """One map and its title."""

    title: str
    saliency: Map
    """(S, S), of the size of the input."""


def write_maps(
    path: Path,
    heading: Sequence[str],
    image: UInt8 | None,
    mask: Mask | None,
    panels: Sequence[Panel],
    per_row: int | None = None,
) -> None:
    """Write the image and its maps side by side, with the outline of the lesion, as PNG.

    Args:
        path: path of the file.
        heading: lines above the picture.
        image: (S, S, 3) uint8, the input of the network; None to show only the maps.
        mask: (S, S) bool, or None.
        panels: maps of the size of the image; each is scaled to its own range.
        per_row: number of panels in a row, and the image in a row of its own; None: four in a row, with the image.
    """
    size = len(panels[0].saliency)
    factor = max(1, -(-SMALLEST // size))
    tiles = [] if image is None else [("input", _outlined(_enlarged(image, factor), mask, factor))]
    for panel in panels:
        coloured = _coloured(panel.saliency)
        if image is not None:
            coloured = (OPACITY * coloured + (1 - OPACITY) * image).round().astype(np.uint8)
        tiles.append((panel.title, _outlined(_enlarged(coloured, factor), mask, factor)))
    side = size * factor
    columns = min(len(tiles), 4) if per_row is None else per_row
    places = [divmod(index, columns) for index in range(len(tiles))]
    if per_row is not None and image is not None:
        places = [(0, 0), *((row + 1, column) for row, column in places[:-1])]
    width = max(_GAP + columns * (side + _GAP), 2 * (SMALLEST + _GAP) + _GAP)
    font = ImageFont.load_default(13)
    lines = [line for text in heading for line in _wrapped(text, font, width - 2 * _GAP)]
    top = _GAP + len(lines) * _LINE
    rows = places[-1][0] + 1
    picture = Image.new("RGB", (width, top + rows * (_LINE + side + _GAP) + _BAR + _LINE + _GAP), "white")
    pen = ImageDraw.Draw(picture)
    for number, line in enumerate(lines):
        pen.text((_GAP, _GAP + number * _LINE), line, "black", font)
    for (row, column), (title, tile) in zip(places, tiles, strict=True):
        x = _GAP + column * (side + _GAP)
        y = top + row * (_LINE + side + _GAP)
        pen.text((x, y), title, "black", font)
        picture.paste(Image.fromarray(tile), (x, y + _LINE))
    _scale(picture, pen, font, top + rows * (_LINE + side + _GAP))
    _save(path, picture)


def fitted_to(saliency: Tensor, size: int) -> Map:
    """Resize (H, W) on the network's grid to (S, S) float64 in the pixels of its input, bilinearly."""
    large = F.interpolate(saliency[None, None].double(), size=(size, size), mode="bilinear", align_corners=False)
    return np.asarray(large[0, 0].numpy())


def _scale(picture: Image.Image, pen: ImageDraw.ImageDraw, font: _Font, y: int) -> None:
    length = SMALLEST
    ramp = np.tile(np.linspace(0, 1, length), (_BAR, 1))
    picture.paste(Image.fromarray(_colours(ramp)), (_GAP, y))
    pen.text((_GAP, y + _BAR), "lowest", "black", font)
    pen.text((_GAP + length - 46, y + _BAR), "highest", "black", font)
    pen.text((_GAP + length + 8, y), "of each map by itself", "black", font)


def _wrapped(text: str, font: _Font, width: int) -> list[str]:
    lines, line = [], ""
    for word in text.split(" "):
        longer = f"{line} {word}".strip()
        if line and font.getlength(longer) > width:
            lines.append(line)
            longer = word
        line = longer
    return [*lines, line]


def _coloured(saliency: Map) -> UInt8:
    """Convert (S, S) values of any range to (S, S, 3) uint8; a blank map has the lowest colour of the scale."""
    if is_blank(saliency):
        return _colours(np.zeros_like(saliency))
    return _colours((saliency - saliency.min()) / np.ptp(saliency))


def _colours(values: NDArray[np.float64]) -> UInt8:
    return (matplotlib.colormaps[COLOURS](values)[..., :3] * 255).round().astype(np.uint8)


def _enlarged(image: UInt8, factor: int) -> UInt8:
    return image.repeat(factor, axis=0).repeat(factor, axis=1)


def _outlined(image: UInt8, mask: Mask | None, factor: int) -> UInt8:
    """Draw an outline around the lesion, if there is a mask."""
    if mask is None:
        return image
    large = mask.repeat(factor, axis=0).repeat(factor, axis=1)
    padded = np.pad(large, 1, mode="edge")
    inner = large & padded[:-2, 1:-1] & padded[2:, 1:-1] & padded[1:-1, :-2] & padded[1:-1, 2:]
    return np.where((large & ~inner)[:, :, None], np.array(OUTLINE, dtype=np.uint8), image)


def write_similarity(path: Path, similarity: Similarity, title: str) -> None:
    """Plot the similarity of each patch's position embedding to those of all patches (Fig. 7, centre)."""
    rows, columns = (_spread(n) for n in similarity.grid)
    figure = Figure(figsize=(0.8 * len(columns) + 1.4, 0.8 * len(rows) + 0.8), dpi=120, layout="constrained")
    axes = figure.subplots(len(rows), len(columns), squeeze=False)
    shown = None
    for r, row in enumerate(rows):
        for c, column in enumerate(columns):
            tile = similarity.cosine[row * similarity.grid[1] + column].reshape(similarity.grid)
            shown = axes[r, c].imshow(tile, cmap="viridis", vmin=-1, vmax=1)
            axes[r, c].set(xticks=[], yticks=[])
            if c == 0:
                axes[r, c].set_ylabel(str(row + 1), rotation=0, ha="right", va="center")
            if r == len(rows) - 1:
                axes[r, c].set_xlabel(str(column + 1))
    figure.supxlabel("patch column")
    figure.supylabel("patch row")
    figure.suptitle(title)
    assert shown is not None
    figure.colorbar(shown, ax=axes, label="cosine similarity", shrink=0.8)
    save_figure(path, figure)


def _spread(n: int) -> list[int]:
    """Return at most ``_MOST_TILES`` evenly spaced indices of ``n`` rows."""
    return sorted(set(np.linspace(0, n - 1, min(n, _MOST_TILES)).round().astype(int).tolist()))


def write_filters(path: Path, filters: Filters, title: str) -> None:
    """Plot the components as small colour images, the first at the top left; grey means a weight of 0."""
    columns = min(7, len(filters.components))
    rows = -(-len(filters.components) // columns)
    figure = Figure(figsize=(0.9 * columns + 0.4, 1.1 * rows + 0.7), dpi=120, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False)
    for index, place in enumerate(axes.flat):
        place.set_axis_off()
        if index < len(filters.components):
            component = filters.components[index]
            place.imshow(0.5 + 0.5 * component / np.abs(component).max(), interpolation="nearest")
            place.set_title(f"{100 * filters.explained[index]:.1f}%", fontsize=8)
    figure.suptitle(title, fontsize=9, wrap=True)
    save_figure(path, figure)


def save_figure(path: Path, figure: Figure) -> None:
    """Write a figure as PNG."""
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", metadata={"Software": None})  # the same bytes from every version
    write_bytes(path, buffer.getvalue())


def _save(path: Path, picture: Image.Image) -> None:
    write_atomic(path, lambda file: picture.save(file, format="PNG", optimize=True))
