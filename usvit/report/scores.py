"""scores.html: a scored set as one page, without network: what was found, how sure it is, every row to look through.

It holds what the tables hold, read from them, and nothing that they do not.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from usvit.data.audit.flags import MEANINGS
from usvit.errors import UsvitError
from usvit.files import atomic
from usvit.records import SummaryRecord, read_record
from usvit.report.environment import environment, script_of
from usvit.report.figures_scores import novelty_plot, probability_plot, quality_plot
from usvit.report.sheets import Column, Sheet, highest, parquet_portions
from usvit.report.svg import Plot
from usvit.report.words import dig, listed

MAX_ROWS, MAX_THUMBNAILS = 20_000, 2_000
"""On the page; the tables hold all. Where there are more, those with the highest probability are shown."""
FLAG_MEANINGS = {
    "text": "words burned in: side, position, maker; perhaps a name",
    "doppler": "colour Doppler: its box or flow in the image, or a region of it in the header",
    "dual_view": "two views side by side, by the image or by the header",
    "m_mode": "an M-mode trace, by the header",
    "spectral": "a spectral Doppler trace, by the header",
    "burned_in": "words are burned in, says the header",
}
"""Flags that a DICOM header can raise, alone or with the pixels; and one that means more in files from a clinic."""
ADVICE = {
    "not_found": "see whether it was moved, or the list is right",
    "unreadable": "see who may read it; copy it again",
    "empty": "export it again",
    "not_an_image": "nothing, if it is no image",
    "no_pixels": "nothing",
    "truncated": "export or copy it again",
    "damaged": "open it in a viewer; export it again, uncompressed",
    "too_large": "look at it by itself, with care",
    "unsupported_syntax": "export it uncompressed, or in another syntax",
    "unsupported_pixels": "export it as RGB or MONOCHROME2",
    "no_such_frame": "frames of the list count from 0",
    "timeout": "a longer --timeout",
    "crashed": "more --memory-gb; else export it uncompressed",
    "changed_since_scoring": "find out what exchanged it; score it again, into another folder",
    "loop": "nothing: what is behind the link was found elsewhere",
    "archive": "unpack it yourself (with its password)",
}
"""Code of a failure -> what the user can do."""
PRODUCTS = {
    "sr": ("structured report", "dicom/<image>-sr.dcm"),
    "sc": ("Secondary Capture", "dicom/<image>-sc.dcm"),
    "overlay": ("overlay", "overlays/<image>-<frame>.png"),
}
"""Kind of product -> its name, and where it lies."""


def write_scores_page(
    out: Path,
    thumbnails: Iterable[tuple[str, int, bytes]] = (),
    *,
    max_rows: int = MAX_ROWS,
    max_thumbnails: int = MAX_THUMBNAILS,
) -> Path:
    """Write ``scores.html`` into the folder of a scored set, from the tables that are there.

    The page is one file without network access; its only script stands in it, and its security policy lets no other
    run. The same tables and thumbnails give the same bytes. It is written as the tables are read: in memory are four
    numbers a row.

    Args:
        out: holds summary.json, scores.parquet, failures.csv, studies.csv and patients.csv.
        thumbnails: (item_id, frame, JPEG) in the order of the scores, some or all of them; read once. Empty: the page
            shows no images.
        max_rows: rows of each table on the page: of more, those of the highest calibrated probability.
        max_thumbnails: of these, how many may have a thumbnail.

    Returns:
        The path of the page.

    Raises:
        UsvitError: a table is absent or damaged, or the page cannot be written.
    """
    out = Path(out)
    summary = read_record(out / "summary.json", SummaryRecord, "usvit score writes it when all tables are complete.")
    try:
        content = _content(out, summary, iter(thumbnails), max_rows, max_thumbnails)
        with atomic(out / "scores.html") as file:
            for piece in environment().get_template("scores.html.j2").generate(content):
                file.write(piece.encode("utf-8"))
    except (ValueError, KeyError, FileNotFoundError) as error:  # pyarrow's and pandas' own errors are ValueErrors
        raise UsvitError(f"The tables in {out} cannot be read: {' '.join(str(error).split())}.") from error
    return out / "scores.html"


def _content(out: Path, summary: dict[str, Any], thumbnails: Any, max_rows: int, max_thumbnails: int) -> dict[str, Any]:
    positive, threshold = summary["positive_class"], summary["threshold"]["value"]
    values = _values(out / "scores.parquet", positive)
    first = next(thumbnails, None)
    images = Sheet.of_parquet(
        out / "scores.parquet",
        _image_columns(positive, summary, with_path=bool(values["has_path"])),
        highest(values["calibrated"], max_rows),
        sort=f"calibrated_{positive}",
    )
    if first is not None:
        images.picture(first, thumbnails, highest(values["calibrated"], min(max_rows, max_thumbnails)))
    failures = summary["failures"]
    return {
        "summary": summary,
        "counts": summary["counts"],
        "positive": positive,
        "model": summary["model"],
        "members": _members(summary),
        "name": listed(dict.fromkeys(one["architecture"] for one in _members(summary))),
        "threshold": threshold,
        "rate": dig(summary, "model.novelty.in_distribution"),
        "most_failures": max((one["rows"] for one in failures.values()), default=1),
        "plots": _plots(values, positive, summary) if len(values["calibrated"]) else [],
        "meanings": MEANINGS | FLAG_MEANINGS,
        "products": PRODUCTS,
        "advice": ADVICE,
        "images": images,
        "groups": {
            unit: Sheet.of_csv(
                out / f"{unit}.csv", _group_columns(unit, positive), max_rows, sort=f"mean_calibrated_{positive}"
            )
            for unit in ("patients", "studies")
        },
        "failed": Sheet.of_csv(out / "failures.csv", _FAILED, max_rows),
        **script_of("scores.js"),
    }


def _values(path: Path, positive: str) -> dict[str, NDArray[Any]]:
    """Of all rows: ``calibrated``, ``novelty`` and ``quality``, (N,) float64; ``unusual``, (N,) bool; ``has_path``."""
    names = {"calibrated": f"calibrated_{positive}", "novelty": "novelty", "quality": "quality", "unusual": "unusual"}
    parts: dict[str, list[NDArray[Any]]] = {name: [np.empty(0)] for name in names}
    has_path = False
    for rows in parquet_portions(path):
        has_path |= bool(rows["path"].notna().any())
        for name, column in names.items():
            parts[name].append(rows[column].astype(np.float64).to_numpy())
    found = {name: np.concatenate(own) for name, own in parts.items()}
    return found | {"unusual": found["unusual"] == 1, "has_path": np.array(has_path)}


def _plots(values: dict[str, NDArray[Any]], positive: str, summary: dict[str, Any]) -> list[tuple[Plot, str]]:
    """Figures, and what their captions say."""
    threshold = summary["threshold"]["value"]
    plots = [
        (
            probability_plot(values["calibrated"], values["unusual"], threshold),
            f"Calibrated probability of {positive}, all scored images.",
        )
    ]
    if np.isfinite(values["novelty"]).any():
        limit = dig(summary, "novelty.threshold")
        plots.append(
            (
                novelty_plot(values["novelty"], limit),
                "Novelty: how unlike its training images an image is to the network"
                + (f"; unusual above {limit:g}." if limit is not None else "."),
            )
        )
    said = "Technical quality: sharpness, grey levels, what is black or saturated; 0 is blank, about 0.75 usual. "
    plots.append((quality_plot(values["quality"]), said + "It does not say whether an image can be diagnosed."))
    return plots


def _image_columns(positive: str, summary: dict[str, Any], *, with_path: bool) -> tuple[Column, ...]:
    return (
        Column("item_id", "Image", "id"),
        Column("frame", "Frame", "count"),
        *((Column("path", "Path"),) if with_path else ()),
        *((Column("decision", "Decision", "decision"),) if summary["threshold"]["value"] is not None else ()),
        Column(f"calibrated_{positive}", "Calibrated", "prob"),
        Column(f"prob_{positive}", "Raw", "number"),
        *((Column(f"spread_{positive}", "Spread", "number"),) if len(_members(summary)) != 1 else ()),
        Column("novelty", "Novelty", "number"),
        Column("flags", "Flags", "flags"),
        Column("quality", "Quality", "number"),
        Column("patient_id", "Patient", "id"),
        Column("study_id", "Study", "id"),
    )


def _members(summary: dict[str, Any]) -> list[dict[str, Any]]:
    found = dig(summary, "model.members")
    return found if isinstance(found, list) else []


def _group_columns(unit: str, positive: str) -> tuple[Column, ...]:
    ids = {
        "patients": (Column("patient_id", "Patient", "id"), Column("n_studies", "Studies", "count")),
        "studies": (Column("study_id", "Study", "id"), Column("patient_id", "Patient", "id")),
    }[unit]
    return (
        *ids,
        Column("n_files", "Files", "count"),
        Column("n_frames", "Frames", "count"),
        Column("n_positive", f"Frames {positive}", "count"),
        Column("n_unusual", "Frames unusual", "count"),
        Column("decision", "Decision", "decision"),
        Column(f"mean_calibrated_{positive}", "Mean", "prob"),
        Column(f"max_calibrated_{positive}", "Highest", "prob"),
        Column("max_item_id", "Highest in", "id"),
        Column("max_frame", "Frame", "count"),
    )


_FAILED = (
    Column("item_id", "File", "id"),
    Column("frame", "Frame", "count"),
    Column("path", "Path"),
    Column("code", "Code"),
    Column("reason", "Reason"),
)
