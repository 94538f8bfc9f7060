"""Crops of a batch on the device against PIL's, which ``test_crops.py`` and ``test_cpu.py`` hold to the originals."""

import numpy as np
import pytest
import torch
from PIL import Image

from tests.data.transforms.views.conftest import picture
from usvit.config.views import ViewsConfig
from usvit.data.transforms import Views
from usvit.data.transforms.views.crops import Window, cut
from usvit.data.transforms.views.gpu_crops import AT_ONCE, cut_batch

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"))]
SQUARE = 72
SHAPES = [(72, 54), (54, 72), (72, 72), (72, 20), (9, 72), (30, 22)]
CROPS = [
    {"crop": "rrc"},
    {"crop": "rrc", "scale": (0.01, 0.1)},
    {"crop": "inception", "scale": (0.05, 1.0)},
    {"crop": "squash_crop", "train_crop": 0.8},
    {"crop": "src"},
    {"crop": "resize"},
]


def placed(shapes):
    """Pictures at the upper left of squares of noise, which must not count."""
    squares = np.random.default_rng(9).integers(0, 256, (len(shapes), SQUARE, SQUARE, 3), dtype=np.uint8)
    pictures = [picture(number, shape) for number, shape in enumerate(shapes)]
    for square, one in zip(squares, pictures, strict=True):
        square[: one.height, : one.width] = np.asarray(one)
    return pictures, torch.from_numpy(squares)


def rows_first(image, window, size):
    """The crop by PIL and numpy, in two steps, because releases of Pillow differ in which axis they resize first."""
    left, top, width, height, across, down, x, y, bicubic = window
    how = Image.Resampling.BICUBIC if bicubic else Image.Resampling.BILINEAR
    image = image.crop((left, top, left + width, top + height))
    pixels = np.asarray(image.resize((across, height), how).resize((across, down), how))
    padded = np.pad(pixels, ((8, 8), (8, 8), (0, 0)), mode="reflect")
    return padded[y + 8 : y + 8 + size, x + 8 : x + 8 + size]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "random"])
@pytest.mark.parametrize("settings", CROPS)
@pytest.mark.parametrize("size", [48, 96])
def test_the_box_and_the_pixels_are_those_of_the_host(settings, interpolation, size, device):
    views = Views(ViewsConfig(interpolation=interpolation, **settings), size, on_device=True)
    pictures, squares = placed(SHAPES * 3)
    windows = [views.window(one.width, one.height, seed) for seed, one in enumerate(pictures)]
    assert len({bool(window.bicubic) for window in windows}) == (2 if interpolation == "random" else 1)
    made = cut_batch(squares.to(device), torch.tensor(windows, device=device), size).cpu().numpy().astype(int)
    expected = np.stack([rows_first(one, window, size) for one, window in zip(pictures, windows, strict=True)])
    away = np.abs(made - expected)
    assert away.max() <= 2, "one level of each axis"
    # Bilinear weights such as 1/4 lead to halves, which PIL's fixed-point numbers round either way.
    assert away.mean() < (0.002 if interpolation == "bicubic" else 0.06)
    host = np.stack([views(one, seed) for seed, one in enumerate(pictures)])
    assert np.abs(made - host).mean() < 0.15, "Pillow rounds after the other axis in some pictures"


@pytest.mark.parametrize("settings", CROPS)
def test_a_window_follows_the_seed_and_the_size_alone(settings):
    views = Views(ViewsConfig(**settings), 48, on_device=False)
    drawn = {views.window(72, 54, seed) for seed in range(9)}
    assert len(drawn) == (1 if settings["crop"] == "resize" else 9)
    assert views.window(72, 54, 3) == views.window(72, 54, 3) in drawn
    assert views.window(54, 72, 3) != views.window(72, 54, 3)


def test_the_rows_of_a_large_batch_are_computed_in_portions():
    pictures, squares = placed([(72, 54)] * (AT_ONCE + 3))
    windows = torch.tensor([Window(1, 2, 50, 40, 16, 16, 0, 0, True)] * len(pictures))
    made = cut_batch(squares, windows, 16)
    assert made.shape == (AT_ONCE + 3, 16, 16, 3)
    assert torch.equal(made[-1], cut_batch(squares[-1:], windows[-1:], 16)[0])


@pytest.mark.parametrize("away", [0, 3, 11])
def test_what_lies_beyond_the_edge_is_reflected(away):
    """Against numpy, for windows further outside than any crop draws them."""
    pictures, squares = placed([(20, 16)])
    window = Window(0, 0, 20, 16, 20, 16, 4, -away, True)
    expected = np.pad(np.asarray(pictures[0]), ((away, 20), (0, 20), (0, 0)), mode="reflect")[:16, 4:20]
    assert np.array_equal(cut_batch(squares, torch.tensor([window]), 16)[0].numpy(), expected)
    assert np.array_equal(np.asarray(cut(pictures[0], window, 16)), expected)


def test_a_picture_of_its_own_size_is_not_changed():
    one = Image.fromarray(np.random.default_rng(0).integers(0, 256, (SQUARE, SQUARE, 3), dtype=np.uint8))
    window = Window(0, 0, SQUARE, SQUARE, SQUARE, SQUARE, 0, 0, True)
    made = cut_batch(torch.from_numpy(np.array(one))[None], torch.tensor([window]), SQUARE)
    assert np.array_equal(made[0].numpy(), np.asarray(one))
