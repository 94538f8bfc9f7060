"""Augmentation policies that respect the physics of ultrasound images.

Sound enters at the top: shadow and enhancement lie below a lesion, and "taller than wide" is a sign of malignancy.
Therefore no policy flips the depth axis, turns by 90 degrees or warps, and each bound is a named constant
(docs/explanation/ultrasound-safety.md). This is the only module that imports albumentations.
"""

import os
import random
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # else the import asks a server for the newest version
import albumentations as A

from usvit.data.io import UInt8
from usvit.data.transforms.geometry import View, ViewBounds
from usvit.data.transforms.ultrasound_effects import depth_gain, haze, speckle
from usvit.errors import unknown


class Augment(Protocol):
    """An augmentation policy. It can be pickled for worker processes."""

    def __call__(self, image: UInt8, seed: int, lesion: UInt8 | None = None) -> UInt8:
        """Change one image at random.

        Args:
            image: (S, S, 3) uint8, which is not modified. Black borders (the padding) stay black.
            seed: Non-negative; the same seed gives the same result.
            lesion: Lesion as returned by ``lesion_cells``, of whose area at least ``LESION_KEPT`` stays in view. None
                if unknown.

        Returns:
            (S, S, 3) uint8.
        """


# The 2022 study names these four changes without strengths; the values are ours (docs/decisions.md).
LIGHT_CROP_MIN_SIDE = 0.9
"""Smallest side of a crop, as a share of the image's: at most a tenth is lost in each direction."""
LIGHT_ROTATION_DEGREES = 10.0
"""Largest rotation: the tilt of a hand-held probe, too small to change a lesion's orientation (BI-RADS)."""
LIGHT_BRIGHTNESS = 0.15
"""Largest change of brightness, as a share of the full range; imitates the gain control."""
LIGHT_CONTRAST = 0.15
"""Largest relative change of contrast; imitates the dynamic-range control."""

US_GAMMA = (0.85, 1.18)
"""Range of the exponent of the grey map, 1 for none: machines differ in their post-processing curves. Ours."""
US_FLIP = 0.5
"""Probability of a left-right mirror image: the probe turned by 180 degrees, the other breast."""
US_SHARE = 0.5
"""Probability of each of gamma, speckle, depth gain and haze. Ours."""

TRIVIAL_SHIFT = 0.1
"""Largest shift of the picture, to the sides or in depth, as a share of its side. Ours: what a crop may take."""
TRIVIAL_BRIGHTNESS = 0.2
TRIVIAL_CONTRAST = 0.3
"""Larger than in ``light``, because each image gets one change instead of four. Ours; at a brightness of -0.3, shadows
would become black."""
TRIVIAL_SHARPEN = 0.1
"""Largest weight of the sharpening kernel: a machine's edge enhancement. Ours."""
TRIVIAL_SMOOTH = 1.0
"""Largest sigma of the smoothing, in pixels: a machine's speckle reduction. Ours."""

POLICIES = ("none", "light", "us", "trivial")


def make_augment(policy: str) -> Augment | None:
    """Make an augmentation by the name of its policy. Images keep their size.

    Args:
        policy: ``none``; ``light`` (the four changes of Gheflati & Rivaz 2022, section IV.C: light crop, rotation,
            brightness, contrast); ``us`` (these, and left-right flip, gamma, speckle, depth gain, haze); or ``trivial``
            (a flip and one random change of TrivialAugment that is safe for ultrasound).

    Returns:
        The augmentation; None for ``none``.

    Raises:
        UsvitError: The policy is unknown.
    """
    if policy not in POLICIES:
        raise unknown("augmentation policy", policy, POLICIES)
    if policy == "none":
        return None
    return _Policy({"light": _light, "us": _us, "trivial": _trivial}[policy]())


Alternative = tuple[ViewBounds, A.Compose]
"""Bounds of the view, and the changes of grey values that are applied before it."""


