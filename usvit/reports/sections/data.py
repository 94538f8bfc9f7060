"""The images of a run: their number and groups, checks for leakage, and the audit."""

from collections.abc import Sequence

import usvit.documents as doc
from usvit.records import AuditRecord
from usvit.reports.content import ReportContent
from usvit.reports.contradictions import MAX_SHOWN, contradictions, contradictions_sentences
from usvit.reports.limitations import patients
from usvit.wording import counted, plural

_MOST_OPEN = 12
"""Entries of a list that the page does not fold away."""


def data_section(content: ReportContent) -> doc.DocumentSection:
    """Build the section of the data sets and their groups."""
    run, data = content.run, content.run.record.data
    blocks: list[doc.Block] = [*_identifiers(content)]
    counts: doc.Words = None if data.n_images is None else f"{data.n_images:,} in {plural(data.n_groups or 0, 'group')}"
    facts: list[tuple[str, doc.Words]] = [
        ("Data sets", ", ".join(data.datasets) if data.datasets else None),
        ("Images used", counts),
        ("By class", counted(data.class_counts) if data.class_counts else None),
    ]
    if run.evaluated is not None:
        facts.append(("Source", f"{run.evaluated.source} ({run.evaluated.of})"))
        facts += [(f"Column, --{option}", column) for option, column in (run.evaluated.columns or {}).items()]
        facts += [(f"SHA-256, {what}", doc.code(sha256)) for what, sha256 in (run.evaluated.files or {}).items()]
        return doc.DocumentSection("Data", [*blocks, doc.Facts(facts)], "data")
    facts.append(("Grouping", _grouping(content)))
    excluded = None if data.excluded is None else [(one.dataset, one.image_id, one.reason) for one in data.excluded]
    skipped = None if data.skipped is None else [(one.path, one.reason) for one in data.skipped]
    lists = [
        _listing("Excluded images", ["Data set", "Image", "Reason"], excluded),
        _listing("Skipped files", ["File", "Reason"], skipped),
    ]
    return doc.DocumentSection("Data", [*blocks, doc.Facts(facts), *lists], "data")


def _identifiers(content: ReportContent) -> list[doc.Block]:
    known, by_image = patients(content.run), content.run.record.folds.unit == "image"
    may_leak = (
        "images of one patient may be in both the training and the test split, and the results may be better than "
    )
    may_leak += "for new patients."
    if known == "none":
        return [doc.Note(f"These data carry no patient identifiers. Therefore, {may_leak}")]
    if known == "some":
        return [doc.Note(f"Only some of the images carry a patient identifier. Without an identifier, {may_leak}")]
    if known is None:
        return []
    kept = ", which the folds ignored" if by_image else "; no patient is in both the training and the test split"
    return [doc.Paragraph(f"All images carry a patient identifier{kept}.")]


def _grouping(content: ReportContent) -> doc.Words:
    sizes = content.run.record.data.grouping
    if not sizes:
        return None
    kept: doc.Words = " All images of a group are in the same split."
    if content.run.record.folds.unit == "image":
        kept = (" ", doc.strong("The folds ignored these groups."))
    said = (
        f"{sizes.get('patient', 0):,} images grouped by patient, {sizes.get('copies', 0):,} with their "
        f"near-duplicates, {sizes.get('image', 0):,} ungrouped."
    )
    return said, kept


def _listing(title: str, heads: Sequence[str], rows: Sequence[tuple[doc.Cell, ...]] | None) -> doc.DocumentSection:
    if not rows:
        return doc.DocumentSection(title, [doc.Paragraph("Not recorded." if rows is None else "None.")])
    entries = plural(len(rows), "entry", "entries")
    details = doc.Details(entries, [doc.Table(title, heads, rows)], opened=len(rows) <= _MOST_OPEN)
    return doc.DocumentSection(title, [details])


