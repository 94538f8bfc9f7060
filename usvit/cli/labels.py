"""Options for the label table of a scored set, shared by ``evaluate`` and ``recalibrate``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.errors import UsvitError

if TYPE_CHECKING:
    from usvit.scoring import LabelTable

Map = Annotated[
    list[str] | None,
    typer.Option(
        "--map", help="Class of a word in the label column; an empty CLASS omits its images.", metavar="WORD=CLASS"
    ),
]
Join = Annotated[
    str | None,
    typer.Option(
        help="Column to match scored images: item_id, instance_id, study_id, patient_id (pseudonyms), path, "
        "sop_instance_uid, study_instance_uid or original_patient_id. (default: the first that exists)",
        metavar="KIND[=COL]",
    ),
]
Key = Annotated[
    Path | None,
    typer.Option(help="Secret key of the pseudonyms, for original ids. (default: in your settings)", metavar="FILE"),
]
InputRoot = Annotated[
    str | None, typer.Option(help="Prefix to remove from the table's paths before matching.", metavar="DIR")
]
DropSeen = Annotated[bool, typer.Option("--drop-seen", help="Omit patients with an image that was seen in training.")]


def label_table(
    path: Path,
    label: str | None,
    patient: str | None,
    words: list[str] | None,
    join: str | None,
    key: Path | None,
    root: str | None,
) -> "LabelTable":
    """Convert the options to a ``LabelTable``.

    Raises:
        UsvitError: a ``--map`` has no equals sign, or a word occurs twice.
    """
    from usvit.scoring import LabelTable

    found: dict[str, str] = {}
    for one in words or []:
        word, equals, name = one.rpartition("=")
        if not equals:
            raise UsvitError(f"--map {one}: pass WORD=CLASS, or WORD= to leave its images out.")
        if word.strip() in found:
            raise UsvitError(f"--map names the word '{word.strip()}' twice.")
        found[word.strip()] = name.strip()
    return LabelTable(path, label=label or "label", patient=patient, join=join, words=found, key=key, input_root=root)
