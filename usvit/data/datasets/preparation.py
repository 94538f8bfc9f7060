"""The files that the commands ``usvit data prepare``, ``link`` and ``split`` write: manifest, link table and folds."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from usvit.config import RunConfig, Unit, build_config, nested
from usvit.config.data_commands import PreparationSettings, SplitArguments
from usvit.config.keywords import takes_settings
from usvit.data.datasets.cards import NOTHING_SAID, DataCard, OwnTable, load_card, load_cards
from usvit.data.datasets.data_root import DataRoot, roots_from
from usvit.data.datasets.fetch import fetch_dataset
from usvit.data.datasets.identities import Identities
from usvit.data.datasets.locate import given_root, root_of
from usvit.data.datasets.manifest import Manifest, build_manifest, mask_names
from usvit.data.datasets.manifest_file import dataset_or_manifest, open_manifest, read_manifest, write_manifest
from usvit.data.datasets.units import count_units
from usvit.data.splits import SPLITS, folds_sha256, leaking_groups, make_folds, read_folds
from usvit.errors import UsvitError
from usvit.files import for_the_owner_alone, write_csv
from usvit.progress import NO_PROGRESS, Progress
from usvit.pseudonyms import LinkTable
from usvit.records import FoldsRecord, save_record
from usvit.records.audit import UnitCount
from usvit.records.base import Count, Record, Sha256, Text, key, optional
from usvit.records.folds import FoldSplit
from usvit.records.values import SkippedFile


@dataclass(frozen=True)
class _CardCounts:
    """Counts of what was found of one data set."""

    images: int
    classes: dict[str, int]
    """Class -> images, in the order of the card; 0 for classes of the card that were not found."""
    masks: int
    patients: int
    """Number of different patient ids."""


def count(table: pd.DataFrame, card: DataCard) -> _CardCounts:
    """Count the rows of one data set in the table of a manifest, including excluded ones."""
    rows = table[table.dataset == card.name]
    found = {str(label): int(n) for label, n in rows.label.value_counts().items()}
    classes = {label: found.get(label, 0) for label in (*card.classes, *sorted(set(found) - set(card.classes)))}
    masks = sum(len(mask_names(cell)) for cell in rows.mask_path)
    return _CardCounts(len(rows), classes, masks, rows.patient_id.nunique())


def check_against_card(table: pd.DataFrame, card: DataCard) -> list[str]:
    """Compare the counts of one data set with those on its card.

    Args:
        table: table of a manifest; rows of other data sets are ignored.
        card: card of the data set.

    Returns:
        One entry for each difference, such as ``benign: card 437, found 436``. Counts that the card does not state are
        not compared.
    """
    found = count(table, card)
    pairs = [(label, stated, found.classes[label]) for label, stated in card.classes.items()]
    pairs += [("masks", card.n_masks, found.masks), ("patients", card.n_patients, found.patients)]
    return [f"{what}: card {stated}, found {n}" for what, stated, n in pairs if stated is not None and stated != n]


class PreparedSet(Record):
    """Counts of one data set, and how they differ from its card."""

    root: Text
    license: Text
    images: Count
    classes: dict[str, Count]
    masks: Count
    patients: Count
    units: dict[Unit, UnitCount] | None = optional("Unit -> its number; only units of which an image has an id.")
    card_mismatch: list[Text]


class Prepared(Record):
    """What a manifest holds."""

    manifest: Text
    written: bool = key("False if the file was there already.")
    sha256: Sha256
    n_images: Count
    n_groups: Count
    datasets: dict[str, PreparedSet]
    excluded: list[dict[str, str]]
    skipped: list[SkippedFile]


@takes_settings
def prepare(
    datasets: str,
    *,
    settings: PreparationSettings,
    roots: dict[str, Path] | None = None,
    own: OwnTable = NOTHING_SAID,
    progress: Progress = NO_PROGRESS,
) -> Prepared:
    """Read data sets, check them against their cards, and write the manifest.

    Args:
        datasets: names or paths of cards joined by '+'.
        settings: See ``PreparationSettings``.
        roots: data set -> folder; "" for all.
        own: what the user says of his or her own table, and of the positive class.
        progress: shown while files are downloaded and decoded.

    Returns:
        The summary, which the command prints.

    Raises:
        UsvitError: See ``build_manifest`` and ``fetch_dataset``; or counts differ, or ``out`` has other content.
    """
    cards, roots = load_cards(datasets, own), roots or {}
    out = settings.out or Path("manifests") / f"{'+'.join(card.name for card in cards)}.parquet"
    if settings.fetch:
        roots = roots | {card.name: fetch_dataset(card, given_root(roots, card.name), progress) for card in cards}
    manifest = build_manifest(
        datasets,
        roots,
        progress,
        skip_bad=settings.skip_bad,
        keep_label_conflicts=settings.keep_label_conflicts,
        keep_ids=settings.keep_ids,
        own=own,
        cache=False,  # to prepare a data set is to check its files
    )
    mismatch = {card.name: check_against_card(manifest.table, card) for card in cards}
    if any(mismatch.values()) and not settings.accept_counts:
        raise _wrong_counts(cards, manifest, mismatch)
    written = _write_once(manifest, out)
    usable = manifest.usable
    return Prepared(
        manifest=str(out),
        written=written,
        sha256=manifest.sha256(),
        n_images=len(usable),
        n_groups=int(usable.group_id.nunique()),
        datasets={
            card.name: PreparedSet(
                root=str(manifest.roots[card.name]),
                license=card.license,
                **vars(count(manifest.table, card)),
                units=count_units(
                    manifest.table[manifest.table.dataset == card.name], manifest.classes, manifest.positive_class
                ),
                card_mismatch=mismatch[card.name],
            )
            for card in cards
        },
        excluded=[
            {name: str(row[name]) for name in ("dataset", "image_id", "exclude_reason")}
            for _, row in manifest.excluded.iterrows()
        ],
        skipped=manifest.skipped_files,
    )


def _wrong_counts(cards: list[DataCard], manifest: Manifest, mismatch: dict[str, list[str]]) -> UsvitError:
    lines = [
        f"{card.pretty_name} in {manifest.roots[card.name]} is not what its data card says:\n"
        + "\n".join(f"  {entry}" for entry in mismatch[card.name])
        for card in cards
        if mismatch[card.name]
    ]
    if manifest.skipped:
        lines.append(f"Skipped, because they cannot be read: {len(manifest.skipped)} files.")
    lines.append(
        "Nothing was written. Get the whole release ('usvit data info NAME' tells how), or pass --accept-counts if "
        "you mean to use what is there."
    )
    return UsvitError("\n".join(lines))


def _write_once(manifest: Manifest, out: Path) -> bool:
    """Write the manifest unless the file holds it already; return True if it was written."""
    if not out.exists():
        write_manifest(manifest, out)
        return True
    try:
        there = read_manifest(out, {}, keep_ids=True)
        same = there.sha256() == manifest.sha256() and _absolute(there) == _absolute(manifest)
    except UsvitError:
        same = False
    if not same:
        raise UsvitError(
            f"{out} holds something else: another manifest, or none. It is not overwritten. Name another file with "
            "--out, or remove it."
        )
    return False


def _absolute(manifest: Manifest) -> dict[str, Path]:
    return {name: root.absolute() for name, root in manifest.roots.items()}


@dataclass(frozen=True)
class _LinkedFile:
    """A file below the data root."""

    name: str = field(repr=False)
    location: str = field(repr=False)


def write_link(dataset: str, out: Path, *, roots: dict[str, Path] | None = None) -> int:
    """Write the table that links pseudonyms to all files below the root of a private data set (``usvit data link``).

    The table lists files that are not images too, so that it leads to every file that an error message names.

    Args:
        dataset: a card's name or file.
        out: the table; only an earlier link table is replaced.
        roots: data set -> folder, "" for all.

    Returns:
        Number of files in the table.

    Raises:
        UsvitError: The data set is public or missing, or the table cannot be written.
    """
    card = load_card(dataset)
    pseudonyms = Identities.of(card).pseudonyms
    if pseudonyms is None:
        raise UsvitError(f"The images of {card.pretty_name} go by their own ids: there is nothing to link.")
    root, n = root_of(card, roots or {}), 0
    with LinkTable(out, pseudonyms) as table:
        for folder, folders, names in os.walk(root):
            folders.sort()
            for name in sorted(names):
                path = Path(folder) / name
                table.add(_LinkedFile(path.relative_to(root).as_posix(), str(path)))
                n += 1
    return n


def save_splits(
    config: RunConfig,
    out: Path,
    *,
    hold_out: bool = False,
    roots: dict[str, Path] | None = None,
    progress: Progress = NO_PROGRESS,
) -> FoldsRecord:
    """Make folds and write them to a CSV file, with a summary in a JSON file beside it.

    Args:
        config: Settings; the sections ``data`` and ``split`` and the seed are used.
        out: The CSV file. The summary is written to the same name with the suffix ``.json``.
        hold_out: Make one division into train, val and test instead of k folds.
        roots: Folder of each data set by name; the key "" stands for all others.
        progress: Shown while images are decoded.

    Returns:
        The summary: the SHA-256 of the folds, scheme, unit, seed, and the images, groups and classes of each split.

    Raises:
        UsvitError: The images cannot be read, the folds cannot be made, or ``out`` holds other folds. Nothing is
            written in these cases.
    """
    kind: Literal["cv", "train"] = "train" if hold_out else "cv"
    if out.suffix != ".csv":
        raise UsvitError(f"--out {out}: folds are written as CSV. Choose a name that ends in .csv.")
    manifest = open_manifest(config.data, roots or {}, progress)
    rows = manifest.usable
    folds = make_folds(kind, rows, config.split, config.split_seed, manifest.own_ids)
    if out.exists() and folds_sha256(read_folds(out)) != folds_sha256(folds):
        raise UsvitError(f"{out} holds other folds. Nothing was changed: remove it, or choose another --out.")
    joined = folds.merge(rows[["dataset", "image_id", "label", "group_id"]], on=["dataset", "image_id"])
    parts = []
    for fold in sorted(joined.fold.unique()):
        for part in SPLITS:
            there = joined[(joined.fold == fold) & (joined.part == part)]
            counts = {label: int((there.label == label).sum()) for label in manifest.classes}
            groups = int(there.group_id.nunique())
            parts.append(FoldSplit(fold=int(fold), part=part, images=len(there), groups=groups, classes=counts))
    record = FoldsRecord(
        sha256=folds_sha256(folds),
        manifest_sha256=manifest.sha256(),
        datasets=list(manifest.roots),
        kind=kind,
        scheme=config.split.scheme,
        unit=config.split.unit,
        seed=config.split_seed,
        n_images=len(rows),
        n_groups=int(rows.group_id.nunique()),
        leaking_groups=len(leaking_groups(folds, rows)),
        parts=parts,
    )
    with for_the_owner_alone(manifest.is_private):
        save_record(out.with_suffix(".json"), record)
        write_csv(out, folds)
    return record


@takes_settings
def split(
    dataset: str | None = None,
    out: str | Path = "folds.csv",
    *,
    settings: SplitArguments,
    data_root: DataRoot = None,
    overrides: Mapping[str, Any] | None = None,
    progress: Progress = NO_PROGRESS,
) -> FoldsRecord:
    """Divide a data set into folds that keep patients and near-duplicates together, and save them to a CSV file.

    Args:
        dataset: Name of a data set, or several joined by ``+``. Default: the embedded phantom.
        out: The CSV file. A summary is written to the same name with the suffix ``.json``.
        settings: See ``SplitArguments``.
        data_root: Folder of the data set, or a mapping of the names of data sets to folders. Default: ``$USVIT_DATA``.
        overrides: Further settings by dotted key, such as ``{"data.keep_list": "keep.csv"}``.
        progress: Shown while images are decoded.

    Returns:
        The summary: SHA-256, scheme, unit and seed of the folds, and images, groups and classes of each split.

    Raises:
        UsvitError: The images cannot be read, the folds cannot be made, or ``out`` holds other folds. Nothing is
            written in these cases.

    Example:
        >>> import usvit
        >>> summary = usvit.split("phantom", "folds.csv", folds=3)
        >>> summary.unit, summary.leaking_groups
        ('group', 0)
    """
    manifest = settings.manifest
    named = {
        "data.dataset": dataset_or_manifest(dataset, manifest),
        "data.manifest": manifest,
        "split.scheme": settings.scheme,
        "split.folds": settings.folds,
        "split.unit": settings.unit,
        "split.repeats": settings.repeats,
        "seed": settings.seed,
    }
    given = nested({key: value for key, value in named.items() if value is not None})
    config = build_config(given, nested(overrides or {}))
    return save_splits(config, Path(out), hold_out=settings.hold_out, roots=roots_from(data_root), progress=progress)
