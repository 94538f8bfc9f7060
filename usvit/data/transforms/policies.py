"""Augmentation policies that respect the physics of ultrasound images.

Sound enters at the top: shadow and enhancement lie below a lesion, and "taller than wide" is a sign of malignancy.
Therefore no policy flips the depth axis, turns by 90 degrees or warps, and each bound is a named constant
(docs/explanation/ultrasound-safety.md). ``device_policies`` computes the same for a batch on a device.
"""

import random
from typing import Protocol

import numpy as np

from usvit.data.io import UInt8
from usvit.data.transforms.geometry import View, ViewBounds
from usvit.data.transforms.grey_changes import FilterBounds, GreyBounds, GreyChange, Greys
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
_US_SHARE = 0.5
"""Probability of each of gamma, speckle, depth gain and haze. Ours."""

TRIVIAL_SHIFT = 0.1
"""Largest shift of the picture, to the sides or in depth, as a share of its side. Ours: what a crop may take."""
_TRIVIAL_BRIGHTNESS = 0.2
_TRIVIAL_CONTRAST = 0.3
"""Larger than in ``light``, because each image gets one change instead of four. Ours; at a brightness of -0.3, shadows
would become black."""
TRIVIAL_SHARPEN = 0.1
"""Largest weight of the sharpening kernel: a machine's edge enhancement. Ours."""
TRIVIAL_SMOOTH = 1.0
"""Largest sigma of the smoothing, in pixels: a machine's speckle reduction. Ours."""

POLICIES = ("none", "light", "us", "trivial")


Alternative = tuple[ViewBounds, Greys | None]
"""Bounds of the view, and of the changes of grey values that are applied before it."""


class Policy:
    """Applies one of several alternatives to each image. It is a class, not a closure, so that it can be pickled."""

    def __init__(self, alternatives: list[Alternative]):
        self.alternatives = alternatives

    def __call__(self, image: UInt8, seed: int, lesion: UInt8 | None = None) -> UInt8:
        """Change one image at random; see ``Augment``."""
        return self.changed(image, seed, lesion)[0]

    def changed(self, image: UInt8, seed: int, lesion: UInt8 | None = None) -> tuple[UInt8, View]:
        """Change one image at random, as ``__call__`` does, and return the view of it that was drawn, too.

        The view shows where the lesion is in the changed image: ``view.of(lesion)``.
        """
        if not image.any():
            view = self.draw(seed, lesion, None)[0]
            return view.of(image), view
        picture = picture_of(image)
        view, greys = self.draw(seed, lesion, image[picture].shape[:2])
        # Grey values are changed first, in the geometry of the scanner, and only in the picture: padding stays black.
        changed = image.copy()
        changed[picture] = greys.of(np.ascontiguousarray(image[picture]))
        return view.of(changed), view

    def draw(
        self, seed: int, lesion: UInt8 | None = None, shape: tuple[int, ...] | None = None
    ) -> tuple[View, GreyChange]:
        """Draw the changes of one image.

        Args:
            seed, lesion: As for ``Augment``.
            shape: (H, W) of the picture inside the black borders; None if all of the image is black, whose grey values
                are not changed.
        """
        rng = np.random.default_rng(seed)
        bounds, greys = self.alternatives[rng.integers(len(self.alternatives))]
        view = bounds.draw(rng, lesion)
        if greys is None or shape is None:
            return view, GreyChange()
        return view, greys.draw(shape, rng, random.Random(int(rng.integers(2**62))))


def make_augment(policy: str) -> Policy | None:
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
    return Policy({"light": _light, "us": _us, "trivial": _trivial}[policy]())


def _light() -> list[Alternative]:
    bounds = ViewBounds(min_side=LIGHT_CROP_MIN_SIDE, degrees=LIGHT_ROTATION_DEGREES)
    return [(bounds, GreyBounds(LIGHT_BRIGHTNESS, LIGHT_CONTRAST))]


def _us() -> list[Alternative]:
    bounds = ViewBounds(min_side=LIGHT_CROP_MIN_SIDE, degrees=LIGHT_ROTATION_DEGREES, flip=US_FLIP)
    return [(bounds, GreyBounds(LIGHT_BRIGHTNESS, LIGHT_CONTRAST, US_GAMMA, _US_SHARE))]


def _trivial() -> list[Alternative]:
    """Return one change per image at a random strength (Mueller & Hutter 2021, arXiv 2103.10158).

    Of its 14 changes, 7 are kept. The others are left out: shearing in x and y (distorts shapes), solarising (makes
    bright echoes dark), equalising (fills echo-free areas), posterising (imitates no scanner), colour (images have
    none) and automatic contrast (without effect if white text is burned in, and tints the tissue if there are coloured
    marks).
    """
    look = [
        ViewBounds(flip=US_FLIP),
        ViewBounds(flip=US_FLIP, degrees=LIGHT_ROTATION_DEGREES),
        ViewBounds(flip=US_FLIP, right=TRIVIAL_SHIFT),
        ViewBounds(flip=US_FLIP, down=TRIVIAL_SHIFT),
    ]
    greys: list[Greys] = [
        GreyBounds(_TRIVIAL_BRIGHTNESS, 0),
        GreyBounds(0, _TRIVIAL_CONTRAST),
        FilterBounds(TRIVIAL_SHARPEN, (0.1, TRIVIAL_SMOOTH)),
    ]
    return [*((bounds, None) for bounds in look), *((ViewBounds(flip=US_FLIP), change) for change in greys)]


def picture_of(image: UInt8) -> tuple[slice, slice]:
    """Return the rows and columns inside the black borders of an image that is not all black."""
    flat = image.reshape(len(image), -1)  # maxima along whole rows are much faster than over channels
    spans = []
    for brightest, step in ((flat.max(axis=1), 1), (flat.max(axis=0), 3)):
        lit = np.flatnonzero(brightest) // step
        spans.append(slice(lit[0], lit[-1] + 1))
    return spans[0], spans[1]
