"""The manifest: one row an image, with all that splitting and training need to know of it.

Building it decodes every file once: what cannot be read is known before any work begins.
"""

import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd

from usvit.data.cards import DataCard, load_cards
from usvit.data.copies import Copy, Description, describe, find_copies
from usvit.data.groups import group_ids, label_conflicts, possibly_one_patient
from usvit.data.images import BadImage, Fingerprint, fingerprint, read_image, read_masks
from usvit.data.readers import ImageRecord
from usvit.data.roots import open_dataset
from usvit.errors import UsvitError
from usvit.files import csv_text, sha256_of_text
from usvit.progress import Progress, task

COLUMNS = [
    *("image_id", "path", "frame", "dataset", "label", "label_source", "patient_id", "group_id", "mask_path"),
    *("sha256", "phash", "device", "birads", "pixel_spacing_mm", "official_folds", "exclude_reason"),
]
MASK_SEPARATOR = "|"
"""Between the paths of several masks of one image."""
FOLDS_SEPARATOR = " "
"""Between the official folds of one image: ``5:3 10:7`` is fold 3 of 5 and fold 7 of 10, from 0."""


def mask_names(cell: object) -> list[str]:
    """The paths in one cell of the column ``mask_path``; none where it is empty."""
    return cell.split(MASK_SEPARATOR) if isinstance(cell, str) else []


@dataclass(frozen=True)
class Manifest:
    """All images of one run, those left out included, each with its reason."""

    table: pd.DataFrame
    """One row an image; the columns of ``COLUMNS``; paths are relative to the data set's root."""
    roots: dict[str, Path]
    """Data set -> its top folder on this machine. Not part of the table, nor of its hash."""
    classes: tuple[str, ...]
    """The union of the data sets' classes, in the order of the network's outputs."""
    positive_class: str
    licenses: dict[str, str]
    """Data set -> licence, from its card."""
    copies: list[Copy] = field(default_factory=list)
    """Verified pairs of near-duplicates, as row numbers of the table (not kept in a manifest's file)."""
    skipped: list[BadImage] = field(default_factory=list)
    """Files left out because they could not be read (only where that was asked for)."""
    possibly_one_patient: dict[str, int] = field(default_factory=dict)
    """Data set -> patients that seem to have several ids (``usvit.data.groups.possibly_one_patient``), where any do."""

    @property
    def usable(self) -> pd.DataFrame:
        """The rows without an ``exclude_reason``, renumbered from 0."""
        return self.table[self.table.exclude_reason.isna()].reset_index(drop=True)

    @property
    def excluded(self) -> pd.DataFrame:
        """The rows that were left out."""
        return self.table[self.table.exclude_reason.notna()].reset_index(drop=True)

    def sha256(self) -> str:
        """Hash of the table: the same images with the same labels and groups give the same, wherever they lie."""
        return sha256_of_text(csv_text(self.table))

    def image_path(self, row: pd.Series) -> Path:
        """Where the image of one row lies on this machine."""
        return self.roots[row.dataset] / row.path


def build_manifest(
    datasets: str,
    roots: dict[str, Path],
    progress: Progress,
    *,
    skip_bad: bool = False,
    keep_label_conflicts: bool = False,
    near_duplicates: bool = True,
) -> Manifest:
    """Read one data set, or the union of several, into one table.

    Args:
        datasets: names of cards joined by '+', such as ``busi+b``.
        roots: data set -> folder given by the user; "" for all (``usvit.data.roots``).
        progress: shown while files are decoded.
        skip_bad: leave out files that cannot be read, instead of raising.
        keep_label_conflicts: keep pixel-identical images with different labels.
        near_duplicates: find copies, crops, shifts and annotated versions of one frame, and group them.

    Raises:
        UsvitError: an unknown data set, a wrong layout, a damaged file, a class without an image.
    """
    cards = load_cards(datasets)
    opened = {card.name: open_dataset(card, roots, progress) for card in cards}
    classes, positive_class = _union_of_classes(cards, {name: records for name, (_, records) in opened.items()})
    doubtful = _warn_of_several_ids({name: records for name, (_, records) in opened.items()}, progress)
    entries = [(name, root, record) for name, (root, records) in opened.items() for record in records]
    examined = _examine(entries, near_duplicates, progress)
    if (bad := [found for found in examined if isinstance(found, BadImage)]) and not skip_bad:
        others = f"\n{len(bad) - 1} more cannot be used either." if len(bad) > 1 else ""
        raise UsvitError(f"{bad[0]}{others}")
    good = [
        (name, record, found)
        for (name, _, record), found in zip(entries, examined, strict=True)
        if not isinstance(found, BadImage)
    ]
    table = pd.DataFrame([_row(name, record, print_) for name, record, (print_, _) in good], columns=COLUMNS)
    if absent := [label for label in classes if not (table.label == label).any()]:
        raise UsvitError(
            f"The data set {datasets} has no readable image of the class '{absent[0]}'; "
            f"each of {', '.join(classes)} is needed."
        )
    _refuse_double_ids(table)
    descriptions = [description for _, _, (_, description) in good if description is not None]
    copies = find_copies(descriptions, progress) if near_duplicates else []
    table["group_id"] = group_ids(table, copies)
    if not keep_label_conflicts:
        table["exclude_reason"] = label_conflicts(table)
    return Manifest(
        table,
        {name: root for name, (root, _) in opened.items()},
        classes,
        positive_class,
        {card.name: card.license for card in cards},
        copies,
        bad,
        doubtful,
    )


