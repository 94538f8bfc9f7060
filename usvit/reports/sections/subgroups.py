"""The figures of subgroups and their differences."""

from collections.abc import Iterator

from usvit.documents import Block, Cell, Column, DocumentSection, Listing, Paragraph, Table, TableRow, muted, numbers
from usvit.estimate import Estimate
from usvit.records import MetricsRecord
from usvit.records.metrics import Subgrouping
from usvit.reports.formatting import capitalized, p_words
from usvit.reports.remarks import subgroup_remarks

_NONE = "None: no column of the manifest (data set, device, BI-RADS, lesion size) has more than one value."
_ALL = (
    "Every subgroup is shown, however small. Among many subgroups, some differ by chance; the p-values are therefore "
    "corrected (Holm) for all differences on this page."
)


def subgroups_section(metrics: MetricsRecord) -> DocumentSection:
    """Build the section of all subgroups."""
    if not metrics.subgroups:
        return DocumentSection("Subgroups", [Paragraph(_NONE)], "subgroups")
    blocks: list[Block] = [Paragraph(_ALL)]
    for division in metrics.subgroups:
        inner: list[Block] = [Paragraph(f"Not computed: {division.reason}.")]
        if division.levels:
            inner = [_levels(division, metrics.positive_class)]
            inner += [_differences(division, metrics.positive_class)] if division.differences else []
        blocks.append(DocumentSection(f"By {division.by.replace('_', ' ')}", inner))
    if remarks := subgroup_remarks(metrics):
        blocks.append(Listing(remarks, small=True))
    return DocumentSection("Subgroups", blocks, "subgroups")


def _levels(division: Subgrouping, positive: str) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one in division.levels:
        name = (one.level, muted(f" {one.warning}")) if one.warning else one.level
        figures = one.figures
        rows.append(
            (
                *(name, one.n_images, one.n_groups, one.class_images[positive]),
                *(figures.accuracy, figures.auc[f"{positive}_vs_rest"]),
                *(figures.sensitivity[positive], figures.specificity[positive]),
            )
        )
    return Table(
        f"Results by {division.by}",
        [
            capitalized(division.by.replace("_", " ")),
            *numbers("Images", "Groups", f"Images {positive}", "Accuracy", "AUC"),
            *numbers("Sensitivity", "Specificity", detail=True),
        ],
        rows,
        f"AUC, sensitivity and specificity: {positive} against the rest.",
    )


def _differences(division: Subgrouping, positive: str) -> Table:
    return Table(
        f"Differences by {division.by}",
        ["Figure", *numbers("Difference", "p", "p, Holm"), Column("Note")],
        [*_difference_rows(division)],
        "Differences between subgroups; intervals count groups (patients), also those with images on both sides. "
        f"Sensitivity and specificity: {positive} against the rest, by the most probable class. Holm: corrected for "
        "all differences on this page.",
    )


def _difference_rows(division: Subgrouping) -> Iterator[TableRow]:
    for one in division.differences:
        counted = (
            f" ({one.n_images:,} images in {one.n_groups:,} groups, and {one.n_images_against:,} in "
            f"{one.n_groups_against:,})"
        )
        yield TableRow(((f"{one.level} minus {one.against}", muted(counted)),), "group")
        figures = {"AUC": one.auc, "Accuracy": one.accuracy}
        figures |= {"Sensitivity": one.sensitivity, "Specificity": one.specificity}
        for name, value in figures.items():
            yield TableRow((name, value, p_words(value.p), p_words(value.p_holm), _note(value)))


def _note(value: Estimate) -> str:
    if value.value is not None and value.ci95 is None and value.reason:
        return f"No interval: {value.reason}"
    return capitalized(value.warning or "")
