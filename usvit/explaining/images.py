"""Choice of the images to explain weights on: a folder, or a source of upstream images."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from usvit.data.datasets import UpstreamDataset, draw, made_on_the_fly
from usvit.data.io import UInt8
from usvit.data.transforms import test_view
from usvit.errors import UsvitError, unknown
from usvit.explaining.request import ExplainRequest
from usvit.models import EvaluationView
from usvit.plugins import image_source
from usvit.seeding import derive_seed


@dataclass(frozen=True)
class ChosenImages:
    """Some images of one split of one source."""

    label: str
    """``SOURCE:SPLIT``."""
    source: UpstreamDataset
    rows: NDArray[np.int64]
    """(n,) indices of the images."""

    def name(self, row: int) -> str:
        return self.source.image_name(row)

    def class_of(self, row: int) -> str | None:
        """Return the label of an image; None if it has none."""
        target = int(self.source.targets[row])
        return self.source.classes[target] if self.source.classes and target >= 0 else None

    @property
    def may_show(self) -> bool:
        """Whether a picture may contain the images: only generated ones are free of other people's rights."""
        return made_on_the_fly(self.source)

    def batches(self, view: EvaluationView, size: int) -> Iterator[tuple[list[int], list[UInt8], Tensor]]:
        """Yield rows, pixels (S, S, 3) and normalised inputs (B, 3, S, S) of each batch, as the weights require.

        Raises:
            BadImage: An image cannot be read.
        """
        for start in range(0, len(self.rows), size):
            rows = [int(row) for row in self.rows[start : start + size]]
            pixels = [_prepared(self.source.image(row), view) for row in rows]
            yield rows, pixels, view.normalisation.normalised(torch.from_numpy(np.stack(pixels)))


def _prepared(picture: Image.Image, view: EvaluationView) -> UInt8:
    return test_view(picture, view.image_size, view.test_crop, resize=view.resize, interpolation=view.interpolation)


def choose_images(request: ExplainRequest, n: int) -> ChosenImages:
    """Open the images that a request names, and choose ``n`` of them if it names neither a number nor images.

    Images are drawn with a fixed seed, every class in proportion, so that they are always the same.

    Raises:
        UsvitError: No images are named, a source, split or image does not exist, or the source is a data card.
    """
    settings = request.settings
    if settings.source is None and settings.path is None:
        raise UsvitError(
            "These weights come without test images. Name the images to explain: --path DIR for a folder of your own, "
            "or --source NAME[:SPLIT], such as --source imagenet:val ('usvit pretrain --list-sources' lists them)."
        )
    if settings.errors is not None:
        raise UsvitError("--errors needs the predictions of a run of usvit cv or train. Use --images or --image-id.")
    open_source = image_source()
    if open_source is None:
        raise UsvitError(
            "No installed plug-in opens images by the name of a source. Explain a run of usvit cv or train."
        )
    label, source = open_source(settings.source, settings.path, request.roots)
    rows = _named(source, settings.image_ids) if settings.image_ids else _drawn(source, settings.images or n)
    return ChosenImages(label, source, rows)


def _drawn(source: UpstreamDataset, n: int) -> NDArray[np.int64]:
    if n >= len(source):
        return np.arange(len(source))
    return draw(source, n, np.random.default_rng(derive_seed(0, "source", "limit")))


def _named(source: UpstreamDataset, names: tuple[str, ...]) -> NDArray[np.int64]:
    found = {source.image_name(row): row for row in range(len(source))}
    for name in names:
        if name not in found:
            raise unknown("image", name, list(found))
    return np.array(list(dict.fromkeys(found[name] for name in names)), dtype=np.int64)
