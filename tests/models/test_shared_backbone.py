"""Networks that differ in their heads alone run once."""

import copy

import pytest
import timm
import torch
from torch import nn

from usvit.models import logits_and_features
from usvit.models.shared_backbone import same_backbone, several_logits_and_features


@pytest.fixture(scope="module")
def pair():
    torch.manual_seed(0)
    one = timm.create_model("test_resnet", num_classes=3).eval()
    other = copy.deepcopy(one)
    with torch.no_grad():
        for network in (one, other):  # timm starts the head near 0
            network.get_classifier().weight.normal_()
    return one, other


def test_the_outputs_are_those_of_each_network_and_the_shared_part_runs_once(pair):
    images, calls = torch.randn(2, 3, 32, 32), []
    hooks = [network.register_forward_hook(lambda *_: calls.append(1)) for network in pair]
    found = several_logits_and_features(pair, images)
    assert len(calls) == 1
    for hook in hooks:
        hook.remove()
    for network, (logits, features) in zip(pair, found, strict=True):
        expected = logits_and_features(network, images)
        assert torch.allclose(logits, expected[0], atol=1e-6) and torch.equal(features, expected[1])
    assert not torch.allclose(found[0][0], found[1][0])


def test_another_backbone_is_not_shared(pair):
    one, other = pair
    assert same_backbone(one, other)
    other = copy.deepcopy(other)
    with torch.no_grad():
        next(other.parameters()).add_(1e-3)
    assert not same_backbone(one, other)
    assert not same_backbone(nn.Linear(2, 2), nn.Linear(2, 2))


def test_layers_after_the_classifier_make_every_network_run(pair):
    networks = [copy.deepcopy(one) for one in pair]
    for network in networks:
        network.register_forward_hook(lambda _, inputs, out: out.cumsum(1))
    images = torch.randn(2, 3, 32, 32)
    for network, (logits, _) in zip(networks, several_logits_and_features(networks, images), strict=True):
        assert torch.equal(logits, network(images))
