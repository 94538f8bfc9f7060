"""Agreement of masks against MONAI, and masks without a lesion."""

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score, jaccard_score, recall_score

from usvit.metrics.overlap import MaskFigures, class_figures, class_pixels, mask_agreement


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


def test_figures_over_all_pixels_are_those_of_sklearn_and_groups_stay_whole():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 4, (12, 20, 20)).astype(np.uint8)
    predicted = np.where(rng.random(true.shape) < 0.7, true, rng.integers(0, 3, true.shape)).astype(np.uint8)
    true[0, :5] = 255  # does not count
    counts = np.stack([class_pixels(p, t, 4) for p, t in zip(predicted, true, strict=True)])
    known = true != 255
    figures, by_class = class_figures(counts, [f"p{k // 2}" for k in range(12)])
    expected = jaccard_score(true[known], predicted[known], average=None)
    assert by_class[:, 0] == pytest.approx(expected) and figures["miou"].value == pytest.approx(expected.mean())
    assert by_class[:, 1] == pytest.approx(recall_score(true[known], predicted[known], average=None))
    assert by_class[:, 2] == pytest.approx(f1_score(true[known], predicted[known], average=None))
    assert figures["pixel_accuracy"].value == pytest.approx((true == predicted)[known].mean())
    assert figures["miou"].n_groups == 6 and figures["miou"].ci95[0] < expected.mean() < figures["miou"].ci95[1]


def test_a_class_that_does_not_occur_is_left_out_of_the_mean():
    same = np.array([[0, 1], [1, 0]], np.uint8)
    figures, by_class = class_figures(np.stack([class_pixels(same, same, 3)] * 2), ["a", "b"])
    assert figures["miou"].value == 1 and np.isnan(by_class[2]).all()
