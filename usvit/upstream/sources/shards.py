"""WebDataset shards: random access to any image, and an order for each epoch that reads shard after shard."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from usvit.data.datasets import ImageText, Indices, StringArray, UpstreamDataset
from usvit.errors import UsvitError
from usvit.upstream.sources.folder import rgb
from usvit.upstream.sources.shard_files import Shard, ShardFiles, expand, find
from usvit.upstream.sources.shard_index import ShardIndex

WINDOW = 8
"""Number of shards over which the images of one shard are spread in an epoch."""
_THREADS = 8
"""Shards that are looked up and indexed in parallel."""


class _ShardSource(UpstreamDataset):
    """Images of tar shards.

    Args:
        shards: the shards.
        indices: index of each shard.
        files: reader of the shards.
    """

    def __init__(self, shards: list[Shard], indices: list[ShardIndex], files: ShardFiles):
        classes, targets = _labels(shards, indices)
        super().__init__("shards", classes, targets)
        self._shards, self._files = shards, files
        self._shard_of = np.repeat(np.arange(len(shards)), [len(index.keys) for index in indices])
        self._offsets = np.concatenate([np.asarray(index.offsets, dtype=np.int64) for index in indices])
        self._sizes = np.concatenate([np.asarray(index.sizes, dtype=np.int64) for index in indices])
        self._texts = np.array(
            [place for index in indices for place in zip(index.text_offsets, index.text_sizes, strict=True)],
            dtype=np.int64,
        )
        self._keys = StringArray(key for index in indices for key in index.keys)

    def image(self, index: int) -> Image.Image:
        shard = self._shard_of_image(index)
        data = self._files.read(shard, int(self._offsets[index]), int(self._sizes[index]))
        return rgb(data, Path(shard.shown) / str(self._keys[index]))

    def image_name(self, index: int) -> str:
        return f"{self._shard_of_image(index).shown.rpartition('/')[2]}/{self._keys[index]}"

    def text(self, index: int) -> ImageText | None:
        """Return the text (``.txt``) of an image, UTF-8; None if it has none."""
        offset, size = self._texts[index].tolist()
        if offset < 0:
            return None
        return ImageText(self._files.read(self._shard_of_image(index), offset, size).decode("utf-8", "replace"))

    def _shard_of_image(self, index: int) -> Shard:
        return self._shards[self._shard_of[index]]

    def order(self, generator: np.random.Generator) -> Indices:
        """Return a permutation in which the images of each shard are spread over the time of ``WINDOW`` shards.

        Shards are permuted; an image comes at the turn of its shard plus a uniform delay. So only ``WINDOW`` shards are
        in use at any time, and a new one is needed at a steady pace.
        """
        turn = generator.permutation(len(self._shards))[self._shard_of]
        return np.argsort(turn + WINDOW * generator.random(len(self)), kind="stable").astype(np.int64)

    def listing(self) -> Iterable[NDArray[Any]]:
        return (self._shard_of, self._sizes, *self._keys.blocks())


def open_shards(pattern: str, files: ShardFiles | None = None) -> _ShardSource:
    """Find and index shards.

    Args:
        pattern: see ``expand``.
        files: reader of the shards.

    Raises:
        UsvitError: A shard does not exist, cannot be fetched, is truncated or holds no images, or labels do not match.
    """
    files = files or ShardFiles()
    addresses = expand(pattern)
    with ThreadPoolExecutor(_THREADS) as pool:
        shards = list(pool.map(find, addresses))
        return _ShardSource(shards, list(pool.map(files.index, shards)), files)


def _labels(shards: list[Shard], indices: list[ShardIndex]) -> tuple[tuple[str, ...], Indices]:
    first = indices[0]
    for shard, index in zip(shards, indices, strict=True):
        if (index.labels is None) != (first.labels is None) or (index.labels and index.numbers != first.numbers):
            kind, other = (_kind(one) for one in (index, first))
            raise UsvitError(
                f"The shards have different labels: {shard.shown} has {kind}, but {shards[0].shown} has {other}."
            )
    if first.labels is None:
        return (), np.full(sum(len(index.keys) for index in indices), -1, dtype=np.int64)
    texts = [label for index in indices for label in index.labels or []]
    if first.numbers:
        targets = np.array([int(text) for text in texts], dtype=np.int64)
        return tuple(map(str, range(int(targets.max()) + 1))), targets
    names, targets = np.unique(np.array(texts, dtype=np.str_), return_inverse=True)
    return tuple(names.tolist()), targets.astype(np.int64)


def _kind(index: ShardIndex) -> str:
    if index.labels is None:
        return "no labels"
    return "class numbers" if index.numbers else "class names"
