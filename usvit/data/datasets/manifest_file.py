"""Manifest files, and keep-lists of the images that a person chose.

The table is Parquet; roots, classes and licences are in the metadata of its schema, so that one file is enough to train
from. The content of a file is checked before it is used.
"""

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
from pydantic import BaseModel, ConfigDict, ValidationError

from usvit.config import DataConfig
from usvit.config.sections import Unit
from usvit.data.datasets.cards import OwnTable, card_names, load_card, load_cards
from usvit.data.datasets.identities import OWN_READERS, Identities, is_private, of_fingerprint
from usvit.data.datasets.locate import find_dataset, given_root, open_dataset
from usvit.data.datasets.manifest import COLUMNS, Manifest, build_manifest, mask_names
from usvit.data.datasets.units import contradiction, with_units
from usvit.data.io import read_image
from usvit.data.near_duplicates import CompactDescriptions, Description, describe
from usvit.data.splits import NOT_KEPT, OTHER_CLASS, OwnIds, read_description
from usvit.errors import UsvitError, unknown
from usvit.files import (
    TABLE_BYTES,
    bounded_parquet,
    for_the_owner_alone,
    read_csv,
    regular_file,
    write_atomic,
)
from usvit.progress import Progress, task
from usvit.resources import usable_cores

DESCRIPTIONS = "copy_description"
"""Column of a manifest file beside ``COLUMNS``: the near-duplicate description of the image, as bytes."""
_KEY = b"usvit"
_OWN_ID = "own_id"
"""Column of the private data sets' own image ids; it exists only in the file."""
_NEEDED = ["image_id", "path", "frame", "dataset", "label", "group_id", "sha256", "exclude_reason"]


class _Header(BaseModel):
    model_config = ConfigDict(extra="forbid")

    roots: dict[str, str]
    classes: tuple[str, ...]
    positive_class: str
    licenses: dict[str, str]
    key: str | None = None
    """Fingerprint of the key of the pseudonyms, if there are any."""
    private: tuple[str, ...] = ()
    """Data sets whose images and patients have pseudonyms."""
    kept: tuple[str, ...] | None = None
    """Private data sets that kept their own ids (``keep_ids``). None in files from before pseudonyms existed."""
    label_level: Unit = "image"
    """Unit to which the labels belong; written only if that is not the image."""


def open_manifest(data: DataConfig, roots: dict[str, Path], progress: Progress) -> Manifest:
    """Open the images that the settings name, from a manifest file or from the folders of the data sets.

    Args:
        data: the settings.
        roots: data set -> folder; the key "" holds the folder for all data sets.
        progress: shown while files are decoded.

    Raises:
        UsvitError: See ``build_manifest``, ``read_manifest`` and ``keep_only``.
    """
    if data.manifest is None:
        manifest = build_manifest(
            data.dataset,
            roots,
            progress,
            skip_bad=data.skip_bad,
            keep_label_conflicts=data.keep_label_conflicts,
            near_duplicates=data.near_duplicates == "group",
            keep_ids=data.keep_ids,
            cache=data.cache,
            own=OwnTable.of(data.model_dump()),
        )
    else:
        default = DataConfig()
        for key in ("skip_bad", "keep_label_conflicts", "near_duplicates", "table", "columns", "positive"):
            if getattr(data, key) != getattr(default, key):
                raise UsvitError(
                    f"data.{key} cannot be used with a manifest, for which it is already fixed. Pass the images "
                    "(--dataset), or write another manifest with 'usvit data prepare'."
                )
        manifest = _with_descriptions(read_manifest(Path(data.manifest), roots, keep_ids=data.keep_ids), progress)
        if set(data.dataset.split("+")) != set(manifest.roots):
            held = "+".join(manifest.roots)
            raise UsvitError(f"data.dataset is {data.dataset}, but the manifest {data.manifest} contains {held}.")
    if data.classes is not None:
        manifest = with_classes(manifest, data.classes)
    return keep_only(manifest, Path(data.keep_list)) if data.keep_list else manifest


