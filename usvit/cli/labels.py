"""Options of a label table beside a scored set, which ``evaluate`` and ``recalibrate`` share."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.errors import UsvitError

if TYPE_CHECKING:
    from usvit.score.external.labels import LabelTable

Map = Annotated[
    list[str] | None,
    typer.Option("--map", help="What a local word means; an empty CLASS leaves its images out.", metavar="WORD=CLASS"),
]
Join = Annotated[
    str | None,
    typer.Option(
        help="What finds the scored images: item_id, instance_id, study_id, patient_id (pseudonyms), path, "
        "sop_instance_uid, study_instance_uid or original_patient_id. (default: the first that is there)",
        metavar="KIND[=COL]",
    ),
]
Key = Annotated[
    Path | None,
    typer.Option(help="Secret of the pseudonyms, for ids of origin. (default: in your settings)", metavar="FILE"),
]
InputRoot = Annotated[
    str | None, typer.Option(help="What the table's paths begin with, beyond the scored folder.", metavar="DIR")
]
DropSeen = Annotated[bool, typer.Option("--drop-seen", help="Leave out patients of whom the model has seen an image.")]


def label_table(
    path: Path, label: str | None, words: list[str] | None, join: str | None, key: Path | None, root: str | None
) -> "LabelTable":
    """The options as ``LabelTable``.

    Raises:
        UsvitError: a ``--map`` without an equals sign, or two for one word.
    """
    from usvit.score.external.labels import LabelTable

    found: dict[str, str] = {}
    for one in words or []:
        word, equals, name = one.rpartition("=")
        if not equals:
            raise UsvitError(f"--map {one}: expected WORD=CLASS, or WORD= to leave its images out.")
        if word.strip() in found:
            raise UsvitError(f"--map names the word '{word.strip()}' twice.")
        found[word.strip()] = name.strip()
    return LabelTable(path=path, label=label or "label", join=join, words=found, key=key, input_root=root)
