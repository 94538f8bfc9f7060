"""Compute an image from tissue maps: scatterers, beam, attenuation, envelope, log compression.

The linear model of Jensen (1996), "Field: a program for simulating ultrasound systems" (Med Biol
Eng Comput 34 Suppl 1:351): the echo signal is a field of scatterers convolved with a pulse-echo
point-spread function that changes with depth. It is computed in baseband: the carrier is
removed before the convolution instead of after it, which gives the same envelope from fewer samples.
"""

import numpy as np
import scipy.fft
from numpy.typing import NDArray
from scipy.ndimage import gaussian_filter1d

from usvit.data.phantom.device import Scanner
from usvit.data.phantom.fields import Field, Grid
from usvit.data.phantom.tissue import ATTENUATION, TissueMaps

_AXIAL_SAMPLES = 2  # per cell of the tissue maps, because the pulse is shorter than the beam is wide
_SHADOW_BLUR_MM = 0.5  # part of the aperture sees past the edge of an attenuating body
_GLAND_GREY = 0.56  # of the dynamic range, where fibroglandular tissue is shown at perfect gain


def scatterers(
    rng: np.random.Generator, density: Field, sigma_z: float, sigma_x: NDArray[np.floating]
) -> NDArray[np.complex64]:
    """Draw a complex field of scatterers with unit mean power.

    Each sample holds at most one scatterer. Phase and amplitude are circular complex Gaussian; the phase is random
    because positions within a sample are random relative to the wavelength. Many per resolution cell make fully
    developed speckle with a Rayleigh envelope (Burckhardt 1978, IEEE Trans Sonics Ultrason 25:1; Wagner et al. 1983,
    same journal 30:156); few make it K-distributed (Jakeman & Tough 1987, J Opt Soc Am A 4:1764). The probability is
    set so that the blurred field has the fourth moment of a K-distribution of shape ``density``, E I^2 = 2 (1 + 1 /
    density) (E I)^2.

    Args:
        rng: Random generator; the number of draws does not depend on the density.
        density: (H, W) effective number of scatterers in a resolution cell, > 0.
        sigma_z: standard deviation of the pulse in samples.
        sigma_x: (H,) standard deviation of the beam at each depth in samples.

    Returns:
        (H, W) complex64.
    """
    cell = 2 * np.pi * sigma_z * sigma_x  # samples in a resolution cell: 1 / sum of |psf|^4
    per_sample = density / cell[:, None].astype(np.float32)
    present = per_sample / (1 + per_sample)
    parts = rng.standard_normal((2, *density.shape), dtype=np.float32)
    there = rng.random(density.shape, dtype=np.float32) < present
    amplitude = np.where(there, np.sqrt(0.5 / present), 0).astype(np.float32)
    return (parts[0] + 1j * parts[1]) * amplitude


def blur_lateral(field: NDArray[np.complex64], sigma: NDArray[np.floating]) -> NDArray[np.complex64]:
    """Convolve each row with a Gaussian beam of its own width, of unit energy.

    Args:
        field: (H, W) complex; the left and right border are joined.
        sigma: (H,) standard deviation of the beam in samples.
    """
    frequency = scipy.fft.fftfreq(field.shape[1]).astype(np.float32)
    transfer = np.exp(-2 * np.pi**2 * (sigma[:, None].astype(np.float32) * frequency) ** 2)
    transfer /= np.sqrt(np.mean(transfer**2, axis=1, keepdims=True))
    return scipy.fft.ifft(scipy.fft.fft(field, axis=1) * transfer, axis=1)


