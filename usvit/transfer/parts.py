"""Which images are learnt from, chosen on and tested, and that none is two of these."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.config import TransferConfig
from usvit.data.copies.compact import CompactDescriptions
from usvit.data.manifest import Manifest
from usvit.data.manifest_file import open_manifest
from usvit.data.seen import Seen, refuse_seen, unrecorded
from usvit.data.seen_copies import Described, copies_of_seen, joined
from usvit.data.sources.base import image_name
from usvit.data.sources.catalog import DATA
from usvit.data.sources.combine import aligned, refined
from usvit.data.sources.described import descriptions_of_source
from usvit.data.sources.manifest import ManifestSource
from usvit.data.sources.open import open_source, open_training
from usvit.data.sources.source import Source
from usvit.data.splits import make_folds, rows_of_part
from usvit.errors import LeakageError, UsvitError
from usvit.progress import Progress

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Part:
    """Some images with their labels."""

    name: str
    """``train``, ``val`` or ``test``."""
    source: Source
    rows: Ints
    """(n,) images of the source."""
    manifest: Manifest | None = None
    manifest_rows: Ints | None = None
    """Of a data card's images: (N,) row in ``manifest.usable`` of each image of the source."""
    coarse: Ints | None = None
    """(N,) coarse class of each image of the source, where it is looked for beside the fine one (retrieval)."""
    _hashes: dict[str, list[str] | None] = field(default_factory=dict, repr=False, compare=False)
    _described: dict[str, CompactDescriptions] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def targets(self) -> Ints:
        """(n,) class of each image."""
        return np.asarray(self.source.targets[self.rows], dtype=np.int64)

    @property
    def coarse_targets(self) -> Ints | None:
        """(n,) coarse class of each image; None where there are no coarse classes."""
        return None if self.coarse is None else np.asarray(self.coarse[self.rows], dtype=np.int64)

    @property
    def groups(self) -> NDArray[np.object_] | None:
        """(n,) patient, or cluster of copies, of each image; None where each stands for itself."""
        return None if self.manifest is None else self._listed("group_id").to_numpy(object)

    def describe(self) -> dict[str, Any]:
        """For ``run.json``: the source, and which of its images are of which coarse class."""
        found = self.source.describe()
        return (
            found
            if self.coarse is None
            else {**found, "coarse_sha256": hashlib.sha256(self.coarse.tobytes()).hexdigest()}
        )

    def hashes(self, progress: Progress) -> list[str] | None:
        """Of the pixels of each image; None: they are made on the fly."""
        if "all" not in self._hashes:
            self._hashes["all"] = self.source.hashes(progress)
        found = self._hashes["all"]
        return None if found is None else [found[row] for row in self.rows]

    def descriptions(self, progress: Progress) -> dict[str, CompactDescriptions]:
        """Pixel hash -> copy description of the images that have one (``usvit.data.sources.described``)."""
        if not self._described:
            self._described.update(descriptions_of_source(self.source, progress, self.rows))
        return self._described

    def table(self) -> pd.DataFrame:
        """n rows as a predictions table has them: image_id, group_id, patient_id, dataset, label."""
        columns = ["image_id", "group_id", "patient_id", "dataset", "label"]
        if self.manifest is not None:
            return self._listed(columns).reset_index(drop=True)
        names = [image_name(self.source, int(row)) for row in self.rows]
        if len(set(names)) < len(names):
            names = [f"{self.name}/{row}" for row in self.rows]
        labels = [self.source.classes[target] for target in self.targets]
        values = {"image_id": names, "group_id": names, "patient_id": None, "dataset": self.source.name}
        return pd.DataFrame({**values, "label": labels}, columns=columns)

    def _listed(self, columns: str | list[str]) -> Any:
        assert self.manifest is not None and self.manifest_rows is not None
        return self.manifest.usable.iloc[self.manifest_rows[self.rows]][columns]


