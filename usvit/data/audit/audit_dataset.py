"""Audit a data set: near-duplicates, contradicting labels, images in several sets, and marks that models may learn."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.data.audit import flags
from usvit.data.audit.keep_list import keep_list
from usvit.data.burned_in import marks
from usvit.data.datasets import (
    DataCard,
    Manifest,
    check_against_card,
    count_units,
    disagreeing_lesions,
    mask_names,
)
from usvit.data.io import BadImage, read_masks
from usvit.data.near_duplicates import ENOUGH_NEAR_DUPLICATES, MIN_LANDMARKS, MIN_SIMILARITY, NearDuplicate, clusters
from usvit.progress import NO_PROGRESS, Progress, task
from usvit.records import AuditRecord
from usvit.records.audit import KeepCounts, NearDuplicatePair
from usvit.representation import Summarised
from usvit.resources import usable_cores


@dataclass(frozen=True)
class ClassCount:
    """Images of a class of a data set."""

    dataset: str
    label: str
    found: int
    stated: int | None
    """Number that the data card states."""


@dataclass(frozen=True, repr=False)
class Audit(Summarised):
    """Findings of an audit; n is the number of rows of the manifest's table."""

    manifest: Manifest
    record: AuditRecord
    """The content of audit.json (docs/reference/audit.schema.json)."""
    keep: pd.DataFrame
    """The content of keep.csv (``usvit.data.audit.keep_list``)."""
    pairs: list[NearDuplicate]
    """Every verified pair of near-duplicates, including identical images."""
    flags: list[list[str]]
    """(n,) flags of each image."""
    sizes: NDArray[np.int64]
    """(n, 2) height and width in pixels."""
    classes: list[ClassCount]
    """Classes of each data set, with the numbers of its card."""

    def _facts(self) -> dict[str, object]:
        flagged = sum(bool(one) for one in self.flags)
        return {"manifest": self.manifest, "near_duplicates": len(self.pairs), "flagged_images": flagged}


def find_faults(manifest: Manifest, cards: list[DataCard], progress: Progress = NO_PROGRESS) -> Audit:
    """Examine every image of a manifest, and the near-duplicates among them.

    ``usvit.audit`` also reads the data set and writes the findings.

    Args:
        manifest: The result of ``build_manifest``; a manifest read from a file lists no near-duplicates.
        cards: Cards of its data sets, in their order.
        progress: Shown while images are decoded.

    Raises:
        BadImage: An image can no longer be read.
    """
    table, names = manifest.table, [card.name for card in cards]
    sizes, found = _examine(manifest, progress)
    n_marks = [len(one) for one in found]
    _add_odd_sizes(table, sizes, found)
    found = [[name for name in flags.MEANINGS if name in one] for one in found]  # in one order

    ids = table.image_id if len(names) == 1 else table.dataset + "/" + table.image_id
    cluster = clusters(len(table), manifest.copies)
    groups = [list(rows.index) for _, rows in table.groupby(cluster, sort=False) if len(rows) > 1]
    identical = [list(rows.index) for _, rows in table.groupby("sha256", sort=False) if len(rows) > 1]
    keep = keep_list(table, cluster, n_marks, [int(height * width) for height, width in sizes])

    def named(groups: list[list[int]], differing: str | None = None) -> list[list[str]]:
        """Return groups as image ids: all groups, or those whose rows differ in a column."""
        return [[ids[row] for row in rows] for rows in groups if not differing or table[differing][rows].nunique() > 1]

    record = AuditRecord(
        datasets=names,
        manifest_sha256=manifest.sha256(),
        n_images=len(table),
        class_counts={label: int((table.label == label).sum()) for label in manifest.classes},
        card_mismatch=[f"{card.name}: {line}" for card in cards for line in check_against_card(table, card)],
        exact_duplicates=named(identical),
        duplicate_groups=named(groups),
        label_conflicts=named(groups, "label"),
        contamination=named(groups, "dataset"),
        possibly_one_patient=manifest.possibly_one_patient,
        units=count_units(table, manifest.classes, manifest.positive_class),
        lesion_label_conflicts=named(disagreeing_lesions(table)) if "lesion_id" in table else None,
        pairs=[
            NearDuplicatePair(
                first=ids[pair.first], second=ids[pair.second], similarity=pair.similarity, kind=pair.kind
            )
            for pair in manifest.copies
        ],
        flags={ids[row]: one for row, one in enumerate(found) if one},
        flag_counts=_flag_counts(table, manifest.classes, found),
        keep=KeepCounts(kept=int((keep.keep == "true").sum()), dropped=int((keep.keep == "false").sum())),
        skipped=manifest.skipped_files,
        parameters={
            "enough_copies": ENOUGH_NEAR_DUPLICATES,
            "min_landmarks": MIN_LANDMARKS,
            "min_similarity": MIN_SIMILARITY,
            **_constants(marks),
            **_constants(flags),
        },
    )
    return Audit(manifest, record, keep, manifest.copies, found, sizes, _class_counts(table, manifest.classes, cards))


