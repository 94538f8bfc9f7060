"""The manifest: one row per image with everything that splitting and training need.

Building it decodes every file once, so that unreadable files are found before any work begins. A later run may take
what was found from a cache, for files that have not changed.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from usvit.config.sections import Unit
from usvit.data.datasets.cards import NOTHING_SAID, DataCard, OwnTable, load_cards
from usvit.data.datasets.examination_cache import ExaminationCache, Found, image_key
from usvit.data.datasets.identities import OWN_READERS, DataError, Identities, Places
from usvit.data.datasets.locate import open_dataset
from usvit.data.datasets.readers import ImageRecord
from usvit.data.datasets.units import UNIT_COLUMNS, common_level, with_units
from usvit.data.io import (
    BadImage,
    Decoded,
    Fingerprint,
    UInt8,
    decode,
    fingerprint,
    pixel_sha256,
    read_masks,
)
from usvit.data.near_duplicates import CompactDescriptions, Description, NearDuplicate, describe, find_near_duplicates
from usvit.data.splits import OwnIds, group_ids, label_conflicts, possibly_one_patient
from usvit.errors import UsvitError
from usvit.files import csv_text, sha256_of_text
from usvit.progress import Progress, task
from usvit.pseudonyms import default_key_path
from usvit.records.values import SkippedFile
from usvit.representation import Summarised
from usvit.resources import usable_cores

logger = logging.getLogger(__name__)

COLUMNS = [
    *("image_id", "path", "frame", "dataset", "label", "label_source", "patient_id", "group_id", "mask_path"),
    *("sha256", "phash", "device", "birads", "pixel_spacing_mm", "official_folds", "exclude_reason"),
]
MASK_SEPARATOR = "|"
"""Separator of the paths of several masks of one image."""
_FOLDS_SEPARATOR = " "
"""Separator of the official folds of one image: ``5:3 10:7`` is fold 3 of 5 and fold 7 of 10, from 0."""


def mask_names(cell: object) -> list[str]:
    """Return the paths in a cell of the column ``mask_path``; an empty list if the cell is empty."""
    return cell.split(MASK_SEPARATOR) if isinstance(cell, str) else []


@dataclass(frozen=True, repr=False)
class Manifest(Summarised):
    """All images of a run, including the excluded ones with the reason of each."""

    table: pd.DataFrame
    """One row per image with ``COLUMNS`` and the ids of its units; paths are relative to the root of the data set.

    The paths of a private data set may name people, so ``shown`` is written instead."""
    roots: dict[str, Path]
    """Data set -> its top folder on this machine; not part of the table nor of its hash."""
    classes: tuple[str, ...]
    """Union of the classes of the data sets, in the order of the network's outputs."""
    positive_class: str
    licenses: dict[str, str]
    """Data set -> licence of its card."""
    copies: list[NearDuplicate] = field(default_factory=list)
    """Verified pairs of near-duplicates, as row numbers of the table (not kept in a manifest's file)."""
    skipped: list[BadImage] = field(default_factory=list)
    """Files that were left out because they could not be read (``skip_bad``)."""
    descriptions: Mapping[str, CompactDescriptions] = field(default_factory=dict, repr=False)
    """Pixel hash -> description that recognises near-duplicates later (``usvit.data.near_duplicates.compact``). A
    manifest file holds them in a separate column; they are not part of the table nor of its hash."""
    possibly_one_patient: dict[str, int] = field(default_factory=dict)
    """Data set -> number of patients that seem to have several ids
    (``usvit.data.splits.groups.possibly_one_patient``), if there are any."""
    identities: dict[str, Identities] = field(default_factory=dict)
    """Data set -> names of its images, patients and files; a data set that is missing here is public."""
    own_ids: OwnIds = field(default_factory=OwnIds)
    """The data sets' own ids of their images, which are never written."""
    label_level: Unit = "image"
    """Unit to which the labels belong (``common_level``)."""

    def _facts(self) -> dict[str, object]:
        return {
            "datasets": list(self.roots),
            "images": len(self.usable),
            "groups": int(self.usable.group_id.nunique()),
            "classes": {str(name): int(count) for name, count in self.usable.label.value_counts().items()},
            "positive_class": self.positive_class,
        }

    @property
    def shown(self) -> pd.DataFrame:
        """The table as it may be written: paths of private data sets are replaced by pseudonyms."""
        private = {name: one for name, one in self.identities.items() if one.pseudonyms is not None}
        if not private:
            return self.table
        table = self.table.copy()
        for name, identities in private.items():
            rows = table.dataset == name
            table.loc[rows, "path"] = table.loc[rows, "path"].map(identities.path)
            masks = [
                MASK_SEPARATOR.join(map(identities.path, mask_names(cell))) or None for cell in table.mask_path[rows]
            ]
            table.loc[rows, "mask_path"] = pd.Series(masks, index=table.index[rows], dtype=object)
        return table

    def places(self) -> dict[str, Places]:
        """Return, for each data set, the mapping from names in the shown table to files."""
        found = {}
        for name, root in self.roots.items():
            rows = self.table[self.table.dataset == name]
            paths = [*rows.path, *(mask for cell in rows.mask_path for mask in mask_names(cell))]
            found[name] = Places(root, self.identities.get(name, Identities()), paths)
        return found

    @property
    def is_private(self) -> bool:
        """True if a private data set kept its own ids, so that only its owner may read what is written about it."""
        return any(one.kept for one in self.identities.values())

    @property
    def is_public(self) -> bool:
        """True if no data set is private, so that the cache folder may keep what was made of its images."""
        return not any(one.kept or one.pseudonyms is not None for one in self.identities.values())

    @property
    def skipped_files(self) -> list[SkippedFile]:
        """Name and reason of each skipped file, as they may be written."""
        files = []
        for bad in self.skipped:
            identities, path = self._whose(bad)
            shown = path.name if identities.pseudonyms is None else identities.path(path.as_posix())
            files.append(SkippedFile(path=shown, reason=identities.reason(bad)))
        return files

    def told(self, bad: BadImage) -> UsvitError:
        """Return the error for an unusable image of this manifest, as it may be shown."""
        identities, path = self._whose(bad)
        return identities.told_bad(bad, path)

    def _whose(self, bad: BadImage) -> tuple[Identities, Path]:
        """Return the identities of the data set that a file belongs to, and the file's path relative to its root."""
        for name, root in self.roots.items():
            if bad.path.is_relative_to(root):
                return self.identities.get(name, Identities()), bad.path.relative_to(root)
        return Identities(), bad.path

    @property
    def usable(self) -> pd.DataFrame:
        """The rows without an ``exclude_reason``, renumbered from 0."""
        return self.table[self.table.exclude_reason.isna()].reset_index(drop=True)

    @property
    def excluded(self) -> pd.DataFrame:
        """The rows with an ``exclude_reason``, renumbered from 0."""
        return self.table[self.table.exclude_reason.notna()].reset_index(drop=True)

    def sha256(self) -> str:
        """Return the hash of the shown table.

        It depends on images, labels and groups, and for private data sets on the key, but not on the folders.
        """
        return sha256_of_text(csv_text(self.shown))

    def read(self, row: Any) -> UInt8:
        """Decode the image of one row, (H, W, 3) uint8. Errors are those of ``decode``."""
        return self.decode(row).pixels

    def decode(self, row: Any) -> Decoded:
        """Decode the image of one row.

        Raises:
            BadImage: The file cannot be read, or its pixels are not those of the manifest.
        """
        return decode_unchanged(self.image_path(row), int(row.frame), row.sha256, "changed_since_scoring")

    def image_path(self, row: Any) -> Path:
        """Return the path of the image of one row on this machine."""
        return self.roots[row.dataset] / row.path


