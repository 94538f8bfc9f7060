"""Statistics of pictures whose answer is known."""

import numpy as np
import pytest
import torch

from usvit.models.image_statistics import STATISTICS, picture_statistics, statistics_of


def of(image):
    """Name -> value, of one (S, S) or (S, S, 3) picture."""
    image = np.asarray(image, dtype=np.uint8)
    image = np.repeat(image[..., None], 3, axis=2) if image.ndim == 2 else image
    return dict(zip(STATISTICS, picture_statistics(torch.from_numpy(image[None]))[0].tolist(), strict=True))


def test_a_blank_frame_has_its_grey_level_and_nothing_else():
    found = of(np.full((32, 32), 51))
    assert found["mean"] == pytest.approx(0.2) and found["spread"] == pytest.approx(0, abs=1e-4)
    assert found["black"] == found["white"] == found["colour"] == 0
    assert found["across_1"] == pytest.approx(np.log(1 / 1024)) == found["along_4"]
    assert [found[f"depth_{k}"] for k in (1, 2, 3, 4)] == pytest.approx([0] * 4, abs=1e-6)


def test_black_and_white_halves_lie_where_they_lie():
    image = np.zeros((32, 32))
    image[:16] = 255
    found = of(image)
    assert found["black"] == found["white"] == pytest.approx(np.sqrt(0.5))
    assert found["depth_1"] == pytest.approx(0.5) and found["depth_4"] == pytest.approx(-0.5)
    assert found["left"] == found["right"] == pytest.approx(0, abs=1e-6)
    assert found["along_1"] == pytest.approx(np.log(1 / 31 + 1 / 1024))
    turned = of(image.T)
    assert turned["left"] == pytest.approx(0.5) and turned["across_1"] == pytest.approx(found["along_1"])


def test_colour_is_told_from_grey():
    image = np.full((32, 32, 3), 100)
    image[:8, :8, 0] = 200
    found = of(image)
    assert found["colour"] == pytest.approx(np.sqrt(100 / 255 / 16)) and found["coloured"] == pytest.approx(0.25)


def test_fine_noise_has_its_energy_at_the_fine_scale_and_a_ramp_at_the_coarse():
    noise = of(np.random.default_rng(0).integers(0, 256, (64, 64)))
    ramp = of(np.tile(np.arange(64) * 4, (64, 1)))
    assert noise["across_1"] - noise["across_4"] > 1 > 0 > ramp["across_1"] - ramp["across_4"]


def test_an_image_alone_gives_what_it_gives_in_a_batch_and_batches_are_joined_in_order():
    images = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (5, 48, 48, 3), dtype=np.uint8))
    together = picture_statistics(images)
    assert together.shape == (5, len(STATISTICS)) and together.isfinite().all()
    alone = torch.cat([picture_statistics(image[None]) for image in images])
    torch.testing.assert_close(together, alone)
    joined = statistics_of(iter([images[:2], images[2:]]), torch.device("cpu"))
    np.testing.assert_allclose(joined, together.numpy(), rtol=1e-5, atol=1e-6)