def _examine(manifest: Manifest, progress: Progress) -> tuple[NDArray[np.int64], list[list[str]]]:
    """Return (n, 2) sizes, and for each image the flags of its pixels and masks."""

    def examine(row: Any) -> tuple[tuple[int, int], list[str]]:
        root = manifest.roots[row.dataset]
        masks = [root / name for name in mask_names(row.mask_path)]
        try:
            decoded = manifest.decode(row)
            shape = (decoded.pixels.shape[0], decoded.pixels.shape[1])
            marked = bool(read_masks(masks, shape).any())
        except BadImage as bad:
            raise manifest.told(bad) from bad
        return shape, [*flags.pixel_flags(decoded.pixels), *decoded.flags, *flags.mask_flags(len(masks), marked)]

    sizes, found = [], []
    with (
        ThreadPoolExecutor(usable_cores()) as pool,
        task(progress, "looking for marks", len(manifest.table), "images") as advance,
    ):
        for shape, one in pool.map(examine, manifest.table.itertuples()):
            sizes.append(shape)
            found.append(one)
            advance(len(found))
    return np.array(sizes, dtype=np.int64), found


def _add_odd_sizes(table: pd.DataFrame, sizes: NDArray[np.int64], found: list[list[str]]) -> None:
    """Add ``odd_size`` and ``odd_aspect``; each image is compared with the images of its data set."""
    side, aspect = np.sqrt(sizes.prod(axis=1)), sizes[:, 1] / sizes[:, 0]
    for dataset in table.dataset.unique():
        rows = np.flatnonzero(table.dataset == dataset)
        for row in rows[flags.far_from_median(side[rows], flags.SIZE_FACTOR)]:
            found[row].append("odd_size")
        for row in rows[flags.far_from_median(aspect[rows], flags.ASPECT_FACTOR)]:
            found[row].append("odd_aspect")


def _flag_counts(table: pd.DataFrame, classes: tuple[str, ...], found: list[list[str]]) -> dict[str, dict[str, int]]:
    """Count images by flag and class; a mark that is more frequent in one class is a shortcut."""
    counts = {name: dict.fromkeys(classes, 0) for name in flags.MEANINGS}
    for label, names in zip(table.label, found, strict=True):
        for name in names:
            counts[name][label] += 1
    return counts


def _class_counts(table: pd.DataFrame, classes: tuple[str, ...], cards: list[DataCard]) -> list[ClassCount]:
    found = []
    for card in cards:
        labels = table.label[table.dataset == card.name]
        for label in classes:
            n = int((labels == label).sum())
            if n or label in card.classes:
                found.append(ClassCount(card.name, label, n, card.classes.get(label)))
    return found


def _constants(module: ModuleType) -> dict[str, object]:
    """Return the public constants of a module, with lower-case names."""
    public = {name: value for name, value in vars(module).items() if name.isupper() and not name.startswith("_")}
    return {name.lower(): value for name, value in public.items() if not isinstance(value, dict)}
