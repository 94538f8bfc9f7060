"""What the page of a transfer shows of a text tower."""

import usvit.documents as doc
from usvit.reports import decimals
from usvit.upstream.records.training import CaptionFigures, TextTuning
from usvit.wording import plural


def text_blocks(found: TextTuning) -> list[doc.Block]:
    """Show what a text tower is measured by (``usvit.upstream.text_tuning.figures``)."""
    lines: list[tuple[doc.Cell, ...]] = [(f"{one.of}: {one.value}", one.n_positive, one.auc) for one in found.zero_shot]
    caption = (
        "Area under the ROC curve against the other classes, or the other values of the same concept, with 95 % "
        "intervals. The score is the similarity of the image to the prompts; no label was used."
    )
    blocks: list[doc.Block] = [doc.Table("Zero-shot AUC", ["What", *doc.numbers("Images", "AUC")], lines, caption)]
    if found.recall:
        rows: list[tuple[doc.Cell, ...]] = [(f"{one.query}s", one.k, one.recall) for one in found.recall]
        caption = (
            "Share of queries whose own text or image is among the first k of the whole test, with 95 % intervals. "
            "Texts that say the same in other words count as wrong."
        )
        blocks.append(doc.Table("Retrieval", ["Queries", *doc.numbers("k", "Recall")], rows, caption))
    if found.captions is not None:
        blocks += _captions(found.captions)
    said = (
        f"Text tower: {found.n_params:,} parameters, a vocabulary of {found.n_words:,}, trained in "
        f"{decimals(found.seconds, 0)} s; loss {decimals(found.loss)}. "
        f"{plural(found.n_cut, 'text')} longer than the context {'was' if found.n_cut == 1 else 'were'} cut."
    )
    return [*blocks, doc.Paragraph(said, small=True)]


def _captions(found: CaptionFigures) -> list[doc.Block]:
    rows: list[tuple[doc.Cell, ...]] = [
        (one.of, one.accuracy, decimals(one.most_frequent), decimals(one.unread)) for one in found.descriptors
    ]
    caption = (
        "Share of the images whose caption names their value of the concept, with 95 % intervals; beside it that of "
        "always naming the most frequent value, and the share of captions that name none."
    )
    low = "" if found.log_perplexity.ci95 is None else " [{:.3f}, {:.3f}]".format(*found.log_perplexity.ci95)
    said = f"Log-perplexity {decimals(found.log_perplexity.value)}{low} nats for each byte pair"
    said += "" if found.bleu is None else f"; BLEU {decimals(found.bleu, 1)} against one reference, by sacrebleu"
    columns: list[str | doc.Column] = ["Concept", *doc.numbers("Accuracy", "Most frequent", "Not named")]
    below = doc.Paragraph(f"{said}. The captions: captions.csv.", small=True)
    return [doc.Table("Captions", columns, rows, caption), below]
