"""The classifier of two layers against its formula, and where it cannot stand."""

import pytest
import timm
import torch
from torch.nn.functional import relu

from usvit.errors import UsvitError
from usvit.models.mlp_head import give_mlp_head
from usvit.models.trainable import set_trainable
from usvit.models.weights.load import head_of


@pytest.fixture
def network():
    torch.manual_seed(0)
    return timm.create_model("resnet10t", num_classes=3)


def test_it_is_linear_batch_normalisation_relu_linear(network):
    last = network.fc.weight.detach().clone()
    give_mlp_head(network)
    x = torch.randn(5, 512)
    first, norm, _, second = network.get_classifier()
    assert torch.equal(second.weight, last)  # the classifier that was there
    hidden = x @ first.weight.T + first.bias
    hidden = (hidden - hidden.mean(0)) / (hidden.var(0, unbiased=False) + norm.eps).sqrt()
    expected = relu(hidden) @ second.weight.T + second.bias
    torch.testing.assert_close(network.train().fc(x), expected)
    assert network(torch.randn(2, 3, 32, 32)).shape == (2, 3)


def test_all_of_it_is_the_head(network):
    before = sum(parameter.numel() for parameter in network.parameters()) - (512 + 1) * 3
    give_mlp_head(network)
    new = (512 + 1) * 512 + 2 * 512 + (512 + 1) * 3
    report = set_trainable(network, "head")
    assert (report.trainable, report.total) == (new, before + new)
    # whoever goes on from these weights takes the trunk and leaves this head
    assert [key for key in network.state_dict() if head_of(network)(key)] == [
        key for key in network.state_dict() if key.startswith("fc.")
    ]


@pytest.mark.parametrize("name", ["deit_tiny_distilled_patch16_224", "resnetv2_50x1_bit"])
def test_two_heads_or_a_convolution_are_refused(name):
    with torch.device("meta"):
        network = timm.create_model(name, num_classes=3)
    with pytest.raises(UsvitError, match="not one linear layer"):
        give_mlp_head(network)
