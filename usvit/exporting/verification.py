"""Verification of an export: its predictions on test images must equal those of usvit."""

import contextlib
import io
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from usvit.data.io import read_image
from usvit.data.phantom import render_image, sample_patient
from usvit.data.transforms import Preprocessing
from usvit.errors import UsvitError

_RANDOM_IMAGES = 3
TOLERANCE = 1e-4
"""Maximum difference of two logits, relative to the largest logit: float32 sums in another order differ by about 1e-6,
a wrong operator by much more."""


@dataclass(frozen=True)
class Checked:
    """Comparison of an export with usvit's own prediction."""

    by: str
    """The tool that ran the export, and the images."""
    difference: float
    """The largest absolute difference of two logits."""
    largest: float
    """The largest absolute logit."""

    def __str__(self) -> str:
        return f"{self.by}: logits differ by at most {self.difference:.1e} (the largest is {self.largest:.3g})"


def check_pixels(preprocessing: Preprocessing) -> Tensor:
    """Return random images and a decoded phantom image, (4, S, S, 3) uint8, the same in every call."""
    size = preprocessing.image_size
    noise = np.random.default_rng(0).integers(0, 256, (_RANDOM_IMAGES, size, size, 3), dtype=np.uint8)
    with tempfile.TemporaryDirectory() as folder:
        phantom = read_image(write_phantom_image(Path(folder)))
    return torch.from_numpy(np.concatenate([noise, preprocessing.resized(phantom)[None]]))


def write_phantom_image(folder: Path) -> Path:
    """Write a phantom image as a PNG of 160 x 120 pixels, so that its aspect ratio matters."""
    picture = render_image(sample_patient(0, 0, malignant=True), view=1, size=160, with_lesion=True).image[:120]
    path = folder / "phantom.png"
    Image.fromarray(picture).save(path)
    return path


def refuse_difference(checked: Checked, tolerance: float) -> None:
    """Raise if an export gives other predictions.

    Raises:
        UsvitError: the difference is larger than ``tolerance`` allows, or not finite.
    """
    if not checked.difference <= tolerance * checked.largest + 1e-7:
        raise UsvitError(
            f"The export differs from the network: {checked}, more than {tolerance:g} of it. Nothing was written. "
            "Export as safetensors, and please report the name of the network."
        )


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Suppress log messages and warnings of other libraries, and restore the module search path."""
    before, level = list(sys.path), logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        sys.path[:] = before
        logging.disable(level)
