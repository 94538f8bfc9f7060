"""Tissue of the breast without a lesion: layers from skin to chest wall as maps of acoustic properties.

Attenuation of fat, breast and muscle: Culjat et al. (2010), Ultrasound Med Biol 36:861.
The echo levels are our choice, in the order that BI-RADS (ACR 2013) describes: fat is the reference for lesions,
fibroglandular tissue is brighter, and muscle lies between.
"""

import dataclasses

import numpy as np

from usvit.data.phantom.fields import Field, Grid, ridges, smooth_noise

# dB/cm/MHz. Skin and chest wall have the value of muscle: skin is thin, and nothing is visible below the chest wall.
ATTENUATION = {"skin": 1.09, "fat": 0.48, "gland": 0.75, "retromammary": 0.48, "muscle": 1.09, "chest": 1.09}

# Mean echo level in dB relative to fibroglandular tissue.
_ECHO_DB = {"skin": 3.0, "fat": -13.0, "gland": 0.0, "retromammary": -12.0, "muscle": -9.0, "chest": -17.0}

# Effective number of scatterers in a resolution cell. Above 10, speckle is fully developed; below, it is K-distributed
# (Dutt & Greenleaf 1994, Ultrason Imaging 16:265). The values are our choice.
_DENSITY = {"skin": 12.0, "fat": 12.0, "gland": 4.0, "retromammary": 12.0, "muscle": 5.0, "chest": 12.0}

LAYERS = tuple(_ECHO_DB)
HARMONICS = 4  # of the undulation of a boundary


@dataclasses.dataclass(frozen=True)
class Tissue:
    """Tissue of one patient. Depths are fractions of the field of view unless a name gives another unit."""

    skin_mm: float
    fat_end: float
    gland_end: float
    retromammary: float  # thickness
    muscle: float  # thickness
    undulation_mm: float
    waves: tuple[tuple[float, ...], ...]  # (boundary, harmonic) amplitude, unit scale
    phases: tuple[tuple[float, ...], ...]  # (boundary, harmonic) rad
    slope: float  # of the deep layers, mm of depth per mm across
    septa_db: float  # Cooper's ligaments over fat
    lobules: float  # threshold for fat lobules in the gland, standard deviations
    gland_texture_db: float
    gland_db: float
    striation_db: float


@dataclasses.dataclass
class TissueMaps:
    """(H, W) float32 maps: echo level in dB, attenuation in dB/cm/MHz, scatterers per cell."""

    echo_db: Field
    attenuation: Field
    density: Field


def sample_tissue(rng: np.random.Generator) -> Tissue:
    """Draw the tissue of one patient."""
    boundaries = len(LAYERS) - 2  # all but the lower border of the skin
    return Tissue(
        skin_mm=rng.uniform(1.2, 2.2),
        fat_end=rng.uniform(0.13, 0.33),
        gland_end=rng.uniform(0.58, 0.72),
        retromammary=rng.uniform(0.02, 0.07),
        muscle=rng.uniform(0.12, 0.22),
        undulation_mm=rng.uniform(0.5, 1.8),
        waves=tuple(tuple(rng.normal(0, 1, HARMONICS) / np.arange(1, HARMONICS + 1)) for _ in range(boundaries)),
        phases=tuple(tuple(rng.uniform(0, 2 * np.pi, HARMONICS)) for _ in range(boundaries)),
        slope=rng.normal(0, 0.06),
        septa_db=rng.uniform(8, 16),
        lobules=rng.uniform(-0.1, 1.8),
        gland_texture_db=rng.uniform(2.0, 4.5),
        gland_db=rng.uniform(-3, 2),
        striation_db=rng.uniform(3, 6),
    )


