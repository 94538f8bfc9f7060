"""The audit of a data set: copies, contradicting labels, images shared between sets, and marks a model would learn."""

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from usvit.data import copies
from usvit.data.audit import flags, marks
from usvit.data.audit.keep import keep_list
from usvit.data.cards import DataCard
from usvit.data.check import check_against_card
from usvit.data.copies import Copy, clusters
from usvit.data.images import BadImage, read_masks
from usvit.data.manifest import Manifest, mask_names
from usvit.progress import Progress, task

SCHEMA_VERSION = "1.1"


@dataclass(frozen=True)
class Audit:
    """What was found; n is the number of rows of the manifest's table."""

    manifest: Manifest
    record: dict[str, Any]
    """The content of audit.json (docs/reference/audit.schema.json)."""
    keep: pd.DataFrame
    """The content of keep.csv (``usvit.data.audit.keep``)."""
    pairs: list[Copy]
    """Every verified pair of copies, identical ones included."""
    flags: list[list[str]]
    """(n,) flags of each image."""
    sizes: NDArray[np.int64]
    """(n, 2) height and width in px."""


def audit(manifest: Manifest, cards: list[DataCard], progress: Progress) -> Audit:
    """Look at every image of a manifest, and at the copies that were found among them.

    Args:
        manifest: as ``build_manifest`` made it: ``copies`` are not in a manifest's file.
        cards: of its data sets, in their order.
        progress: shown while images are decoded.

    Raises:
        BadImage: an image can no longer be read.
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
        """The groups by their images' ids: all of them, or those whose rows differ in a column."""
        return [[ids[row] for row in rows] for rows in groups if not differing or table[differing][rows].nunique() > 1]

    record = {
        "schema_version": SCHEMA_VERSION,
        "datasets": names,
        "manifest_sha256": manifest.sha256(),
        "n_images": len(table),
        "class_counts": {label: int((table.label == label).sum()) for label in manifest.classes},
        "card_mismatch": [f"{card.name}: {line}" for card in cards for line in check_against_card(table, card)],
        "exact_duplicates": named(identical),
        "duplicate_groups": named(groups),
        "label_conflicts": named(groups, "label"),
        "contamination": named(groups, "dataset"),
        "possibly_one_patient": manifest.possibly_one_patient,
        "pairs": [
            {"first": ids[pair.first], "second": ids[pair.second], "similarity": pair.similarity, "kind": pair.kind}
            for pair in manifest.copies
        ],
        "flags": {ids[row]: one for row, one in enumerate(found) if one},
        "flag_counts": _flag_counts(table, manifest.classes, found),
        "keep": {"kept": int((keep.keep == "true").sum()), "dropped": int((keep.keep == "false").sum())},
        "skipped": manifest.skipped_rows,
        "parameters": {**_constants(copies), **_constants(marks), **_constants(flags)},
    }  # fmt: skip
    return Audit(manifest, record, keep, manifest.copies, found, sizes)


def _examine(manifest: Manifest, progress: Progress) -> tuple[NDArray[np.int64], list[list[str]]]:
    """(n, 2) sizes, and for each image the flags of its pixels and masks."""

    def examine(row: Any) -> tuple[tuple[int, int], list[str]]:
        root = manifest.roots[row.dataset]
        masks = [root / name for name in mask_names(row.mask_path)]
        try:
            pixels = manifest.read(row)
            shape = (pixels.shape[0], pixels.shape[1])
            marked = bool(read_masks(masks, shape).any())
        except BadImage as bad:
            raise manifest.told(bad) from bad
        return shape, flags.pixel_flags(pixels) + flags.mask_flags(len(masks), marked)

    sizes, found = [], []
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        task(progress, "looking for marks", len(manifest.table), "images") as advance,
    ):
        for shape, one in pool.map(examine, manifest.table.itertuples()):
            sizes.append(shape)
            found.append(one)
            advance(len(found))
    return np.array(sizes, dtype=np.int64), found


def _add_odd_sizes(table: pd.DataFrame, sizes: NDArray[np.int64], found: list[list[str]]) -> None:
    """Add ``odd_size`` and ``odd_aspect``, each data set measured by its own images."""
    side, aspect = np.sqrt(sizes.prod(axis=1)), sizes[:, 1] / sizes[:, 0]
    for dataset in table.dataset.unique():
        rows = np.flatnonzero(table.dataset == dataset)
        for row in rows[flags.far_from_median(side[rows], flags.SIZE_FACTOR)]:
            found[row].append("odd_size")
        for row in rows[flags.far_from_median(aspect[rows], flags.ASPECT_FACTOR)]:
            found[row].append("odd_aspect")


def _flag_counts(table: pd.DataFrame, classes: tuple[str, ...], found: list[list[str]]) -> dict[str, dict[str, int]]:
    """Flag -> class -> images: a mark that is commoner in one class is a shortcut."""
    counts = {name: dict.fromkeys(classes, 0) for name in flags.MEANINGS}
    for label, names in zip(table.label, found, strict=True):
        for name in names:
            counts[name][label] += 1
    return counts


def _constants(module: ModuleType) -> dict[str, Any]:
    """The named thresholds of a module, in small letters."""
    public = {name: value for name, value in vars(module).items() if name.isupper() and not name.startswith("_")}
    return {name.lower(): value for name, value in public.items() if not isinstance(value, dict)}
