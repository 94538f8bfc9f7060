"""Pictures of some cases with the outlines of the true and the predicted lesion."""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.ndimage import binary_erosion

from usvit.data.io import UInt8, read_image
from usvit.reports import may_show
from usvit.upstream.records.segment import Overlay
from usvit.upstream.segmentation.images import MaskedImages
from usvit.upstream.segmentation.setup import SegmentationSetup
from usvit.upstream.segmentation.training import write_png

TRUE, PREDICTED = (0, 255, 255), (255, 140, 0)
"""Cyan and orange."""
_AT = (0.0, 0.1, 0.25, 0.5, 0.75, 1.0)
"""Quantiles of the Dice coefficient whose cases are shown."""
_WIDTH = 2
"""Width of an outline in pixels."""


def write_overlays(setup: SegmentationSetup, run: Path, masks: pd.DataFrame) -> list[Overlay]:
    """Write the cases at some quantiles of the Dice coefficient, the worst first; for lesions only.

    The image itself is shown if the licence of its data set allows it; otherwise the outlines are on black.
    """
    if "dice" not in masks:
        return []
    rows = setup.images.rows
    order = {key: at for at, key in enumerate(zip(rows.dataset, rows.image_id, strict=True))}
    ranked = masks[masks.dice.notna()].sort_values(["dice", "dataset", "image_id"], kind="stable")
    found = []
    for at in dict.fromkeys(round(share * (len(ranked) - 1)) for share in _AT):
        case = ranked.iloc[at]
        index = order[case.dataset, case.image_id]
        shown = may_show(setup.manifest.licenses[case.dataset])
        file = f"overlays/{Path(case.file).name}"
        predicted = read_image(run / case.file)[:, :, 0] > 0
        picture = _outlined(setup.images, index, predicted, shown=shown)
        write_png(run / file, picture)
        dice = float(case.dice)
        found.append(Overlay(file=file, image_id=case.image_id, fold=int(case.fold), dice=dice, has_image=shown))
    return found


def _outlined(images: MaskedImages, index: int, predicted: np.ndarray, *, shown: bool) -> UInt8:
    true = images.labels(index) > 0
    picture = images.decode(index)[0].copy() if shown else np.zeros((*true.shape, 3), dtype=np.uint8)
    for mask, colour in ((true, TRUE), (predicted, PREDICTED)):
        picture[mask & ~binary_erosion(mask, iterations=_WIDTH)] = colour
    return picture