@dataclass(frozen=True)
class Parts:
    """The images of a transfer."""

    train: Part
    val: Part | None
    """What is chosen on; None where nothing has to be chosen."""
    test: Part
    chosen_on: str
    """What ``val`` is, in words."""

    @property
    def classes(self) -> tuple[str, ...]:
        return self.train.source.classes

    @property
    def manifest(self) -> Manifest | None:
        return self.train.manifest

    def describe(self) -> dict[str, Any]:
        """For ``run.json`` and ``transfer.json``."""
        parts = {"train": self.train, "val": self.val, "test": self.test}
        return {
            "source": self.train.source.name,
            "classes": list(self.classes),
            "chosen_on": self.chosen_on,
            **{f"n_{name}": 0 if part is None else len(part) for name, part in parts.items()},
            "parts": {name: None if part is None else part.describe() for name, part in parts.items()},
        }


def open_parts(config: TransferConfig, roots: dict[str, Path], progress: Progress) -> Parts:
    """Open the training, validation and test images.

    Raises:
        UsvitError: they are not there, are unlabelled, or differ in their classes.
    """
    parts = _of_card(config, roots, progress) if config.source.name == DATA else _of_source(config, roots)
    for part in filter(None, (parts.train, parts.val, parts.test)):
        if len(part.source.classes) < 2 or (part.targets < 0).any():
            raise UsvitError(
                f"A transfer needs labels of two or more classes, and the {part.name} part of source.name="
                f"{config.source.name} has none. Choose a labelled source."
            )
        if part.source.classes != parts.classes:
            raise UsvitError(
                f"The {part.name} part of source.name={config.source.name} has other classes "
                f"({_some(part.source.classes)}) than the training part ({_some(parts.classes)})."
            )
        if not len(part):
            raise UsvitError(f"The {part.name} part of source.name={config.source.name} is empty.")
    absent = set(range(len(parts.classes))) - set(parts.train.targets.tolist())
    if absent:
        names = _some([parts.classes[label] for label in sorted(absent)])
        raise UsvitError(
            f"{len(absent)} classes have no training image: {names}. Keep fewer images back, or set no limit."
        )
    return parts


def _of_source(config: TransferConfig, roots: dict[str, Path]) -> Parts:
    settings = config.source
    tested = set() if config.test is None else set(config.test.split("+"))
    if config.how in ("knn", "retrieval") and config.test is not None:
        settings = settings.model_copy(update={"val": None, "val_share": 0.0})  # k is chosen on the training images
    for name, part in (("split", settings.split), ("val", settings.val or ""), ("final", config.final or "")):
        if shared := tested & set(part.split("+")):
            key = name if name == "final" else f"source.{name}"
            raise LeakageError(
                f"test={config.test} and {key}={part} share the part {', '.join(shared)}: no image may be learnt from, "
                "or chosen on, and tested. Set test to another part, or choose on a share of the training images "
                "(source.val=null, source.val_share=0.1)."
            )
    train, val = open_training(settings, roots, seed=config.seed)
    if config.test is None:
        val, test = None, val
        assert test is not None  # TransferConfig asks for them
    else:
        test = open_source(settings, roots, split=config.test, seed=config.seed)
        if train.classes and test.classes:
            test = aligned(test, train.classes, "the training")
    if config.how == "retrieval" and settings.coarse is not None:
        return Parts(_fine("train", train, train), None, _fine("test", test, train), "none")
    chosen_on = f"part {settings.val}"
    if settings.val is None:
        chosen_on = f"{100 * settings.val_share:g} % of part {settings.split}, drawn by seed {config.seed}"
    return Parts(
        _whole("train", train),
        None if val is None else _whole("val", val),
        _whole("test", test),
        "none" if val is None else chosen_on,
    )


def _of_card(config: TransferConfig, roots: dict[str, Path], progress: Progress) -> Parts:
    manifest = open_manifest(config.data, roots, progress)
    table = manifest.usable
    folds = make_folds("train", table, config.split, config.split_seed, manifest.own_ids)
    found = {}
    for name in ("train", "val", "test"):
        rows = rows_of_part(folds, table, name)
        source = ManifestSource(manifest, rows, crop="tissue", labelled=True)
        found[name] = replace(_whole(name, source), manifest=manifest, manifest_rows=rows)
    if config.how in ("knn", "retrieval"):  # k is chosen on the training images
        return Parts(found["train"], None, found["test"], "none")
    by = "patients and copies" if config.split.unit == "group" else "image, which leaks"
    chosen_on = f"inner validation part of the hold-out, seed {config.split_seed}, by {by}"
    return Parts(found["train"], found["val"], found["test"], chosen_on)


