"""The figures of subgroups and their differences."""

from collections.abc import Iterator

import usvit.documents as doc
from usvit.estimate import Estimate
from usvit.records import MetricsRecord
from usvit.records.metrics import Subgrouping
from usvit.reports.formatting import of_units, p_words
from usvit.reports.remarks import subgroup_remarks
from usvit.wording import capitalized

_NONE = "None: no column of the manifest (data set, device, BI-RADS, lesion size) has more than one value."
_ALL = (
    "Every subgroup is shown, however small. Among many subgroups, some differ by chance; the p-values are therefore "
    "corrected (Holm) for all differences on this page."
)


def subgroups_section(metrics: MetricsRecord) -> doc.DocumentSection:
    """Build the section of all subgroups."""
    if not metrics.subgroups:
        return doc.DocumentSection("Subgroups", [doc.Paragraph(_NONE)], "subgroups")
    blocks: list[doc.Block] = [doc.Paragraph(_ALL)]
    for division in metrics.subgroups:
        inner: list[doc.Block] = [doc.Paragraph(f"Not computed: {division.reason}.")]
        if division.levels:
            inner = [_levels(division, metrics.positive_class)]
            inner += [_differences(division, metrics.positive_class)] if division.differences else []
        blocks.append(doc.DocumentSection(f"By {division.by.replace('_', ' ')}", inner))
    if remarks := subgroup_remarks(metrics):
        blocks.append(doc.Listing(remarks, small=True))
    return doc.DocumentSection(of_units("Subgroups", metrics), blocks, "subgroups")


def _levels(division: Subgrouping, positive: str) -> doc.Table:
    rows: list[tuple[doc.Cell, ...]] = []
    for one in division.levels:
        name = (one.level, doc.muted(f" {one.warning}")) if one.warning else one.level
        figures = one.figures
        rows.append(
            (
                *(name, one.n_images, one.n_groups, one.class_images[positive]),
                *(figures.accuracy, figures.auc[f"{positive}_vs_rest"]),
                *(figures.sensitivity[positive], figures.specificity[positive]),
            )
        )
    return doc.Table(
        f"Results by {division.by}",
        [
            capitalized(division.by.replace("_", " ")),
            *doc.numbers("Images", "Groups", f"Images {positive}", "Accuracy", "AUC"),
            *doc.numbers("Sensitivity", "Specificity", detail=True),
        ],
        rows,
        f"AUC, sensitivity and specificity: {positive} against the rest.",
    )


def _differences(division: Subgrouping, positive: str) -> doc.Table:
    return doc.Table(
        f"Differences by {division.by}",
        ["Figure", *doc.numbers("Difference", "p", "p, Holm"), doc.Column("Note")],
        [*_difference_rows(division)],
        "Differences between subgroups; intervals count groups (patients), also those with images on both sides. "
        f"Sensitivity and specificity: {positive} against the rest, by the most probable class. Holm: corrected for "
        "all differences on this page.",
    )


def _difference_rows(division: Subgrouping) -> Iterator[doc.TableRow]:
    for one in division.differences:
        counted = (
            f" ({one.n_images:,} images in {one.n_groups:,} groups, and {one.n_images_against:,} in "
            f"{one.n_groups_against:,})"
        )
        yield doc.TableRow(((f"{one.level} minus {one.against}", doc.muted(counted)),), "group")
        figures = {"AUC": one.auc, "Accuracy": one.accuracy}
        figures |= {"Sensitivity": one.sensitivity, "Specificity": one.specificity}
        for name, value in figures.items():
            yield doc.TableRow((name, value, p_words(value.p), p_words(value.p_holm), _note(value)))


def _note(value: Estimate) -> str:
    if value.value is not None and value.ci95 is None and value.reason:
        return f"No interval: {value.reason}"
    return capitalized(value.warning or "")
