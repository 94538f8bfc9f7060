"""The page scores.html of a scored set: results, confidence and every row, in one file without network access.

The page contains only what the tables contain.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from usvit.documents import Figure, html_pieces
from usvit.errors import UsvitError
from usvit.files import atomic
from usvit.records import SummaryRecord, UnitPointRecord, load_record
from usvit.reports.data_table import DataColumn, DataTable, highest, parquet_portions
from usvit.reports.figures_scores import novelty_plot, probability_plot, quality_plot
from usvit.reports.flow import flow_of_scores
from usvit.reports.scores_document import UNITS, ScoreTables, attended_table, scores_document
from usvit.reports.static import static_text

MAX_ROWS, MAX_THUMBNAILS = 20_000, 2_000
"""Limits of the page; the tables hold all rows. Of more rows, the page shows those with the highest probability."""


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
        out: holds summary.json, scores.parquet, failures.csv, studies.csv, patients.csv and, if there is
            one, breasts.csv.
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
        values = _values(out / "scores.parquet", summary.positive_class)
        tables = _tables(out, summary, values, iter(thumbnails), max_rows, max_thumbnails)
        plots = _plots(values, summary.positive_class, summary) if len(values["calibrated"]) else []
        document = scores_document(summary, tables, plots, flow_of_scores(summary))
        style, script = static_text("scores.css"), static_text("scores.js")
        with atomic(out / "scores.html") as file:
            for piece in html_pieces(document, style, script, _data(summary, tables)):
                file.write(piece.encode("utf-8"))
    except (ValueError, KeyError, FileNotFoundError) as error:  # pyarrow's and pandas' own errors are ValueErrors
        raise UsvitError(f"The tables in {out} cannot be read: {' '.join(str(error).split())}.") from error
    return out / "scores.html"


def _tables(
    out: Path,
    summary: SummaryRecord,
    values: Mapping[str, NDArray[Any]],
    thumbnails: Iterator[tuple[str, int, bytes]],
    max_rows: int,
    max_thumbnails: int,
) -> ScoreTables:
    positive, first = summary.positive_class, next(thumbnails, None)
    images = DataTable.of_parquet(
        out / "scores.parquet",
        _image_columns(positive, summary, with_path=bool(values["has_path"])),
        highest(values["calibrated"], max_rows),
        sort=f"calibrated_{positive}",
    )
    if first is not None:
        images.picture(first, thumbnails, highest(values["calibrated"], min(max_rows, max_thumbnails)))
    groups = {
        unit: DataTable.of_csv(
            out / f"{unit}.csv",
            _group_columns(unit, positive, summary.model.unit),
            max_rows,
            sort=f"mean_calibrated_{positive}",
        )
        for unit in UNITS
        if f"{unit}.csv" in summary.files
    }
    return ScoreTables(images, groups, DataTable.of_csv(out / "failures.csv", _FAILED, max_rows))


def _data(summary: SummaryRecord, tables: ScoreTables) -> Iterator[Markup]:
    """Yield what the page's script reads of each table: how it is shown, its rows, and thumbnails."""
    shown = {"positive": summary.positive_class, "threshold": summary.threshold.value}
    yield from tables.images.elements("images", "One row per image.", "scores.csv", {**shown, "tools": True})
    for name, table in tables.groups.items():
        if table.n_rows:
            yield from table.elements(name, f"One row per {UNITS[name]}.", f"{name}.csv", shown)
    if summary.failures:
        caption = "One row per failure; a row without a frame number concerns the whole file."
        yield from tables.failures.elements("failures", caption, "failures.csv", {"positive": "", "threshold": None})


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


def _plots(values: dict[str, NDArray[Any]], positive: str, summary: SummaryRecord) -> list[Figure]:
    """Return the figures of the distributions."""
    threshold = summary.threshold.value
    plots = [
        Figure(
            probability_plot(values["calibrated"], values["unusual"], threshold),
            f"Calibrated probability of {positive}, all scored images.",
        )
    ]
    if np.isfinite(values["novelty"]).any():
        limit = summary.novelty.threshold if summary.novelty else None
        plots.append(
            Figure(
                novelty_plot(values["novelty"], limit),
                "OOD score: how unlike the training images of the network an image is"
                + (f"; unusual above {limit:g}." if limit is not None else "."),
            )
        )
    said = "Technical quality (sharpness, grey levels, black or saturated areas): 0 is blank, about 0.75 is usual. "
    plots.append(Figure(quality_plot(values["quality"]), f"{said}It does not show whether an image is diagnostic."))
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
        *((DataColumn("view_weight", "Weight", "number"),) if attended_table(summary) else ()),
        DataColumn("novelty", "OOD score", "number"),
        DataColumn("flags", "Flags", "flags"),
        DataColumn("quality", "Quality", "number"),
        DataColumn("patient_id", "Patient", "id"),
        DataColumn("study_id", "Study", "id"),
    )


def _group_columns(unit: str, positive: str, own: UnitPointRecord | None) -> tuple[DataColumn, ...]:
    ids = {
        "patients": (DataColumn("patient_id", "Patient", "id"), DataColumn("n_studies", "Studies", "count")),
        "breasts": (DataColumn("breast_id", "Breast"),),
        "studies": (DataColumn("study_id", "Study", "id"), DataColumn("patient_id", "Patient", "id")),
    }[unit]
    pooled = () if own is None or own.decides != f"{unit}.csv" or own.pooling in ("mean", "max") else (own,)
    return (
        *ids,
        DataColumn("n_files", "Files", "count"),
        DataColumn("n_frames", "Frames", "count"),
        DataColumn("n_positive", f"Frames {positive}", "count"),
        DataColumn("n_unusual", "Frames unusual", "count"),
        DataColumn("decision", "Decision", "decision"),
        DataColumn("abstained", "Abstained"),
        *(DataColumn(one.column(positive), one.pooling.capitalize(), "prob") for one in pooled),
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