def check_images(data: DataConfig, roots: dict[str, Path], progress: Progress) -> None:
    """Check, without decoding an image, that the images are there, before weights are loaded or sought on a hub.

    Args:
        data, roots, progress: as for ``open_manifest``.

    Raises:
        UsvitError: A data set is unknown, has no folder or another layout, or the keep-list does not exist.
    """
    for card in load_cards(data.dataset, OwnTable.of(data.model_dump())) if data.manifest is None else ():
        if card.reader in OWN_READERS:
            open_dataset(card, roots, progress)
        elif card.name != "phantom":  # it can be made
            find_dataset(card, roots)
    if data.keep_list is not None and not Path(data.keep_list).is_file():
        raise UsvitError(f"There is no keep-list {data.keep_list}.")


def write_manifest(manifest: Manifest, path: Path) -> None:
    """Write a manifest to one Parquet file.

    The file contains the paths of the images. Only its owner may read that of a private data set, whose paths may name
    people.

    Raises:
        UsvitError: the disk is full or cannot be written.
    """
    private = {name: one for name, one in manifest.identities.items() if one.pseudonyms is not None}
    kept = tuple(name for name, one in manifest.identities.items() if one.kept)
    header = _Header(
        roots={name: str(root.absolute()) for name, root in manifest.roots.items()},
        classes=manifest.classes,
        positive_class=manifest.positive_class,
        licenses=manifest.licenses,
        key=next((one.pseudonyms.fingerprint for one in private.values() if one.pseudonyms is not None), None),
        private=tuple(private),
        kept=kept,
        label_level=manifest.label_level,
    )
    header_text = header.model_dump_json(exclude={"label_level"} if manifest.label_level == "image" else None)
    content = described_table(manifest, manifest.table)
    if private:
        own = {(name, ours): theirs for (name, theirs), ours in manifest.own_ids.ids.items()}
        pairs = zip(content.dataset, content.image_id, strict=True)
        content = content.assign(**{_OWN_ID: [own.get(pair, pair[1]) for pair in pairs]})
    table = pyarrow.Table.from_pandas(content, preserve_index=False)
    table = table.replace_schema_metadata({**(table.schema.metadata or {}), _KEY: header_text.encode()})
    with for_the_owner_alone(bool(private or kept)):
        write_atomic(path, lambda file: pyarrow.parquet.write_table(table, file))


def described_table(manifest: Manifest, table: pd.DataFrame) -> pd.DataFrame:
    """Add the column ``DESCRIPTIONS`` to a table of a manifest; it is empty for images without a description."""
    column = [None if (one := manifest.descriptions.get(key)) is None else one.to_bytes() for key in table.sha256]
    return table.assign(**{DESCRIPTIONS: pd.Series(column, dtype=object, index=table.index)})


def descriptions_of(table: pd.DataFrame, source: Path) -> dict[str, CompactDescriptions]:
    """Read the near-duplicate descriptions in the table of a manifest file: pixel hash -> description.

    Args:
        table: table with the column ``sha256``. Images without a description are left out.
        source: the file, for error messages.

    Raises:
        UsvitError: A description is damaged.
    """
    if DESCRIPTIONS not in table or "sha256" not in table:
        return {}
    found: dict[str, CompactDescriptions] = {}
    for sha256, content in zip(table["sha256"], table[DESCRIPTIONS], strict=True):
        if isinstance(sha256, str) and isinstance(content, bytes) and sha256 not in found:
            found[sha256] = read_description(content, sha256, f"The manifest {source}")
    return found


def _with_descriptions(manifest: Manifest, progress: Progress) -> Manifest:
    """Describe the usable images without a description.

    Raises:
        BadImage: An image cannot be read.
    """
    rows = manifest.usable
    rows = rows[~rows.sha256.isin(list(manifest.descriptions))]
    if rows.empty:
        return manifest

    def one(row: pd.Series) -> Description:
        return describe(read_image(manifest.image_path(row), int(row.frame)))

    found: list[Description] = []
    with (
        ThreadPoolExecutor(usable_cores()) as pool,
        task(progress, "describing images", len(rows), "images") as advance,
    ):
        for description in pool.map(one, (row for _, row in rows.iterrows())):
            found.append(description)
            advance(len(found))
    # An image with other pixels than in the manifest is left out here; training refuses it when it reads the image.
    added = {one.sha256: CompactDescriptions.of([one]) for one in found if one.sha256 in set(rows.sha256)}
    return dataclasses.replace(manifest, descriptions={**manifest.descriptions, **added})