def decode_unchanged(path: Path, frame: int, sha256: str, code: str = "damaged") -> Decoded:
    """Decode an image of a manifest and check that its pixels are still the same.

    Args:
        path: image file.
        frame: frame of the file, from 0.
        sha256: pixel hash in the manifest.
        code: ``code`` of the error for changed pixels.

    Raises:
        BadImage: The file cannot be read, or its pixels are not those of the manifest.
    """
    decoded = decode(path, frame)
    if pixel_sha256(decoded.pixels) != sha256:
        reason = "its pixels differ from the manifest: the file has been changed or replaced since"
        raise BadImage(path, reason, code)
    return decoded


def build_manifest(
    datasets: str,
    roots: dict[str, Path],
    progress: Progress,
    *,
    skip_bad: bool = False,
    keep_label_conflicts: bool = False,
    near_duplicates: bool = True,
    keep_ids: bool = False,
    cache: bool = True,
    own: OwnTable = NOTHING_SAID,
) -> Manifest:
    """Read one data set, or the union of several, into a manifest.

    Args:
        datasets: names of cards joined by '+', such as ``busi+b``.
        roots: data set -> folder; the key "" holds the folder for all data sets.
        progress: shown while files are decoded.
        skip_bad: leave out files that cannot be read instead of raising an error.
        keep_label_conflicts: keep pixel-identical images with different labels.
        near_duplicates: find near-duplicates (crops, shifts and annotated versions of one frame), and group them.
            Images are described in either case, because descriptions identify later the images a network has seen.
        keep_ids: keep the ids of images and patients of private data sets instead of using pseudonyms.
        cache: use what is known of unchanged files from an earlier call (``examination_cache``); False decodes, hashes
            and compares all images again. What is found is kept for later calls in either case.
        own: what the user says of his or her own table, and of the positive class.

    Raises:
        UsvitError: A data set is unknown or has another layout, a file is damaged, or a class has no image.
    """
    cards = load_cards(datasets, own)
    identities = {card.name: Identities.of(card, keep_ids) for card in cards}
    if any(one.pseudonyms is not None for one in identities.values()):
        logger.info(
            f"Images and patients get pseudonyms, which are made with the key {default_key_path()}. Keep it: without "
            "it, ids cannot be traced back ('usvit data link') or matched with those of 'usvit score'."
        )
    opened = {card.name: open_dataset(card, roots, progress, identities[card.name]) for card in cards}
    for card in cards:
        if card.reader in OWN_READERS:
            logger.info(_own_images(card, opened[card.name][1]))
    classes, positive_class = _union_of_classes(cards, {name: records for name, (_, records) in opened.items()})
    doubtful = _warn_of_several_ids({name: records for name, (_, records) in opened.items()})
    entries = [(name, root, record) for name, (root, records) in opened.items() for record in records]
    examined = _examine(entries, progress, use_cache=cache)
    if (bad := [found for found in examined if isinstance(found, BadImage)]) and not skip_bad:
        others = f"\n{len(bad) - 1} other files cannot be used either." if len(bad) > 1 else ""
        at = next(at for at, found in enumerate(examined) if isinstance(found, BadImage))
        name, root, _ = entries[at]
        raise UsvitError(f"{identities[name].told_bad(bad[0], bad[0].path.relative_to(root))}{others}")
    good = [
        (name, record, found)
        for (name, _, record), found in zip(entries, examined, strict=True)
        if not isinstance(found, BadImage)
    ]
    _refuse_double_ids([(name, record) for name, record, _ in good], identities)
    rows = [_row(name, record, print_, identities[name]) for name, record, (print_, _) in good]
    table = pd.DataFrame(
        rows, columns=with_units(COLUMNS, {name for row in rows for name in UNIT_COLUMNS if row[name]})
    )
    own_ids = {(name, record.image_id): str(row["image_id"]) for (name, record, _), row in zip(good, rows, strict=True)}
    if absent := [label for label in classes if not (table.label == label).any()]:
        raise UsvitError(
            f"The data set {datasets} has no readable image of the class '{absent[0]}'; "
            f"each of {', '.join(classes)} is needed."
        )
    descriptions = [description for _, _, (_, description) in good]
    copies = _near_duplicates(descriptions, progress, use_cache=cache) if near_duplicates else []
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
        {one.sha256: CompactDescriptions.of([one]) for one in descriptions},
        doubtful,
        identities,
        OwnIds(own_ids if any(one.pseudonyms for one in identities.values()) else {}),
        common_level((card.label_level for card in cards), table),
    )


