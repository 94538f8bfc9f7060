"""Augmentation policies that keep an ultrasound image an ultrasound image.

Sound enters at the top: shadow and enhancement fall below a lesion, and "taller than wide" is
a sign of malignancy. So no policy here flips the depth axis, turns by 90 degrees or warps, and
each bound is a named constant (docs/explanation/ultrasound-safety.md). This is the only file that
knows albumentations.
"""

import os
import random
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

os.environ["NO_ALBUMENTATIONS_UPDATE"] = "1"  # before the import: it would ask a server for its newest version
import albumentations as A

from usvit.data.ultrasound import depth_gain, haze, speckle
from usvit.data.view import View, ViewBounds
from usvit.errors import unknown

UInt8 = NDArray[np.uint8]


class Augment(Protocol):
    """One policy, ready for use; it can be sent to the processes that prepare batches."""

    def __call__(self, image: UInt8, seed: int, lesion: UInt8 | None = None) -> UInt8:
        """Change one image at random.

        Args:
            image: (S, S, 3) uint8, not written to. Black borders (the padding) stay black.
            seed: not negative; the same seed gives the same image.
            lesion: of ``lesion_cells``: at least ``LESION_KEPT`` of its area stays in view. None: not known.

        Returns:
            (S, S, 3) uint8.
        """


# The 2022 study names these four and gives no strengths; the values are ours (docs/decisions.md).
LIGHT_CROP_MIN_SIDE = 0.9
"""Smallest side of a crop, as a share of the image's: at most a tenth is lost in each direction."""
LIGHT_ROTATION_DEGREES = 10.0
"""Largest rotation: a hand's tilt of the probe, too small to turn a lesion's axis (BI-RADS orientation)."""
LIGHT_BRIGHTNESS = 0.15
"""Largest change of brightness, as a share of the full range: the gain knob."""
LIGHT_CONTRAST = 0.15
"""Largest relative change of contrast: the dynamic-range knob."""

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
"""More than in ``light``: each image gets one change and not four. Ours; darker by 0.3, shadows drown in black."""
TRIVIAL_SHARPEN = 0.1
"""Largest weight of the sharpening kernel: a machine's edge enhancement. Ours."""
TRIVIAL_SMOOTH = 1.0
"""Largest sigma of the smoothing, in pixels: a machine's speckle reduction. Ours."""

POLICIES = ("none", "light", "us", "trivial")


def make_augment(policy: str) -> Augment | None:
    """The augmentation of one policy; images keep their size.

    Args:
        policy: ``none``; ``light`` (the four of Gheflati & Rivaz 2022, section IV.C: light crop, rotation, brightness,
            contrast); ``us`` (these, a left-right flip, gamma, speckle, depth gain, haze); or ``trivial`` (a flip and
            one random change of those of TrivialAugment that are safe here).

    Returns:
        None for ``none``.

    Raises:
        UsvitError: there is no such policy.
    """
    if policy not in POLICIES:
        raise unknown("augmentation policy", policy, POLICIES)
    if policy == "none":
        return None
    return _Policy({"light": _light, "us": _us, "trivial": _trivial}[policy]())


Alternative = tuple[ViewBounds, A.Compose]
"""Where one may look, and what is done to the grey values before."""


class _Policy:
    """One of several alternatives for each image. A class and no closure, so that it can be pickled."""

    def __init__(self, alternatives: list[Alternative]):
        self.alternatives = alternatives

    def __call__(self, image: UInt8, seed: int, lesion: UInt8 | None = None) -> UInt8:
        view, greys = self.draw(seed, lesion)
        # Grey values first, in the machine's own geometry, and only within the picture: padding stays black.
        changed = image.copy()
        if image.any():
            picture = _picture(image)
            changed[picture] = greys(image=np.ascontiguousarray(image[picture]))["image"]
        return view.of(changed)

    def draw(self, seed: int, lesion: UInt8 | None = None) -> tuple[View, A.Compose]:
        """What will be done to an image: where one looks, and the changes of grey values, ready to be called."""
        rng = np.random.default_rng(seed)
        bounds, greys = self.alternatives[rng.integers(len(self.alternatives))]
        view = bounds.draw(rng, lesion)
        # One generator for all. (set_random_seed would give each transform its own, of the same seed: the most
        # turned images would always be those of the highest contrast.)
        greys.set_random_state(rng, random.Random(int(rng.integers(2**62))))
        return view, greys


def _light() -> list[Alternative]:
    bounds = ViewBounds(min_side=LIGHT_CROP_MIN_SIDE, degrees=LIGHT_ROTATION_DEGREES)
    return [(bounds, A.Compose([_brightness_contrast(LIGHT_BRIGHTNESS, LIGHT_CONTRAST)]))]


def _us() -> list[Alternative]:
    bounds = ViewBounds(min_side=LIGHT_CROP_MIN_SIDE, degrees=LIGHT_ROTATION_DEGREES, flip=US_FLIP)
    gamma = A.RandomGamma(gamma_limit=(US_GAMMA[0] * 100, US_GAMMA[1] * 100), p=US_SHARE)
    # From the tissue to the screen: echoes, receiver, display.
    acoustics = [_Ours(change, p=US_SHARE) for change in (speckle, haze, depth_gain)]
    return [(bounds, A.Compose([*acoustics, gamma, _brightness_contrast(LIGHT_BRIGHTNESS, LIGHT_CONTRAST)]))]


def _trivial() -> list[Alternative]:
    """One change an image, at a random strength (Mueller & Hutter 2021, arXiv 2103.10158).

    Of its 14 changes these 7 are kept. Taken out: shearing in x and y (they bend shapes), solarising (it
    makes bright echoes dark), equalising (it fills what is echo-free), posterising (it imitates no
    machine), colour (there is none) and automatic contrast (nothing where white text is burned in, and
    a tint over the tissue where there are coloured marks).
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


class _Ours(A.ImageOnlyTransform):
    """A function of ``usvit.data.ultrasound`` among albumentations' transforms."""

    class InitSchema(A.ImageOnlyTransform.InitSchema):
        change: Any

    def __init__(self, change: Callable[[UInt8, np.random.Generator], UInt8], p: float):
        super().__init__(p=p)
        self.change = change

    def apply(self, img: UInt8, **_: Any) -> UInt8:
        return self.change(img, self.random_generator)


def _picture(image: UInt8) -> tuple[slice, slice]:
    """Rows and columns without the black bands around them, of an image that is not all black."""
    flat = image.reshape(len(image), -1)  # maxima along whole rows are fast, over channels they are not
    spans = []
    for brightest, step in ((flat.max(axis=1), 1), (flat.max(axis=0), 3)):
        lit = np.flatnonzero(brightest) // step
        spans.append(slice(lit[0], lit[-1] + 1))
    return spans[0], spans[1]
