"""What a network hands to its classifier, for every kind of network."""

import pytest
import timm
import torch
from torch import nn

from tests.models.architectures.networks import SMALL, images, scramble, small
from usvit.models.features import logits_and_features, vectors
from usvit.models.zoo import ZOO

ONE_OF_EACH_FAMILY = {spec.family: spec for spec in reversed(ZOO.values())}


@pytest.mark.slow
@pytest.mark.parametrize("kind", sorted(SMALL))
def test_features_are_those_before_the_head_and_logits_those_of_the_network(kind):
    model = scramble(small(kind))
    with torch.no_grad():
        logits, features = logits_and_features(model, images())
        assert torch.equal(logits, model(images()))
        expected = model.forward_head(model.forward_features(images()), pre_logits=True)
    assert torch.equal(features, expected.flatten(1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [
        *((name, {}) for name in ("test_resnet", "test_vit", "test_efficientnet", "test_convnext", "test_byobnet")),
        *((name, {"depth": 1, "img_size": 64}) for name in ("cait_xxs24_224", "deit3_small_patch16_224")),
        ("resmlp_12_224", {"img_size": 64}),
    ],
)
def test_so_are_those_of_timm_s(name, options):
    torch.manual_seed(0)
    model = timm.create_model(name, num_classes=3, **options).eval()
    side = options.get("img_size", model.default_cfg["input_size"][-1])
    inputs = torch.randn(2, 3, side, side)
    with torch.no_grad():
        _, features = logits_and_features(model, inputs)
        expected = model.forward_head(model.forward_features(inputs), pre_logits=True)
    assert torch.equal(features, expected.flatten(1))


def test_two_heads_give_the_mean_of_their_inputs():
    torch.manual_seed(0)
    model = timm.create_model("deit_tiny_distilled_patch16_224", num_classes=3, img_size=32, depth=1).eval()
    inputs = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        logits, features = logits_and_features(model, inputs)
        assert torch.equal(logits, model(inputs))
        tokens = model.forward_features(inputs)
    torch.testing.assert_close(features, (tokens[:, 0] + tokens[:, 1]) / 2)


def shape_of_features(spec):
    """Without memory or arithmetic: on PyTorch's meta device."""
    config = timm.get_pretrained_cfg(spec.architecture)
    size = config.input_size[-1] if config else 224
    other = {} if spec.family in ("cnn", "patchconvnet") else {"img_size": size}
    with torch.device("meta"), torch.no_grad():
        model = timm.create_model(spec.architecture, num_classes=3, **{**spec.options, **other}).eval()
        logits, features = logits_and_features(model, torch.empty(2, 3, size, size))
    assert logits.shape == (2, 3)
    return features.shape


@pytest.mark.slow
@pytest.mark.parametrize("family", sorted(ONE_OF_EACH_FAMILY))
def test_every_family_shows_its_features_at_full_size(family):
    batch, dimensions = shape_of_features(ONE_OF_EACH_FAMILY[family])
    assert batch == 2 and 64 <= dimensions <= 10_000


def test_a_network_that_hides_its_classifier_shows_none():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(3 * 8 * 8, 2)

        def get_classifier(self):
            return self.head

        def forward(self, x):
            return nn.functional.linear(x.flatten(1), self.head.weight, self.head.bias)

    logits, features = logits_and_features(Hidden(), torch.randn(2, 3, 8, 8))
    assert logits.shape == (2, 2) and features is None
    assert logits_and_features(nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), torch.randn(2, 3, 8, 8))[1] is None


def test_no_hook_stays_behind_even_after_an_error():
    model = small("vit")
    with pytest.raises(Exception):  # noqa: B017 - whatever the network says of a wrong shape
        logits_and_features(model, torch.randn(2, 3, 5, 5))
    logits_and_features(model, images())
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_places_of_a_picture_are_averaged():
    heads = torch.arange(2 * 1 * 3 * 2 * 2).float().reshape(2, 1, 3, 2, 2)
    assert torch.equal(vectors(heads), heads[:, 0].mean((2, 3)))