def _own_images(card: DataCard, records: list[ImageRecord]) -> str:
    """Describe the user's own images as they were understood, so that a wrong guess is seen before they are used."""
    classes = ", ".join(f"{name} {n}" for name, n in sorted(Counter(record.label for record in records).items()))
    known = [record.patient_id for record in records if record.patient_id]
    by = "folders" if card.reader in ("folder", "masks") else "annotation file" if card.reader == "coco" else "table"
    patients = (
        f"{len(set(known))} patients, by the {by}" if known else "no patients, so only near-duplicates stay together"
    )
    if 0 < len(known) < len(records):
        patients += f" ({len(records) - len(known)} images have none)"
    ids = {"lesions": {record.lesion_id for record in records}, "exams": {record.exam_id for record in records}}
    patients += "".join(f"; {n} {name}" for name, found in ids.items() if (n := len(found - {None})))
    return f"Your images ({card.name}) were understood as: {classes}; {patients}."


def _warn_of_several_ids(records: dict[str, list[ImageRecord]]) -> dict[str, int]:
    found = {}
    for name, those in records.items():
        doubtful = possibly_one_patient(record.patient_id for record in those)
        if doubtful:
            found[name] = len(doubtful)
            logger.warning(
                f"the data set {name} has {sum(map(len, doubtful))} patient ids that differ only by case, "
                f"spaces, leading zeros or a trailing '.0': possibly {len(doubtful)} patients. They "
                "count as different patients, whose images may be in both training and test. Otherwise, "
                "write each patient's id in one way."
            )
    return found