def draw_maps(tissue: Tissue, grid: Grid, rng: np.random.Generator) -> TissueMaps:
    """Draw the tissue maps of one view.

    Args:
        tissue: Tissue of the patient.
        grid: Grid of the maps.
        rng: Draws the texture and a small shift of the section; the number of draws depends only on the grid.
    """
    borders = _borders(tissue, grid, rng)
    # Roughness changes the depth at which a layer is looked up, so that borders are not smooth lines.
    depth = grid.axis_mm[:, None] + 0.25 * smooth_noise(rng, grid, (0.5, 1.2))
    layer = np.stack([depth > border for border in borders]).sum(axis=0)
    maps = TissueMaps(*(_look_up(table, layer) for table in (_ECHO_DB, ATTENUATION, _DENSITY)))

    gland = (layer == LAYERS.index("gland")).astype(np.float32)
    muscle = (layer == LAYERS.index("muscle")).astype(np.float32)
    fatty = np.isin(layer, (LAYERS.index("fat"), LAYERS.index("retromammary"))).astype(np.float32)

    lobule = _soft_step(smooth_noise(rng, grid, (1.3, 2.8), tissue.slope) - tissue.lobules, 0.25) * gland
    texture = smooth_noise(rng, grid, (0.5, 1.3), tissue.slope)
    maps.echo_db += gland * (tissue.gland_db + tissue.gland_texture_db * texture)
    maps.echo_db += lobule * (_ECHO_DB["fat"] + 3 - maps.echo_db)
    maps.attenuation += lobule * (ATTENUATION["fat"] - maps.attenuation)
    maps.density += lobule * (_DENSITY["fat"] - maps.density)

    strength = 0.5 + 0.5 * np.clip(smooth_noise(rng, grid, (1.5, 3.0)), -1, 1)
    # Two families of septa that lean to either side enclose fat lobules.
    lean = rng.uniform(0.05, 0.3)
    rising, falling = (smooth_noise(rng, grid, (0.8, 4.2), sign * lean) for sign in (-1, 1))
    width = 0.14 / grid.spacing_mm
    septa = np.maximum(ridges(rising, width), ridges(falling, width)) * strength
    maps.echo_db += septa * (tissue.septa_db * fatty + 0.4 * tissue.septa_db * gland)

    fibres = smooth_noise(rng, grid, (0.22, 4.5), tissue.slope + rng.normal(0, 0.05))
    maps.echo_db += muscle * tissue.striation_db * np.clip(fibres, -0.8, 2.5)

    _draw_fasciae(maps, grid, borders, strength)
    return maps


def _borders(tissue: Tissue, grid: Grid, rng: np.random.Generator) -> list[Field]:
    """Return the lower borders of all layers but the last, each (W,) in mm of depth, in order."""
    x = grid.axis_mm / grid.extent_mm
    shift = rng.normal(0, 0.35, (len(LAYERS) - 2, HARMONICS))  # rad: another section of the same breast
    retromammary_end = tissue.gland_end + tissue.retromammary
    nominal = (tissue.fat_end, tissue.gland_end, retromammary_end, retromammary_end + tissue.muscle)
    borders = [np.full_like(x, tissue.skin_mm)]
    for i, depth in enumerate(nominal):
        wave = np.zeros_like(x)
        for k in range(HARMONICS):
            wave += tissue.waves[i][k] * np.cos(np.pi * (k + 1) * x + tissue.phases[i][k] + shift[i, k])
        tilt = tissue.slope * (x - 0.5) * grid.extent_mm if i > 0 else 0.0
        # The borders of the muscle are fasciae under tension, which undulate less.
        swing = tissue.undulation_mm * (1.0 if i < 2 else 0.4)
        border = depth * grid.extent_mm + swing * wave + tilt
        borders.append(np.maximum(border, borders[-1] + np.float32(0.3)).astype(np.float32))
    return borders


def _draw_fasciae(maps: TissueMaps, grid: Grid, borders: list[Field], strength: Field) -> None:
    """Draw bright lines at the surfaces of the skin, the fascia of the muscle and the pleura."""
    depth = grid.axis_mm[:, None]
    lines = ((np.zeros_like(borders[0]), 6.0), (borders[0], 5.0), (borders[3], 14.0), (borders[4], 16.0))
    for at, raised_db in lines:
        profile = np.exp(-0.5 * ((depth - at) / 0.2) ** 2)
        maps.echo_db += raised_db * profile * (0.35 + 0.65 * strength)


def _look_up(table: dict[str, float], layer: np.ndarray) -> Field:
    return np.array([table[name] for name in LAYERS], np.float32)[layer]


def _soft_step(value: Field, width: float) -> Field:
    return (0.5 + 0.5 * np.tanh(value / np.float32(width))).astype(np.float32)
