"""The training, validation and test images of a transfer, and the refusal of leaks between them."""

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.data.datasets import Manifest, ManifestSource, UpstreamDataset, open_manifest, refined
from usvit.data.near_duplicates import CompactDescriptions
from usvit.data.splits import (
    Described,
    SeenImages,
    copies_of_seen,
    in_seen_groups,
    joined,
    make_folds,
    rows_of_split,
    unrecorded,
)
from usvit.errors import LeakageError, UsvitError
from usvit.progress import Progress
from usvit.records.weights_origin import SourceRecord
from usvit.upstream.config.transfer import VALIDATED, TransferConfig
from usvit.upstream.records.training import Dropped, TransferImages
from usvit.upstream.sources.catalog import DATA
from usvit.upstream.sources.near_duplicates import descriptions_of_source
from usvit.upstream.sources.open import aligned, coarsened, open_source, open_training, shared_splits

logger = logging.getLogger(__name__)

Ints = NDArray[np.int64]


NONE_COMPARED = Dropped(seen_by_weights=None, in_training=None)


@dataclass(frozen=True)
class TransferSplit:
    """The images of one split, with their labels."""

    name: str
    """``train``, ``val`` or ``test``."""
    source: UpstreamDataset
    rows: Ints
    """Indices of its n images in the source, of shape (n,)."""
    manifest: Manifest | None = None
    manifest_rows: Ints | None = None
    """With a data card: the row in ``manifest.usable`` of each of the N images of the source, of shape (N,)."""
    coarse: Ints | None = None
    """Coarse class of each image of the source, of shape (N,), if a retrieval uses it beside the fine class."""
    _hashes: dict[str, list[str] | None] = field(default_factory=dict, repr=False, compare=False)
    _described: dict[str, CompactDescriptions] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def targets(self) -> Ints:
        """Class of each image, of shape (n,)."""
        return np.asarray(self.source.targets[self.rows], dtype=np.int64)

    @property
    def coarse_targets(self) -> Ints | None:
        """Coarse class of each image, of shape (n,); None if there are no coarse classes."""
        return None if self.coarse is None else np.asarray(self.coarse[self.rows], dtype=np.int64)

    @property
    def groups(self) -> NDArray[np.object_] | None:
        """Patient or cluster of near-duplicates of each image, of shape (n,); None if the images are independent."""
        return None if self.manifest is None else self._listed("group_id").to_numpy(object)

    def record(self) -> SourceRecord:
        """Return the entry of ``run.json``: the source, and a hash of the coarse classes."""
        found = self.source.record()
        if self.coarse is None:
            return found
        return found.model_copy(update={"coarse_sha256": hashlib.sha256(self.coarse.tobytes()).hexdigest()})

    def hashes(self, progress: Progress) -> list[str] | None:
        """Return the pixel hash of each image, or None if the images are generated on the fly."""
        if "all" not in self._hashes:
            self._hashes["all"] = self.source.hashes(progress)
        found = self._hashes["all"]
        return None if found is None else [found[row] for row in self.rows]

    def descriptions(self, progress: Progress) -> dict[str, CompactDescriptions]:
        """Return the description for near-duplicate search of each image that has one, by pixel hash."""
        if not self._described:
            self._described.update(descriptions_of_source(self.source, progress, self.rows))
        return self._described

    def names(self) -> list[str]:
        """Return the name of each image, for tables; with a data card, its ``image_id``."""
        if self.manifest is not None:
            return [str(one) for one in self._listed("image_id")]
        return [self.source.image_name(int(row)) for row in self.rows]

    def table(self) -> pd.DataFrame:
        """Return the columns image_id, group_id, patient_id, dataset and label of a predictions table."""
        columns = ["image_id", "group_id", "patient_id", "dataset", "label"]
        if self.manifest is not None:
            return self._listed(columns).reset_index(drop=True)
        names = self.names()
        if len(set(names)) < len(names):
            names = [f"{self.name}/{row}" for row in self.rows]
        labels = [self.source.classes[target] for target in self.targets]
        values = {"image_id": names, "group_id": names, "patient_id": None, "dataset": self.source.name}
        return pd.DataFrame({**values, "label": labels}, columns=columns)

    def _listed(self, columns: str | list[str]) -> Any:
        assert self.manifest is not None and self.manifest_rows is not None
        return self.manifest.usable.iloc[self.manifest_rows[self.rows]][columns]


