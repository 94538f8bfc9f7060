"""Sources that are made on the fly: no download, no files, and no image of a person."""

import functools

from usvit.config import SourceConfig
from usvit.data.sources.fractals import FractalSource
from usvit.data.sources.phantom import PhantomSource
from usvit.data.sources.source import Source
from usvit.errors import unknown

GENERATED = ("fractals", "phantom")
VAL_SIZE = 10_000
"""Images at most of any split but ``train``: enough to tell 0.5% of accuracy."""


def open_generated(config: SourceConfig, *, split: str, seed: int) -> Source:
    """Fractals or phantoms.

    Args:
        config: ``name``, ``size``, ``classes`` and ``image_size``.
        split: ``train``, or any other name for other images of the same classes, at most ``VAL_SIZE``.
        seed: of the images; the classes of fractals do not depend on it.

    Raises:
        UsvitError: another name.
    """
    if config.name not in GENERATED:
        raise unknown("generated source", config.name, GENERATED)
    size = config.size if split == "train" else min(config.size, VAL_SIZE)
    return _made(config.name, size, config.classes, config.image_size, split, seed)


@functools.lru_cache(maxsize=4)
def _made(name: str, size: int, classes: int, image_size: int, split: str, seed: int) -> Source:
    """The same source for all who ask for it: the folds of one run share the pictures that it keeps."""
    if name == "phantom":
        return PhantomSource(size=size, image_size=image_size, split=split, seed=seed)
    return FractalSource(classes=classes, size=size, image_size=image_size, split=split, seed=seed)
