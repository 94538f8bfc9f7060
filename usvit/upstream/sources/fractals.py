"""Fractal images that are generated on the fly: labelled images without photographs (formula-driven supervision).

A class is one iterated function system: a few affine maps whose attractor is the fractal. Its images show the attractor
with one map jittered, through varying windows, transposed and flipped, with varying colours and backgrounds.

Sources: Kataoka et al. 2020, "Pre-training without Natural Images", ACCV (FractalDB: classes, filling rate, 3 x 3
patches, flips); Anderson & Farrell 2022, "Improving Fractal Pre-training", WACV (systems sampled by their singular
values within a bound of the sigma-factor, jitter, window, colour, background).
"""

import functools

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from usvit.data.datasets import GeneratedSource
from usvit.data.io import UInt8
from usvit.seeding import derive_seed

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

GENERATOR_VERSION = "1"
"""Increase it with every change that alters a pixel."""
MIN_MAPS, MAX_MAPS = 2, 7
"""Maps of a system, as in Anderson & Farrell's code (and FractalDB's 2 to 8)."""
WALKERS, STEPS, WARM_UP = 4096, 24, 10
"""Points in parallel and steps of the chaos game: 98,304 points per image (FractalDB and Anderson: 100,000). The first
``WARM_UP`` steps are not drawn, because all points start in one place."""
MIN_FILLING, MAX_FILLING = 0.2, 0.8
"""Share of the cells of a ``_PROBE`` grid that an attractor covers. The lower bound is FractalDB's; nearly full
squares, which Anderson's sampling sometimes gives, look alike."""
_PROBE = 64
MIN_ASPECT = 0.2
"""Minimum aspect ratio of an attractor: thinner ones are lines, which the window stretches to noise."""
_ZOOM = (0.7, 1.4)
"""Range of the window's side over the attractor's. Anderson's is 0.5 to 2; ours is narrower because views are
cropped at random as well."""
SHIFT = 0.15
"""Maximum shift of the window's centre, as a share of the attractor's sides (Anderson: 0.2)."""
JITTER = (0.8, 1.1)
"""Range of the factor that scales one of the maps (Anderson)."""


def sample_system(rng: np.random.Generator) -> Float64:
    """Draw contractive affine maps whose sigma-factor gives well-shaped fractals.

    Each map is A = U diag(s1, s2) V, with U and V orthogonal and 0 <= s2 <= s1 <= 1, so that the system is contractive
    by construction. The sigma-factor, sum over maps of s1 + 2 s2, is drawn from [(5 + N) / 2, (6 + N) / 2] for N maps:
    with smaller factors attractors are dust, with larger ones blots.

    Returns:
        (N, 2, 3): [A | b] of each map, b in [-1, 1]^2.

    Source: Anderson & Farrell 2022, section 3.1-3.2.
    """
    count = int(rng.integers(MIN_MAPS, MAX_MAPS + 1))
    values = sample_singular_values(count, rng.uniform((5 + count) / 2, (6 + count) / 2), rng)
    maps = np.empty((count, 2, 3))
    maps[:, :, :2] = _orthogonal(count, rng) * values[:, None, :] @ _orthogonal(count, rng)
    maps[:, :, 2] = rng.uniform(-1, 1, (count, 2))
    return maps


def sample_singular_values(count: int, factor: float, rng: np.random.Generator) -> Float64:
    """Draw (count, 2) pairs 1 >= s1 >= s2 >= 0 whose sum of s1 + 2 s2 is ``factor``, in [0, 3 count].

    Pairs are drawn one after the other, uniformly over the values that the remaining pairs can complete; a pair takes 0
    to 3 of the sum.
    """
    values = np.empty((count, 2))
    left = factor
    for pair in range(count):
        rest = 3.0 * (count - pair - 1)
        # Least and largest share of this pair. s1 gets at least a third of the share, because s2 <= s1.
        low, high = max(0.0, left - rest), min(3.0, left)
        first = rng.uniform(low / 3, min(1.0, high))
        second = rng.uniform(max(0.0, (low - first) / 2), min(first, (high - first) / 2))
        values[pair] = first, second
        left -= first + 2 * second
    return values


