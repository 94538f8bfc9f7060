"""Sources made of sources: a part of one, several as one, other classes for the same images."""

import csv
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from usvit.data.sources.base import Indices, ListedSource, image_name
from usvit.data.sources.source import Source
from usvit.errors import UsvitError, unknown
from usvit.progress import NoProgress, Progress


class Subset(ListedSource):
    """Some images of a source, in the order given; its classes stay, so that a head fits both.

    Args:
        source: the whole.
        indices: (n,) of its images, each once.
    """

    def __init__(self, source: Source, indices: Indices):
        super().__init__(source.name, source.classes, source.targets[indices])
        self.source, self.indices = source, np.asarray(indices, dtype=np.int64)

    def image(self, index: int) -> Image.Image:
        return self.source.image(int(self.indices[index]))

    def image_name(self, index: int) -> str:
        return image_name(self.source, int(self.indices[index]))

    def order(self, generator: np.random.Generator) -> Indices:
        """The whole's order without the others: shards stay together."""
        position = np.full(len(self.source), -1, dtype=np.int64)
        position[self.indices] = np.arange(len(self))
        order = position[self.source.order(generator)]
        return order[order >= 0]

    def hashes(self, progress: Progress, indices: Indices | None = None) -> list[str] | None:
        return hashes_of(self.source, self.indices if indices is None else self.indices[indices], progress)

    def listing(self) -> Iterable[NDArray[Any]]:
        return (self.indices,)

    def describe(self) -> dict[str, Any]:
        return {**self.source.describe(), **super().describe(), "of_images": len(self.source)}

    def listing_sha256(self) -> str:
        return _with(super().listing_sha256(), [self.source])


class Joined(ListedSource):
    """Several sources as one, one after the other.

    Args:
        name: for the record.
        sources: the parts.
        labelled: keep the labels; all parts have the same classes then. Else all images are unlabelled.
    """

    def __init__(self, name: str, sources: Sequence[Source], *, labelled: bool):
        targets = [part.targets if labelled else np.full(len(part), -1) for part in sources]
        assert not labelled or len({part.classes for part in sources}) == 1
        super().__init__(name, sources[0].classes if labelled else (), np.concatenate(targets))
        self.sources = tuple(sources)
        levels: list[dict[str, tuple[str, ...]]] = [getattr(part, "levels", {}) for part in sources]
        self.levels = levels[0] if labelled and all(one == levels[0] for one in levels) else {}
        self._starts = np.cumsum([0, *(len(part) for part in sources)], dtype=np.int64)

    def image(self, index: int) -> Image.Image:
        part = self._part(index)
        return self.sources[part].image(int(index - self._starts[part]))

    def image_name(self, index: int) -> str:
        part = self._part(index)
        return image_name(self.sources[part], int(index - self._starts[part]))

    def order(self, generator: np.random.Generator) -> Indices:
        """Each part in its own order, interleaved evenly: shards stay together."""
        orders = [part.order(generator) + start for part, start in zip(self.sources, self._starts[:-1], strict=True)]
        # Where the k-th of a part of n comes: (k + u) / n of the epoch. So every stretch of it has all parts.
        when = [(np.arange(len(order)) + generator.random(len(order))) / max(len(order), 1) for order in orders]
        return np.concatenate(orders)[np.argsort(np.concatenate(when), kind="stable")]

    def hashes(self, progress: Progress, indices: Indices | None = None) -> list[str] | None:
        """Of those whose parts have any, part after part; None where none has."""
        chosen = np.arange(len(self)) if indices is None else indices
        found: list[str] | None = None
        for part, (start, stop) in zip(
            self.sources, zip(self._starts[:-1], self._starts[1:], strict=True), strict=True
        ):
            inside = chosen[(chosen >= start) & (chosen < stop)] - start
            hashes = hashes_of(part, inside, progress)
            if hashes is not None:
                found = (found or []) + hashes
        return found

    def describe(self) -> dict[str, Any]:
        return {**super().describe(), "parts": [part.describe() for part in self.sources]}

    def listing_sha256(self) -> str:
        return _with(super().listing_sha256(), self.sources)

    def _part(self, index: int) -> int:
        return int(np.searchsorted(self._starts, index, side="right")) - 1


class Relabelled(ListedSource):
    """The images of a source under other classes; ``refined`` gives the former ones.

    Args:
        source: the images.
        classes: the new names.
        new: (K,) the new class of each of the source's classes.
    """

    def __init__(self, source: Source, classes: Sequence[str], new: Indices):
        super().__init__(source.name, classes, np.asarray(new, dtype=np.int64)[source.targets])
        self.source = source

    def image(self, index: int) -> Image.Image:
        return self.source.image(index)

    def image_name(self, index: int) -> str:
        return image_name(self.source, index)

    def order(self, generator: np.random.Generator) -> Indices:
        return self.source.order(generator)

    def hashes(self, progress: Progress, indices: Indices | None = None) -> list[str] | None:
        return hashes_of(self.source, np.arange(len(self)) if indices is None else indices, progress)

    def describe(self) -> dict[str, Any]:
        return {**self.source.describe(), **super().describe()}

    def listing_sha256(self) -> str:
        return _with(super().listing_sha256(), [self.source])


def refined(source: Source) -> Source:
    """The same images under the classes that they had before ``coarsened`` or ``aligned``."""
    if isinstance(source, Relabelled):
        return refined(source.source)
    if isinstance(source, Subset):
        return Subset(refined(source.source), source.indices)
    return source