def blur_axial(field: NDArray[np.complex64], sigma: float) -> NDArray[np.complex64]:
    """Convolve each column with the envelope of the pulse, of unit energy, without wrapping around."""
    impulse = np.zeros(2 * int(4 * sigma + 1) + 3)
    impulse[impulse.size // 2] = 1.0
    energy = np.sum(gaussian_filter1d(impulse, sigma) ** 2)
    return gaussian_filter1d(field, sigma, axis=0, mode="constant") / np.float32(np.sqrt(energy))


def round_trip_loss_db(attenuation: Field, grid: Grid, frequency_mhz: float) -> Field:
    """Return the attenuation of the way there and back, summed down each column.

    Args:
        attenuation: (H, W) in dB/cm/MHz.
        grid: the grid of the map.
        frequency_mhz: centre frequency; loss is taken as proportional to it.

    Returns:
        (H, W) loss in dB, rising with depth.
    """
    step_cm = grid.spacing_mm / 10
    loss = 2 * frequency_mhz * step_cm * np.cumsum(attenuation, axis=0)
    return gaussian_filter1d(loss, _SHADOW_BLUR_MM / grid.spacing_mm, axis=1, mode="nearest").astype(np.float32)


def time_gain_db(device: Scanner, grid: Grid) -> Field:
    """Return (H,) the time gain in dB that compensates the loss in an average breast, with slider errors.

    It depends only on the depth, so that it carries no information on the content of the image.
    """
    depth = grid.axis_mm / grid.extent_mm
    average = ATTENUATION["gland"] * 0.75 + ATTENUATION["fat"] * 0.25
    loss = 2 * device.frequency_mhz * average * grid.axis_mm / 10
    ripple = sum(a * np.cos(np.pi * (k + 1) * depth) for k, a in enumerate(device.tgc_ripple_db))
    return (device.tgc_slope * loss + ripple).astype(np.float32)


def envelope(maps: TissueMaps, contact_loss_db: Field, device: Scanner, grid: Grid, rng: np.random.Generator) -> Field:
    """Return the detected echo after time gain, averaged over the compounded looks.

    Args:
        maps: (H, W) tissue maps.
        contact_loss_db: (W,) loss at the skin where the probe couples badly, in dB.
        device: scanner settings.
        grid: the grid of the maps.
        rng: Draws scatterers and noise; the number of draws depends only on the grid and the looks.

    Returns:
        (H, W) float32 >= 0; fibroglandular tissue has a root mean square near 1.
    """
    fine_mm = grid.spacing_mm / _AXIAL_SAMPLES
    sigma_z = device.axial_sigma_mm / fine_mm
    depth = np.repeat(grid.axis_mm, _AXIAL_SAMPLES)
    sigma_x = device.lateral_sigma_mm(depth) / grid.spacing_mm
    gain_db = time_gain_db(device, grid)
    loss_db = round_trip_loss_db(maps.attenuation, grid, device.frequency_mhz) + contact_loss_db
    level = _amplitude(np.repeat(maps.echo_db - loss_db, _AXIAL_SAMPLES, axis=0))
    gain = _amplitude(np.repeat(gain_db, _AXIAL_SAMPLES))[:, None]
    noise = np.float32(10 ** (-(gain_db[-1] + device.penetration_db) / 20) / np.sqrt(2))
    density = np.repeat(maps.density, _AXIAL_SAMPLES, axis=0)

    total = np.zeros_like(level)
    for _ in range(device.looks):
        echo = blur_lateral(scatterers(rng, density, sigma_z, sigma_x) * level, sigma_x)
        hiss = rng.standard_normal((2, *level.shape), dtype=np.float32)
        echo += noise * (hiss[0] + 1j * hiss[1])
        total += np.abs(blur_axial(echo, sigma_z)) * gain
    return (total / device.looks).reshape(grid.pixels, _AXIAL_SAMPLES, grid.pixels).mean(axis=1)


def log_compress(echo: Field, device: Scanner) -> Field:
    """Map an envelope to the dynamic range of the device; return (H, W) float32 in [0, 1]."""
    level_db = 20 * np.log10(np.maximum(echo, 1e-9)) + device.gain_db
    return np.clip(_GLAND_GREY + level_db / device.dynamic_range_db, 0, 1).astype(np.float32)


def _amplitude(level_db: Field) -> Field:
    return np.exp(level_db * np.float32(np.log(10) / 20))
