import dataclasses

import numpy as np
import pytest

from usvit.data.phantom.acoustics import (
    blur_axial,
    blur_lateral,
    envelope,
    log_compress,
    round_trip_loss_db,
    scatterers,
    time_gain_db,
)
from usvit.data.phantom.device import FWHM, sample_device
from usvit.data.phantom.fields import Grid
from usvit.data.phantom.tissue import ATTENUATION, TissueMaps

RAYLEIGH_SNR = np.sqrt(np.pi / (4 - np.pi))  # 1.913: mean over standard deviation
SIGMA = 1.5  # samples


@pytest.fixture
def device():
    return sample_device(np.random.default_rng(5))


def speckle(density: float, seed: int = 0, shape: tuple[int, int] = (512, 512)) -> np.ndarray:
    """Envelope of a homogeneous medium, before any log compression."""
    sigma_x = np.full(shape[0], SIGMA)
    field = scatterers(np.random.default_rng(seed), np.full(shape, density, np.float32), SIGMA, sigma_x)
    return np.abs(blur_axial(blur_lateral(field, sigma_x), SIGMA))[8:-8]


def snr(values: np.ndarray) -> float:
    return float(values.mean() / values.std())


def test_many_scatterers_make_fully_developed_rayleigh_speckle():
    assert snr(speckle(density=500.0)) == pytest.approx(RAYLEIGH_SNR, abs=0.04)


@pytest.mark.parametrize("density", [1.0, 3.0, 8.0])
def test_few_scatterers_make_speckle_with_the_fourth_moment_of_a_k_distribution(density):
    intensity = np.concatenate([speckle(density, seed) for seed in range(3)]) ** 2
    assert np.mean(intensity**2) / np.mean(intensity) ** 2 == pytest.approx(2 * (1 + 1 / density), rel=0.06)


def test_the_fewer_the_scatterers_the_lower_the_signal_to_noise_ratio():
    ratios = [snr(speckle(density)) for density in (1.0, 3.0, 10.0, 500.0)]
    assert ratios == sorted(ratios)
    assert ratios[0] < RAYLEIGH_SNR - 0.3


def test_mean_power_is_one_whatever_density_and_beam_width():
    for density, sigma in ((1.0, 0.8), (10.0, 1.5), (500.0, 4.0)):
        sigma_x = np.full(512, sigma)
        field = scatterers(np.random.default_rng(1), np.full((512, 512), density, np.float32), 1.0, sigma_x)
        echo = blur_axial(blur_lateral(field, sigma_x), 1.0)[8:-8]
        assert np.mean(np.abs(echo) ** 2) == pytest.approx(1.0, abs=0.08)


def test_scatterers_outside_a_lesion_do_not_move_when_its_density_changes():
    density = np.full((64, 64), 10.0, np.float32)
    other = density.copy()
    other[20:40, 20:40] = 1.0
    fields = [scatterers(np.random.default_rng(0), d, SIGMA, np.full(64, SIGMA)) for d in (density, other)]
    differs = fields[0] != fields[1]
    assert differs[20:40, 20:40].any()
    differs[20:40, 20:40] = False
    assert not differs.any()


def lateral_width_mm(echo: np.ndarray, spacing_mm: float) -> float:
    """Width of the lateral autocorrelation of speckle at half its height."""
    centred = echo - echo.mean(axis=1, keepdims=True)
    power = np.mean(np.abs(np.fft.fft(centred, axis=1)) ** 2, axis=0)
    correlation = np.fft.ifft(power).real
    correlation /= correlation[0]
    below = int(np.argmax(correlation < 0.5))
    step = (correlation[below - 1] - 0.5) / (correlation[below - 1] - correlation[below])
    return 2 * (below - 1 + step) * spacing_mm


def test_speckle_is_narrowest_at_the_focus_and_widens_away_from_it(device):
    device = dataclasses.replace(device, depth_mm=40.0, focus_mm=20.0, focal_zone_mm=8.0, looks=1, penetration_db=60.0)
    grid = Grid(512, 40.0)
    shape = (512, 512)
    maps = TissueMaps(np.zeros(shape, np.float32), np.zeros(shape, np.float32), np.full(shape, 500, np.float32))
    echo = envelope(maps, np.zeros(512, np.float32), device, grid, np.random.default_rng(0))
    shallow, focus, deep = (lateral_width_mm(echo[rows], grid.spacing_mm) for rows in bands(grid, 3.0, 20.0, 37.0))
    assert shallow > 1.5 * focus
    assert deep > 1.5 * focus
    # An amplitude beam of standard deviation s gives intensity speckle correlated over s as well
    # (exp(-d^2 / 2 s^2)), and the envelope's correlation is close to it.
    expected = float(device.lateral_sigma_mm(np.array([20.0]))[0]) * FWHM
    assert focus == pytest.approx(expected, rel=0.25)


def bands(grid: Grid, *depths_mm: float) -> list[slice]:
    return [slice(max(0, int((d - 2) / grid.spacing_mm)), int((d + 2) / grid.spacing_mm)) for d in depths_mm]


def test_loss_is_twice_attenuation_times_frequency_times_depth():
    grid = Grid(256, 40.0)
    loss = round_trip_loss_db(np.full((256, 256), 0.7, np.float32), grid, 10.0)
    assert loss[-1] == pytest.approx(2 * 0.7 * 10.0 * 4.0, rel=1e-3)
    assert loss[127] == pytest.approx(2 * 0.7 * 10.0 * 2.0, rel=1e-3)


def test_loss_in_one_column_stays_below_it():
    grid = Grid(256, 40.0)
    attenuation = np.full((256, 256), 0.7, np.float32)
    plain = round_trip_loss_db(attenuation, grid, 10.0)
    attenuation[100:150, 100:150] += 0.5
    extra = round_trip_loss_db(attenuation, grid, 10.0) - plain
    assert abs(extra[:100]).max() == 0
    assert extra[200, 125] == pytest.approx(2 * 0.5 * 10.0 * 50 * 40 / 256 / 10, rel=1e-2)
    assert abs(extra[:, :80]).max() < 1e-3
    assert abs(extra[:, 170:]).max() < 1e-3


def test_time_gain_makes_up_for_most_of_the_loss_but_not_all(device):
    device = dataclasses.replace(device, tgc_slope=1.0, tgc_ripple_db=(0.0, 0.0, 0.0))
    grid = Grid(256, device.depth_mm)
    for tissue in ("fat", "gland"):
        loss = round_trip_loss_db(np.full((256, 256), ATTENUATION[tissue], np.float32), grid, device.frequency_mhz)
        left_over = loss[-1, 0] - time_gain_db(device, grid)[-1]
        assert 0 < abs(left_over) < 0.45 * loss[-1, 0]


def test_log_compression_is_monotone_and_bounded(device):
    shown = log_compress(np.logspace(-9, 9, 100).astype(np.float32), device)
    assert shown[0] == 0
    assert shown[-1] == 1
    assert (np.diff(shown) >= 0).all()
