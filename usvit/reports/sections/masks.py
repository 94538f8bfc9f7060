"""Figures of predicted lesion masks."""

import usvit.documents as doc
from usvit.records import MaskEstimates
from usvit.wording import plural

MASK_TITLES: dict[str, str] = {
    "pixel_accuracy": "Pixel accuracy",
    "dice": "Dice coefficient",
    "iou": "Intersection over union",
    "hd95": "95 % Hausdorff distance (pixels)",
    "hd95_mm": "95 % Hausdorff distance (mm)",
    "missed": "Images with a lesion, none predicted",
    "false_alarm": "Images without a lesion, one predicted",
}


def masks_section(masks: MaskEstimates) -> doc.DocumentSection:
    """Build the section of the masks that the decoders of a cross-validation predict."""
    rows: list[tuple[doc.Cell, ...]] = [
        (title, found, found.n_groups)
        for name, title in MASK_TITLES.items()
        if (found := getattr(masks, name, None)) is not None
    ]
    caption = (
        f"{plural(masks.n_images, 'test image')} with a mask file, each predicted at its own size by the decoder of "
        "the fold that tests it; masks.csv has each image. Dice, IoU and Hausdorff distance are means over images with "
        "a lesion. The decoder is not part of the model."
    )
    table = doc.Table("Lesion masks", ["Figure", *doc.numbers("Value", "Groups")], rows, caption)
    return doc.DocumentSection("Lesion masks", [table], "masks")
