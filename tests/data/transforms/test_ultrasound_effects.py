import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import kstest

from tests.data.conftest import speckle as texture
from usvit.data.transforms.ultrasound_effects import (
    DEPTH_GAIN,
    HAZE,
    SPECKLE,
    SPECKLE_GRAIN,
    _envelope,
    depth_gain,
    haze,
    speckle,
)

CHANGES = [speckle, depth_gain, haze]
shapes = st.tuples(st.integers(1, 70), st.integers(1, 70))
seeds = st.integers(0, 2**63 - 1)


def rgb(grey: np.ndarray) -> np.ndarray:
    return np.stack([grey.astype(np.uint8)] * 3, axis=2)


def flat(level: int, height: int = 200, width: int = 160) -> np.ndarray:
    return np.full((height, width, 3), level, np.uint8)


def outs(change, image, n: int = 100) -> np.ndarray:
    """(n, H, W) of the first channel."""
    return np.stack([change(image, np.random.default_rng(seed))[:, :, 0] for seed in range(n)]).astype(float)


@pytest.mark.parametrize("change", CHANGES)
@given(shape=shapes, seed=seeds)
@settings(max_examples=40)
def test_any_shape_keeps_its_shape_type_and_greyness_and_the_input_is_not_written_to(change, shape, seed):
    image = rgb(texture(seed % 1000, *shape))
    before = image.copy()
    image.setflags(write=False)
    out = change(image, np.random.default_rng(seed))
    assert out.shape == image.shape
    assert out.dtype == np.uint8
    assert (out == out[:, :, :1]).all()
    assert (image == before).all()
    assert (out == change(image, np.random.default_rng(seed))).all()


@pytest.mark.parametrize("change", [speckle, depth_gain])
def test_black_stays_black_under_speckle_and_gain(change):
    image = rgb(texture(0, 60, 80))
    image[:, 30:50] = 0
    assert (outs(change, image, 20)[:, :, 30:50] == 0).all()


@pytest.mark.parametrize("change", CHANGES)
def test_colour_marks_keep_their_hue_under_gain_and_speckle(change):
    image = flat(0, 40, 40)
    image[:, :, 0] = 200
    out = change(image, np.random.default_rng(0))
    assert (out[:, :, 0] >= out[:, :, 1]).all()
    if change is not haze:
        assert (out[:, :, 1:] == 0).all()


# --- speckle


def test_envelope_is_rayleigh_distributed_with_mean_one():
    field = _envelope((400, 400), SPECKLE_GRAIN, np.random.default_rng(0))
    assert field.mean() == pytest.approx(1, abs=1e-3)
    assert field.std() == pytest.approx(np.sqrt(4 / np.pi - 1), abs=0.03)
    # Every tenth value is nearly independent of its neighbours.
    values = field[::10, ::10].ravel()
    assert kstest(values / np.sqrt(2 / np.pi), "rayleigh").pvalue > 0.01


def test_grains_lie_flat():
    field = _envelope((400, 400), SPECKLE_GRAIN, np.random.default_rng(0))
    beside = np.corrcoef(field[:, :-2].ravel(), field[:, 2:].ravel())[0, 1]
    below = np.corrcoef(field[:-2].ravel(), field[2:].ravel())[0, 1]
    assert beside > below + 0.15


@pytest.mark.slow
def test_speckle_keeps_the_mean_and_stays_below_its_bound():
    levels = outs(speckle, flat(100))
    assert abs(levels.mean(axis=(1, 2)) - 100).max() < 1
    spread = levels.std(axis=(1, 2)) / 100
    # The standard deviation of ln(r) is pi / (2 sqrt 6): that of r ** w is about w times as much.
    most = SPECKLE * np.pi / (2 * np.sqrt(6))
    assert spread.max() <= most * 1.05
    assert spread.max() > 0.85 * most
    assert spread.min() < 0.1 * most


def test_speckle_is_proportional_to_the_echo():
    dark, bright = (outs(speckle, flat(level), 20).std() for level in (50, 200))
    assert bright / dark == pytest.approx(4, rel=0.05)


# --- depth gain


def test_gain_is_exponential_in_depth_within_its_bound_and_of_both_signs():
    rows = outs(depth_gain, flat(100)).mean(axis=2)
    assert np.ptp(outs(depth_gain, flat(100), 3), axis=2).max() == 0
    exponents = np.log(rows[:, -1] / rows[:, 0]) * 200 / 199
    assert abs(exponents).max() <= DEPTH_GAIN + 0.02
    assert exponents.min() < -0.8 * DEPTH_GAIN
    assert exponents.max() > 0.8 * DEPTH_GAIN
    assert abs(rows[:, 99:101] - 100).max() <= 1
    assert (np.diff(rows, axis=1) * np.sign(exponents)[:, None] >= 0).all()


# --- haze


def test_haze_adds_echoes_and_falls_with_depth():
    image = rgb(texture(3, 200, 160))
    hazy = outs(haze, image)
    assert (hazy >= image[:, :, 0]).all()
    black = outs(haze, flat(0))
    near, middle, deep = (black[:, rows].mean() for rows in (slice(0, 20), slice(50, 70), slice(150, 200)))
    assert near > 3 * middle > 0
    assert deep < 0.6
    assert black[:, :5].mean(axis=(1, 2)).max() <= HAZE * 255 * 1.1
    assert black[:, :5].mean(axis=(1, 2)).max() > HAZE * 255 * 0.6


def test_haze_lies_in_layers_parallel_to_the_probe():
    black = haze(flat(0, 224, 224), np.random.default_rng(4))[:40, :, 0].astype(float)
    assert abs(np.diff(black, axis=0)).mean() > 1.5 * abs(np.diff(black, axis=1)).mean()
