"""Random changes of the grey values of a picture, in the geometry of the scanner.

``GreyBounds`` (or ``FilterBounds``) draws a ``GreyChange``. The host applies it by ``GreyChange.of``, and a device to a
whole batch by ``device_policies``.
"""

import random
from dataclasses import dataclass
from typing import Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from usvit.data.io import UInt8
from usvit.data.transforms.ultrasound_effects import (
    Haze,
    Speckle,
    draw_depth_gain,
    draw_haze,
    draw_speckle,
    with_depth_gain,
    with_haze,
    with_speckle,
)


@dataclass(frozen=True)
class GreyChange:
    """Changes of one picture, in the order in which they are applied; None for those that are not."""

    speckle: Speckle | None = None
    haze: Haze | None = None
    depth_gain: np.float32 | None = None
    """Exponent of the gain."""
    table: UInt8 | None = None
    """(256,) new value of each grey level."""
    sharpening: NDArray[np.float32] | None = None
    """(3, 3) kernel."""
    smoothing: NDArray[np.float64] | None = None
    """(k,) kernel of both directions."""

    def of(self, picture: UInt8) -> UInt8:
        """Return the changed picture, (H, W, 3) uint8."""
        if self.speckle is not None:
            picture = with_speckle(picture, self.speckle)
        if self.haze is not None:
            picture = with_haze(picture, self.haze)
        if self.depth_gain is not None:
            picture = with_depth_gain(picture, self.depth_gain)
        if self.table is not None:
            picture = self.table[picture]
        if self.sharpening is not None:
            picture = np.asarray(cv2.filter2D(picture, -1, self.sharpening), dtype=np.uint8)
        if self.smoothing is not None:
            smoothed = cv2.sepFilter2D(picture, -1, self.smoothing, self.smoothing)
            picture = np.asarray(smoothed, dtype=np.uint8)
        return picture


class Greys(Protocol):
    """Bounds of randomly drawn changes."""

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator, coin: random.Random) -> GreyChange:
        """Draw the changes of a picture of ``shape`` (H, W).

        The numbers are drawn as albumentations 2.0.8 draws them, which applied these changes in earlier versions, so
        that a seed still gives the same image. Therefore there are two generators, and a number that is not used.
        """


@dataclass(frozen=True)
class GreyBounds:
    """Bounds of brightness, contrast and the changes between scanners."""

    brightness: float
    """Largest change of brightness, as a share of the full range."""
    contrast: float
    """Largest relative change of contrast."""
    gamma: tuple[float, float] | None = None
    """Range of the exponent of the grey map; None for no gamma, speckle, haze or depth gain."""
    share: float = 0.0
    """Probability of each of these four."""

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator, coin: random.Random) -> GreyChange:
        coin.random()
        speckle, haze, gain, table = None, None, None, np.arange(256, dtype=np.uint8)
        if self.gamma is not None:  # the order follows the signal: echoes, receiver, display
            speckle = draw_speckle(shape, rng) if coin.random() < self.share else None
            haze = draw_haze(shape, rng) if coin.random() < self.share else None
            gain = draw_depth_gain(rng) if coin.random() < self.share else None
            if coin.random() < self.share:
                table = gamma_table(coin.uniform(self.gamma[0] * 100, self.gamma[1] * 100) / 100)
        contrast = 1 + coin.uniform(-self.contrast, self.contrast)
        brightness = coin.uniform(-self.brightness, self.brightness) * 255
        return GreyChange(speckle, haze, gain, _linear_table(contrast, brightness)[table])


@dataclass(frozen=True)
class FilterBounds:
    """Bounds of either sharpening or smoothing."""

    sharpen: float
    """Largest weight of the sharpening kernel."""
    smooth: tuple[float, float]
    """Range of the standard deviation of the smoothing, in pixels."""

    def draw(self, shape: tuple[int, ...], rng: np.random.Generator, coin: random.Random) -> GreyChange:
        coin.random()
        coin.random()
        if rng.choice(2, p=[0.5, 0.5]) == 0:
            return GreyChange(sharpening=sharpening_kernel(coin.uniform(0, self.sharpen)))
        return GreyChange(smoothing=smoothing_kernel(coin.uniform(*self.smooth)))


def gamma_table(gamma: float) -> UInt8:
    """Return (256,) uint8: the power ``gamma`` of each grey level as a share of 255, truncated."""
    return np.asarray((np.arange(0, 256.0 / 255, 1.0 / 255) ** gamma * 255).astype(np.uint8)[:256])


def _linear_table(factor: float, offset: float) -> UInt8:
    """Return (256,) uint8: each grey level times ``factor`` plus ``offset``, clipped and truncated."""
    return np.clip(np.arange(256, dtype=np.float32) * factor + offset, 0, 255).astype(np.uint8)


def sharpening_kernel(weight: float) -> NDArray[np.float32]:
    """Return (3, 3) float32: identity, and ``weight`` of the difference from the eight neighbours."""
    identity = np.zeros((3, 3), dtype=np.float32)
    identity[1, 1] = 1
    edges = np.full((3, 3), -1, dtype=np.float32)
    edges[1, 1] = 9
    return (1 - weight) * identity + weight * edges


def smoothing_kernel(sigma: float) -> NDArray[np.float64]:
    """Return the (k,) Gaussian of standard deviation ``sigma`` pixels, cut at 3.5 of them, with sum 1."""
    reach = int(sigma * 3.5)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2)
    return np.asarray(kernel / kernel.sum())
