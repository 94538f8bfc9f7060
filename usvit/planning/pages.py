"""``plan.json`` and ``plan.html``: one file without script or network."""

from pathlib import Path

from matplotlib.figure import Figure

import usvit.documents as doc
from usvit.documents import LegendEntry, Pens, Plot
from usvit.files import OutputFolder, write_text
from usvit.planning.document import plan_document
from usvit.records import PlanRecord, save_record


def checked_folder(out: str | Path) -> OutputFolder:
    """Return the folder to write, after a check that it holds nothing but an earlier plan.

    Raises:
        UsvitError: It is a file or holds other files.
    """
    folder = OutputFolder(Path(out), "a plan", files=("plan.json", "plan.html"))
    folder.refuse_other_files()
    return folder


def write_plan(folder: OutputFolder, record: PlanRecord) -> None:
    """Write plan.json and plan.html; the same record gives the same bytes."""
    with folder.opened():
        save_record(folder.path / "plan.json", record)
        plots = [_curve_plot(record)] if record.curve else []
        if record.design == "comparison" and record.curve:
            plots.append(_power_plot(record))
        write_text(folder.path / "plan.html", doc.html_page(plan_document(record, plots)))


def _curve_plot(record: PlanRecord) -> Plot:
    """Plot the expected half width of each interval over the number of patients."""
    drawn = [one for one in record.criteria if one.name in record.curve[0].half_widths]
    patients = [point.n_patients for point in record.curve]

    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=(5.2, 3.1), layout="constrained")
        axes = figure.add_subplot()
        for k, one in enumerate(drawn):
            values = [point.half_widths[one.name] for point in record.curve]
            (line,) = axes.plot(patients, values, color=pens.series[k], linewidth=1.6)
            if entries[k].dash:
                line.set_dashes(entries[k].dash)
            if one.n_patients is not None and one.target_kind != "power" and one.target is not None:
                aim = one.target / (2 if one.target_kind == "width" else 1)
                axes.plot(one.n_patients, aim, color=pens.series[k], marker="o", markersize=4.5, linestyle="none")
        if record.n_patients is not None:
            axes.axvline(record.n_patients, color=pens.muted, linewidth=1, dashes=(2, 2))
        axes.set(xlabel="Patients", ylabel="Half the width of the 95 % interval", xlim=(0, None), ylim=(0, None))
        return figure

    dashes: tuple[tuple[float, ...], ...] = ((), (5, 1.8), (1.4, 1.6), (7, 1.6, 1.4, 1.6))
    entries = tuple(LegendEntry(one.name, f"series-{k}", dash=dashes[k]) for k, one in enumerate(drawn))
    return Plot("precision", "Expected half width of each 95 % interval over the number of patients", draw, entries)


def _power_plot(record: PlanRecord) -> Plot:
    """Plot the power of a comparison over the number of patients."""

    def draw(pens: Pens) -> Figure:
        figure = Figure(figsize=(5.2, 2.6), layout="constrained")
        axes = figure.add_subplot()
        power = [point.power or 0.0 for point in record.curve]
        axes.plot([point.n_patients for point in record.curve], power, color=pens.series[0], linewidth=1.6)
        if record.n_patients is not None and record.criteria[0].target is not None:
            axes.plot(record.n_patients, record.criteria[0].target, color=pens.series[0], marker="o", markersize=4.5)
            axes.axvline(record.n_patients, color=pens.muted, linewidth=1, dashes=(2, 2))
        axes.set(xlabel="Patients", ylabel="Power", xlim=(0, None), ylim=(0, 1.02))
        return figure

    return Plot("power", "Power over the number of patients", draw)