def _orthogonal(count: int, rng: np.random.Generator) -> Float64:
    """Draw (count, 2, 2) rotations, some of them with a reflection."""
    angle = rng.uniform(-np.pi, np.pi, count)
    sine, cosine = np.sin(angle), np.cos(angle)
    turned = np.array([[cosine, -sine], [sine, cosine]]).transpose(2, 0, 1)
    return np.asarray(turned * rng.choice([-1.0, 1.0], (count, 1, 2)))


def chaos_game(maps: Float64, rng: np.random.Generator, walkers: int = WALKERS, steps: int = STEPS) -> Float32:
    """Draw points of the attractor: each step of each walker applies one map, chosen in proportion to its determinant.

    Args:
        maps: (N, 2, 3), contractive.
        rng: random generator of the choices.
        walkers, steps: points in parallel, and number of points that each contributes.

    Returns:
        (2, steps * walkers) x and y.
    """
    linear, shift = maps[:, :, :2], maps[:, :, 2]
    share = np.abs(np.linalg.det(linear)) + 1e-3  # flat maps belong to the attractor too
    # A table of 1024 slots is divided among the maps, so that a choice is one table lookup.
    table = np.searchsorted(np.cumsum(share / share.sum())[:-1], (np.arange(1024) + 0.5) / 1024).astype(np.uint8)
    draws = rng.integers(0, 1024, (WARM_UP + steps, walkers), dtype=np.uint16).astype(np.intp)
    a, b, e, c, d, f = np.ascontiguousarray(maps.reshape(-1, 6).T.astype(np.float32))[:, table]
    # The fixed point of a map lies on the attractor.
    x, y = (np.full(walkers, at, np.float32) for at in np.linalg.solve(np.eye(2) - linear[0], shift[0]))
    points = np.empty((2, steps, walkers), np.float32)
    for step, slot in enumerate(draws):
        x, y = a[slot] * x + b[slot] * y + e[slot], c[slot] * x + d[slot] * y + f[slot]
        if step >= WARM_UP:
            points[:, step - WARM_UP] = x, y
    return points.reshape(2, -1)


def count_points(points: Float32, low: Float64, high: Float64, size: int) -> NDArray[np.int64]:
    """Count the points in each pixel of a window, as (size, size); points outside are left out.

    Args:
        points: (2, n) x and y.
        low, high: (2,) corners of the window.
        size: side in pixels.
    """
    scale = size / np.maximum(high - low, 1e-9)
    place = points * scale[:, None].astype(np.float32)
    place -= (low * scale - 1)[:, None].astype(np.float32)
    # Points outside are clipped to a frame of one pixel around the window, which is cut off.
    x, y = np.clip(place, 0, size + 1, out=place).astype(np.intp)
    counts = np.bincount(y * (size + 2) + x, minlength=(size + 2) ** 2)
    return counts.reshape(size + 2, size + 2)[1:-1, 1:-1]


@functools.lru_cache(maxsize=20_000)
def system_of(number: int) -> Float64:
    """Return the (N, 2, 3) maps of a class: the first drawn system that covers a suitable share of the image.

    The result is the same on every machine except for the last bits of its mathematical library.
    """
    attempt = 0
    while True:
        rng = np.random.default_rng(derive_seed(0, "fractal class", GENERATOR_VERSION, number, attempt))
        maps = sample_system(rng)
        points = chaos_game(maps, rng, walkers=1024, steps=16)
        low, high = _corners(points)
        filling = float((count_points(points, low, high, _PROBE) > 0).mean())
        sides = high - low
        if MIN_FILLING <= filling <= MAX_FILLING and sides.min() >= MIN_ASPECT * sides.max():
            maps.setflags(write=False)
            return maps
        attempt += 1


