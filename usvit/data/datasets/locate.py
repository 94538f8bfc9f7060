"""Find the folder of a data set: the folder that the user named, ``USVIT_DATA``, or the cache of the phantom."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

import usvit.data.phantom as phantom
from usvit.data.datasets.cards import DataCard
from usvit.data.datasets.identities import DataError, Identities, Places, Public, is_private
from usvit.data.datasets.readers import ImageRecord, reader_for, subfolders
from usvit.data.datasets.units import UNIT_COLUMNS, UNIT_KEYS, contradiction
from usvit.errors import UsvitError
from usvit.progress import Progress
from usvit.resources import cache_dir


def open_dataset(
    card: DataCard, roots: dict[str, Path], progress: Progress, identities: Identities | None = None
) -> tuple[Path, list[ImageRecord]]:
    """Find one data set and list its images.

    Args:
        card: card of the data set.
        roots: data set -> folder; the key "" holds the folder for all data sets.
        progress: shown while the embedded phantom is made.
        identities: names of files in error messages; by default ``Identities.of`` the card.

    Returns:
        The top folder of the data set, and its records with the data set's own ids of images and patients.

    Raises:
        UsvitError: There is no folder, or it has another layout; the error shows the expected one.
    """
    identities = identities or Identities.of(card)
    try:
        return _open(card, roots, progress, identities)
    except PermissionError as error:
        raise UsvitError(
            f"The data set {card.name} cannot be read: no permission for "
            f"{error.filename if identities.pseudonyms is None else 'one of its files or folders'}. "
            "Ask its owner for access, or pass another --data-root."
        ) from error


def open_places(card: DataCard, roots: dict[str, Path], progress: Progress) -> Places:
    """Find one data set, and the files that a run's manifest names.

    Args, Raises: see ``open_dataset``.
    """
    identities = Identities.of(card)
    root, records = open_dataset(card, roots, progress, identities)
    return Places(root, identities, (path.as_posix() for one in records for path in (one.path, *one.mask_paths)))


def _open(
    card: DataCard, roots: dict[str, Path], progress: Progress, identities: Identities
) -> tuple[Path, list[ImageRecord]]:
    reader = reader_for(card)
    root = find_dataset(card, roots, identities)
    if root is None:
        made = _embedded_phantom(progress)
        return made, reader.read(made, card)
    try:
        records = reader.read(root, card)
    except UsvitError as error:
        raise _not_the_layout(card, root, str(identities.told(error)).rstrip(".")) from error
    if not records:
        raise _not_the_layout(card, root, "it contains no images")
    try:
        _check(card, root, records)
    except DataError as error:
        raise identities.told(error) from error
    return root, records


def find_dataset(card: DataCard, roots: dict[str, Path], identities: Identities | None = None) -> Path | None:
    """Return the top folder of a data set; None if the embedded phantom is to be made.

    Args, Raises: see ``open_dataset``.
    """
    identities, given = identities or Identities.of(card), given_root(roots, card.name)
    if given is None:
        if card.name == "phantom":
            return None
        raise UsvitError(
            f"The folder of {card.pretty_name} is not known: pass --data-root DIR or set USVIT_DATA.\n{card.how_to_get}"
        )
    root = top_folder(card, given)
    if root is None and card.name == "phantom" and given_root(roots, card.name, environment=False) is None:
        return None  # USVIT_DATA may hold real data only
    if root is None:
        found = ", ".join(folder.name for folder in subfolders(given)) or "no folders"
        nothing = DataError("it does not have the expected layout. Found: {found}", found=found)
        raise _not_the_layout(card, given, str(identities.told(nothing)))
    return root


def root_of(card: DataCard, roots: dict[str, Path]) -> Path:
    """Return the top folder of a data set without checking its files.

    Args, Raises: see ``open_dataset``.
    """
    given = given_root(roots, card.name)
    if given is None:
        raise UsvitError(f"The folder of {card.pretty_name} is not known: pass --data-root DIR or set USVIT_DATA.")
    return top_folder(card, given) or given


def top_folder(card: DataCard, given: Path) -> Path | None:
    """Return the first folder with the layout of the card: ``given``, or one directly in it; None if there is none."""
    return folder_with_layout(given, lambda folder: reader_for(card).looks_like(folder, card))


def _check(card: DataCard, root: Path, records: list[ImageRecord]) -> None:
    for record in records:
        for path in (record.path, *record.mask_paths):
            if not _is_utf8(path):  # no table can hold it
                raise DataError(
                    "The name of the file {path} is not valid UTF-8, so that no table can hold it. Rename the file.",
                    path=os.fsencode(path).decode("utf-8", "backslashreplace"),
                )
            # Only the text of the path is checked: links inside the folder are the owner's choice.
            if path.is_absolute() or ".." in path.parts:
                raise DataError(
                    "The path {path} of the data set {dataset} leads out of its folder {root}.",
                    path=path,
                    dataset=Public(card.name),
                    root=Public(root),
                )
        if card.classes and record.label not in card.classes:
            raise DataError(
                "The image {path} has the class '{label}', which is not one of {classes}.",
                path=record.path,
                label=record.label,
                classes=Public(list(card.classes)),
            )
    _refuse_contradictions(card, records)
    if card.label_level != "image":
        _refuse_two_labels(card, records)


def _is_utf8(path: Path) -> bool:
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _refuse_contradictions(card: DataCard, records: list[ImageRecord]) -> None:
    ids = {name: [getattr(record, name) for record in records] for name in ("patient_id", *UNIT_COLUMNS)}
    if (wrong := contradiction(pd.DataFrame({"dataset": card.name, **ids}))) is None:
        return
    hint = " 'usvit data link' shows which files these ids are." if is_private(card) else ""
    images = "The image {path}" if wrong.first == wrong.second else "The images {path} and {other_path}"
    raise DataError(
        f"{images} of the data set {{dataset}} {wrong.said}.{hint}",
        path=records[wrong.first].path,
        other_path=records[wrong.second].path,
        dataset=Public(card.name),
    )


def _refuse_two_labels(card: DataCard, records: list[ImageRecord]) -> None:
    columns = [column for column in UNIT_KEYS[card.label_level] if column != "dataset"]
    first: dict[tuple[str, ...], ImageRecord] = {}
    for record in records:
        unit = tuple(getattr(record, column) for column in columns)
        if None in unit:
            continue
        other = first.setdefault(unit, record)
        if other.label != record.label:
            raise DataError(
                "The {unit} '{name}' of the data set {dataset} has two labels: {label} ({path}) and {other_label} "
                "({other_path}). Correct them, or write label_level: image into your own data card if a label "
                "belongs to the image.",
                unit=Public(card.label_level),
                name=", ".join(unit),
                dataset=Public(card.name),
                label=Public(other.label),
                path=other.path,
                other_label=Public(record.label),
                other_path=record.path,
            )


def _embedded_phantom(progress: Progress) -> Path:
    """Return the folder of the default phantom (240 images, seed 0) in the cache; make it if it is missing."""
    spec = phantom.PhantomSpec()
    folder = cache_dir() / "phantom" / spec.key
    if not (folder / "phantom.csv").is_file():
        phantom.write_phantom(spec, folder, progress=progress)
    return folder


def given_root(roots: Mapping[str, Path], *names: str, environment: bool = True) -> Path | None:
    """Return the folder that the user gave for a data set; None if there is none.

    Args:
        roots: data set -> folder; the key "" holds the folder for all data sets.
        names: names of the data set, in the order in which they are looked up.
        environment: fall back to ``USVIT_DATA``.
    """
    given = next((roots[name] for name in (*names, "") if roots.get(name)), None)
    return given or (root_from_environment() if environment else None)


def folder_with_layout(given: Path, looks_like: Callable[[Path], bool], name: str = "") -> Path | None:
    """Return the first folder with a data set's layout: the given one, or one directly in it.

    Args:
        given: the folder that the user gave.
        looks_like: recognises the layout.
        name: subfolders whose names contain this name come first.

    Returns:
        The folder, or None if none has the layout.

    Raises:
        UsvitError: ``given`` is not a folder.
    """
    if not given.is_dir():
        what = "is not a folder" if given.exists() else "does not exist"
        raise UsvitError(f"The data root {given} {what}. Pass --data-root DIR or set USVIT_DATA.")
    key = name.replace("_", "")
    inner = sorted(subfolders(given), key=lambda folder: key not in folder.name.lower().replace("-", ""))
    return next((folder for folder in (given, *inner) if looks_like(folder)), None)


def root_from_environment() -> Path | None:
    """Return the folder in the environment variable ``USVIT_DATA``; None if it is not set."""
    value = os.environ.get("USVIT_DATA")
    return Path(value) if value else None


def _not_the_layout(card: DataCard, root: Path, reason: str) -> UsvitError:
    layout = "\n".join(f"  {line}" for line in card.layout.splitlines())
    return UsvitError(
        f"Cannot read the data set {card.pretty_name} in {root}: {reason}.\n"
        f"Expected layout (data card '{card.name}'):\n{layout}\n"
        "If the images are elsewhere, pass --data-root or set USVIT_DATA."
    )