def leakage_section(content: ReportContent) -> doc.DocumentSection:
    """Build the section of the checks for leakage and of the audit."""
    caption = "These checks were made on the files of the run when this page was created."
    if content.run.evaluated is not None:
        caption = "This answer is from the files of the evaluation."
    rows: list[tuple[doc.Cell, ...]] = [
        (check.question, doc.bad(check.result) if check.found else doc.strong(check.result), check.answer)
        for check in content.checks
    ]
    blocks: list[doc.Block] = [doc.Table("Checks for leakage", ["Check", "Result", "Found"], rows, caption)]
    if found := contradictions(content.run):
        said = " ".join(contradictions_sentences(found))
        named = doc.Listing([one.words for one in found[:MAX_SHOWN]])
        blocks.append(doc.DocumentSection("Near-duplicates with different labels", [doc.Paragraph(said), named]))
    if content.run.evaluated is None:
        blocks.append(doc.DocumentSection("Data audit", _audit(content.audit)))
    return doc.DocumentSection("Leakage and data audit", blocks, "leakage", "Leakage and audit")


def _audit(audit: AuditRecord | None) -> list[doc.Block]:
    if audit is None:
        said = (
            *("Not supplied: no audit of these images was given (use ", doc.code("usvit data audit"), ", then "),
            *(
                doc.code("usvit report --audit"),
                "). Burned-in text, calipers and Doppler boxes, from which a model can learn, ",
            ),
            "were therefore not counted.",
        )
        return [doc.Paragraph(said)]
    marks = "; ".join(
        f"{flag.replace('_', ' ')} {sum(counts.values()):,} ({counted(counts)})"
        for flag, counts in (audit.flag_counts or {}).items()
    )
    facts: list[tuple[str, doc.Words]] = [
        ("Images", audit.n_images),
        ("Identical images", plural(len(audit.exact_duplicates), "set")),
        ("Near-duplicates", plural(len(audit.duplicate_groups), "set")),
        ("Near-duplicates with contradicting labels", plural(len(audit.label_conflicts), "set")),
        ("Near-duplicates in several data sets", plural(len(audit.contamination), "set")),
        ("Differences from the data cards", "; ".join(audit.card_mismatch) or "none"),
        ("Marks that a model can learn from", marks or "none"),
    ]
    return [
        doc.Paragraph(("From ", doc.code("usvit data audit"), " on exactly these images and labels.")),
        doc.Facts(facts),
    ]


def cards_section(content: ReportContent) -> doc.DocumentSection:
    """Build the section of the model card and the cards of the data sets."""
    blocks: list[doc.Block] = [doc.DocumentSection("Model", [doc.Facts(content.model_card)])]
    for card in content.data_cards:
        faults = [doc.DocumentSection("Known faults", [doc.Listing(card.faults)])] if card.faults else []
        blocks.append(doc.DocumentSection(f"Data: {card.name}", [doc.Facts(card.facts), *faults]))
    if not content.data_cards:
        blocks.append(doc.Paragraph("No data card is known for these data."))
    return doc.DocumentSection("Model card and data cards", blocks, "cards", "Cards")


def checklists_section(content: ReportContent) -> doc.DocumentSection:
    """Build the section of the reporting checklists."""
    said = (
        *(
            "Each item is filled from the files of the run or from the authors' answers (",
            doc.code("usvit report --answers FILE"),
        ),
        "), or is marked “not supplied”. The items are paraphrased and keep their numbers; use the original form for a "
        "journal. An item that is filled is not necessarily filled well.",
    )
    blocks: list[doc.Block] = [doc.Paragraph(said)]
    for one in content.checklists:
        rows: list[tuple[doc.Cell, ...]] = []
        for item in one.items:
            from_run = f"From the run: {item.run}" if item.answer and item.run else item.run
            status = doc.strong(item.status) if item.status == "not supplied" else item.status
            asks = f"{item.section}. {item.asks}{f' ({item.change})' if item.change else ''}"
            rows.append((item.number, asks, status, " ".join(filter(None, [item.answer, from_run]))))
        statuses = ("answered", "from the run", "partly from the run", "not supplied")
        filled = ", ".join(f"{one.count(status)} {status}" for status in statuses)
        parts = "" if all(item.number.isdigit() for item in one.items) else " and sub-items"
        of = f"{one.source}. Of {len(one.items)} items{parts}: {filled}."
        table = doc.Table(one.name, ["Item", "Asks for", "Status", "Answer"], rows, look="checklist")
        folded = doc.Details(f"All items of {one.name}", [table])
        blocks.append(doc.DocumentSection(one.name, [doc.Paragraph(of, small=True), folded]))
    return doc.DocumentSection("Checklists", blocks, "checklists")
