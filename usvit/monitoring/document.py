"""The document of ``watch.json``: for its page, Markdown and the terminal."""

from collections.abc import Mapping

import usvit.documents as doc
from usvit.documents import Plot
from usvit.monitoring.charts import QUANTITIES
from usvit.monitoring.rules import alarm_words, chart_words
from usvit.records import WatchChart, WatchPeriod, WatchRecord
from usvit.wording import capitalized, plural

_MOST_REASONS = 12


def watch_document(record: WatchRecord, plots: Mapping[tuple[int, str], Plot] | None = None) -> doc.Document:
    """Build the document of a watched model."""
    sections = [_inventory(record)]
    if record.acceptance is not None:
        sections.append(_acceptance(record))
    if record.stop:
        rows = [
            (doc.code(one.rule), doc.bad("stop") if one.fulfilled else "not fulfilled", one.found)
            for one in record.stop
        ]
        sections.append(
            doc.DocumentSection(
                "Conditions to stop", [doc.Table("Conditions", ["Condition", "Verdict", "Found"], rows)], "stop"
            )
        )
    for number in sorted({one.model for one in record.charts}):
        sections.append(_model(record, number, plots or {}))
    sections.append(doc.DocumentSection("Method", [doc.Facts(_method(record))], "method", detail=True))
    repeat: list[doc.Block] = [doc.CodeBlock("Command", record.command), doc.Facts([("usvit", record.usvit_version)])]
    sections.append(doc.DocumentSection("How to repeat it", repeat, "repeat", detail=True))
    return doc.Document(
        title="A model in use",
        kind=f"{record.time[:16].replace('T', ' ')} UTC",
        lead=_lead(record),
        sections=sections,
        made_from=f"watch.json (schema {record.schema_version})",
    )


def verdict_words(record: WatchRecord) -> str:
    """Say the verdict in one sentence."""
    return {
        "stop": "Stop: a declared condition to stop using the model is fulfilled.",
        "alarm": "Alarm: find out why before the model is used further.",
        "in control": "In control: no alarm.",
        "not tested": "Not tested: there is nothing to compare yet.",
    }[record.verdict]


def _lead(record: WatchRecord) -> list[doc.Block]:
    words = verdict_words(record)
    if record.verdict in ("stop", "alarm"):
        blocks: list[doc.Block] = [doc.Note(doc.strong(words))]
    else:
        blocks = [doc.Paragraph(doc.strong(words))]
    left = len(record.reasons) - _MOST_REASONS
    shown = [*record.reasons[:_MOST_REASONS], *([f"and {left} more, in the tables below"] if left > 0 else [])]
    if shown:
        blocks.append(doc.Listing(shown))
    expected = f"{record.false_alarms:g} false {'alarm is' if record.false_alarms == 1 else 'alarms are'}"
    blocks.append(
        doc.Paragraph(
            f"If nothing changes, {expected} expected in a year over all charts: "
            f"{100 * record.rate:.2g} % of the {record.every}s have one."
        )
    )
    return [*blocks, *(doc.Note(one) for one in record.warnings)]


def _inventory(record: WatchRecord) -> doc.DocumentSection:
    rows: list[tuple[doc.Cell, ...]] = []
    for k, one in enumerate(record.inventory):
        threshold = "none" if one.threshold is None else f"{one.threshold:.4g}"
        rows.append(
            (
                f"Model {k + 1}",
                one.first,
                one.last,
                one.n_images,
                doc.code((one.sha256 or "")[:12] or "not recorded"),
                threshold,
                doc.code((one.calibration_sha256 or "")[:12]) if one.calibration_sha256 else "none",
                ", ".join(one.architectures) or None,
                ", ".join(one.usvit_versions) or None,
            )
        )
    heads: list[str | doc.Column] = [
        "Model",
        "Since",
        "Until",
        *doc.numbers("Images"),
        "SHA-256",
        *doc.numbers("Threshold"),
    ]
    heads += [doc.Column("Recalibration"), doc.Column("Architectures", detail=True), doc.Column("usvit", detail=True)]
    table = doc.Table("Inventory", heads, rows, "What made the decisions, and when. A hash is shown by its beginning.")
    origins = [(f"Threshold of model {k + 1}", one.threshold_origin) for k, one in enumerate(record.inventory)]
    return doc.DocumentSection("What runs", [table, doc.Facts(origins)], "inventory")


