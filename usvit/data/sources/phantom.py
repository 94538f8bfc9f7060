"""The phantom as an endless stream: a new patient for each image, none of them of the embedded data set."""

from typing import Any

import numpy as np
from PIL import Image

from usvit.data.phantom import GENERATOR_VERSION, render_image, sample_patient
from usvit.data.phantom.render import FINEST_GRID
from usvit.data.phantom.spec import CLASS_SHARE
from usvit.data.sources.base import GeneratedSource
from usvit.seeding import derive_seed

BEYOND = 2**64
"""Added to each seed of a stream: no data set of ``usvit data phantom`` with a seed below has a patient of it."""


class PhantomSource(GeneratedSource):
    """Breast-ultrasound images from the physical model: image ``index`` shows patient ``index``, in one view.

    The classes are those of the embedded data set, in its order, and as frequent as there. Labels and images depend
    on seed, split and index alone: a larger ``size`` adds images and changes none.

    Args:
        size: images that an epoch is said to hold.
        image_size: pixels a side.
        split: patients of another split are others.
        seed: patients of another seed are others.
        memory_gb: pictures of so many GB are kept, in each process that renders: one takes some 60 ms.
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
        if len(self._kept) * self._image_size**2 < self._memory:  # it comes again in the next epoch
            self._kept[index] = picture
        return picture.convert("RGB")

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": {}}  # pixels are not sent to worker processes

    def _rendered(self, index: int) -> Image.Image:
        """Of one channel, 8 bit."""
        label = self.classes[self.targets[index]]
        patient = sample_patient(self._patients, index, malignant=label == "malignant")
        rendered = render_image(patient, 1, size=max(self._image_size, FINEST_GRID), with_lesion=label != "normal")
        picture = Image.fromarray(rendered.image)
        if self._image_size < FINEST_GRID:  # which the renderer itself would reach from a grid of twice the pixels
            picture = picture.resize((self._image_size, self._image_size), Image.Resampling.BICUBIC)
        return picture
