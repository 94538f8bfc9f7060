"""Images that are generated on the fly: no download, no files, and no image of a person."""

import functools

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from usvit.data.datasets import GeneratedSource, ImageText, UpstreamDataset
from usvit.data.io import UInt8
from usvit.data.phantom import (
    CLASS_SHARE,
    FINEST_GRID,
    GENERATOR_VERSION,
    SIGN_LAWS,
    Patient,
    RenderedImage,
    Signs,
    cut_lesion,
    descriptors,
    render_image,
    sample_patient,
    sentence,
)
from usvit.errors import unknown
from usvit.seeding import derive_seed
from usvit.upstream.config.pretrain import SourceConfig
from usvit.upstream.sources.catalog import GENERATED
from usvit.upstream.sources.fractals import FractalSource

BEYOND = 2**64
"""Added to the seed of each stream, so that ``usvit data phantom`` with a smaller seed makes other patients."""

_SIGN_RANGE = (-3.0, 5.0)
"""Limits of a standardised sign: a few spreads below the benign and above the malignant mean."""
_LEAST_SIGN = 1e-3
"""Smallest value of which the logarithm is taken; spiculation may be 0."""


class PhantomSource(GeneratedSource):
    """Endless breast-ultrasound images of the physical model: image ``index`` shows one view of a new patient.

    The classes, their order and their frequencies are those of the embedded data set. Labels and images depend only on
    seed, split and index: a larger ``size`` adds images and changes none.

    Args:
        size: number of images in an epoch.
        image_size: height and width in pixels.
        split: another split has other patients.
        seed: another seed has other patients.
        memory_gb: limit of the cache of rendered images in GB, per process; rendering one takes about 60 ms.
    """

    def __init__(self, *, size: int, image_size: int, split: str = "train", seed: int = 0, memory_gb: float = 0.5):
        draws = np.random.default_rng(derive_seed(seed, "phantom classes", split)).random(size)
        targets = np.searchsorted(np.cumsum(list(CLASS_SHARE.values()))[:-1], draws, side="right")
        super().__init__(
            "phantom",
            CLASS_SHARE,
            targets,
            image_size=image_size,
            split=split,
            seed=seed,
            version=GENERATOR_VERSION,
        )
        self._patients = BEYOND + derive_seed(seed, "phantom stream", split)
        self._memory = memory_gb * 1e9
        self._kept: dict[int, Image.Image] = {}

    def image(self, index: int) -> Image.Image:
        if index in self._kept:
            return self._kept[index].convert("RGB")
        picture = self._rendered(index)
        if len(self._kept) * self._image_size**2 < self._memory:  # the next epoch needs it again
            self._kept[index] = picture
        return picture.convert("RGB")

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_kept": {}}  # pixels are not sent to worker processes

    def with_mask(self, index: int) -> tuple[UInt8, NDArray[np.bool_]]:
        """Render one image, (S, S, 3) uint8, and the mask of its lesion, (S, S) bool; S is at least ``FINEST_GRID``."""
        rendered = self._view(index)
        return np.repeat(rendered.image[..., None], 3, axis=2), rendered.mask

    def signs(self, index: int) -> NDArray[np.float64]:
        """Return the signs of one lesion in the order of ``SIGN_LAWS``, (8,), in units of their spread.

        Each sign (its logarithm, if that is normally distributed) has the mean of benign lesions subtracted and is
        divided by the spread; it is clipped to ``_SIGN_RANGE``. All are NaN without a lesion.
        """
        if (signs := self._signs(index)) is None:
            return np.full(len(SIGN_LAWS), np.nan)
        values = []
        for name, law in SIGN_LAWS.items():
            value = getattr(signs, name)
            value = np.log(max(value, _LEAST_SIGN)) if law.log else value
            values.append((value - law.benign) / law.spread)
        return np.clip(values, *_SIGN_RANGE)

    def text(self, index: int) -> ImageText:
        """Return the sentence of one image, whose wording is drawn with the seed, and its descriptors."""
        found = descriptors(self._signs(index))
        rng = np.random.default_rng(derive_seed(self._seed, "phantom sentence", self._split, index))
        return ImageText(sentence(found, rng), found)

    def _signs(self, index: int) -> Signs | None:
        """Return the true signs of one lesion; None without a lesion."""
        if self.classes[self.targets[index]] == "normal":
            return None
        return cut_lesion(self._patient(index), 1).signs

    def _patient(self, index: int) -> Patient:
        malignant = self.classes[self.targets[index]] == "malignant"
        return sample_patient(self._patients, index, malignant=malignant)

    def _view(self, index: int) -> RenderedImage:
        size, normal = max(self._image_size, FINEST_GRID), self.classes[self.targets[index]] == "normal"
        return render_image(self._patient(index), 1, size=size, with_lesion=not normal)

    def _rendered(self, index: int) -> Image.Image:
        """Render one image with one 8-bit channel."""
        picture = Image.fromarray(self._view(index).image)
        if self._image_size < FINEST_GRID:  # the renderer itself would need a grid of twice the size
            picture = picture.resize((self._image_size, self._image_size), Image.Resampling.BICUBIC)
        return picture


VAL_SIZE = 10_000
"""Maximum number of images in any split but ``train``: enough to resolve 0.5% of accuracy."""


def open_generated(config: SourceConfig, *, split: str, seed: int) -> UpstreamDataset:
    """Open fractals or phantoms.

    Args:
        config: ``name``, ``size``, ``classes`` and ``image_size``.
        split: ``train``; any other name gives other images of the same classes, at most ``VAL_SIZE``.
        seed: seed of the images; the classes of fractals do not depend on it.

    Raises:
        UsvitError: The name is not one of ``GENERATED``.
    """
    if config.name not in GENERATED:
        raise unknown("generated source", config.name, GENERATED)
    size = config.size if split == "train" else min(config.size, VAL_SIZE)
    return _made(config.name, size, config.classes, config.image_size, split, seed)


@functools.lru_cache(maxsize=4)
def _made(name: str, size: int, classes: int, image_size: int, split: str, seed: int) -> UpstreamDataset:
    """Return one shared object per setting, so that the folds of a run share its cache of images."""
    if name == "phantom":
        return PhantomSource(size=size, image_size=image_size, split=split, seed=seed)
    return FractalSource(classes=classes, size=size, image_size=image_size, split=split, seed=seed)
