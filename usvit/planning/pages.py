"""``plan.json`` and ``plan.html``: one file without script or network."""

import functools
from pathlib import Path
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader
from matplotlib.figure import Figure

from usvit.documents import LegendEntry, Pens, Plot
from usvit.files import OutputFolder, write_text
from usvit.records import PlanCriterion, PlanRecord, write_record
from usvit.reports import LOADERS, environment
from usvit.wording import plural as plural

TITLES = {
    "validation": "Sample size to validate a model",
    "accuracy": "Sample size for sensitivity and specificity",
    "comparison": "Sample size to compare two models",
}


def checked_folder(out: str | Path) -> OutputFolder:
    """Return the folder to write, after a check that it holds nothing but an earlier plan.

    Raises:
        UsvitError: It is a file or holds other files.
    """
    folder = OutputFolder(Path(out), "a plan", files=("plan.json", "plan.html"))
    folder.refuse_other_files()
    return folder


def write_plan(folder: OutputFolder, content: dict[str, Any]) -> PlanRecord:
    """Write plan.json and plan.html; the same content gives the same bytes."""
    with folder.opened():
        record = write_record(folder.path / "plan.json", content, PlanRecord)
        plots = [curve_plot(record)] if record.curve else []
        if record.design == "comparison" and record.curve:
            plots.append(power_plot(record))
        page = (
            _environment()
            .get_template("plan.html.j2")
            .render(
                plan=record,
                title=TITLES[record.design],
                plots=plots,
                sentence=in_words(record),
                aim=aim_in_words,
                named=[one.name for one in record.criteria if record.curve and one.name in record.curve[0].half_widths],
            )
        )
        write_text(folder.path / "plan.html", page)
    return record


def in_words(record: PlanRecord) -> str:
    """Return the answer of a plan as one sentence."""
    if record.n_patients is None or record.n_images is None:
        return "No study of a practicable size reaches the aim."
    size = plural(record.n_patients, "patient")
    if record.n_images != record.n_patients:
        size += f" with {record.n_images:,} images"
    positive = (
        ""
        if record.n_positive_images is None
        else f", of them about {record.n_positive_images:,} with a positive label"
    )
    if record.design == "comparison":
        return f"The study needs at least {size}{positive}."
    return f"The study needs at least {size}{positive}. The {record.decisive} decides."


def aim_in_words(criterion: PlanCriterion) -> str:
    """Format the aim: ``95 % interval of width 0.2``."""
    if criterion.target_kind == "power":
        return f"power {criterion.target:g}"
    if criterion.target_kind == "half width":
        return f"95 % interval of ± {criterion.target:g}"
    return f"95 % interval of width {criterion.target:g}"


def curve_plot(record: PlanRecord) -> Plot:
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


def power_plot(record: PlanRecord) -> Plot:
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


@functools.cache
def _environment() -> Environment:
    return environment().overlay(loader=ChoiceLoader([PackageLoader("usvit.planning"), *LOADERS]))
