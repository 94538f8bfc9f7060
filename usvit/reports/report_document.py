"""The document of a run or of an evaluation, for the page and Markdown; and what the commands print of it."""

import usvit.documents as doc
from usvit.records import MetricsRecord
from usvit.reports.content import ReportContent
from usvit.reports.flow import Flow, flow_of_metrics
from usvit.reports.sections.abstention import abstention_section
from usvit.reports.sections.calibration import curves_section
from usvit.reports.sections.cases import cases_section
from usvit.reports.sections.data import cards_section, checklists_section, data_section, leakage_section
from usvit.reports.sections.decisions import classes_section, points_section
from usvit.reports.sections.external import external_section
from usvit.reports.sections.flow import flow_section
from usvit.reports.sections.masks import masks_section
from usvit.reports.sections.results import results_section
from usvit.reports.sections.subgroups import subgroups_section
from usvit.reports.sections.training import contamination_notes, repeat_section, state_notes, training_section


def report_document(content: ReportContent) -> doc.Document:
    """Build the document of a report."""
    run, metrics, plots = content.run, content.run.metrics, content.plots
    tested = "pooled" if content.cross_validated else run.tested_set
    parts = None if run.evaluated else run.parts
    sections = [results_section(metrics, plots, run.tested_set, parts)]
    sections.append(flow_section(metrics, content.flow, plots["flow"]))
    if metrics.external:
        sections.append(external_section(metrics, metrics.external))
    if metrics.masks:
        sections.append(masks_section(metrics.masks))
    sections += [
        classes_section(metrics, run.tested_set),
        curves_section(metrics, plots, tested),
        points_section(metrics, content.at_prevalence, run.tested_set),
        abstention_section(metrics, plots, tested),
        subgroups_section(metrics),
        cases_section(content),
        leakage_section(content),
        data_section(content),
        *([] if run.evaluated else [_training(content)]),
        cards_section(content),
        doc.DocumentSection("Limits", [doc.Listing(content.limits)], "limits"),
        checklists_section(content),
        repeat_section(run.record, several=content.cross_validated),
    ]
    return doc.Document(
        title=content.title,
        kind=f"Classification of breast-ultrasound images, {run.design}",
        lead=_lead(content),
        sections=sections,
        made_from=f"run.json, metrics.json (schema {metrics.schema_version}) and predictions.csv of this run",
        name="usvit report",
    )


def _training(content: ReportContent) -> doc.DocumentSection:
    run = content.run
    several = content.cross_validated
    return training_section(run.record, content.losses, content.energy, several=several, members=run.members)


def _lead(content: ReportContent) -> list[doc.Block]:
    record, metrics = content.run.record, content.run.metrics
    blocks: list[doc.Block] = [doc.Paragraph(content.answers.summary)] if content.answers.summary else []
    blocks.append(doc.Paragraph(content.lead))
    if record.folds.unit == "image":
        groups = record.folds.leaking_groups
        blocks.append(
            doc.Note(
                (
                    *(
                        "LEAKING SPLIT. As requested, the images were split one by one: ",
                        groups,
                        " groups (patients, or ",
                    ),
                    "near-duplicates) occur in two splits of a fold. The figures below are inflated because models "
                    "recognise patients; they do not apply to new patients.",
                )
            )
        )
    return [*blocks, *state_notes(record, metrics.contamination)]


def headline_document(metrics: MetricsRecord, flow: Flow) -> doc.Document:
    """Build what a training prints: the figures to quote, with those by patient, and the flow of its images."""
    sections = [flow_section(metrics, flow), results_section(metrics, {})]
    return doc.Document("Results", sections, lead=contamination_notes(metrics.contamination))


def metrics_document(metrics: MetricsRecord, flow: Flow | None = None) -> doc.Document:
    """Build what an evaluation prints: every section of the report that is made from metrics.json alone.

    Args:
        metrics: the content of metrics.json.
        flow: flow of the images; None shows what metrics.json tells of it.
    """
    tested = "pooled" if len(metrics.folds) > 1 else "test set"
    sections = [results_section(metrics, {}), flow_section(metrics, flow or flow_of_metrics(metrics))]
    if metrics.external:
        sections.append(external_section(metrics, metrics.external))
    sections += [
        classes_section(metrics, "test set"),
        points_section(metrics, metrics.at_prevalence, "test set"),
        curves_section(metrics, {}, tested),
        abstention_section(metrics, {}, tested),
        subgroups_section(metrics),
    ]
    return doc.Document("Evaluation", sections, lead=contamination_notes(metrics.contamination))