def _render_fractal(number: int, rng: np.random.Generator, size: int) -> UInt8:
    """Render one image of a class.

    Args:
        number: number of the class.
        rng: random generator of the variation within the class.
        size: height and width in pixels.

    Returns:
        (size, size, 3) uint8 RGB.
    """
    points = chaos_game(_jittered(system_of(number), rng), rng)
    low, high = _corners(points)
    centre, half = (low + high) / 2, (high - low) / 2
    centre += 2 * half * rng.uniform(-SHIFT, SHIFT, 2)
    half *= rng.uniform(*_ZOOM, 2)
    counts = count_points(points, centre - half, centre + half, size).astype(np.float32)
    if rng.random() < 0.5:
        counts = counts.T
    for axis in (0, 1):
        if rng.random() < 0.5:
            counts = np.flip(counts, axis)
    # Draw each point as a small random patch, so that fine dust is visible (FractalDB).
    patch = rng.integers(0, 2, (3, 3)).astype(np.float32)
    patch[1, 1] = 1
    hits = np.asarray(cv2.filter2D(np.ascontiguousarray(counts), -1, patch, borderType=cv2.BORDER_CONSTANT))
    shade = (np.sqrt(hits / max(float(hits.max()), 1.0)) * 255).astype(np.uint8)
    picture = _background(size, rng)
    cv2.copyTo(cv2.applyColorMap(shade, _palette(rng)), (hits > 0).view(np.uint8), picture)
    if rng.random() < 0.5:
        cv2.GaussianBlur(picture, (3, 3), float(rng.uniform(0.5, 1.0)), dst=picture)
    return picture


def _jittered(maps: Float64, rng: np.random.Generator) -> Float64:
    """Scale one map, including its shift; return the maps unchanged if they would no longer contract."""
    jittered = maps.copy()
    jittered[rng.integers(len(maps))] *= rng.uniform(*JITTER)
    contracts = np.linalg.svd(jittered[:, :, :2], compute_uv=False).max() < 1
    return jittered if contracts else maps


def _corners(points: Float32) -> tuple[Float64, Float64]:
    return points.min(axis=1).astype(np.float64), points.max(axis=1).astype(np.float64)


def _palette(rng: np.random.Generator) -> UInt8:
    """Return (256, 1, 3) RGB colours: all hues from a random one, with random saturation and value (Anderson)."""
    hsv = np.empty((256, 1, 3), np.uint8)
    hsv[:, 0, 0] = (np.arange(256) + rng.integers(256)) % 256 * (179 / 255)  # OpenCV has 180 hues
    hsv[:, 0, 1:] = np.array([rng.uniform(0.3, 1), rng.uniform(0.5, 1)]) * 255
    return np.asarray(cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB), dtype=np.uint8)


def _background(size: int, rng: np.random.Generator) -> UInt8:
    """Return (size, size, 3) clouds between two colours: multi-scale noise instead of Anderson's diamond-square."""
    clouds, weight, cells = np.zeros((size, size), np.float32), 1.0, int(rng.integers(2, 5))
    for _ in range(4):
        coarse = weight * rng.random((cells, cells), dtype=np.float32)
        clouds += cv2.resize(coarse, (size, size), interpolation=cv2.INTER_LINEAR)
        weight, cells = weight / 2, cells * 2
    low, high = float(clouds.min()), float(clouds.max())
    level = ((clouds - low) * (255 / (high - low))).astype(np.uint8)
    first, second = rng.uniform(0, 255, (2, 1, 3))
    colours = np.linspace(first, second, 256).astype(np.uint8)  # (256, 1, 3)
    return np.asarray(cv2.applyColorMap(level, colours), dtype=np.uint8)


class FractalSource(GeneratedSource):
    """Labelled fractals: image ``index`` has the class ``index % classes`` and is the same in any process.

    Args:
        classes: number of classes; a class is the same fractal whatever this number is.
        size: number of images in an epoch.
        image_size: height and width in pixels.
        split: another split has other images of the same classes.
        seed: another seed has other images of the same classes.
    """

    def __init__(self, *, classes: int, size: int, image_size: int, split: str = "train", seed: int = 0):
        super().__init__(
            "fractals",
            map("fractal-{}".format, range(classes)),
            np.arange(size) % classes,
            image_size=image_size,
            split=split,
            seed=seed,
            version=GENERATOR_VERSION,
        )

    def image(self, index: int) -> Image.Image:
        rng = np.random.default_rng(derive_seed(self._seed, "fractal", self._split, index))
        return Image.fromarray(_render_fractal(int(self.targets[index]), rng, self._image_size))