def _union_of_classes(cards: list[DataCard], records: dict[str, list[ImageRecord]]) -> tuple[tuple[str, ...], str]:
    """Return the classes in the order of the outputs, and the positive class; open cards take them from the images."""
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
    others = [one for one in classes if one != "normal"]
    found = others[0] if len(others) == 1 and others != ["benign"] else "malignant"  # such as lesion beside normal
    positive = positives.pop() if positives else found
    if positive not in classes:
        raise UsvitError(
            f"The positive class is not known (classes: {', '.join(classes)}). Name it with --positive, or as "
            "positive_class in a data card of your own."
        )
    return classes, positive


def _examine(
    entries: list[tuple[str, Path, ImageRecord]], progress: Progress, *, use_cache: bool
) -> list[Found | BadImage]:
    """Decode, hash and describe all images, or those that the cache does not know."""

    assumed: list[int] = []

    def examine(number: int) -> Found | BadImage:
        _, root, record = entries[number]
        try:
            pixels, _, flags = decode(root / record.path, record.frame)
            read_masks([root / mask for mask in record.mask_paths], pixels.shape[:2])
        except BadImage as bad:
            return bad
        if flags:
            assumed.append(number)
        return fingerprint(pixels), describe(pixels)

    keys = [
        image_key(root / record.path, record.frame, [root / mask for mask in record.mask_paths])
        for _, root, record in entries
    ]
    cache = ExaminationCache()
    known: list[Found | None] = cache.load(keys) if use_cache else [None] * len(entries)
    todo = [number for number, found in enumerate(known) if found is None]
    found: list[Found | BadImage | None] = [*known]
    with (
        ThreadPoolExecutor(usable_cores()) as pool,  # Pillow releases the interpreter lock while it decodes
        task(progress, "checking images", len(entries), "images") as advance,
    ):
        for done, (number, result) in enumerate(zip(todo, pool.map(examine, todo), strict=True), start=1):
            found[number] = result
            advance(len(entries) - len(todo) + done)
    if assumed:
        logger.warning(
            f"{len(assumed)} of the {len(entries)} images have more than 8 bits and do not state how many are in use. "
            "The largest value of each file decides; 'usvit data audit' flags them as assumed_range. Save them with 8 "
            "bits to be sure of their brightness."
        )
    cache.save([(keys[at], one) for at in todo if not isinstance(one := found[at], BadImage) and one is not None])
    return [one for one in found if one is not None]


def _near_duplicates(descriptions: list[Description], progress: Progress, *, use_cache: bool) -> list[NearDuplicate]:
    cache = ExaminationCache()
    known = cache.load_pairs(descriptions) if use_cache else None
    if known is not None:
        return known
    found = find_near_duplicates(descriptions, progress)
    cache.save_pairs(descriptions, found)
    return found


def _row(dataset: str, record: ImageRecord, found: Fingerprint, identities: Identities) -> dict[str, object]:
    return {
        "image_id": identities.image(record.image_id, record.path, record.frame or 0),
        "path": record.path.as_posix(),
        "frame": record.frame or 0,
        "dataset": dataset,
        "label": record.label,
        "label_source": record.label_source,
        "patient_id": identities.patient(record.patient_id),
        "lesion_id": identities.lesion(record.lesion_id),
        "side": record.side,
        "exam_id": identities.exam(record.exam_id),
        "mask_path": MASK_SEPARATOR.join(path.as_posix() for path in record.mask_paths) or None,
        "sha256": found.sha256,
        "phash": found.phash,
        "device": record.device,
        "birads": record.birads,
        "pixel_spacing_mm": record.pixel_spacing_mm,
        "official_folds": _FOLDS_SEPARATOR.join(f"{n}:{fold}" for n, fold in record.official_folds) or None,
        "exclude_reason": None,
    }


def _refuse_double_ids(records: Iterable[tuple[str, ImageRecord]], identities: dict[str, Identities]) -> None:
    first: dict[tuple[str, str], ImageRecord] = {}
    for dataset, record in records:
        other = first.setdefault((dataset, record.image_id), record)
        if other is not record:
            said = "Two images have one id, '{id}': {one} and {other}. Rename one."
            error = DataError(said, id=record.image_id, one=other.path, other=record.path)
            raise identities[dataset].told(error)
