"""Agreement of masks against MONAI, and masks without a lesion."""

import numpy as np
import pytest
import torch

from usvit.metrics.overlap import MaskFigures, mask_agreement


def blob(row, column, radius, shape=(48, 64)):
    y, x = np.mgrid[: shape[0], : shape[1]]
    return (y - row) ** 2 + 1.5 * (x - column) ** 2 < radius**2


@pytest.mark.parametrize("predicted", [blob(20, 30, 9), blob(24, 36, 12) | blob(10, 10, 4), blob(40, 60, 5)])
def test_the_figures_are_those_of_monai(predicted):
    metrics = pytest.importorskip("monai.metrics")
    true = blob(22, 32, 10)
    tensors = [torch.from_numpy(mask)[None, None].float() for mask in (predicted, true)]
    found = mask_agreement(predicted, true)
    assert found.dice == pytest.approx(metrics.compute_dice(*tensors).item(), abs=1e-6)
    assert found.iou == pytest.approx(metrics.compute_iou(*tensors).item(), abs=1e-6)
    hd95 = metrics.compute_hausdorff_distance(*tensors, include_background=True, percentile=95)
    assert found.hd95 == pytest.approx(hd95.item(), abs=1e-5)


def test_an_empty_mask_has_no_dice_and_a_missed_lesion_has_no_distance():
    lesion, empty = blob(22, 32, 10), np.zeros((48, 64), bool)
    assert mask_agreement(empty, empty) == MaskFigures(None, None, 1.0, None)
    false_alarm = mask_agreement(lesion, empty)
    assert false_alarm.dice is None
    assert false_alarm.pixel_accuracy == pytest.approx(1 - lesion.mean())
    missed = mask_agreement(empty, lesion)
    assert (missed.dice, missed.iou, missed.hd95) == (0.0, 0.0, None)


def test_masks_of_different_shapes_are_refused():
    with pytest.raises(ValueError, match=r"\(48, 64\).*\(64, 48\)"):
        mask_agreement(blob(1, 1, 3), blob(1, 1, 3, (64, 48)))