def datasets_of(path: Path) -> str:
    """Return the names of the data sets of a manifest file, joined by '+'.

    Raises:
        UsvitError: The file is not a manifest.
    """
    return "+".join(_read(path)[1].roots)


def dataset_or_manifest(dataset: str | None, manifest: str | Path | None) -> str | None:
    """Return the name of the requested data set: the manifest's if one is given.

    Raises:
        UsvitError: Both are given, or the file is not a manifest.
    """
    if manifest is None:
        return dataset
    if dataset is not None:
        raise UsvitError("Pass --dataset or --manifest, not both: a manifest states its data sets.")
    return datasets_of(Path(manifest))


def read_manifest(path: Path, roots: dict[str, Path], *, keep_ids: bool = False) -> Manifest:
    """Read a manifest file and check it.

    Args:
        path: the file.
        roots: data set -> folder, "" for all data sets, if the images were moved.
        keep_ids: accept a manifest of private data sets without pseudonyms.

    Raises:
        UsvitError: The file is not a manifest, lacks a column, or has an id twice; a path leaves its root, a label is
            unknown, an image is missing, or a private data set has no pseudonyms.
    """
    table, header = _read(path)
    identities = _identities(path, header, keep_ids)
    if missing := [column for column in _NEEDED if column not in table]:
        raise UsvitError(f"The manifest {path} has no column '{missing[0]}'. Write it again with 'usvit data prepare'.")
    descriptions = descriptions_of(table, path)
    own_ids = {}
    if header.private and _OWN_ID in table:
        triples = zip(table.dataset, table[_OWN_ID], table.image_id, strict=True)
        own_ids = {(name, theirs): ours for name, theirs, ours in triples if name in header.private}
    table = table.reindex(columns=with_units(COLUMNS, table.columns))
    if wrong := contradiction(table):
        raise UsvitError(f"The manifest {path} contradicts itself: an image {wrong.said}.")
    here = {name: given_root(roots, name, environment=False) or Path(root) for name, root in header.roots.items()}
    if not (double := table[table.duplicated(["dataset", "image_id"])]).empty:
        raise UsvitError(f"The manifest {path} has two rows with the id '{double.image_id.iloc[0]}'.")
    if not (strange := table[~table.dataset.isin(list(here))]).empty:
        raise UsvitError(f"The manifest {path} states no folder for the data set '{strange.dataset.iloc[0]}'.")
    if not (strange := table[~table.label.isin(header.classes)]).empty:
        row = strange.iloc[0]
        raise UsvitError(
            f"The manifest {path} gives the image '{row.image_id}' the label '{row.label}', which is not one of "
            f"{', '.join(header.classes)}."
        )
    for name, masks in zip(table.path, table.mask_path, strict=True):
        for inner in map(Path, (name, *mask_names(masks))):
            if inner.is_absolute() or ".." in inner.parts:
                shown = "a path" if header.private else f"the path {inner}"
                raise UsvitError(f"The manifest {path} contains {shown}, which leads out of its folder.")
    usable = table[table.exclude_reason.isna()]
    for name, inner in zip(usable.dataset, usable.path, strict=True):
        if not (here[name] / inner).is_file():
            raise UsvitError(
                f"The image {identities.get(name, Identities()).path(inner)} of the manifest {path} is not in "
                f"{here[name]}. "
                f"If the images of {name} were moved, pass --data-root {name}=DIR."
            )
    return Manifest(
        table,
        here,
        header.classes,
        header.positive_class,
        header.licenses,
        identities=identities,
        descriptions=descriptions,
        own_ids=OwnIds(own_ids),
        label_level=header.label_level,
    )


def _identities(path: Path, header: _Header, keep_ids: bool) -> dict[str, Identities]:
    kept = header.kept if header.kept is not None else tuple(filter(_is_own, header.roots))
    if kept and not keep_ids:
        raise UsvitError(
            f"The manifest {path} contains the original ids of images and patients of {kept[0]}, and so would the run. "
            "Write it again with 'usvit data prepare', or pass --keep-ids if this is intended."
        )
    found = dict.fromkeys(kept, Identities(kept=True))
    if header.key is not None:
        found |= dict.fromkeys(header.private, of_fingerprint(header.key, f"The manifest {path}"))
    return found


