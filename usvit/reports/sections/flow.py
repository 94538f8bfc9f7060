"""The flow of images into the test, and how common the positive class is among them."""

import usvit.documents as doc
from usvit.records import FlowStep, MetricsRecord
from usvit.reports.flow import Flow
from usvit.wording import capitalized, listed

_Rows = list[doc.TableRow | tuple[doc.Cell, ...]]


def flow_section(metrics: MetricsRecord, flow: Flow, plot: doc.Plot | None = None) -> doc.DocumentSection:
    """Build the section of the flow diagram and of the prevalence; without ``plot``, of their tables."""
    blocks = [*flow_blocks(flow, plot), *_prevalence(metrics)]
    return doc.DocumentSection("Flow and prevalence", blocks, "flow", "Flow")


def flow_blocks(flow: Flow, plot: doc.Plot | None) -> list[doc.Block]:
    """Return the diagram, and its numbers as tables."""
    n_units = [unit for unit in ("lesion", "patient") if any(_of(one, unit) is not None for one in flow.steps)]
    caption = "Each number of what is kept is that of the row above, less what was left out."
    if n_units:
        caption += f" Of {listed(f'{unit}s' for unit in n_units)}, those with no image left count as left out."
    rows: _Rows = [(_name(one), one.n, *(_number(_of(one, unit)) for unit in n_units)) for one in flow.steps]
    heads = doc.numbers("Images", *(f"{unit}s".capitalize() for unit in n_units))
    blocks: list[doc.Block] = []
    if plot is not None:
        blocks.append(doc.Figure(plot, f"Flow diagram, after STARD. Positive: {flow.positive}. {flow.remark}".rstrip()))
    blocks.append(
        doc.Table(
            "Flow of images",
            ["Step", *heads],
            rows,
            caption if plot is not None else f"{caption} {flow.remark}".rstrip(),
        )
    )
    ends: _Rows = [(one.name, one.n, *(n for _, n in one.results)) for one in flow.ends]
    units = f"{flow.unit}s"
    heads = doc.numbers(capitalized(units), *(capitalized(said) for said, _ in flow.ends[0].results))
    said = f"Called {flow.positive} (positive) or not, by {flow.decided_by}. The figures count {units}."
    blocks.append(doc.Table("Test predictions", ["Class", *heads], ends, said))
    if flow.labels:
        own: _Rows = [(_name(one), one.n) for one in flow.labels]
        said = "Labels that match no scored file are not in the flow of images."
        blocks.append(doc.Table("Flow of labels", ["Step", *doc.numbers("Labels")], own, said))
    return blocks


def _prevalence(metrics: MetricsRecord) -> list[doc.Block]:
    if not metrics.prevalence:
        return []
    positive, row = metrics.positive_class, metrics.row
    rows: _Rows = []
    for one in metrics.prevalence:
        unit = row if one.unit == "image" else one.unit
        rows.append((f"Per {unit}", one.n, one.n_positive, one.share, one.n_images_without_id))
    known = {one.unit for one in metrics.prevalence}
    said = f"Share of {positive} among the tested images, with 95 % intervals that count groups. A lesion or patient "
    said += f"is {positive} if one of its images is. PPV, NPV, calibration and decision curve hold for the prevalence "
    said += f"per {row}, unless they say otherwise."
    absent = [unit for unit in ("lesion", "patient") if unit not in known]
    if absent:
        said += f" There is none per {' or '.join(absent)}: no image says to which {' or '.join(absent)} it belongs."
    heads = doc.numbers("Number", capitalized(positive), "Prevalence") + doc.numbers("Images without id", detail=True)
    return [doc.Paragraph(said), doc.Table("Prevalence by unit", ["Unit", *heads], rows)]


def _name(step: FlowStep) -> str:
    return f"\N{MINUS SIGN} {step.what}" if step.left_out else step.what


def _of(step: FlowStep, unit: str) -> int | None:
    number: int | None = getattr(step, f"n_{unit}s")
    return number


def _number(n: int | None) -> doc.Cell:
    return "" if n is None else n
