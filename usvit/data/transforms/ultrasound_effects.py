"""Image changes that imitate the differences between ultrasound scanners and their settings.

``speckle``, ``depth_gain`` and ``haze`` take an image, (H, W, 3) uint8 with the probe at the top, and a random
generator. They draw their strength and return a new image of the same shape and type. Speckle and depth gain keep black
pixels black. Each is a draw (``draw_speckle``), which ``device_policies`` uses too, and a change by what was drawn
(``with_speckle``).
"""

from typing import NamedTuple

import cv2
import numpy as np
from numpy.typing import NDArray

from usvit.data.io import UInt8

SPECKLE = 0.2
"""Largest exponent w of new speckle r ** w, where r is the envelope of fully developed speckle; a compressed image
shows a power of it at most. Chosen by eye: w = 0.2 adds a standard deviation of 0.12 of the local grey value, w = 1 of
0.52."""
SPECKLE_GRAIN = (0.007, 0.0035)
"""Size of a grain, as a share of the image's width: across the beam and along it. Ours; a pulse is shorter than
a beam is wide (Wagner et al. 1983), so grains lie flat. 1.6 and 0.8 pixels of 224."""
DEPTH_GAIN = 0.4
"""Largest exponent e of a gain that goes from exp(-e/2) at the probe to exp(e/2) at the bottom, or the reverse:
time-gain compensation set too low or too high for this tissue. Ours; usaugment, after Ostvik et al. 2021, has 0 to 3,
for attenuation only, which leaves the lower half black."""
HAZE = 0.15
"""Largest share of white that reverberation lays over the image at the probe. Ours; Ostvik et al. 2021 have 0.5 in a
band at any depth, here it is strongest where reverberation is: under the probe."""
_HAZE_REACH = (0.1, 0.3)
"""Depth, as a share of the image's, at which haze has fallen to 1/e. Ours."""
_HAZE_GRAIN = (0.06, 0.008)
"""Size of a grain, as for ``SPECKLE_GRAIN``: echoes between probe and skin repeat as layers parallel to it. Ours."""


class Speckle(NamedTuple):
    """What ``speckle`` draws."""

    waves: NDArray[np.float32]
    """(2, rows, columns) smoothed complex noise, about one sample per grain."""
    exponent: float


class Haze(NamedTuple):
    """What ``haze`` draws."""

    strength: np.float32
    """Share of white at the probe."""
    reach: np.float32
    """Depth, as a share of the image's, at which it has fallen to 1/e."""
    waves: NDArray[np.float32]
    """As of ``Speckle``."""


def speckle(image: UInt8, rng: np.random.Generator) -> UInt8:
    """Multiply by new speckle, which imitates another interference pattern of the same tissue.

    Source: the envelope of a sum of many echoes is Rayleigh-distributed (Burckhardt 1978, IEEE Trans. Sonics
    Ultrason. 25:1; Wagner et al. 1983, ibid. 30:156); here a power of it, since images are compressed.
    """
    return with_speckle(image, draw_speckle(image.shape[:2], rng))


def depth_gain(image: UInt8, rng: np.random.Generator) -> UInt8:
    """Multiply by a gain that rises or falls with depth, as with a wrong time-gain compensation.

    Source: Ostvik et al. 2021, IEEE Trans. Med. Imaging 40:1340 (attenuation), here in both directions.
    """
    return with_depth_gain(image, draw_depth_gain(rng))


def haze(image: UInt8, rng: np.random.Generator) -> UInt8:
    """Add the haze of reverberation to the near field; it adds echoes and removes none.

    Source: Ostvik et al. 2021, IEEE Trans. Med. Imaging 40:1340 (a band of noise), here below the probe.
    """
    return with_haze(image, draw_haze(image.shape[:2], rng))