def hashes_of(source: Source, indices: Indices, progress: Progress) -> list[str] | None:
    """``pixel_sha256`` of some images of any source; None where they are made on the fly."""
    if isinstance(source, ListedSource):
        return source.hashes(progress, indices)
    hashes = source.hashes(progress)
    return None if hashes is None else [hashes[index] for index in indices]


def made_on_the_fly(source: Source) -> bool:
    """Whether none of its images has a hash: they are nobody's test."""
    return hashes_of(source, np.array([], dtype=np.int64), NoProgress()) is None


def draw(source: Source, count: int, generator: np.random.Generator) -> Indices:
    """(count,) images, sorted; every class in proportion, to one image more or less.

    Within a class of n images in random order, image k gets the key (k + u) / n, with one u for the class: of the
    smallest keys, each class has its share.
    """
    size = len(source)
    keys, targets = np.empty(size), source.targets
    shuffled = generator.permutation(size)
    by_class = shuffled[np.argsort(targets[shuffled], kind="stable")]
    _, starts, counts = np.unique(targets[by_class], return_index=True, return_counts=True)
    rank = np.arange(size) - np.repeat(starts, counts)
    offset = np.repeat(generator.random(len(counts)), counts)
    keys[by_class] = (rank + offset) / np.repeat(counts, counts)
    return np.sort(np.argsort(keys, kind="stable")[:count]).astype(np.int64)


def keep_back(source: Source, share: float, generator: np.random.Generator) -> tuple[Subset, Subset]:
    """(training, validation): a share of the images, of every class alike, is kept back; at least one.

    Raises:
        UsvitError: nothing would be left to train on.
    """
    count = max(1, round(share * len(source)))
    if count >= len(source):
        raise UsvitError(
            f"source.val_share {share:g} of the {len(source)} images of {source.name} leaves nothing to train on."
        )
    validation = draw(source, count, generator)
    rest = np.setdiff1d(np.arange(len(source)), validation, assume_unique=True)
    return Subset(source, rest), Subset(source, validation)


def limited(source: Source, limit: int, generator: np.random.Generator) -> Source:
    """At most ``limit`` images, drawn."""
    return source if limit >= len(source) else Subset(source, draw(source, limit, generator))


def aligned(source: Source, classes: tuple[str, ...], of: str) -> Source:
    """A validation source whose labels are counted as the training's are: classes go by their names.

    Raises:
        UsvitError: it has a class that was not learned, or none at all.
    """
    if source.classes == classes or not classes:
        return source
    number = {label: at for at, label in enumerate(classes)}
    others = [label for label in source.classes if label not in number]
    if others or not source.classes:
        what = f"{len(others)} classes that {of} does not have ({', '.join(others[:5])})" if others else "no labels"
        raise UsvitError(f"The validation images of {source.name} have {what}. Set source.val to a part that fits.")
    return Relabelled(source, classes, np.array([number[label] for label in source.classes]))


def coarsened(source: Source, coarse: str) -> Relabelled:
    """Coarser classes for the images of a source.

    Args:
        source: with labels.
        coarse: a CSV file with columns ``class`` and ``coarse``, or a level that the source knows itself, such as
            ``superclass`` of CIFAR-100 and ``order`` of iNaturalist.

    Raises:
        UsvitError: there is no such file or level, the source has no labels, or a class has no coarse one or two.
    """
    if not source.classes:
        raise UsvitError(f"source.coarse is set, but the images of {source.name} have no labels.")
    levels = getattr(source, "levels", {})
    names = levels.get(coarse) or _coarse_of_file(Path(coarse), source, levels)
    classes, new = np.unique(np.array(names, dtype=np.str_), return_inverse=True)
    return Relabelled(source, classes.tolist(), new.astype(np.int64))


def _coarse_of_file(path: Path, source: Source, levels: dict[str, Any]) -> tuple[str, ...]:
    if not path.is_file():
        known = f" (its own levels: {', '.join(levels)})" if levels else ""
        raise UsvitError(f"source.coarse is '{path}': no such file, and no level of {source.name}{known}.")
    with path.open(newline="", encoding="utf-8-sig") as file:
        rows = list(csv.DictReader(file))
    if not rows or not {"class", "coarse"} <= set(rows[0]):
        raise UsvitError(f"{path} needs the columns class,coarse and one row for each class.")
    mapping: dict[str, str] = {}
    for row in rows:
        name, coarse = (row["class"] or "").strip(), (row["coarse"] or "").strip()
        if not name or not coarse:
            raise UsvitError(f"{path} has a row without a class or a coarse class: {','.join(map(str, row.values()))}.")
        if mapping.setdefault(name, coarse) != coarse:
            raise UsvitError(f"{path} gives the class '{name}' two coarse classes: {mapping[name]} and {coarse}.")
    if others := [name for name in mapping if name not in source.classes]:
        raise unknown("class", others[0], source.classes, f"It stands in {path}.")
    if missing := [label for label in source.classes if label not in mapping]:
        raise UsvitError(
            f"{path} has no coarse class for {len(missing)} classes of {source.name}: {', '.join(missing[:5])}"
            f"{', ...' if len(missing) > 5 else ''}."
        )
    return tuple(mapping[label] for label in source.classes)


def _with(digest: str, sources: Iterable[Source]) -> str:
    """A checksum that changes with those of the parts."""
    parts = [str(source.describe().get("listing_sha256", source.describe())) for source in sources]
    return hashlib.sha256("\n".join([digest, *parts]).encode()).hexdigest()
