"""The document of an audit: for the page on which a person reviews its findings, and for the terminal."""

from collections.abc import Mapping

from matplotlib.figure import Figure

import usvit.documents as doc
from usvit.data.audit import MEANINGS, Audit, AuditReview, ReviewedPairs, SizeSpread
from usvit.data.near_duplicates import NearDuplicate
from usvit.wording import plural


def audit_document(
    audit: Audit,
    review: AuditReview,
    pictures: Mapping[int, str] | None = None,
    *,
    command: str = "",
    keep_sha256: str = "",
) -> doc.Document:
    """Build the document of an audit.

    Args:
        audit: the findings.
        review: what is shown of them.
        pictures: row of the manifest's table -> data URI of the image; None, for the terminal, shows no image.
        command: what the user called.
        keep_sha256: hash of keep.csv.
    """
    record, licenses = audit.record, audit.manifest.licenses
    lead: list[doc.Block] = []
    sections = [_summary(audit, review)]
    if pictures is not None:
        stated = ", ".join(f"{name}: {licenses[name]}" for name in record.datasets)
        share = f" Share it only in ways that the data set's licence allows ({stated})."
        lead.append(doc.Note((doc.strong("This page holds image data of the data set."), share)))
        sections += _pairs(audit, review, pictures)
    sections.append(_flags(audit, review, pictures or {}))
    if pictures is not None:
        sections += [_sizes(review), _repeat(audit, command, keep_sha256)]
    return doc.Document(
        title=f"Audit of {' + '.join(record.datasets)}",
        kind=f"{plural(record.n_images, 'image')}: near-duplicates, contradicting labels, and marks that a model could "
        "learn from",
        lead=lead,
        sections=sections,
        made_from=f"audit.json (schema {record.schema_version})",
    )


def _summary(audit: Audit, review: AuditReview) -> doc.DocumentSection:
    record = audit.record
    rows: list[tuple[doc.Cell, ...]] = [
        (one.dataset, one.label, one.found, "–" if one.stated is None else one.stated) for one in audit.classes
    ]
    caption = "Images found in the files, and the number that the data card states."
    heads: list[str | doc.Column] = ["Data set", "Class", *doc.numbers("Found", "Data card")]
    blocks: list[doc.Block] = [doc.Table("Images by class", heads, rows, caption), *_units(audit)]
    if record.card_mismatch:
        blocks += [doc.Note("The files do not agree with the data card:"), doc.Listing(record.card_mismatch)]
    else:
        blocks.append(doc.Paragraph("The files agree with what the data card states."))
    if record.skipped:
        blocks.append(doc.Note(f"{plural(len(record.skipped), 'file')} could not be read and were left out:"))
        blocks.append(doc.Listing([f"{bad.path}: {bad.reason}" for bad in record.skipped]))
    sizes = ", ".join(f"{plural(n, 'group')} of {size:,}" for size, n in review.group_sizes)
    facts: list[tuple[str, doc.Words]] = [
        ("Identical images", f"{_groups(record.exact_duplicates)} with identical pixels"),
        (
            "Near-duplicates",
            f"{_groups(record.duplicate_groups)}, including identical images{f': {sizes}' if sizes else ''}",
        ),
        ("Contradicting labels", f"{_groups(record.label_conflicts)} of near-duplicates with more than one label"),
    ]
    if record.lesion_label_conflicts is not None:
        said = f"{plural(len(record.lesion_label_conflicts), 'lesion')} whose images have more than one label"
        if record.lesion_label_conflicts:
            images = plural(sum(map(len, record.lesion_label_conflicts)), "image")
            said += f" ({images}; lesion_label_conflicts in audit.json names them)"
        facts.append(("Labels of lesions", said))
    if len(record.datasets) > 1:
        facts.append(("Shared images", f"{_groups(record.contamination)} of near-duplicates in more than one data set"))
    facts.append(
        (
            "Keep-list",
            f"{record.keep.kept:,} kept, {record.keep.dropped:,} dropped (keep.csv). Of near-duplicates, the cleanest "
            "image is kept; if their labels contradict each other, none is kept",
        )
    )
    said = (
        "A program found these pairs. It can miss pairs and report wrong ones. It does not find another frame or "
        "another view of the same lesion: without patient ids, such images cannot be distinguished from images of "
        "other patients."
    )
    blocks += [doc.Facts(facts), doc.Paragraph(said, small=True)]
    return doc.DocumentSection("Summary", blocks, "summary")


def _units(audit: Audit) -> list[doc.Block]:
    """Return the table of lesions, breasts, exams and patients by class, if images have ids of any."""
    units, classes = audit.record.units, audit.manifest.classes
    if not units:
        return []
    rows: list[tuple[doc.Cell, ...]] = [
        (name, *(one.classes[label] for label in classes), one.n, one.several_labels, one.images_without)
        for name, one in units.items()
    ]
    heads: list[str | doc.Column] = ["Unit", *doc.numbers(*classes, "Total", "Several labels", "Images without")]
    caption = (
        f"A unit counts as {audit.manifest.positive_class} if any of its images is, otherwise as the first class that "
        "occurs."
    )
    return [doc.Table("Lesions, breasts, exams and patients by class", heads, rows, caption)]


def _groups(groups: list[list[str]]) -> str:
    return f"{plural(len(groups), 'group')} ({plural(sum(map(len, groups)), 'image')})"