@dataclass(frozen=True)
class TransferSplits:
    """The splits of a transfer."""

    train: TransferSplit
    val: TransferSplit | None
    """The images on which choices are made; None if there is nothing to choose."""
    test: TransferSplit
    chosen_on: str
    """A description of ``val``."""

    @property
    def classes(self) -> tuple[str, ...]:
        return self.train.source.classes or self.test.source.classes  # pairs of image and text need no class

    @property
    def manifest(self) -> Manifest | None:
        return self.train.manifest

    def record(self) -> TransferImages:
        """Return the entry of ``transfer.json``."""
        return TransferImages(
            source=self.train.source.name,
            classes=list(self.classes),
            chosen_on=self.chosen_on,
            n_train=len(self.train),
            n_val=0 if self.val is None else len(self.val),
            n_test=len(self.test),
        )

    def parts(self) -> dict[str, SourceRecord | None]:
        """Return the further entry of ``run.json``: the images of each split."""
        val = None if self.val is None else self.val.record()
        return {"train": self.train.record(), "val": val, "test": self.test.record()}


def open_splits(config: TransferConfig, roots: dict[str, Path], progress: Progress) -> TransferSplits:
    """Open the training, validation and test images.

    Raises:
        UsvitError: The images are missing, are unlabelled, or differ in their classes.
    """
    splits = _of_card(config, roots, progress) if config.source.name == DATA else _of_source(config, roots)
    unlabelled = config.how == "text" and not splits.train.source.classes
    for split in filter(None, (None if unlabelled else splits.train, splits.val, splits.test)):
        if len(split.source.classes) < 2 or (split.targets < 0).any():
            raise UsvitError(
                f"A transfer needs labels of two or more classes, and the {split.name} part of source.name="
                f"{config.source.name} has none. Choose a labelled source."
            )
        if split.source.classes != splits.classes:
            raise UsvitError(
                f"The {split.name} part of source.name={config.source.name} has other classes "
                f"({_some(split.source.classes)}) than the training part ({_some(splits.classes)})."
            )
        if not len(split):
            raise UsvitError(f"The {split.name} part of source.name={config.source.name} is empty.")
    absent = set() if unlabelled else set(range(len(splits.classes))) - set(splits.train.targets.tolist())
    if absent:
        names = _some([splits.classes[label] for label in sorted(absent)])
        raise UsvitError(
            f"{len(absent)} classes have no training image: {names}. Use fewer images for validation, or set no limit."
        )
    return splits


def _of_source(config: TransferConfig, roots: dict[str, Path]) -> TransferSplits:
    settings = config.source
    if config.how not in VALIDATED and config.test is not None:
        settings = settings.model_copy(
            update={"val": None, "val_source": None, "val_share": 0.0}
        )  # k is chosen on the training images
    for key, used in (("source.split", settings.split), ("source.val", settings.val), ("final", config.final)):
        if config.test is None or used is None:
            continue
        if shared := shared_splits(settings, used, config.test, of_val=key == "source.val"):
            raise LeakageError(
                f"test={config.test} and {key}={used} share the part {', '.join(shared)}: test images must not "
                "be used for training or for choices. Set test to another split, or choose on a share of the "
                "training images (source.val=null, source.val_share=0.1)."
            )
    train, val = open_training(settings, roots, seed=config.seed)
    if config.test is None:
        val, test = None, val
        assert test is not None  # TransferConfig requires them
    else:
        test = open_source(settings, roots, split=config.test, seed=config.seed)
        if train.classes and test.classes:
            test = aligned(test, train.classes, "the training")
    if config.how == "retrieval" and (settings.coarse is not None or config.fine is not None):
        return TransferSplits(_fine("train", train, train, config), None, _fine("test", test, train, config), "none")
    chosen_on = f"part {settings.val}" + (f" of {settings.val_source}" if settings.val_source else "")
    if settings.val is None:
        chosen_on = f"{100 * settings.val_share:g} % of part {settings.split}, drawn by seed {config.seed}"
    return TransferSplits(
        _whole("train", train),
        None if val is None else _whole("val", val),
        _whole("test", test),
        "none" if val is None else chosen_on,
    )


