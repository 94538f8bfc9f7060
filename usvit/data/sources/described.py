"""Copy descriptions of a source's images: of ultrasound images, that is of data cards and of your own folders.

The named collections of photographs (ImageNet, CIFAR, ...) and shards are recognised by pixel hashes alone: the copy
finder is built for, and tested on, ultrasound images, and shards may lie at an address from which each pass is a
download.
"""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from usvit.data.copies import Description, describe
from usvit.data.copies.compact import CompactDescriptions
from usvit.data.seen_copies import MAX_DESCRIBED
from usvit.data.sources.base import HASHED_AT_ONCE, Indices
from usvit.data.sources.combine import Joined, Relabelled, Subset
from usvit.data.sources.manifest import ManifestSource
from usvit.data.sources.source import Source
from usvit.progress import Progress, task
from usvit.resources import usable_cores

OWN = ("folder", "unlabeled")
"""Names of the sources of your own images, which may be ultrasound images."""


def descriptions_of_source(
    source: Source, progress: Progress, indices: Indices | None = None
) -> dict[str, CompactDescriptions]:
    """Describe the images of a source that may be copies of a test's images.

    Args:
        source: the images.
        progress: shown while files are decoded.
        indices: (m,) which images; all by default.

    Returns:
        Pixel hash -> description. Photographs, images made on the fly, and folders of more than ``MAX_DESCRIBED``
        images are left out.

    Raises:
        BadImage: an image cannot be read.
    """
    chosen = np.arange(len(source)) if indices is None else np.asarray(indices, dtype=np.int64)
    if isinstance(source, Relabelled):
        return descriptions_of_source(source.source, progress, chosen)
    if isinstance(source, Subset):
        return descriptions_of_source(source.source, progress, source.indices[chosen])
    if isinstance(source, Joined):
        found: dict[str, CompactDescriptions] = {}
        start = 0
        for part in source.sources:
            inside = chosen[(chosen >= start) & (chosen < start + len(part))] - start
            found |= descriptions_of_source(part, progress, inside)
            start += len(part)
        return found
    if isinstance(source, ManifestSource):
        return source.descriptions(chosen)
    if source.name not in OWN or len(chosen) > MAX_DESCRIBED:
        return {}
    return _described(source, chosen, progress)


def _described(source: Source, chosen: Indices, progress: Progress) -> dict[str, CompactDescriptions]:
    def one(index: int) -> Description:
        return describe(np.asarray(source.image(index)))

    found: dict[str, CompactDescriptions] = {}
    with (
        ThreadPoolExecutor(usable_cores()) as pool,
        task(progress, f"describing {source.name}", len(chosen), "images") as advance,
    ):
        for start in range(0, len(chosen), HASHED_AT_ONCE):
            portion = chosen[start : start + HASHED_AT_ONCE].tolist()
            found |= {each.sha256: CompactDescriptions.of([each]) for each in pool.map(one, portion)}
            advance(start + len(portion))
    return found
