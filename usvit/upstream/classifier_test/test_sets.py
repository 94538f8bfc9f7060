"""The labelled images of a test, and the refusal of images that a classifier was trained on."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from usvit.data.datasets import Manifest, ManifestSource, UpstreamDataset, draw, open_manifest
from usvit.data.splits import SeenImages, in_seen_groups
from usvit.errors import LeakageError, UsvitError
from usvit.progress import Progress
from usvit.records.weights_origin import SourceRecord
from usvit.seeding import derive_seed
from usvit.upstream.config.pretrain import SourceConfig
from usvit.upstream.config.test import TestConfig
from usvit.upstream.sources.catalog import DATA
from usvit.upstream.sources.open import name_and_split, open_source, tested_splits
from usvit.upstream.transfer_learning.splits import TransferSplit


@dataclass(frozen=True)
class TestImages:
    """The images of one split of one source."""

    label: str
    """``SOURCE:SPLIT``, or the source alone if it has no splits."""
    images: TransferSplit
    seen: int | None = None
    """Number of images that a classifier was trained on, with those of their groups; None if none were compared."""

    @property
    def source(self) -> UpstreamDataset:
        return self.images.source

    def labels(self) -> list[tuple[int, ...]]:
        """Return the classes of each image, all of which are right; one for most sources."""
        multi = self.source.multi
        if multi is None:
            return [(int(target),) for target in self.images.targets]
        return [tuple(dict.fromkeys(multi[row])) for row in self.images.rows]

    def groups(self) -> np.ndarray:
        """Return the patient or cluster of near-duplicates of each image, of shape (n,); else each its own."""
        groups = self.images.groups
        return np.arange(len(self.images)) if groups is None else groups

    def record(self) -> SourceRecord:
        """Return the entry of ``run.json``, without the path of the images."""
        images = self.images.record().content()
        return SourceRecord(label=self.label, **images, tested=len(self.images), seen=self.seen)


def open_sets(config: TestConfig, roots: dict[str, Path], progress: Progress) -> list[TestImages]:
    """Open the images of all sources.

    Args:
        config: ``sources``, and the settings of ``source`` and ``data``.
        roots: name -> folder of a data set; the key "" holds the folder for all others.
        progress: Where progress is shown.

    Raises:
        UsvitError: A source or a split does not exist, has no labels, or is named twice.
    """
    found: list[TestImages] = []
    for choice in config.sources:
        name, split = name_and_split(choice)
        if name == DATA:
            if split is not None:
                raise UsvitError("The source data is the whole data set, so it has no splits: write --source data.")
            found.append(TestImages(DATA, _of_card(config, roots, progress)))
            continue
        for one in (split,) if split is not None else tested_splits(name, config.source.path):
            settings = SourceConfig(name=name, **config.source.model_dump(exclude={"limit", "hashes"}))
            if name not in ("folder", "unlabeled", "shards"):
                settings = settings.model_copy(update={"path": None})
            source = open_source(settings, roots, split=one, seed=config.seed)
            rows = np.arange(len(source))
            found.append(TestImages(f"{name}:{one}", _limited(TransferSplit("test", source, rows), config)))
    labels = [one.label for one in found]
    if twice := [label for label in labels if labels.count(label) > 1]:
        raise UsvitError(f"The source {twice[0]} is named twice. Remove one of them.")
    return found


def _of_card(config: TestConfig, roots: dict[str, Path], progress: Progress) -> TransferSplit:
    manifest: Manifest = open_manifest(config.data, roots, progress)
    rows = np.arange(len(manifest.usable))
    source = ManifestSource(manifest, rows, labelled=True)
    return _limited(TransferSplit("test", source, rows, manifest=manifest, manifest_rows=rows), config)


def _limited(images: TransferSplit, config: TestConfig) -> TransferSplit:
    limit = config.source.limit
    if limit is None or limit >= len(images):
        return images
    generator = np.random.default_rng(derive_seed(config.seed, "source", "limit"))
    return replace(images, rows=draw(images.source, limit, generator))


def with_crop(test_set: TestImages, crops: set[str]) -> TestImages:
    """Return a data card's images as the classifiers were trained on them: cut to the tissue, or whole.

    Args:
        test_set: The images; those of other sources are returned unchanged.
        crops: ``Preprocessing.crop`` of the classifiers.

    Raises:
        UsvitError: The classifiers differ.
    """
    images = test_set.images
    if images.manifest is None or images.manifest_rows is None:
        return test_set
    if len(crops) > 1:
        raise UsvitError(
            "Some of the classifiers were trained on tissue regions and some on whole frames (input.crop), so they "
            "cannot be tested on the same images of a data card. Test them one by one."
        )
    source = ManifestSource(images.manifest, images.manifest_rows, crop=next(iter(crops)), labelled=True)
    return replace(test_set, images=replace(images, source=source))


def without_seen(
    test_set: TestImages, config: TestConfig, seen: Mapping[str, SeenImages], progress: Progress
) -> TestImages:
    """Refuse, remove or count images that a classifier has seen; near-duplicates count if both have descriptions.

    All classifiers are tested on the same images, so an image that one of them has seen is removed for all.

    Args:
        test_set: The images.
        config: ``leaks`` and ``source.hashes``.
        seen: Name of each classifier in error messages -> the images that it has seen.
        progress: Where progress is shown.

    Raises:
        LeakageError: There are such images and ``leaks`` is ``refuse``, or no others are left.
    """
    if not config.source.hashes or not any(map(len, seen.values())):
        return test_set
    images = test_set.images
    hashes = images.hashes(progress)
    if hashes is None:  # generated on the fly
        return test_set
    table = images.table().assign(sha256=hashes)
    described = images.descriptions(progress) if any(known.described for known in seen.values()) else {}
    refuse = "test on the others only: --set leaks=drop" if config.leaks == "refuse" else None
    leaking = in_seen_groups(table, seen, described, refuse=refuse)
    if config.leaks == "report":
        return replace(test_set, seen=int(leaking.sum()))
    if leaking.all():
        raise LeakageError(f"Every image of {test_set.label} has been seen by a classifier: none is left to test on.")
    rest = replace(images, rows=images.rows[~leaking], _described={})
    return replace(test_set, images=rest, seen=int(leaking.sum()))


def knowledge_of_training(seen: SeenImages, *, hub: bool, compared: bool) -> str:
    """Return a sentence for ``test.json``: what is known of the images that a classifier was trained on.

    Args:
        seen: Those images.
        hub: The weights come from the hub or from a Python package.
        compared: The test images were compared with them (``source.hashes``).
    """
    if hub:
        return "not known: weights of the hub do not list the images that they were trained on"
    if not len(seen):
        return "on record: only generated images" if seen.known != "nothing" else "not known: they are not on record"
    if not compared:
        return "on record, but not compared (source.hashes=false)"
    if seen.known == "nothing":
        return "not completely known: some of them are not on record; the others were compared"
    return "on record; compared " + ("with near-duplicates" if seen.known == "copies" else "by identical pixels only")
