"""Random fields for tissue texture, and the grid on which they are sampled."""

import dataclasses

import numpy as np
import scipy.fft
from numpy.typing import NDArray

Field = NDArray[np.float32]


@dataclasses.dataclass(frozen=True)
class Grid:
    """A square field of view, sampled for the tissue maps.

    Args:
        pixels: height and width in cells.
        extent_mm: height and width of the field of view in mm.
    """

    pixels: int
    extent_mm: float

    @property
    def spacing_mm(self) -> float:
        return self.extent_mm / self.pixels

    @property
    def axis_mm(self) -> Field:
        """(pixels,) cell centres in mm, from the transducer along depth or from the left across."""
        return ((np.arange(self.pixels) + 0.5) * self.spacing_mm).astype(np.float32)


def smooth_noise(rng: np.random.Generator, grid: Grid, scale_mm: tuple[float, float], tilt: float = 0.0) -> Field:
    """Draw a Gaussian random field with mean 0, standard deviation 1 and a Gaussian correlation.

    Args:
        rng: Random generator; exactly ``pixels ** 2`` normal values are drawn, whatever the scale.
        grid: where to sample.
        scale_mm: standard deviation of the smoothing kernel along depth and across, in mm.
        tilt: slope of the long axis, in mm of depth per mm across.

    Returns:
        (pixels, pixels) float32, periodic at the borders.
    """
    white = rng.standard_normal((grid.pixels, grid.pixels), dtype=np.float32)
    fz = scipy.fft.fftfreq(grid.pixels, grid.spacing_mm).astype(np.float32)[:, None]
    fx = scipy.fft.rfftfreq(grid.pixels, grid.spacing_mm).astype(np.float32)[None, :]
    # A shear of the pattern by z -> z + tilt * x is a shear of its spectrum by fx -> fx + tilt * fz.
    transfer = np.exp(-2 * np.pi**2 * ((scale_mm[0] * fz) ** 2 + (scale_mm[1] * (fx + tilt * fz)) ** 2))
    spectrum = scipy.fft.rfft2(white) * transfer
    spectrum[0, 0] = 0.0
    field = scipy.fft.irfft2(spectrum, s=white.shape)
    return (field / max(float(field.std()), 1e-12)).astype(np.float32)


def ridges(field: Field, width: float) -> Field:
    """Draw thin curved lines where a smooth field crosses zero, as a model of septa and fibres.

    Args:
        field: (H, W) smooth random field.
        width: standard deviation of the line's profile in px.

    Returns:
        (H, W) float32 in [0, 1], 1 on the line.
    """
    down, across = np.gradient(field)
    steepness = np.hypot(down, across) + np.float32(1e-6)
    # First-order distance to the zero crossing; dividing by the steepness keeps the width of the line even.
    return np.exp(-0.5 * (field / (steepness * np.float32(width))) ** 2).astype(np.float32)