def _of_card(config: TransferConfig, roots: dict[str, Path], progress: Progress) -> TransferSplits:
    manifest = open_manifest(config.data, roots, progress)
    table = manifest.usable
    folds = make_folds("train", table, config.split, config.split_seed, manifest.own_ids)
    found = {}
    for name in ("train", "val", "test"):
        rows = rows_of_split(folds, table, name)
        source = ManifestSource(manifest, rows, crop="tissue", labelled=True)
        found[name] = replace(_whole(name, source), manifest=manifest, manifest_rows=rows)
    if config.how not in VALIDATED:  # k is chosen on the training images
        return TransferSplits(found["train"], None, found["test"], "none")
    by = "patients and copies" if config.split.unit == "group" else "image, which leaks"
    chosen_on = f"inner validation part of the hold-out, seed {config.split_seed}, by {by}"
    return TransferSplits(found["train"], found["val"], found["test"], chosen_on)


def without_leaks(
    splits: TransferSplits, config: TransferConfig, seen: Mapping[str, SeenImages], progress: Progress
) -> tuple[TransferSplits, Dropped]:
    """Refuse or remove test images that a network has seen, or that are also training or validation images.

    Near-duplicates with other pixels count as the same image if both have descriptions.

    Args:
        splits: The splits.
        config: Whether to refuse or to drop such images (``leaks``), and whether to compare the training images
            (``source.hashes``).
        seen: Name of each network in error messages -> the images that it has seen.
        progress: Where progress is shown.

    Returns:
        The splits, and the number of test images that were dropped.

    Raises:
        LeakageError: There are such images, and ``leaks`` is ``refuse``; or no other images are left.
    """
    for who, known in seen.items():
        if doubt := unrecorded(known, who):
            logger.warning(doubt)
    tested = splits.test.hashes(progress) if config.source.hashes or any(map(len, seen.values())) else None
    if tested is None:
        return splits, NONE_COMPARED
    table = splits.test.table().assign(sha256=tested)
    without = "test on the others only: --set leaks=drop"
    compared = config.source.hashes or any(known.described for known in seen.values())
    described = splits.test.descriptions(progress) if compared else {}
    leaking = in_seen_groups(table, seen, described, refuse=without if config.leaks == "refuse" else None)
    dropped = Dropped(seen_by_weights=int(leaking.sum()), in_training=None)
    if config.source.hashes:
        others = [split for split in (splits.train, splits.val) if split is not None]
        learnt = {one for split in others for one in split.hashes(progress) or ()}
        inside = table.sha256.isin(learnt | _near_duplicates_in(others, described, splits, progress)).to_numpy()
        if config.leaks == "refuse" and inside.any():
            raise LeakageError(
                f"{int(inside.sum())} test images of {splits.test.source.name} are also among the training or "
                f"validation images, as the same pixels or near-duplicates: {_some(table.image_id[inside].tolist())}. "
                f"Remove them from one part, or {without}."
            )
        dropped = dropped.model_copy(update={"in_training": int((inside & ~leaking).sum())})
        leaking = leaking | inside
    if leaking.all():
        raise LeakageError(f"Every test image of {splits.test.source.name} has been seen: none is left to test on.")
    rest = replace(splits.test, rows=splits.test.rows[~leaking], _described={})
    return replace(splits, test=rest), dropped


def _near_duplicates_in(
    others: Sequence[TransferSplit], described: Described, splits: TransferSplits, progress: Progress
) -> set[str]:
    """Return the pixel hashes of test images that are near-duplicates of other images.

    The split of a data card has already kept near-duplicates together.
    """
    if splits.manifest is not None or not described:
        return set()
    known = {sha256: one for split in others for sha256, one in split.descriptions(progress).items()}
    return set(copies_of_seen(described, joined(known))) if known else set()


def _fine(name: str, source: UpstreamDataset, train: UpstreamDataset, config: TransferConfig) -> TransferSplit:
    """Return the images with the classes to search for as labels, and with their coarse classes if there are any."""

    def of_fine(images: UpstreamDataset) -> UpstreamDataset:
        whole = refined(images)
        return whole if config.fine is None else coarsened(whole, config.fine)

    fine = aligned(of_fine(source), of_fine(train).classes, "the training")
    return replace(_whole(name, fine), coarse=None if config.source.coarse is None else source.targets)


def _whole(name: str, source: UpstreamDataset) -> TransferSplit:
    return TransferSplit(name, source, np.arange(len(source)))


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(str, names[:5])) + (", ..." if len(names) > 5 else "")
