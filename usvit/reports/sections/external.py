"""An external test: what was counted, what failed, and the calibrated probability."""

from collections.abc import Iterable

import usvit.documents as doc
from usvit.estimate import Estimate
from usvit.records import External, MetricsRecord
from usvit.reports.evaluations import COUNTS
from usvit.reports.formatting import rule_words
from usvit.reports.sections.abstention import sets_table
from usvit.reports.sections.calibration import calibration_facts
from usvit.wording import capitalized, counted, plural


def external_section(metrics: MetricsRecord, external: External) -> doc.DocumentSection:
    """Build the section of an external test."""
    counts = doc.Table(
        "Labels and scored files",
        ["What", *doc.numbers("Number")],
        [(capitalized(COUNTS.get(name, name)), n) for name, n in external.counts.items()],
        "Labels and scored files. unmatched.csv lists each row that was not used.",
    )
    blocks: list[doc.Block] = [doc.Paragraph(f"Images seen in training: {external.seen.answer}"), counts]
    blocks.append(doc.DocumentSection("Images that could not be scored", _failures(external)))
    if external.abstained.n_images:
        said = (
            f"The model abstained from {plural(external.abstained.n_images, 'image')}. The other figures of this page "
        )
        decided = (
            (one.rule, one.outcome.sensitivity, one.outcome.specificity) for one in external.abstained.decided_only
        )
        inner: list[doc.Block] = [
            doc.Paragraph(f"{said}count them, at the threshold."),
            _decisions("The images that the model decided.", decided),
        ]
        blocks.append(doc.DocumentSection("Abstention", inner))
    calibrated: list[doc.Block] = [
        doc.Paragraph(
            (
                "The frozen thresholds apply to this probability. The section ",
                *(doc.link("Curves", "#curves"), " shows the plain probability of the networks."),
            ),
            small=True,
        ),
        doc.Facts(calibration_facts(external.calibrated)),
    ]
    blocks.append(doc.DocumentSection(f"Calibrated probability of {metrics.positive_class}", calibrated))
    if external.conformal and external.conformal.sets:
        caption = (
            f"Of a patient; fitted on {external.conformal.source}. Covered: share of patients, at least "
            f"{1 - external.conformal.alpha:g} if the guarantee holds."
        )
        table = sets_table([external.conformal], caption)
        blocks.append(doc.DocumentSection("Prediction sets of the local calibration", [table]))
    return doc.DocumentSection("What was counted", blocks, "external")


def _failures(external: External) -> list[doc.Block]:
    failures = external.failures
    if failures.share is None:
        return [doc.Paragraph(f"Not known: {failures.reason}.")]
    codes = f" ({counted(failures.codes)})" if failures.codes else ""
    blocks: list[doc.Block] = [doc.Paragraph((failures.n_failed, ", a share of ", failures.share, f"{codes}."))]
    if failures.n_failed and failures.worst_case:
        worst = ((one.rule, one.sensitivity, one.specificity) for one in failures.worst_case)
        said = "The worst case: each image that could not be scored counts as called wrongly."
        blocks.append(_decisions(said, worst))
    return blocks


def _decisions(caption: str, rows: Iterable[tuple[str, Estimate, Estimate]]) -> doc.Table:
    cells: list[tuple[doc.Cell, ...]] = [(capitalized(rule_words(rule)), *values) for rule, *values in rows]
    return doc.Table(caption, ["Threshold", *doc.numbers("Sensitivity", "Specificity")], cells, caption)
