"""WebDataset shards as a source: any image by its index, an epoch's order that reads shards one after the other."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from usvit.data.sources.base import Indices, ListedSource, Names
from usvit.data.sources.decode import rgb
from usvit.data.sources.shard_files import Shard, ShardFiles, expand, find
from usvit.data.sources.shard_index import ShardIndex
from usvit.errors import UsvitError

WINDOW = 8
"""Shards that are read at the same time."""
THREADS = 8
"""Shards looked up and indexed at the same time."""


class ShardSource(ListedSource):
    """Images of tar shards.

    Args:
        shards: where they are.
        indices: of each, the images in it.
        files: opens them.
    """

    def __init__(self, shards: list[Shard], indices: list[ShardIndex], files: ShardFiles):
        classes, targets = _labels(shards, indices)
        super().__init__("shards", classes, targets)
        self._shards, self._files = shards, files
        self._shard_of = np.repeat(np.arange(len(shards)), [len(index.keys) for index in indices])
        self._offsets = np.concatenate([np.asarray(index.offsets, dtype=np.int64) for index in indices])
        self._sizes = np.concatenate([np.asarray(index.sizes, dtype=np.int64) for index in indices])
        self._keys = Names(key for index in indices for key in index.keys)

    def image(self, index: int) -> Image.Image:
        shard = self._shards[self._shard_of[index]]
        data = self._files.read(shard, int(self._offsets[index]), int(self._sizes[index]))
        return rgb(data, Path(shard.shown) / str(self._keys[index]))

    def image_name(self, index: int) -> str:
        return f"{self._shards[self._shard_of[index]].shown.rpartition('/')[2]}/{self._keys[index]}"

    def order(self, generator: np.random.Generator) -> Indices:
        """A permutation in which each shard's images spread over the time of ``WINDOW`` shards.

        Shards are permuted; an image comes at its shard's turn plus a uniform delay, so that only so many are open at
        any time and a new one is needed at a steady pace.
        """
        turn = generator.permutation(len(self._shards))[self._shard_of]
        return np.argsort(turn + WINDOW * generator.random(len(self)), kind="stable").astype(np.int64)

    def listing(self) -> Iterable[NDArray[Any]]:
        return (self._shard_of, self._sizes, *self._keys.blocks())


def open_shards(pattern: str, files: ShardFiles | None = None) -> ShardSource:
    """Find and index shards.

    Args:
        pattern: as ``expand``'s.
        files: where fetched shards are kept.

    Raises:
        UsvitError: a shard is not there, cannot be fetched, ends early, or holds no images; labels that do not fit.
    """
    files = files or ShardFiles()
    addresses = expand(pattern)
    with ThreadPoolExecutor(THREADS) as pool:
        shards = list(pool.map(find, addresses))
        return ShardSource(shards, list(pool.map(files.index, shards)), files)


def _labels(shards: list[Shard], indices: list[ShardIndex]) -> tuple[tuple[str, ...], Indices]:
    first = indices[0]
    for shard, index in zip(shards, indices, strict=True):
        if (index.labels is None) != (first.labels is None) or (index.labels and index.numbers != first.numbers):
            kind, other = (_kind(one) for one in (index, first))
            raise UsvitError(
                f"The shards do not belong together: {shard.shown} has {kind}, {shards[0].shown} has {other}."
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
