"""The page scores.html of a scored set: results, confidence and every row, in one file without network access.

The page contains only what the tables contain.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usvit.data.audit import MEANINGS
from usvit.documents import Plot
from usvit.errors import UsvitError
from usvit.files import atomic
from usvit.records import SummaryRecord, load_record
from usvit.reports.data_table import DataColumn, DataTable, highest, parquet_portions
from usvit.reports.figures_scores import novelty_plot, probability_plot, quality_plot
from usvit.reports.templating import environment, script_of
from usvit.wording import listed

MAX_ROWS, MAX_THUMBNAILS = 20_000, 2_000
"""Limits of the page; the tables hold all rows. Of more rows, the page shows those with the highest probability."""
FLAG_MEANINGS = {
    "text": "burned-in text: side, position, manufacturer, possibly a name",
    "doppler": "colour Doppler: box or flow in the image, or a region in the header",
    "dual_view": "two views side by side, according to the image or the header",
    "m_mode": "an M-mode trace, according to the header",
    "spectral": "a spectral Doppler trace, according to the header",
    "burned_in": "burned-in text, according to the header",
    "assumed_range": "more than 8 bits per value: the file does not state how many are in use, so the brightness is "
    "that of the largest value",
}
"""Flags that a header can raise; and ``text``, which can name a patient in files from a clinic."""
ADVICE = {
    "not_found": "check whether it was moved, or correct the list",
    "unreadable": "check its permissions; copy it again",
    "empty": "export it again",
    "not_an_image": "nothing, if it is not an image; else convert it to PNG",
    "no_pixels": "nothing",
    "truncated": "export or copy it again",
    "damaged": "open it in a viewer; export it again without compression",
    "too_large": "inspect it separately, with care",
    "unsupported_syntax": "export it uncompressed or in another transfer syntax",
    "unsupported_pixels": "export it with 8 bits, as RGB or MONOCHROME2; convert a picture to PNG",
    "unknown_range": "save it with 8 bits",
    "several_frames": "save each picture as a file",
    "no_such_frame": "number the frames of the list from 0",
    "timeout": "use a longer --timeout",
    "crashed": "use a larger --memory-gb; otherwise export it uncompressed",
    "changed_since_scoring": "find out what replaced it; score it again into another folder",
    "loop": "nothing: the target of the link was found elsewhere",
    "archive": "unpack it (with its password)",
}
"""Code of a failure -> advice for the user."""
PRODUCTS = {
    "sr": ("structured report", "dicom/<image>-sr.dcm"),
    "sc": ("Secondary Capture", "dicom/<image>-sc.dcm"),
    "gsps": ("presentation state", "dicom/<image>-gsps.dcm"),
    "overlay": ("overlay", "overlays/<image>-<frame>.png"),
}
"""Kind of product -> (name, path)."""


def write_scores_page(
    out: Path,
    thumbnails: Iterable[tuple[str, int, bytes]] = (),
    *,
    max_rows: int = MAX_ROWS,
    max_thumbnails: int = MAX_THUMBNAILS,
) -> Path:
    """Write ``scores.html`` into the folder of a scored set, from the tables that are there.

    The page is one file without network access; its only script is in the page, and its security policy blocks all
    others. The same tables and thumbnails give the same bytes. The page is written while the tables are read; only four
    numbers per row are held in memory.

    Args:
        out: holds summary.json, scores.parquet, failures.csv, studies.csv and patients.csv.
        thumbnails: (item_id, frame, JPEG) in the order of the scores, some or all of them; read once. If empty,
            the page shows no images.
        max_rows: the most rows of each table on the page; those with the highest calibrated probability are shown.
        max_thumbnails: the most rows with a thumbnail.

    Returns:
        The path of the page.

    Raises:
        UsvitError: a table is absent or damaged, or the page cannot be written.
    """
    out = Path(out)
    summary = load_record(out / "summary.json", SummaryRecord, "usvit score writes it when all tables are complete.")
    try:
        content = _content(out, summary, iter(thumbnails), max_rows, max_thumbnails)
        with atomic(out / "scores.html") as file:
            for piece in environment().get_template("scores.html.j2").generate(content):
                file.write(piece.encode("utf-8"))
    except (ValueError, KeyError, FileNotFoundError) as error:  # pyarrow's and pandas' own errors are ValueErrors
        raise UsvitError(f"The tables in {out} cannot be read: {' '.join(str(error).split())}.") from error
    return out / "scores.html"


def _content(out: Path, summary: SummaryRecord, thumbnails: Any, max_rows: int, max_thumbnails: int) -> dict[str, Any]:
    positive, threshold, members = summary.positive_class, summary.threshold.value, summary.model.members
    values = _values(out / "scores.parquet", positive)
    first = next(thumbnails, None)
    images = DataTable.of_parquet(
        out / "scores.parquet",
        _image_columns(positive, summary, with_path=bool(values["has_path"])),
        highest(values["calibrated"], max_rows),
        sort=f"calibrated_{positive}",
    )
    if first is not None:
        images.picture(first, thumbnails, highest(values["calibrated"], min(max_rows, max_thumbnails)))
    return {
        "summary": summary,
        "counts": summary.counts,
        "positive": positive,
        "model": summary.model,
        "members": members,
        "runs": listed(dict.fromkeys(one.run for one in members if one.run)),
        "name": listed(dict.fromkeys(one.architecture for one in members)),
        "threshold": threshold,
        "rate": summary.model.novelty.in_distribution if summary.model.novelty else None,
        "most_failures": max((one.rows for one in summary.failures.values()), default=1),
        "plots": _plots(values, positive, summary) if len(values["calibrated"]) else [],
        "meanings": MEANINGS | FLAG_MEANINGS,
        "products": PRODUCTS,
        "advice": ADVICE,
        "images": images,
        "groups": {
            unit: DataTable.of_csv(
                out / f"{unit}.csv", _group_columns(unit, positive), max_rows, sort=f"mean_calibrated_{positive}"
            )
            for unit in ("patients", "studies")
        },
        "failed": DataTable.of_csv(out / "failures.csv", _FAILED, max_rows),
        **script_of("scores.js"),
    }


def _values(path: Path, positive: str) -> dict[str, NDArray[Any]]:
    """Read ``calibrated``, ``novelty``, ``quality``, (N,) float64, ``unusual``, (N,) bool, and ``has_path``."""
    names = {"calibrated": f"calibrated_{positive}", "novelty": "novelty", "quality": "quality", "unusual": "unusual"}
    parts: dict[str, list[NDArray[Any]]] = {name: [np.empty(0)] for name in names}
    has_path = False
    for rows in parquet_portions(path):
        has_path |= bool(rows["path"].notna().any())
        for name, column in names.items():
            parts[name].append(rows[column].astype(np.float64).to_numpy())
    found = {name: np.concatenate(own) for name, own in parts.items()}
    return found | {"unusual": found["unusual"] == 1, "has_path": np.array(has_path)}


def _plots(values: dict[str, NDArray[Any]], positive: str, summary: SummaryRecord) -> list[tuple[Plot, str]]:
    """Return the figures and their captions."""
    threshold = summary.threshold.value
    plots = [
        (
            probability_plot(values["calibrated"], values["unusual"], threshold),
            f"Calibrated probability of {positive}, all scored images.",
        )
    ]
    if np.isfinite(values["novelty"]).any():
        limit = summary.novelty.threshold if summary.novelty else None
        plots.append(
            (
                novelty_plot(values["novelty"], limit),
                "OOD score: how unlike the training images of the network an image is"
                + (f"; unusual above {limit:g}." if limit is not None else "."),
            )
        )
    said = "Technical quality (sharpness, grey levels, black or saturated areas): 0 is blank, about 0.75 is usual. "
    plots.append((quality_plot(values["quality"]), said + "It does not show whether an image is diagnostic."))
    return plots


def _image_columns(positive: str, summary: SummaryRecord, *, with_path: bool) -> tuple[DataColumn, ...]:
    return (
        DataColumn("item_id", "Image", "id"),
        DataColumn("frame", "Frame", "count"),
        *((DataColumn("path", "Path"),) if with_path else ()),
        *((DataColumn("decision", "Decision", "decision"),) if summary.threshold.value is not None else ()),
        *((DataColumn("abstained", "Abstained"),) if summary.counts.frames_abstained else ()),
        DataColumn(f"calibrated_{positive}", "Calibrated", "prob"),
        DataColumn(f"prob_{positive}", "Raw", "number"),
        *((DataColumn(f"spread_{positive}", "Spread", "number"),) if len(summary.model.members) != 1 else ()),
        DataColumn("novelty", "OOD score", "number"),
        DataColumn("flags", "Flags", "flags"),
        DataColumn("quality", "Quality", "number"),
        DataColumn("patient_id", "Patient", "id"),
        DataColumn("study_id", "Study", "id"),
    )


def _group_columns(unit: str, positive: str) -> tuple[DataColumn, ...]:
    ids = {
        "patients": (DataColumn("patient_id", "Patient", "id"), DataColumn("n_studies", "Studies", "count")),
        "studies": (DataColumn("study_id", "Study", "id"), DataColumn("patient_id", "Patient", "id")),
    }[unit]
    return (
        *ids,
        DataColumn("n_files", "Files", "count"),
        DataColumn("n_frames", "Frames", "count"),
        DataColumn("n_positive", f"Frames {positive}", "count"),
        DataColumn("n_unusual", "Frames unusual", "count"),
        DataColumn("decision", "Decision", "decision"),
        DataColumn("abstained", "Abstained"),
        DataColumn(f"mean_calibrated_{positive}", "Mean", "prob"),
        DataColumn(f"max_calibrated_{positive}", "Highest", "prob"),
        DataColumn("max_item_id", "Highest in", "id"),
        DataColumn("max_frame", "Frame", "count"),
    )


_FAILED = (
    DataColumn("item_id", "File", "id"),
    DataColumn("frame", "Frame", "count"),
    DataColumn("path", "Path"),
    DataColumn("code", "Code"),
    DataColumn("reason", "Reason"),
)