def draw_speckle(shape: tuple[int, ...], rng: np.random.Generator) -> Speckle:
    """Draw the speckle of an image of ``shape`` (H, W)."""
    waves = _waves(shape, SPECKLE_GRAIN, rng)
    return Speckle(waves, rng.uniform(0, SPECKLE))


def draw_depth_gain(rng: np.random.Generator) -> np.float32:
    """Draw the exponent of the gain from half-way up to the bottom."""
    return np.float32(rng.uniform(-DEPTH_GAIN, DEPTH_GAIN))


def draw_haze(shape: tuple[int, ...], rng: np.random.Generator) -> Haze:
    """Draw the haze of an image of ``shape`` (H, W)."""
    strength, reach = np.float32(rng.uniform(0, HAZE)), np.float32(rng.uniform(*_HAZE_REACH))
    return Haze(strength, reach, _waves(shape, _HAZE_GRAIN, rng))


def with_speckle(image: UInt8, drawn: Speckle) -> UInt8:
    """Return the image with this speckle."""
    factor = cv2.pow(_magnitude(drawn.waves, image.shape[:2]), drawn.exponent)
    return _times(image, factor / max(factor.mean(), np.float32(1e-6)))


def with_depth_gain(image: UInt8, exponent: np.float32) -> UInt8:
    """Return the image under this gain."""
    gain = np.exp(exponent * (_depth(len(image)) - 0.5))
    return _times(image, np.broadcast_to(gain, image.shape[:2]))


def with_haze(image: UInt8, drawn: Haze) -> UInt8:
    """Return the image under this haze."""
    layers = (1 + _magnitude(drawn.waves, image.shape[:2])) / 2
    white = drawn.strength * np.exp(-_depth(len(image)) / drawn.reach) * layers
    return 255 - _times(255 - image, 1 - white.clip(0, 1))


def _depth(rows: int) -> NDArray[np.float32]:
    """Return (rows, 1) depths from 0 at the probe to 1 at the bottom."""
    return np.linspace(0.5 / rows, 1 - 0.5 / rows, rows, dtype=np.float32)[:, None]


def _envelope(shape: tuple[int, ...], grain: tuple[float, float], rng: np.random.Generator) -> NDArray[np.float32]:
    """Return (H, W) float32, Rayleigh-distributed with mean 1: the magnitude of smoothed complex noise."""
    return _magnitude(_waves(shape, grain, rng), shape)


def _waves(shape: tuple[int, ...], grain: tuple[float, float], rng: np.random.Generator) -> NDArray[np.float32]:
    """Draw smoothed complex noise for an image of ``shape`` (H, W): (2, rows, columns) float32."""
    height, width = shape
    across, along = (share * width for share in grain)
    # About one sample per grain is drawn and the rest interpolated, before the magnitude, so that it stays Rayleigh.
    rows, columns = (max(round(length / max(size, 1)), 1) for length, size in ((height, along), (width, across)))
    waves = rng.standard_normal((2, rows, columns), dtype=np.float32)
    sigmas = [min(max(size, 0.3), 1) for size in (across, along)]
    return np.stack([cv2.GaussianBlur(wave, (5, 5), sigmas[0], sigmaY=sigmas[1]) for wave in waves])


def _magnitude(waves: NDArray[np.float32], shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Enlarge complex noise to ``shape`` (H, W) and return its magnitude, scaled to mean 1."""
    height, width = shape
    real, imaginary = (cv2.resize(wave, (width, height)) for wave in waves)
    envelope = np.asarray(cv2.magnitude(real, imaginary), dtype=np.float32)
    return envelope / max(envelope.mean(), np.float32(1e-6))


def _times(image: UInt8, factor: NDArray[np.floating]) -> UInt8:
    """Multiply (H, W, 3) uint8 by (H, W), rounded and clipped to 0 to 255."""
    return np.asarray(cv2.multiply(image, cv2.merge([factor.astype(np.float32)] * 3), dtype=cv2.CV_8U), dtype=np.uint8)
