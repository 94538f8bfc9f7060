"""Comparison of runs: one page, and the same content as JSON, Markdown and LaTeX."""

import re
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

import usvit.documents as doc
from usvit.config.comparison import ComparisonSettings
from usvit.config.evaluation import UnitSettings
from usvit.config.fields import part
from usvit.config.keywords import takes_settings
from usvit.errors import UsvitError
from usvit.evaluation import (
    AREA,
    USUAL_COLUMNS,
    Columns,
    Predictions,
    at_units,
    compare_predictions,
    names_of,
    open_all,
    rows_of,
    units_to_use,
)
from usvit.files import OutputFolder
from usvit.metrics.basic import roc
from usvit.metrics.margin_tests import check_margin
from usvit.records import CompareRecord, save_record
from usvit.reports.comparison_document import comparison_document
from usvit.reports.comparison_files import write_document
from usvit.reports.figures import square

FILES = ("compare.json", "compare.md", "compare.tex", "compare.html")


@takes_settings
def compare(
    *runs: str | Path,
    settings: ComparisonSettings,
    columns: Columns = USUAL_COLUMNS,
    out: str | Path | None = None,
) -> tuple[CompareRecord, Path]:
    """Compare two or more runs (or predictions tables) on the same images, pair by pair, and write the page.

    Args:
        runs: two or more run directories or predictions tables.
        settings: see ``ComparisonSettings``.
        columns: which column of the tables holds what. Beside a run, columns are also found by the names of its images
            and classes, and labels, groups and folds are those of the run (``evaluation.open_beside``).
        out: the folder to write; None takes ``compare-<run>-<run>...`` in the current folder.

    Returns:
        The content of compare.json (docs/reference/compare.schema.json), and the folder with ``FILES``.

    Raises:
        UsvitError: fewer than two runs or one twice; images, labels, groups, folds or positive classes of two runs
            differ (the difference is named); ``out`` holds other files; there is no such ``primary`` figure; and as
            ``open_predictions``.

    Example:
        >>> import usvit
        >>> record, folder = usvit.compare("runs/small", "runs/other", out="comparison")
        >>> len(record.pairs), (folder / "compare.html").is_file()
        (1, True)
    """
    paths = [Path(run) for run in runs]
    if settings.margin is not None:
        check_margin(settings.margin)
    elif settings.test is not None:
        raise UsvitError(
            f"--test {settings.test} needs a --margin, such as 0.05: the difference that would not matter."
        )
    elif settings.primary != AREA:
        raise UsvitError(
            f"--primary {settings.primary} needs a --margin, such as 0.05: it is the figure that a verdict is about."
        )
    if len(paths) < 2:
        raise UsvitError("Name at least two runs or predictions tables to compare.")
    if len({path.resolve() for path in paths}) < len(paths):
        raise UsvitError("The same run is named twice. Name different runs.")
    opened = open_all(paths, settings.positive, columns)
    names = names_of(opened, paths, settings.names)
    run = next((one for one in opened if one.record is not None), opened[0])  # whose unit a table has, too
    units = [units_to_use(run if one.record is None else one, part(settings, UnitSettings)) for one in opened]
    _refuse_other_units(units, names)
    opened = [at_units(one, own) for one, own in zip(opened, units, strict=True)]
    folder = Path(out) if out else Path("compare-" + re.sub(r"[^\w.+-]+", "-", "-".join(names)))
    output = OutputFolder(folder, "a comparison", files=FILES)
    output.refuse_other_files()
    record = compare_predictions(opened, names, settings.margin, settings.test or "noninferiority", settings.primary)
    with output.opened():
        save_record(folder / "compare.json", record)
        document = comparison_document(record, {"roc": _roc(opened, record), "differences": _differences(record)})
        write_document(folder, "compare", document)
    return record, folder


def _refuse_other_units(units: Sequence[UnitSettings], names: Sequence[str]) -> None:
    """Raise UsvitError unless all runs have rows of one kind; each may pool its images in its own way."""
    for own, name in zip(units[1:], names[1:], strict=True):
        stated = [(one.unit or "image", one.unit_labels) for one in (units[0], own)]
        if stated[0] != stated[1]:
            (first, rule), (other, other_rule) = stated
            raise UsvitError(
                f"{names[0]} has figures of {first}s (labels: {rule}), and {name} of {other}s (labels: {other_rule}). "
                "Pass --unit to compare both at one unit."
            )


def _roc(opened: Sequence[Predictions], record: CompareRecord) -> doc.Plot:
    """Plot the ROC curve of each run, from its pooled test images."""
    k = record.classes.index(record.positive_class)
    tables = [rows_of(one.table, "test", record.classes) for one in opened]
    curves = [roc(rows.label == k, rows.prob[:, k]) for rows in tables]

    def draw(pens: doc.Pens) -> Figure:
        figure, axes = square("1 - specificity", "Sensitivity")
        axes.plot([0, 1], [0, 1], color=pens.grid, linewidth=1)
        for number, curve in enumerate(curves):
            if curve is not None:
                (line,) = axes.plot(*curve, color=pens.series[number % doc.N_SERIES], linewidth=1.5)
                if doc.DASHES[number % doc.N_SERIES]:
                    line.set_dashes(doc.DASHES[number % doc.N_SERIES])
        axes.set(xlim=(-0.01, 1.01), ylim=(-0.01, 1.01))
        return figure

    title = "ROC curves of all runs, pooled test images; the AUCs are in the table"
    legend = (
        doc.LegendEntry(run.name, f"series-{number % doc.N_SERIES}", 1.8, doc.DASHES[number % doc.N_SERIES])
        for number, run in enumerate(record.runs)
    )
    return doc.Plot("plot-roc", title, draw, tuple(legend))


def _differences(record: CompareRecord) -> doc.Plot:
    """Plot the headline differences, the margin if there is one, and the 90 % intervals of equivalence as bars."""
    pairs, margin = record.pairs, record.non_inferiority_margin or record.equivalence_margin

    def draw(pens: doc.Pens) -> Figure:
        figure = Figure(figsize=(4.6, 0.7 + 0.28 * len(pairs)), layout="constrained")
        axes = figure.add_subplot()
        axes.axvline(0, color=pens.muted, linewidth=1)
        for side in (-1, 1) if margin is not None else ():
            axes.axvline(side * (margin or 0.0), color=pens.series[1], linewidth=1.2, dashes=(4, 2))
        for row, pair in enumerate(pairs):
            area = pair.headline
            if area.ci95 is not None:
                axes.plot(area.ci95, [row, row], color=pens.ink, linewidth=1.4)
            if pair.equivalence is not None and pair.equivalence.auc.ci90 is not None:
                axes.plot(pair.equivalence.auc.ci90, [row, row], color=pens.ink, linewidth=4, solid_capstyle="butt")
            if area.value is not None:
                axes.plot(area.value, row, marker="o", markersize=4, color=pens.series[0])
        axes.set(xlabel="Mean difference of AUCs within folds, 95 % interval", ylim=(len(pairs) - 0.5, -0.5))
        axes.set_yticks(range(len(pairs)), [str(row + 1) for row in range(len(pairs))])
        axes.grid(axis="y", visible=False)
        return figure

    title = "Mean differences of AUCs within folds with 95 % intervals, in the order of the table; 0: no difference"
    return doc.Plot("plot-differences", title, draw)
