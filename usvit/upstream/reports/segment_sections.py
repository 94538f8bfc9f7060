"""What the page of a transfer shows of a segmentation."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure
from PIL import Image

import usvit.documents as doc
from usvit.data.io import read_image
from usvit.files import Unreadable, read_csv, within
from usvit.reports import MASK_TITLES, decimals, duration, jpeg_uri, p_words
from usvit.upstream.records.segment import SegmentationRecord, SegmentedHead
from usvit.wording import plural

_TITLES = {
    "miou": "Mean IoU over classes",
    "mean_class_accuracy": "Mean accuracy over classes",
    **MASK_TITLES,
    "ap": "Average precision of boxes",
    "ap50": "Average precision at IoU 0.5",
    "lesion_sensitivity": "Lesions found, confidence 0.5",
}
_CURVE = 1.5
"""Largest number of false candidates per image that the curve shows."""


def segment_blocks(found: SegmentationRecord) -> list[doc.Block]:
    """Return the tables of a segmentation: figures, FROC, differences and classes."""
    heads = [one.head for one in found.heads]
    lines: list[tuple[doc.Cell, ...]] = [
        (title, *(getattr(one, name) or "–" for one in found.heads))
        for name, title in _TITLES.items()
        if any(getattr(one, name) is not None for one in found.heads)
    ]
    lines += [
        (f"Lesions found, {rate:g} false per image", *(_at_rate(one, number) for one in found.heads))
        for number, rate in enumerate(point.false_per_image for point in found.heads[0].froc or [])
    ]
    caption = (
        f"On {plural(found.n_images, 'image')} of {plural(found.n_groups, 'group')}, each predicted by the network of "
        "the fold that tests it, at the image's size; with 95 % intervals that count groups. Dice, IoU and Hausdorff "
        "distance are means over images with a lesion; the first three lines count all pixels."
    )
    blocks: list[doc.Block] = [doc.Table("Segmentation", ["Figure", *doc.numbers(*heads)], lines, caption)]
    if found.differences:
        rows: list[tuple[doc.Cell, ...]] = [
            (_TITLES[one.figure], one.difference, p_words(one.difference.p)) for one in found.differences
        ]
        caption = f"{heads[0]} less {heads[1]} on the same images, paired; the interval and the p-value count groups."
        blocks.append(doc.Table("Differences", ["Figure", *doc.numbers("Difference", "p")], rows, caption))
    classes = found.heads[0].classes
    by_class: list[tuple[doc.Cell, ...]] = [
        (one.name, *(decimals(value) for value in (one.iou, one.accuracy, one.dice))) for one in classes
    ]
    caption = f"{heads[0]}, over all pixels of all images."
    heading: list[str | doc.Column] = ["Class", *doc.numbers("IoU", "Accuracy", "Dice")]
    blocks.append(doc.Table("Classes of pixels", heading, by_class, caption, detail=len(classes) > 2))
    said = [
        f"{one.head}: {one.n_params:,} trained parameters, {duration(one.seconds)} of training" for one in found.heads
    ]
    without = (
        f" {plural(found.n_without_mask, 'image')} without a mask file were left out." if found.n_without_mask else ""
    )
    return [*blocks, doc.Paragraph(f"{'; '.join(said)}, over {plural(found.n_folds, 'fold')}.{without}", small=True)]


def _at_rate(head: SegmentedHead, number: int) -> doc.Cell:
    return head.froc[number].sensitivity if head.froc else "–"


def segment_pictures(run: Path, found: SegmentationRecord) -> list[doc.Block]:
    """Return the FROC curve and the cases of a run's folder."""
    blocks: list[doc.Block] = []
    folders = [(one.head, run if number == 0 else run / "peer") for number, one in enumerate(found.heads)]
    curves = [(head, read_csv(at / "froc.csv", text=False)) for head, at in folders if (at / "froc.csv").is_file()]
    if curves:
        caption = (
            "Share of lesions found over false candidates per image. Candidates lie around the peaks of the predicted "
            "probability, and find a lesion at an IoU of 0.1 or more (PI-CAI). froc.csv holds all points."
        )
        blocks.append(doc.Figure(_froc_plot(curves), caption, wide=True))
    cards = []
    for one in found.overlays:
        try:
            uri = jpeg_uri(Image.fromarray(read_image(within(run, one.file))), (320, 320))
        except (Unreadable, OSError):
            continue
        facts = doc.Facts([("Dice", decimals(one.dice)), ("Fold", str(one.fold))])
        cards.append(doc.Card(doc.strong(one.image_id), [doc.Picture(uri, f"Outlines of {one.image_id}")], facts))
    if cards:
        why = "" if found.overlays[0].has_image else " The licence does not allow the images themselves in a page."
        said = f"From the worst Dice coefficient to the best: true outline cyan, predicted orange.{why}"
        blocks.append(doc.DocumentSection("Cases", [doc.Paragraph(said, small=True), doc.Cards(cards)]))
    return blocks


def _froc_plot(curves: Sequence[tuple[str, pd.DataFrame]]) -> doc.Plot:
    def draw(pens: doc.Pens) -> Figure:
        figure = Figure(figsize=(4.6, 2.6), layout="constrained")
        axes = figure.add_subplot()
        for number, (_, curve) in enumerate(curves):
            x, y = [0.0, *curve.false_per_image], [0.0, *curve.sensitivity]
            axes.step(x, y, where="post", color=pens.series[number], dashes=doc.DASHES[number] or (1, 0), linewidth=1.4)
        axes.set(xlabel="False candidates per image", ylabel="Lesions found", ylim=(0, 1.02), xlim=(0, _CURVE))
        return figure

    legend = tuple(
        doc.LegendEntry(head, f"series-{number}", 1.4, doc.DASHES[number]) for number, (head, _) in enumerate(curves)
    )
    return doc.Plot("froc", "Free-response curve: lesions found over false candidates per image", draw, legend)
