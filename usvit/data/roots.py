"""Where a data set lies: the folder that the user named, the environment's, or the phantom's cache."""

import os
from pathlib import Path

from usvit.data.cards import DataCard
from usvit.data.identities import DataError, Identities, Places, Public
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.data.readers import ImageRecord, reader_for, subfolders
from usvit.errors import UsvitError
from usvit.progress import Progress, task
from usvit.resources import cache_dir


def open_dataset(
    card: DataCard, roots: dict[str, Path], progress: Progress, identities: Identities | None = None
) -> tuple[Path, list[ImageRecord]]:
    """Find one data set and list its images.

    Args:
        card: of the data set.
        roots: data set -> folder; the key "" holds the folder given for all.
        progress: shown while the embedded phantom is made.
        identities: how errors call its files; None: as ``Identities.of`` the card.

    Returns:
        The data set's own top folder, and its records: as the data set calls its images and patients.

    Raises:
        UsvitError: no folder, or one of another layout; the expected one is shown.
    """
    identities = identities or Identities.of(card)
    try:
        return _open(card, roots, progress, identities)
    except PermissionError as error:
        raise UsvitError(
            f"The data set {card.name} cannot be read: no permission for "
            f"{error.filename if identities.pseudonyms is None else 'one of its files or folders'}. "
            "Ask its owner for it, or pass another --data-root."
        ) from error


def open_places(card: DataCard, roots: dict[str, Path], progress: Progress) -> Places:
    """Find one data set, and where its images lie that a run's manifest names.

    Args, Raises: as ``open_dataset``.
    """
    identities = Identities.of(card)
    root, records = open_dataset(card, roots, progress, identities)
    return Places(root, identities, (path.as_posix() for one in records for path in (one.path, *one.mask_paths)))


def _open(
    card: DataCard, roots: dict[str, Path], progress: Progress, identities: Identities
) -> tuple[Path, list[ImageRecord]]:
    dataset = card.name
    reader = reader_for(card)
    asked_for = roots.get(dataset) or roots.get("")
    given = asked_for or root_from_environment()
    if given is None:
        if dataset != "phantom":
            raise UsvitError(
                f"Where are the images of {card.pretty_name}? Pass --data-root DIR or set USVIT_DATA.\n"
                f"{card.how_to_get}"
            )
        phantom = embedded_phantom(progress)
        return phantom, reader.read(phantom, card)
    root = _top_folder(card, given)
    if root is None and dataset == "phantom" and not asked_for:  # USVIT_DATA may well hold real data alone
        phantom = embedded_phantom(progress)
        return phantom, reader.read(phantom, card)
    if root is None:
        found = ", ".join(folder.name for folder in subfolders(given)) or "no folders"
        nothing = DataError("nothing in it has its layout. Found: {found}", found=found)
        raise _not_the_layout(card, given, str(identities.told(nothing)))
    try:
        records = reader.read(root, card)
    except UsvitError as error:
        raise _not_the_layout(card, root, str(identities.told(error)).rstrip(".")) from error
    if not records:
        raise _not_the_layout(card, root, "it holds no images")
    try:
        _check(card, root, records)
    except DataError as error:
        raise identities.told(error) from error
    return root, records


def root_of(card: DataCard, roots: dict[str, Path]) -> Path:
    """The data set's own top folder, whose files need not be as they should.

    Args, Raises: as ``open_dataset``.
    """
    given = roots.get(card.name) or roots.get("") or root_from_environment()
    if given is None:
        raise UsvitError(f"Where are the images of {card.pretty_name}? Pass --data-root DIR or set USVIT_DATA.")
    return _top_folder(card, given) or given


def _top_folder(card: DataCard, given: Path) -> Path | None:
    """The folder with the data set's layout: the given one, or one in it; None where neither has it."""
    if not given.is_dir():
        what = "is not a folder" if given.exists() else "does not exist"
        raise UsvitError(f"The data root {given} {what}. Pass --data-root DIR or set USVIT_DATA.")
    reader = reader_for(card)
    return next((folder for folder in (given, *subfolders(given)) if reader.looks_like(folder, card)), None)


def _check(card: DataCard, root: Path, records: list[ImageRecord]) -> None:
    for record in records:
        for path in (record.path, *record.mask_paths):
            # By its text alone: a link inside the folder is the owner's, and common where images are shared.
            if path.is_absolute() or ".." in path.parts:
                raise DataError(
                    "The path {path} of the data set {dataset} climbs out of its folder {root}.",
                    path=path,
                    dataset=Public(card.name),
                    root=Public(root),
                )
        if card.classes and record.label not in card.classes:
            raise DataError(
                "The image {path} has the class '{label}', which is none of {classes}.",
                path=record.path,
                label=record.label,
                classes=Public(list(card.classes)),
            )
    if card.label_level == "patient":
        _refuse_two_labels(card, records)


def _refuse_two_labels(card: DataCard, records: list[ImageRecord]) -> None:
    first: dict[str, ImageRecord] = {}
    for record in records:
        if record.patient_id is None:
            continue
        other = first.setdefault(record.patient_id, record)
        if other.label != record.label:
            raise DataError(
                "The patient '{patient}' of the data set {dataset} has two labels: {label} ({path}) and {other_label} "
                "({other_path}). Correct them, or write label_level: image into a data card of your own if a label "
                "belongs to the image.",
                patient=record.patient_id,
                dataset=Public(card.name),
                label=Public(other.label),
                path=other.path,
                other_label=Public(record.label),
                other_path=record.path,
            )


def embedded_phantom(progress: Progress) -> Path:
    """The default phantom (240 images, seed 0) in the cache folder; made when it is not there."""
    spec = PhantomSpec()
    folder = cache_dir() / "phantom" / spec.key
    if not (folder / "phantom.csv").is_file():
        with task(progress, "making the phantom", spec.n, "images") as advance:
            write_phantom(spec, folder, progress=lambda done, total: advance(done))
    return folder


def root_from_environment() -> Path | None:
    """What ``USVIT_DATA`` names; None where it is not set."""
    value = os.environ.get("USVIT_DATA")
    return Path(value) if value else None


def _not_the_layout(card: DataCard, root: Path, reason: str) -> UsvitError:
    layout = "\n".join(f"  {line}" for line in card.layout.splitlines())
    return UsvitError(
        f"Cannot read the data set {card.pretty_name} in {root}: {reason}.\n"
        f"Expected layout (data card '{card.name}'):\n{layout}\n"
        "If the images lie elsewhere, pass --data-root or set USVIT_DATA."
    )
