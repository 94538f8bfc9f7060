"""Mask R-CNN on the maps of a network: against torchvision's own model with the same parts, and its targets."""

from collections import OrderedDict

import pytest
import torch
from torch import nn
from torchvision.models.detection import MaskRCNN
from torchvision.models.detection.transform import GeneralizedRCNNTransform

from usvit.models import Weights, build_model, find_model
from usvit.upstream.config.segment import SegmentConfig
from usvit.upstream.segmentation.mask_rcnn import MaskRCNNMasks, instances
from usvit.upstream.segmentation.network import make_segmenter

SIDE, WIDTH, CHANNELS, STRIDES = 64, 16, [8, 12, 16], [4, 8, 16]


class Backbone(nn.Module):
    """The maps as they are, and the pyramid: what torchvision's model calls on the image."""

    out_channels = WIDTH

    def __init__(self, head, maps):
        super().__init__()
        self.head, self.maps = head, maps

    def forward(self, images):
        assert images.shape[-2:] == (SIDE, SIDE)
        return self.head.pyramid(OrderedDict(zip(self.head.names, self.maps, strict=True)))


def whole(head, maps):
    """torchvision's whole model around the parts of the head."""
    model = MaskRCNN(Backbone(head, maps), num_classes=2)
    model.rpn, model.roi_heads = head.rpn, head.roi_heads
    model.transform = GeneralizedRCNNTransform(SIDE, SIDE, [0.0] * 3, [1.0] * 3)
    return model


@pytest.fixture
def head():
    torch.manual_seed(0)
    return MaskRCNNMasks(CHANNELS, STRIDES, SIDE, WIDTH, nn.Identity())


def maps_of(n):
    torch.manual_seed(1)
    return [torch.randn(n, one, SIDE // by, SIDE // by) for one, by in zip(CHANNELS, STRIDES, strict=True)]


def labels_with_discs():
    labels = torch.zeros(2, SIDE, SIDE, dtype=torch.int64)
    labels[0, 8:24, 10:30] = 1
    labels[0, 40:50, 40:60] = 1
    labels[1, 0:4] = 255  # does not count; the second image has no lesion
    return labels


def test_lesions_become_boxes_and_masks():
    labels = labels_with_discs()
    found = instances(labels[0])
    assert found["boxes"].tolist() == [[10, 8, 30, 24], [40, 40, 60, 50]]
    assert found["labels"].tolist() == [1, 1] and torch.equal(found["masks"].sum(0), (labels[0] == 1).long())
    none = instances(labels[1])
    assert none["boxes"].shape == (0, 4) and none["masks"].shape == (0, SIDE, SIDE)


def test_the_losses_are_those_of_torchvision(head, monkeypatch):
    maps, labels = maps_of(2), labels_with_discs()
    images = [torch.zeros(3, SIDE, SIDE)] * 2
    monkeypatch.setattr(torch, "randperm", lambda n, device=None: torch.arange(n, device=device))  # the same proposals
    expected = sum(whole(head, maps).train()(images, [instances(one) for one in labels]).values())
    found = head.train().losses(maps, labels)
    assert found.item() == pytest.approx(2 * expected.item(), rel=1e-5)
    found.backward()
    assert all(one.grad is not None for one in head.parameters())


def test_the_map_is_the_highest_score_of_the_masks_at_each_pixel(head):
    maps = maps_of(1)
    head.roi_heads.score_thresh = 0.0  # an untrained head is sure of nothing
    found = whole(head, maps).eval()([torch.zeros(3, SIDE, SIDE)])[0]
    assert len(found["scores"]) > 1
    expected = (found["masks"][:, 0] * found["scores"][:, None, None]).amax(0)
    logits = head.eval()(maps)
    assert logits.shape == (1, 2, SIDE, SIDE)
    assert torch.allclose(logits.softmax(1)[0, 1], expected.clamp(1e-6), atol=1e-5)


def test_an_image_without_a_box_has_no_lesion(head):
    head.roi_heads.score_thresh = 1.0
    assert head.eval()(maps_of(2)).softmax(1)[:, 1].max() < 1e-5


@pytest.mark.parametrize("name", ["vit_ti16", "timm:test_resnet"])
def test_it_learns_a_square(name):
    """A network with stages and a plain ViT: a few steps on one image find its lesion."""
    torch.manual_seed(0)
    network = build_model(find_model(name), Weights("scratch"), n_classes=2, image_size=SIDE)
    module = make_segmenter(network, "mask_rcnn", 2, SIDE, SegmentConfig(width=16), name)
    labels = labels_with_discs()
    images = (labels == 1)[:, None].expand(-1, 3, -1, -1).float()
    optimizer = torch.optim.AdamW(module.parameters(), lr=2e-3)
    module.train()
    for _ in range(40):
        optimizer.zero_grad()
        module(images, labels).backward()
        optimizer.step()
    lesion = module.eval()(images).softmax(1)[:, 1] > 0.5
    both = (lesion[0] & (labels[0] == 1)).sum() / (lesion[0] | (labels[0] == 1)).sum()
    assert both > 0.5