def _pairs(audit: Audit, review: AuditReview, pictures: Mapping[int, str]) -> list[doc.DocumentSection]:
    conflict = (
        " Either one of the two labels of a pair is wrong, or the two images are not near-duplicates. The keep-list "
        "drops all images of such a group."
    )
    kinds = (
        ("conflicts", "Near-duplicates with different labels", review.conflicts, conflict),
        ("shared", "Images shared between data sets", review.shared, ""),
        ("copies", "Other near-duplicates", review.copies, ""),
    )
    return [
        doc.DocumentSection(title, [_number(pairs, said), _cards(audit, pairs, pictures)], name)
        for name, title, pairs, said in kinds
        if pairs.total
    ]


def _number(pairs: ReviewedPairs, said: str) -> doc.Paragraph:
    shown = len(pairs.shown)
    left = f" The first {shown:,} are shown; audit.json holds all of them." if pairs.total > shown else ""
    return doc.Paragraph(f"{plural(pairs.total, 'pair')}, the least certain first.{left}{said}")


def _cards(audit: Audit, pairs: ReviewedPairs, pictures: Mapping[int, str]) -> doc.Cards:
    return doc.Cards(
        [
            doc.Card(
                f"{pair.kind}, similarity {pair.similarity:.3f}",
                [_picture(audit, row, pictures) for row in (pair.first, pair.second)],
                data=_identity(audit, pair),
            )
            for pair in pairs.shown
        ]
    )


def _identity(audit: Audit, pair: NearDuplicate) -> dict[str, str]:
    """Return what the page's script writes of a pair that a reader has judged."""
    first, second = (audit.manifest.table.iloc[row] for row in (pair.first, pair.second))
    return {
        "manifest": audit.record.manifest_sha256,
        "dataset1": first.dataset,
        "image1": first.image_id,
        "dataset2": second.dataset,
        "image2": second.image_id,
        "similarity": str(pair.similarity),
        "kind": pair.kind,
    }


def _picture(audit: Audit, row: int, pictures: Mapping[int, str]) -> doc.Picture:
    """Return an image above its id, data set, label and size, each on its line."""
    image, (height, width) = audit.manifest.table.iloc[row], audit.sizes[row]
    dataset = f"{image.dataset}\n" if len(audit.record.datasets) > 1 else ""
    return doc.Picture(pictures[row], "", (doc.strong(image.image_id), f"\n{dataset}{image.label}\n{width} x {height}"))


def _flags(audit: Audit, review: AuditReview, pictures: Mapping[int, str]) -> doc.DocumentSection:
    record = audit.record
    rows: list[tuple[doc.Cell, ...]] = [
        (name, MEANINGS[name], *(_share(n, record.class_counts[label]) for label, n in counts.items()))
        for name, counts in record.flag_counts.items()
    ]
    heads: list[str | doc.Column] = ["Flag", doc.Column("Meaning", detail=True), *doc.numbers(*record.class_counts)]
    said = (
        "The table counts the images of each class that carry a mark. A mark that is more common in one class is a "
        "shortcut: a model may learn the mark instead of the lesion."
    )
    blocks: list[doc.Block] = [doc.Paragraph(said), doc.Table("Flags by class", heads, rows)]
    for name, examples in review.examples.items():
        if examples and pictures:
            cards = doc.Cards([doc.Card("", [_picture(audit, row, pictures)]) for row in examples])
            blocks.append(doc.DocumentSection(name, [cards]))
    return doc.DocumentSection("Marks and oddities", blocks, "flags")


def _share(n: int, of: int) -> doc.Words:
    return n, " ", doc.muted(f"({100 * n / of if of else 0:.1f} %)")


def _sizes(review: AuditReview) -> doc.DocumentSection:
    return doc.DocumentSection("Sizes", [doc.Gallery([_histogram(one) for one in review.sizes], narrow=True)], "sizes")


def _histogram(one: SizeSpread) -> doc.Figure:
    low, median, high = (f"{value:.4g}" for value in one.quantiles)
    title = f"{one.label} from {low} to {high}, median {median}"

    def draw(pens: doc.Pens) -> Figure:
        figure = Figure(figsize=(3.1, 1.9), layout="constrained")
        axes = figure.add_subplot()
        axes.hist(one.values, bins=1 if low == high else 30, color=pens.series[0])
        axes.set(xlabel=one.label, ylabel="Images")
        axes.locator_params(nbins=5)
        return figure

    return doc.Figure(doc.Plot(f"sizes-{one.name}", f"Histogram: {title}", draw), title)


def _repeat(audit: Audit, command: str, keep_sha256: str) -> doc.DocumentSection:
    facts: list[tuple[str, doc.Words]] = [
        ("Manifest, SHA-256", doc.code(audit.record.manifest_sha256)),
        ("keep.csv, SHA-256", doc.code(keep_sha256)),
    ]
    thresholds = doc.Facts([(name, str(value)) for name, value in audit.record.parameters.items()])
    blocks: list[doc.Block] = [doc.CodeBlock("Command", command), doc.Facts(facts)]
    blocks.append(doc.Details("Thresholds", [thresholds]))
    return doc.DocumentSection("How to reproduce this audit", blocks, "repeat", "How to reproduce it")
