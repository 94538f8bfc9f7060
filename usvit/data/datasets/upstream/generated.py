"""Images that are generated on the fly: no download, no files, and no image of a person."""

import functools
from typing import Any

import numpy as np
from PIL import Image

from usvit.config import SourceConfig
from usvit.data.datasets.upstream.base import GeneratedSource, UpstreamDataset
from usvit.data.datasets.upstream.catalog import GENERATED
from usvit.data.datasets.upstream.fractals import FractalSource
from usvit.data.phantom import CLASS_SHARE, FINEST_GRID, GENERATOR_VERSION, render_image, sample_patient
from usvit.errors import unknown
from usvit.seeding import derive_seed

BEYOND = 2**64
"""Added to the seed of each stream, so that ``usvit data phantom`` with a smaller seed makes other patients."""


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

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}  # pixels are not sent to worker processes

    def _rendered(self, index: int) -> Image.Image:
        """Render one image with one 8-bit channel."""
        label = self.classes[self.targets[index]]
        patient = sample_patient(self._patients, index, malignant=label == "malignant")
        rendered = render_image(patient, 1, size=max(self._image_size, FINEST_GRID), with_lesion=label != "normal")
        picture = Image.fromarray(rendered.image)
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
