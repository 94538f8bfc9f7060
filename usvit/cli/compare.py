"""``usvit compare``: paired comparison of models, or of a model with readers, on the same images."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from usvit.cli import options as o
from usvit.cli.settings import takes_options
from usvit.config.comparison import ComparisonSettings
from usvit.config.evaluation import Columns
from usvit.config.readers import ReaderSettings

if TYPE_CHECKING:
    from usvit.records import CompareMasksRecord, CompareRecord, ReadersRecord


@takes_options(without=["patient", "group"])
def compare(
    runs: Annotated[
        list[Path],
        typer.Argument(
            help="Two or more run directories, tables, or folders of usvit evaluate --out; one with --readers.",
            metavar="RUN [RUN...]",
        ),
    ],
    settings: ComparisonSettings,
    reading: ReaderSettings,
    columns: Columns,
    out: Annotated[
        Path | None, typer.Option(help="Folder to write. (default: compare-<run>-<run>...)", metavar="DIR")
    ] = None,
    json_: o.Json = False,
) -> None:
    """Compare runs on the same images and folds with paired, patient-clustered tests, corrected for several pairs.

    Beside a run, a table of another tool needs only the names of the images and the probabilities: columns are found,
    and labels, groups and folds are those of the run. Writes compare.html, compare.json, compare.md and compare.tex.
    Runs of a segmentation are compared by their masks (Dice, IoU, Hausdorff distance, missed lesions, false alarms).
    With --readers, one run is compared with BI-RADS categories; readers.html, .json, .md and .tex are written.
    """
    from usvit import reports
    from usvit.documents import terminal_text
    from usvit.errors import UsvitError
    from usvit.evaluation import is_segmentation

    record: CompareRecord | CompareMasksRecord | ReadersRecord
    if reading.readers or reading.manifest is not None:
        if len(runs) != 1 or settings.model_copy(update={"positive": None}) != ComparisonSettings():
            raise UsvitError(
                "--readers compares one run with readers: name one run, and leave out --name, --margin, --test and "
                "--primary."
            )
        record, folder = reports.compare_readers(
            runs[0], settings=reading, positive=settings.positive, columns=columns, out=out
        )
        document, page = reports.readers_document(record), folder / "readers.html"
    elif all(is_segmentation(run) for run in runs):
        if settings.model_copy(update={"names": ()}) != ComparisonSettings():
            raise UsvitError("Segmentations are compared without other options than --name, --out and --json.")
        record, folder = reports.compare_masks(*runs, names=settings.names, out=out)
        document, page = reports.mask_comparison_document(record), folder / "compare.html"
    else:
        record, folder = reports.compare(*runs, settings=settings, columns=columns, out=out)
        document, page = reports.comparison_document(record), folder / "compare.html"
    if json_:
        print(json.dumps(record.content(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    print(terminal_text(document))
    print(f"page: {page}")