def without_leaks(
    parts: Parts, config: TransferConfig, seen: Mapping[str, Seen], progress: Progress
) -> tuple[Parts, dict[str, int | None]]:
    """Refuse, or leave out, test images that a network has seen or that stand in training or validation, too.

    Copies with other pixels count as the images themselves, where both have descriptions.

    Args:
        parts: the images.
        config: says which (``leaks``), and whether training images are looked at (``source.hashes``).
        seen: name of each network, for the error -> what it has seen.
        progress: where progress is shown.

    Returns:
        The parts, and how many test images were dropped: ``seen_by_weights``, ``in_training``; None: not looked at.

    Raises:
        LeakageError: there are such images, and ``leaks`` is ``refuse``; or no other images are left.
    """
    for who, known in seen.items():
        if doubt := unrecorded(known, who):
            progress.say(f"Warning: {doubt}")
    counts: dict[str, int | None] = {"seen_by_weights": None, "in_training": None}
    tested = parts.test.hashes(progress) if config.source.hashes or any(map(len, seen.values())) else None
    if tested is None:
        return parts, counts
    table = parts.test.table().assign(sha256=tested)
    without = "test on the others alone: --set leaks=drop"
    leaking = np.zeros(len(table), dtype=bool)
    looked_at = config.source.hashes or any(known.described for known in seen.values())
    described = parts.test.descriptions(progress) if looked_at else {}
    for who, known in seen.items():
        copies = known.copies_among(described)
        leaking |= table.sha256.map(known.__contains__).to_numpy(bool) | table.sha256.isin(list(copies)).to_numpy()
        if config.leaks == "refuse":
            refuse_seen(table, known, who, without, copies)
    leaking = table.group_id.isin(table.group_id[leaking]).to_numpy()
    counts["seen_by_weights"] = int(leaking.sum())
    if config.source.hashes:
        others = [part for part in (parts.train, parts.val) if part is not None]
        learnt = {one for part in others for one in part.hashes(progress) or ()}
        inside = table.sha256.isin(learnt | _copies_in(others, described, parts, progress)).to_numpy()
        if config.leaks == "refuse" and inside.any():
            raise LeakageError(
                f"{int(inside.sum())} test images of {parts.test.source.name} are, pixel by pixel or as copies, among "
                f"its training images: {_some(table.image_id[inside].tolist())}. Remove them from one part, or "
                f"{without}."
            )
        counts["in_training"] = int((inside & ~leaking).sum())
        leaking = leaking | inside
    if leaking.all():
        raise LeakageError(f"Every test image of {parts.test.source.name} has been seen: none is left to test on.")
    rest = replace(parts.test, rows=parts.test.rows[~leaking], _described={})
    return replace(parts, test=rest), counts


def _copies_in(others: Sequence[Part], described: Described, parts: Parts, progress: Progress) -> set[str]:
    """Pixel hashes of test images that are copies of others'. The split of a data card has kept copies apart."""
    if parts.manifest is not None or not described:
        return set()
    known = {sha256: one for part in others for sha256, one in part.descriptions(progress).items()}
    return set(copies_of_seen(described, joined(known))) if known else set()


def _fine(name: str, source: Source, train: Source) -> Part:
    """The images under their fine classes, the coarse ones beside them."""
    fine = aligned(refined(source), refined(train).classes, "the training")
    return replace(_whole(name, fine), coarse=source.targets)


def _whole(name: str, source: Source) -> Part:
    return Part(name, source, np.arange(len(source)))


def _some(names: Sequence[str]) -> str:
    return ", ".join(map(str, names[:5])) + (", ..." if len(names) > 5 else "")
