"""The part of an image around the lesion that frozen networks see (``model.lesion_crop``)."""

import pytest
import torch
from torch.nn import functional as F

from usvit.models.architectures.frozen_features import FrozenFeatures, around_lesion

S, CELL = 64, 8


def logits(rows, columns):
    mask = torch.full((1, S // CELL, S // CELL), -5.0)
    mask[0, rows, columns] = 5
    return mask


@pytest.mark.parametrize(
    ("rows", "columns", "margin", "box"),
    [
        (slice(2, 4), slice(3, 5), 0.0, (16, 24, 16)),  # top, left, side in pixels
        (slice(2, 4), slice(3, 5), 0.5, (8, 16, 32)),
        (slice(2, 6), slice(3, 5), 0.0, (16, 16, 32)),  # the longer side
        (slice(0, 2), slice(6, 8), 0.5, (0, 32, 32)),  # moved into the image
        (slice(4, 5), slice(4, 5), 0.0, (32, 32, 8)),
        (slice(0, 8), slice(0, 8), 1.0, (0, 0, 64)),  # no larger than the image
    ],
)
def test_the_square_around_the_box_is_enlarged_to_the_image(rows, columns, margin, box):
    image = torch.rand(1, 3, S, S, generator=torch.Generator().manual_seed(0))
    mask = logits(rows, columns)
    found, cut = around_lesion(image, mask, margin)
    top, left, side = box
    part = image[:, :, top : top + side, left : left + side]
    inner = slice(8, -8)  # interpolate does not see beyond the edge of the part
    expected = F.interpolate(part, size=(S, S), mode="bilinear", align_corners=False)
    torch.testing.assert_close(found[..., inner, inner], expected[..., inner, inner], rtol=0, atol=1e-5)
    assert cut.shape == mask.shape and (cut >= 0).float().mean() >= (mask >= 0).float().mean()


def test_an_image_without_a_lesion_stays_whole_and_images_do_not_depend_on_each_other():
    images = torch.rand(2, 3, S, S, generator=torch.Generator().manual_seed(1))
    mask = torch.cat([torch.full((1, 8, 8), -0.1), logits(slice(2, 4), slice(3, 5))])
    found, cut = around_lesion(images, mask, 0.25)
    torch.testing.assert_close(found[0], images[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(cut[0], mask[0], rtol=0, atol=1e-5)
    torch.testing.assert_close(found[1:], around_lesion(images[1:], mask[1:], 0.25)[0])


def test_the_networks_see_the_square_and_nothing_outside_of_it(monkeypatch):
    torch.manual_seed(0)
    network = FrozenFeatures([("test_resnet", {})], S, lesion_crop=0.0, num_classes=2).eval()
    mask = logits(slice(2, 4), slice(3, 5))
    monkeypatch.setattr(FrozenFeatures, "lesion_mask", lambda self, x: mask.expand(len(x), -1, -1))
    image = torch.rand(1, 3, S, S)
    inside, outside = image.clone(), image.clone()
    inside[..., 20:28, 28:36] += 1
    outside[..., 40:, :] += 1
    with torch.no_grad():
        torch.testing.assert_close(network.forward_features(outside), network.forward_features(image))
        assert (network.forward_features(inside) - network.forward_features(image)).abs().max() > 1e-3
    assert network.predicts_mask
