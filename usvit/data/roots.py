"""Where a data set lies: the folder that the user named, the environment's, or the phantom's cache."""

import os
from pathlib import Path

from usvit.data.cards import DataCard
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.data.readers import ImageRecord, reader_for, subfolders
from usvit.errors import UsvitError
from usvit.progress import Progress, task
from usvit.resources import cache_dir


def open_dataset(card: DataCard, roots: dict[str, Path], progress: Progress) -> tuple[Path, list[ImageRecord]]:
    """Find one data set and list its images.

    Args:
        card: of the data set.
        roots: data set -> folder; the key "" holds the folder given for all.
        progress: shown while the embedded phantom is made.

    Returns:
        The data set's own top folder, and its records.

    Raises:
        UsvitError: no folder, or one of another layout; the expected one is shown.
    """
    try:
        return _open(card, roots, progress)
    except PermissionError as error:
        raise UsvitError(
            f"The data set {card.name} cannot be read: no permission for {error.filename}. "
            "Ask its owner for it, or pass another --data-root."
        ) from error


def _open(card: DataCard, roots: dict[str, Path], progress: Progress) -> tuple[Path, list[ImageRecord]]:
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
    if not given.is_dir():
        what = "is not a folder" if given.exists() else "does not exist"
        raise UsvitError(f"The data root {given} {what}. Pass --data-root DIR or set USVIT_DATA.")
    # The folder itself first, then what it holds.
    candidates = [given, *subfolders(given)]
    root = next((folder for folder in candidates if reader.looks_like(folder, card)), None)
    if root is None and dataset == "phantom" and not asked_for:  # USVIT_DATA may well hold real data alone
        phantom = embedded_phantom(progress)
        return phantom, reader.read(phantom, card)
    if root is None:
        found = ", ".join(folder.name for folder in subfolders(given)) or "no folders"
        raise _not_the_layout(card, given, f"nothing in it has its layout. Found: {found}")
    try:
        records = reader.read(root, card)
    except UsvitError as error:
        raise _not_the_layout(card, root, str(error).rstrip(".")) from error
    if not records:
        raise _not_the_layout(card, root, "it holds no images")
    for record in records:
        for path in (record.path, *record.mask_paths):
            # By its text alone: a link inside the folder is the owner's, and common where images are shared.
            if path.is_absolute() or ".." in path.parts:
                raise UsvitError(f"The path {path} of the data set {dataset} climbs out of its folder {root}.")
        if card.classes and record.label not in card.classes:
            raise UsvitError(
                f"The image {record.path} has the class '{record.label}', which is none of {list(card.classes)}."
            )
    if card.label_level == "patient":
        _refuse_two_labels(card, records)
    return root, records


def _refuse_two_labels(card: DataCard, records: list[ImageRecord]) -> None:
    first: dict[str, ImageRecord] = {}
    for record in records:
        if record.patient_id is None:
            continue
        other = first.setdefault(record.patient_id, record)
        if other.label != record.label:
            raise UsvitError(
                f"The patient '{record.patient_id}' of the data set {card.name} has two labels: {other.label} "
                f"({other.path}) and {record.label} ({record.path}). Correct them, or write label_level: image into a "
                "data card of your own if a label belongs to the image."
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
