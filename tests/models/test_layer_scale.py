"""LayerScale with fixed values: what is copied and frozen, and what is not."""

import pytest
import timm
import torch

from usvit.errors import UsvitError
from usvit.models.layer_scale import fix_layer_scale, layer_scale_parameters
from usvit.models.trainable import set_trainable, train_mode
from usvit.models.zoo import find_model

VIT = {"embed_dim": 16, "num_heads": 2, "img_size": 32, "num_classes": 3}


def vit(seed, **options):
    torch.manual_seed(seed)
    model = timm.create_model("deit_small_patch16_224", depth=2, **VIT, **options)
    for name, values in model.named_parameters():
        if ".ls" in name:
            torch.nn.init.uniform_(values)
    return model


def test_the_values_are_copied_and_frozen_and_nothing_else_changes():
    model, source = vit(0, init_values=0.1), vit(1, init_values=0.1)
    before = {name: values.detach().clone() for name, values in model.named_parameters()}
    fix_layer_scale(model, source)
    scales = {f"blocks.{block}.ls{branch}.gamma" for block in (0, 1) for branch in (1, 2)}
    theirs = dict(source.named_parameters())
    for name, values in model.named_parameters():
        assert values.requires_grad == (name not in scales), name
        assert torch.equal(values, theirs[name] if name in scales else before[name]), name
    report = set_trainable(model, "full")
    assert report.total - report.trainable == 4 * 16


def test_training_leaves_the_values():
    model, source = vit(0, init_values=0.1), vit(1, init_values=0.1)
    fix_layer_scale(model, source)
    train_mode(model)
    trained = [values for values in model.parameters() if values.requires_grad]
    optimizer = torch.optim.SGD(trained, lr=1.0)
    model(torch.randn(2, 3, 32, 32)).logsumexp(1).sum().backward()
    optimizer.step()
    expected = layer_scale_parameters(source)
    assert len(expected) == 4
    assert all(torch.equal(values, expected[name]) for name, values in layer_scale_parameters(model).items())


@pytest.mark.parametrize(
    ("name", "channels", "n"),
    [
        ("cait_xxs24", 192, 2 * (24 + 2)),  # two layers of class attention
        ("resmlp_s12", 384, 2 * 12),
        ("patchconvnet_s60", 384, 60 + 2),  # the pooling has two
        ("deit3_s16", 384, 2 * 12),
        ("vit_s18x2", 384, 0),
    ],
)
def test_layer_scale_is_found_by_the_names_of_each_family(name, channels, n):
    spec = find_model(name)
    with torch.device("meta"):
        model = timm.create_model(spec.architecture, num_classes=3, **spec.options)
    found = layer_scale_parameters(model)
    assert len(found) == n
    assert {values.numel() for values in found.values()} <= {channels}


def test_a_network_without_layer_scale_is_refused():
    with pytest.raises(UsvitError, match="has no LayerScale"):
        fix_layer_scale(vit(0), vit(1))
