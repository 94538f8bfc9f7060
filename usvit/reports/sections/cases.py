"""The most confident errors and the most uncertain cases, with their images if they may be shown."""

from collections.abc import Sequence

import usvit.documents as doc
from usvit.reports.cases import ReviewCase
from usvit.reports.content import ReportContent
from usvit.reports.formatting import decimals


def cases_section(content: ReportContent) -> doc.DocumentSection:
    """Build the section of the cases."""
    cases, pictures, sentences = content.cases, content.pictures, content.explained.sentences
    said = (
        f"{cases.n_errors:,} of {cases.n_images:,} test images were misclassified. At most one image of each group "
        "is listed."
    )
    blocks: list[doc.Block] = [doc.Paragraph(said)]
    blocks += [doc.Paragraph(f"Images are not shown: {reason}.", small=True) for reason in pictures.reasons]
    blocks += [doc.Paragraph(f"Images: {source}", small=True) for source in pictures.sources]
    blocks.append(
        _cases(
            content,
            "Most confident errors",
            "Misclassified images, the highest probability of the decided class first.",
            cases.confident_errors,
        )
    )
    blocks.append(
        _cases(
            content,
            "Most uncertain cases",
            "Images with the smallest difference between the two highest probabilities first, classified correctly or "
            "not.",
            cases.uncertain,
        )
    )
    maps: list[doc.Block] = [doc.Paragraph(("None: ", doc.code("usvit explain"), " was not used on this run."))]
    if sentences:
        caution = (
            "A map shows where the network looks, or where its output is sensitive. It does not show why, and it does "
        )
        caution += "not prove that the network is right."
        maps = [doc.Listing([f"{one}." for one in sentences]), doc.Paragraph(caution, small=True)]
    return doc.DocumentSection("Cases", [*blocks, doc.DocumentSection("Attention and saliency", maps)], "cases")


def _cases(content: ReportContent, title: str, said: str, found: Sequence[ReviewCase]) -> doc.DocumentSection:
    if not found:
        return doc.DocumentSection(title, [doc.Paragraph("None.")])
    if any(one.picture or one.saliency for one in found):
        return doc.DocumentSection(
            title, [doc.Paragraph(said, small=True), doc.Cards([_card(content, one) for one in found])]
        )
    several = content.cross_validated
    rows: list[tuple[doc.Cell, ...]] = [
        (
            *(one.image_id, one.dataset, *([str(one.fold)] if several else []), one.label, one.decision),
            *(decimals(prob) for _, prob in one.prob),
        )
        for one in found
    ]
    heads: list[str | doc.Column] = ["Data set", *(doc.numbers("Fold") if several else []), "Reference", "Decision"]
    classes = doc.numbers(*(f"P({name})" for name in content.run.metrics.classes))
    return doc.DocumentSection(title, [doc.Table(title, ["Image", *heads, *classes], rows, said)])


def _card(content: ReportContent, one: ReviewCase) -> doc.Card:
    pictures = [doc.Picture(one.picture, one.words)] if one.picture else []
    pictures += [doc.Picture(uri, f"{method}. {one.words}", method) for method, uri in one.saliency]
    why = "" if one.why_no_picture in content.pictures.reasons else f": {one.why_no_picture}"
    fold = f", fold {one.fold}" if content.cross_validated else ""
    probabilities = [(f"P({name})", decimals(prob)) for name, prob in one.prob]
    return doc.Card(
        (doc.strong(one.image_id), " ", doc.muted(f"{one.dataset}{fold}")),
        pictures,
        doc.Facts([("Reference", one.label), ("Decision", one.decision), *probabilities]),
        "" if pictures else f"No image{why}.",
    )