def _warn_of_several_ids(records: dict[str, list[ImageRecord]], progress: Progress) -> dict[str, int]:
    found = {}
    for name, those in records.items():
        doubtful = possibly_one_patient(record.patient_id for record in those)
        if doubtful:
            found[name] = len(doubtful)
            progress.say(
                f"Warning: the data set {name} has {sum(map(len, doubtful))} patient ids that differ only by case, "
                f"spaces, leading zeros or a trailing '.0': possibly {len(doubtful)} patients. They "
                "count as different patients, whose images may stand in training and test at once. If they are not, "
                "write each patient's id in one way."
            )
    return found


def _union_of_classes(cards: list[DataCard], records: dict[str, list[ImageRecord]]) -> tuple[tuple[str, ...], str]:
    """The classes in the order of the outputs, and the positive one; those of an open card are what its images have."""
    own = {card.name: list(card.classes) or sorted({record.label for record in records[card.name]}) for card in cards}
    # The longest list first, so that the order does not depend on the order of the names.
    classes = tuple(
        dict.fromkeys(label for labels in sorted(own.values(), key=lambda labels: -len(labels)) for label in labels)
    )
    positives = {card.positive_class for card in cards if card.positive_class}
    if len(positives) > 1:
        raise UsvitError(
            f"The data sets {'+'.join(own)} differ in their positive class: {', '.join(sorted(positives))}."
        )
    positive = positives.pop() if positives else "malignant"
    if positive not in classes:
        raise UsvitError(
            f"Which of the classes {', '.join(classes)} is the positive one? Name it as positive_class in a data card "
            f"of your own: 'usvit data info {cards[0].name}' shows one to begin from."
        )
    return classes, positive


def _examine(
    entries: list[tuple[str, Path, ImageRecord]], near_duplicates: bool, progress: Progress
) -> list[tuple[Fingerprint, Description | None] | BadImage]:
    def examine(entry: tuple[str, Path, ImageRecord]) -> tuple[Fingerprint, Description | None] | BadImage:
        _, root, record = entry
        try:
            pixels = read_image(root / record.path, record.frame)
            read_masks([root / mask for mask in record.mask_paths], pixels.shape[:2])
        except BadImage as bad:
            return bad
        return fingerprint(pixels), describe(pixels) if near_duplicates else None

    found = []
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,  # Pillow decodes without holding the interpreter
        task(progress, "checking images", len(entries), "images") as advance,
    ):
        for result in pool.map(examine, entries):
            found.append(result)
            advance(len(found))
    return found


def _row(dataset: str, record: ImageRecord, found: Fingerprint) -> dict[str, object]:
    return {
        "image_id": record.image_id,
        "path": record.path.as_posix(),
        "frame": record.frame,
        "dataset": dataset,
        "label": record.label,
        "label_source": record.label_source,
        "patient_id": record.patient_id,
        "mask_path": MASK_SEPARATOR.join(path.as_posix() for path in record.mask_paths) or None,
        "sha256": found.sha256,
        "phash": found.phash,
        "device": record.device,
        "birads": record.birads,
        "pixel_spacing_mm": record.pixel_spacing_mm,
        "official_folds": FOLDS_SEPARATOR.join(f"{n}:{fold}" for n, fold in record.official_folds) or None,
        "exclude_reason": None,
    }


def _refuse_double_ids(table: pd.DataFrame) -> None:
    double = table[table.duplicated(["dataset", "image_id"], keep=False)]
    if not double.empty:
        paths: Iterable[str] = double[double.image_id == double.image_id.iloc[0]].path
        raise UsvitError(f"Two images have one id, '{double.image_id.iloc[0]}': {' and '.join(paths)}. Rename one.")