class _Policy:
    """Applies one of several alternatives to each image. It is a class, not a closure, so that it can be pickled."""

    def __init__(self, alternatives: list[Alternative]):
        self.alternatives = alternatives

    def __call__(self, image: UInt8, seed: int, lesion: UInt8 | None = None) -> UInt8:
        view, greys = self.draw(seed, lesion)
        # Grey values are changed first, in the geometry of the scanner, and only in the picture: padding stays black.
        changed = image.copy()
        if image.any():
            picture = _picture(image)
            changed[picture] = greys(image=np.ascontiguousarray(image[picture]))["image"]
        return view.of(changed)

    def draw(self, seed: int, lesion: UInt8 | None = None) -> tuple[View, A.Compose]:
        """Draw the changes of one image: the view, and the changes of grey values, ready to be called."""
        rng = np.random.default_rng(seed)
        bounds, greys = self.alternatives[rng.integers(len(self.alternatives))]
        view = bounds.draw(rng, lesion)
        # All transforms share one generator. set_random_seed would give each its own with the same seed, so that the
        # images with the largest rotation would always be those with the highest contrast.
        greys.set_random_state(rng, random.Random(int(rng.integers(2**62))))
        return view, greys


def _light() -> list[Alternative]:
    bounds = ViewBounds(min_side=LIGHT_CROP_MIN_SIDE, degrees=LIGHT_ROTATION_DEGREES)
    return [(bounds, A.Compose([_brightness_contrast(LIGHT_BRIGHTNESS, LIGHT_CONTRAST)]))]


def _us() -> list[Alternative]:
    bounds = ViewBounds(min_side=LIGHT_CROP_MIN_SIDE, degrees=LIGHT_ROTATION_DEGREES, flip=US_FLIP)
    gamma = A.RandomGamma(gamma_limit=(US_GAMMA[0] * 100, US_GAMMA[1] * 100), p=US_SHARE)
    # The order follows the signal: echoes, receiver, display.
    acoustics = [_UltrasoundEffect(change, p=US_SHARE) for change in (speckle, haze, depth_gain)]
    return [(bounds, A.Compose([*acoustics, gamma, _brightness_contrast(LIGHT_BRIGHTNESS, LIGHT_CONTRAST)]))]


def _trivial() -> list[Alternative]:
    """Return one change per image at a random strength (Mueller & Hutter 2021, arXiv 2103.10158).

    Of its 14 changes, 7 are kept. The others are left out: shearing in x and y (distorts shapes), solarising (makes
    bright echoes dark), equalising (fills echo-free areas), posterising (imitates no scanner), colour (images have
    none) and automatic contrast (without effect if white text is burned in, and tints the tissue if there are coloured
    marks).
    """
    nothing: list[Any] = []
    sharpness = [
        A.Sharpen(alpha=(0, TRIVIAL_SHARPEN), lightness=(1, 1), p=1),
        A.GaussianBlur(sigma_limit=(0.1, TRIVIAL_SMOOTH), p=1),
    ]
    look = [
        ViewBounds(flip=US_FLIP),
        ViewBounds(flip=US_FLIP, degrees=LIGHT_ROTATION_DEGREES),
        ViewBounds(flip=US_FLIP, right=TRIVIAL_SHIFT),
        ViewBounds(flip=US_FLIP, down=TRIVIAL_SHIFT),
    ]
    greys = [
        _brightness_contrast(TRIVIAL_BRIGHTNESS, 0),
        _brightness_contrast(0, TRIVIAL_CONTRAST),
        A.OneOf(sharpness, p=1),
    ]
    return [
        *((bounds, A.Compose(nothing)) for bounds in look),
        *((ViewBounds(flip=US_FLIP), A.Compose([change])) for change in greys),
    ]


def _brightness_contrast(brightness: float, contrast: float) -> A.RandomBrightnessContrast:
    return A.RandomBrightnessContrast(brightness_limit=brightness, contrast_limit=contrast, p=1.0)


class _UltrasoundEffect(A.ImageOnlyTransform):
    """Adapter that makes a function of ``ultrasound_effects`` a transform of albumentations."""

    class InitSchema(A.ImageOnlyTransform.InitSchema):
        change: Any

    def __init__(self, change: Callable[[UInt8, np.random.Generator], UInt8], p: float):
        super().__init__(p=p)
        self.change = change

    def apply(self, img: UInt8, **_: Any) -> UInt8:
        return self.change(img, self.random_generator)


def _picture(image: UInt8) -> tuple[slice, slice]:
    """Return the rows and columns inside the black borders of an image that is not all black."""
    flat = image.reshape(len(image), -1)  # maxima along whole rows are much faster than over channels
    spans = []
    for brightest, step in ((flat.max(axis=1), 1), (flat.max(axis=0), 3)):
        lit = np.flatnonzero(brightest) // step
        spans.append(slice(lit[0], lit[-1] + 1))
    return spans[0], spans[1]
