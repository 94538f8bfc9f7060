"""A model beside readers: one page, and the same content as JSON, Markdown and LaTeX."""

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

import usvit.documents as doc
from usvit.config.keywords import takes_settings
from usvit.config.readers import ReaderSettings
from usvit.errors import UsvitError
from usvit.evaluation import (
    USUAL_COLUMNS,
    Columns,
    Predictions,
    compare_with_readers,
    first_repeat,
    open_predictions,
    read_readers,
    rows_of,
)
from usvit.files import OutputFolder
from usvit.metrics.basic import roc
from usvit.records import ReaderPoint, ReadersRecord, fitting, save_record
from usvit.reports.comparison_files import write_document
from usvit.reports.figures import square
from usvit.reports.readers_document import readers_document

FILES = ("readers.json", "readers.md", "readers.tex", "readers.html")


@takes_settings
def compare_readers(
    run: str | Path,
    settings: ReaderSettings,
    *,
    positive: str | None = None,
    columns: Columns = USUAL_COLUMNS,
    out: str | Path | None = None,
) -> tuple[ReadersRecord, Path]:
    """Compare the model of a run (or a predictions table) with the BI-RADS categories of readers, and write the page.

    Args:
        run: a run directory or a predictions table.
        settings: see ``ReaderSettings``.
        positive: the positive class; None takes that of the run, or ``malignant``.
        columns: which column of a predictions table holds what.
        out: the folder to write; None takes ``compare-<run>-readers`` in the current folder.

    Returns:
        The content of readers.json (docs/reference/readers.schema.json), and the folder with ``FILES``.

    Raises:
        UsvitError: no column is named; as ``open_predictions``, ``read_readers`` and ``compare_with_readers``; ``out``
            holds other files.

    Example:
        >>> import pandas as pd, usvit
        >>> images = pd.read_csv("runs/small/folds.csv", dtype=str).drop_duplicates("image_id")[["image_id"]]
        >>> images["category"] = [("2", "3", "4a", "4b", "5")[k % 5] for k in range(len(images))]
        >>> images.to_csv("categories.csv", index=False)
        >>> table = Path("categories.csv")
        >>> record, folder = usvit.compare_readers("runs/small", readers=("category",), manifest=table, out="beside")
        >>> record.readers[0].reader, (folder / "readers.html").is_file()
        ('category', True)
    """
    path = Path(run)
    if not settings.readers:
        raise UsvitError("Name the column of at least one reader with --readers, such as --readers birads.")
    with fitting(path):
        found = open_predictions(path, positive=positive, columns=columns)
        categories = read_readers(found, settings.readers, settings.manifest)
        name = re.sub(r"[^\w.+-]+", "-", found.name)
        folder = Path(out) if out else Path(f"compare-{name}-readers")
        output = OutputFolder(folder, "a comparison with readers", files=FILES)
        output.refuse_other_files()
        record = compare_with_readers(found, categories)
    with output.opened():
        save_record(folder / "readers.json", record)
        document = readers_document(record, _roc(found, record))
        write_document(folder, "readers", document)
    return record, folder


def _roc(found: Predictions, record: ReadersRecord) -> doc.Plot:
    """Plot the ROC curve of the model over all tested images, and the points of each reader with their intervals."""
    rows = rows_of(first_repeat(found.table), "test", record.classes)
    k = rows.index(record.positive_class)
    curve = roc(rows.label == k, rows.prob[:, k])
    names = [one.reader for one in record.readers]

    def draw(pens: doc.Pens) -> Figure:
        figure, axes = square("1 - specificity", "Sensitivity")
        axes.plot([0, 1], [0, 1], color=pens.grid, linewidth=1)
        if curve is not None:
            axes.plot(*curve, color=pens.series[0], linewidth=1.8)
        for number, name in enumerate(names, 1):
            colour, dashes = pens.series[number % doc.N_SERIES], doc.DASHES[number % doc.N_SERIES]
            points = [one for one in record.points if one.reader == name]
            for one in points:
                for x, y in _crosses(one):
                    axes.plot(x, y, color=colour, linewidth=0.9)
            at = np.array([_place(one) for one in points if _place(one)], dtype=float).reshape(-1, 2)
            (line,) = axes.plot(*at.T, color=colour, linewidth=0.8, marker="o", markersize=3.5)
            line.set_dashes(dashes or (None, None))
        return figure

    legend = [doc.LegendEntry(f"{record.run}, all tested images", "series-0", 1.8)]
    legend += [
        doc.LegendEntry(name, f"series-{number % doc.N_SERIES}", 0.9, doc.DASHES[number % doc.N_SERIES])
        for number, name in enumerate(names, 1)
    ]
    title = "ROC curve of the model, and the points of the readers with 95 % intervals; the numbers are in the tables"
    return doc.Plot("plot-readers", title, draw, tuple(legend))


def _place(point: ReaderPoint) -> tuple[float, float] | None:
    """Return 1 - specificity and sensitivity; None if one is undefined."""
    up, down = point.outcome.sensitivity.value, point.outcome.specificity.value
    return None if up is None or down is None else (1 - down, up)


def _crosses(point: ReaderPoint) -> list[tuple[Sequence[float], Sequence[float]]]:
    """Return the lines of the two intervals of a point."""
    place, up, down = _place(point), point.outcome.sensitivity.ci95, point.outcome.specificity.ci95
    if place is None:
        return []
    lines: list[tuple[Sequence[float], Sequence[float]]] = []
    if up is not None:
        lines.append(((place[0], place[0]), up))
    if down is not None:
        lines.append(((1 - down[1], 1 - down[0]), (place[1], place[1])))
    return lines
