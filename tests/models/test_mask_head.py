"""The decoder of lesion masks: what it leaves alone, what it learns from, and its loss by hand."""

import math

import pytest
import torch

from usvit.errors import UsvitError
from usvit.models import create_model
from usvit.models.mask_head import DICE_WEIGHT, WithMaskHead, mask_loss


@pytest.fixture(scope="module", params=["usvit_small", "timm:resnet10t"])
def network(request):
    """The small offline model, which decodes masks itself, and a network that gets a decoder for the training."""
    torch.manual_seed(0)
    return create_model(request.param, n_classes=3, image_size=64)


def test_the_classifier_gives_the_same_logits_with_and_without_the_mask(network):
    images = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    both = WithMaskHead(network, 64, "the network")
    with torch.no_grad():
        assert torch.equal(both.eval()(images), network.eval()(images))
        network.train()
        alone = network(images)
        logits, mask = both.train()(images)
    assert torch.allclose(logits, alone, atol=1e-5)
    assert mask.shape == (2, 8, 8), "the finest map that is decoded has a stride of 8"


def test_the_gradient_of_the_mask_reaches_the_network_and_not_its_head(network):
    both = WithMaskHead(network, 64, "the network").train()
    both(torch.randn(2, 3, 64, 64))[1].sum().backward()
    assert network.layer4[0].downsample[1].weight.grad.abs().sum() > 0
    assert network.conv1[0].weight.grad.abs().sum() > 0
    assert network.fc.weight.grad is None, "the mask says nothing about the classes"
    network.zero_grad()


def test_the_loss_is_that_of_the_formula():
    logits = torch.tensor([[[2.0, -1.0], [0.0, 3.0]]])
    target = [1.0, 0.0, 0.5, 1.0]
    p = [1 / (1 + math.exp(-z)) for z in (2.0, -1.0, 0.0, 3.0)]
    entropy = -sum(y * math.log(q) + (1 - y) * math.log(1 - q) for y, q in zip(target, p, strict=True)) / 4
    dice = 1 - (2 * sum(y * q for y, q in zip(target, p, strict=True)) + 1) / (sum(p) + sum(target) + 1)
    found = mask_loss(logits, torch.tensor(target).view(1, 2, 2))
    assert found.shape == (1,)
    assert found.item() == pytest.approx(entropy + DICE_WEIGHT * dice, rel=1e-6)


def test_a_finer_mask_is_averaged_to_the_cells_of_the_map():
    fine = torch.zeros(1, 4, 4)
    fine[0, :2, :2] = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    coarse = torch.tensor([[[0.5, 0.0], [0.0, 0.0]]])
    logits = torch.randn(1, 2, 2)
    assert torch.allclose(mask_loss(logits, fine), mask_loss(logits, coarse))


def test_an_empty_mask_that_is_predicted_empty_costs_nothing():
    assert mask_loss(torch.full((1, 4, 4), -30.0), torch.zeros(1, 8, 8)).item() == pytest.approx(0, abs=1e-6)


def test_a_network_without_feature_maps_is_refused_with_the_setting_s_name():
    with pytest.raises(UsvitError, match=r"loss\.mask_weight.*model flat does not.*Set loss\.mask_weight to 0"):
        WithMaskHead(torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 2)), 2, "flat")


def test_only_the_last_map_of_each_size_is_decoded():
    """A plain ViT has twelve maps of one size."""
    both = WithMaskHead(create_model("vit_ti16", n_classes=2, image_size=64), 64, "vit_ti16")
    assert both.levels == [11]
    assert both.train()(torch.zeros(2, 3, 64, 64))[1].shape == (2, 4, 4)
