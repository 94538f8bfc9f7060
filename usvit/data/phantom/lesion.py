"""One lesion: its place, its outline, and its effect on the tissue maps."""

import dataclasses

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from usvit.data.phantom.fields import Field, Grid, smooth_noise
from usvit.data.phantom.signs import Signs, sample_signs
from usvit.data.phantom.tissue import ATTENUATION, TissueMaps

# Placement as fractions of the field of view, with the same distribution for both classes. The bounds keep the largest
# and most irregular outline inside the image, with tissue below it for the shadow.
_DIAMETER = (0.17, 0.33)  # of the disc of equal area
_CENTRE_DEPTH = (0.34, 0.52)
_CENTRE_ACROSS = (0.34, 0.66)

HARMONICS = np.arange(2, 8)  # bumps round the outline: 2 is oval, 7 is microlobulated
_SPICULES = (7, 15)  # how many, whatever their length
_HALO_MM = 0.9  # half-width of the echogenic rim
ANGLES = 1440  # samples of the outline


@dataclasses.dataclass(frozen=True)
class Lesion:
    """A lesion in the section of one view.

    ``diameter``, ``depth`` and ``across`` are fractions of the field of view, ``rotation`` is
    in rad, ``density`` is the effective number of scatterers in a resolution cell.
    """

    signs: Signs
    diameter: float
    depth: float
    across: float
    rotation: float
    density: float
    phases: tuple[float, ...]  # rad, of the harmonics
    weights: tuple[float, ...]  # of the harmonics, unit root mean square
    spicules: tuple[tuple[float, float, float], ...]  # direction in rad, width in rad, relative length


def sample_lesion(rng: np.random.Generator, malignant: bool) -> Lesion:
    """Draw a lesion; only its signs depend on the class.

    Args:
        rng: Placement is drawn first and the signs last, with the same number of draws for either class, so that a
            lesion keeps its place when its class is changed.
        malignant: Class whose distributions of the signs are used.
    """
    weights = np.abs(rng.standard_normal(HARMONICS.size)) / HARMONICS**0.5
    return Lesion(
        diameter=rng.uniform(*_DIAMETER),
        depth=rng.uniform(*_CENTRE_DEPTH),
        across=rng.uniform(*_CENTRE_ACROSS),
        rotation=rng.normal(0, 0.12),
        density=rng.uniform(2, 10),
        phases=tuple(rng.uniform(0, 2 * np.pi, HARMONICS.size)),
        weights=tuple(weights / np.sqrt(np.sum(weights**2) / 2)),
        spicules=tuple(
            (rng.uniform(0, 2 * np.pi), rng.uniform(0.05, 0.12), rng.uniform(0.5, 1.0))
            for _ in range(rng.integers(*_SPICULES))
        ),
        signs=sample_signs(rng, malignant),
    )


def perturb(lesion: Lesion, rng: np.random.Generator) -> Lesion:
    """Return the lesion in another section, with slightly different size, place, angle and outline."""
    signs = dataclasses.replace(lesion.signs, orientation=lesion.signs.orientation * float(np.exp(rng.normal(0, 0.07))))
    return dataclasses.replace(
        lesion,
        signs=signs,
        diameter=lesion.diameter * rng.uniform(0.92, 1.08),
        depth=lesion.depth + rng.uniform(-0.02, 0.02),
        across=lesion.across + rng.uniform(-0.05, 0.05),
        rotation=lesion.rotation + rng.normal(0, 0.08),
        phases=tuple(phase + rng.normal(0, 0.4) for phase in lesion.phases),
        spicules=tuple((at + rng.normal(0, 0.2), width, length) for at, width, length in lesion.spicules),
    )


def outline(lesion: Lesion, extent_mm: float) -> NDArray[np.float64]:
    """Return (ANGLES,) distances from the centre to the margin in mm, at angles from -pi to pi.

    The angle is 0 to the right and pi / 2 towards depth. The enclosed area is that of a disc with the lesion's
    diameter, whatever the signs, so that the size does not depend on the class.
    """
    angle = np.linspace(-np.pi, np.pi, ANGLES, endpoint=False)
    turned = angle - lesion.rotation
    stretch = np.sqrt(lesion.signs.orientation)
    radius = 1 / np.hypot(np.cos(turned) * stretch, np.sin(turned) / stretch)
    waves = np.cos(HARMONICS * (turned[:, None] - np.array(lesion.phases))) @ np.array(lesion.weights)
    radius *= 1 + lesion.signs.irregularity * np.tanh(waves / 2) * 2
    for direction, width, length in lesion.spicules:
        off = np.abs((turned - direction + np.pi) % (2 * np.pi) - np.pi)
        radius *= 1 + lesion.signs.spiculation * length * np.exp(-off / width)
    radius = np.maximum(radius, 0.3)
    return radius * (lesion.diameter * extent_mm / 2) / np.sqrt(np.mean(radius**2))


def insert(lesion: Lesion, maps: TissueMaps, grid: Grid, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Insert a lesion into the tissue maps in place.

    The lesion replaces echo level, attenuation and scatterer density inside its margin, and raises the echo level in
    its halo. Shadow and enhancement are not drawn; they result from the attenuation map (``acoustics``).

    Args:
        lesion: The lesion in the section of this view.
        maps: Tissue maps, changed in place.
        grid: Grid of the maps.
        rng: Draws two fields of noise, for the inside and for the margin.

    Returns:
        (H, W) bool, True inside the margin.
    """
    inside_texture = smooth_noise(rng, grid, (0.8, 1.1))
    edge_texture = smooth_noise(rng, grid, (0.4, 0.5))
    distance = _distance_to_margin(lesion, grid)
    signs = lesion.signs
    ragged = distance + 0.35 * np.float32(signs.margin) * edge_texture
    inside = expit(-4 * ragged / np.float32(signs.margin))
    halo = np.exp(-0.5 * ((distance - _HALO_MM) / _HALO_MM) ** 2) * (1 - inside)

    maps.echo_db += np.float32(signs.halo) * halo
    maps.echo_db += inside * (signs.echo + signs.heterogeneity * inside_texture - maps.echo_db)
    maps.attenuation += inside * (ATTENUATION["gland"] + signs.posterior - maps.attenuation)
    maps.density += inside * (lesion.density - maps.density)
    return distance < 0


def _distance_to_margin(lesion: Lesion, grid: Grid) -> Field:
    """Return (H, W) distances to the margin in mm along the ray from the centre, negative inside."""
    down = grid.axis_mm[:, None] - np.float32(lesion.depth * grid.extent_mm)
    across = grid.axis_mm[None, :] - np.float32(lesion.across * grid.extent_mm)
    index = ((np.arctan2(down, across) + np.pi) * (ANGLES / (2 * np.pi))).astype(np.int32) % ANGLES
    return np.hypot(down, across) - outline(lesion, grid.extent_mm).astype(np.float32)[index]