def _is_own(name: str) -> bool:
    """Return True if a data set has no shipped card, or one for users' own images."""
    return name not in card_names() or is_private(load_card(name))


def with_classes(manifest: Manifest, classes: tuple[str, ...]) -> Manifest:
    """Keep only the images of some classes, which become the outputs in this order.

    Raises:
        UsvitError: A class does not exist, or the positive class is missing.
    """
    if strange := next((label for label in classes if label not in manifest.classes), None):
        raise unknown("class", strange, list(manifest.classes), "data.classes names it.")
    if manifest.positive_class not in classes or len(set(classes)) < 2:
        raise UsvitError(f"data.classes needs the positive class '{manifest.positive_class}' and another one.")
    table = manifest.table.copy()
    other = ~table.label.isin(classes) & table.exclude_reason.isna()
    table.loc[other, "exclude_reason"] = OTHER_CLASS
    return dataclasses.replace(manifest, table=table, classes=tuple(dict.fromkeys(classes)))


def keep_only(manifest: Manifest, keep_list: Path) -> Manifest:
    """Keep only the images that a keep-list names.

    Args:
        manifest: the images.
        keep_list: CSV file with a column ``image_id``, a column ``dataset`` if there are several, and optionally a
            column ``keep`` (true or false), as ``usvit data audit`` writes it.

    Raises:
        UsvitError: The file cannot be read, or names an image that the manifest does not have.
    """
    listed = read_csv(keep_list, follow=True, what="keep-list")
    table = manifest.table.copy()
    datasets = sorted(set(table.dataset))
    if "image_id" not in listed or ("dataset" not in listed and len(datasets) > 1):
        missing = "image_id" if "image_id" not in listed else "dataset"
        raise UsvitError(f"The keep-list {keep_list} has no column '{missing}'; it has {', '.join(listed.columns)}.")
    if "dataset" not in listed:
        listed["dataset"] = datasets[0]
    pairs = zip(listed.dataset, listed.image_id, strict=True)
    listed["image_id"] = [manifest.own_ids.id_of(dataset, image_id) for dataset, image_id in pairs]
    known = set(zip(table.dataset, table.image_id, strict=True))
    if unknown := [pair for pair in zip(listed.dataset, listed.image_id, strict=True) if pair not in known]:
        row = listed.index[[pair == unknown[0] for pair in zip(listed.dataset, listed.image_id, strict=True)]][0] + 2
        such = f"'{unknown[0][1]}' of '{unknown[0][0]}'" if not manifest.own_ids.ids else f"that of row {row}"
        raise UsvitError(
            f"The keep-list {keep_list} names {len(unknown)} images that are not in the data, such as {such}."
        )
    if "keep" in listed:
        listed = listed[listed.keep.str.lower().isin(["true", "1", "yes"])]
    kept = set(zip(listed.dataset, listed.image_id, strict=True))
    dropped = np.array([pair not in kept for pair in zip(table.dataset, table.image_id, strict=True)])
    table.loc[dropped & table.exclude_reason.isna(), "exclude_reason"] = f"{NOT_KEPT} {keep_list.name}"
    if absent := [label for label in manifest.classes if not (table[table.exclude_reason.isna()].label == label).any()]:
        raise UsvitError(f"The keep-list {keep_list} leaves no image of the class '{absent[0]}'.")
    return dataclasses.replace(manifest, table=table)


def _read(path: Path) -> tuple[pd.DataFrame, _Header]:
    with regular_file(path, limit=TABLE_BYTES, follow=True, what="manifest") as file:
        try:
            table = bounded_parquet(file)
            content = table.to_pandas()
        except (ValueError, OSError, MemoryError, KeyError, TypeError) as error:  # pyarrow's are among them
            raise UsvitError(f"The manifest {path} cannot be read: it is not a Parquet file.") from error
    try:
        header = _Header.model_validate_json((table.schema.metadata or {})[_KEY])
    except (KeyError, ValidationError) as error:
        raise UsvitError(f"{path} is not a manifest from 'usvit data prepare': it states no folders.") from error
    return content, header