def _acceptance(record: WatchRecord) -> doc.DocumentSection:
    found = record.acceptance
    assert found is not None
    verdict = doc.strong("accepted") if found.accepted else doc.bad("not accepted")
    rows = [
        (
            capitalized(one.name),
            one.value,
            f"{one.minimum:g}",
            "met" if one.met else doc.bad("not met"),
        )
        for one in found.figures
    ]
    caption = (
        f"{plural(found.n_images, 'image')} of {plural(found.n_groups, 'group')}, model {found.model_sha256[:12]}. "
        "A minimum, declared beforehand, is met if the lower end of the 95 % interval reaches it."
    )
    heads: list[str | doc.Column] = ["Figure", *doc.numbers("Local cases", "Minimum"), "Verdict"]
    table = doc.Table("Acceptance", heads, rows, caption)
    return doc.DocumentSection("Acceptance test", [doc.Paragraph(("Local cases: ", verdict, ".")), table], "acceptance")


def _model(record: WatchRecord, number: int, plots: Mapping[tuple[int, str], Plot]) -> doc.DocumentSection:
    charts = [one for one in record.charts if one.model == number]
    blocks: list[doc.Block] = []
    for chart in charts:
        whole = chart.division == "all"
        parts: list[doc.Block] = [doc.Note(chart.reason)] if chart.reason else []
        parts.append(_overview(chart))
        parts.append(_values(chart))
        figures = [doc.Figure(plots[number, name]) for name in chart.baseline if (number, name) in plots]
        if whole and figures:
            parts.append(doc.Gallery(figures))
        title = f"{capitalized(chart_words(chart))}: baseline of {plural(chart.n_baseline_patients, 'patient')}"
        blocks.append(doc.DocumentSection(title, parts))
    return doc.DocumentSection(f"Model {number + 1}", blocks, f"model-{number + 1}")


def _overview(chart: WatchChart) -> doc.Table:
    rows: list[tuple[doc.Cell, ...]] = []
    for one in chart.periods:
        alarms: doc.Words = (
            doc.bad("; ".join(alarm_words(one, chart))) if one.alarms else "none" if one.state == "tested" else "–"
        )
        told = [f"{name} {n}" for name, n in one.failures.items()]
        counted = [one.decisions.get(name, 0) for name in ("positive", "negative", "none")]
        rows.append(
            (one.period, _state(one), one.n_patients, one.n_images, *counted, ", ".join(told) or "none", alarms)
        )
    heads: list[str | doc.Column] = ["Period", "State", *doc.numbers("Patients", "Images")]
    heads += [*doc.numbers("Positive", "Negative", "No decision", detail=True), doc.Column("Not scored", detail=True)]
    return doc.Table(f"Periods of {chart_words(chart)}", [*heads, "Alarms"], rows)


def _state(period: WatchPeriod) -> str:
    return "no images" if period.state == "not tested" and not period.n_images else period.state


def _values(chart: WatchChart) -> doc.Table:
    names = list(chart.baseline)
    base = [doc.Quantity(chart.baseline[name], QUANTITIES[name].digits) for name in names]
    rows: list[doc.TableRow | tuple[doc.Cell, ...]] = [doc.TableRow(("Baseline", *base), "total")]
    for one in (one for one in chart.periods if one.state != "baseline" and one.n_images):
        cells: list[doc.Cell] = [one.period]
        for name in names:
            value = one.values[name]
            text: doc.Words = doc.Quantity(value.value, QUANTITIES[name].digits)
            cells.append((text, " ", doc.bad(" and ".join(value.alarms))) if value.alarms else text)
        rows.append(tuple(cells))
    heads: list[str | doc.Column] = ["Period", *doc.numbers(*(QUANTITIES[name].title for name in names))]
    caption = "With 95 % intervals by patient. The limits of the alarms are wider, since they hold for all quantities."
    return doc.Table(f"Quantities of {chart_words(chart)}", heads, rows, caption, detail=True)


def _method(record: WatchRecord) -> list[tuple[str, doc.Words]]:
    return [
        ("Baseline", f"{capitalized(record.baseline)}. A model that replaces another has a baseline of its own."),
        (
            "Dates",
            "StudyDate where the scores have it, otherwise the day of scoring"
            if record.dates == "study"
            else "the day of scoring",
        ),
        (
            "Jump",
            "The largest deviation of all quantities from the baseline, over its standard error by patients (Shewhart; "
            "maximum over quantities: Westfall & Young 1993).",
        ),
        (
            "Drift",
            "The largest moving average of the deviations, weight 0.2 (EWMA; Roberts 1959). An alarm starts it again.",
        ),
        (
            "Limits",
            "Quantiles of histories in which whole patients of the baseline are drawn, as many as each period has, "
            "against a redrawn baseline (Shen et al. 2014, Zhang & Woodall 2015). Half of the rate for each of jump "
            "and drift; equal parts for the charts of a period.",
        ),
        (
            "Not covered",
            "A rise of failures is judged file by file, because the patient of a failed file is not known.",
        ),
    ]
