"""Stochastic depth and dropout reach the layers of every family, with the rate that was asked for."""

import pytest
import timm
import torch
from timm.layers import DropPath
from torch import nn

import usvit.models.architectures  # noqa: F401 - registers ours with timm
from tests.models.test_trainable import FAMILIES
from usvit.errors import UsvitError
from usvit.models.architectures.parallel import fuse_branches
from usvit.models.build import build_model
from usvit.models.regularize import set_drop_path, set_dropout
from usvit.models.weights import Weights
from usvit.models.zoo import find_model

RATE = 0.3
VIT_LAYER = (r"blocks.{}.drop_path1", r"blocks.{}.drop_path2")
PARALLEL = tuple(f"blocks.{{}}.{part}.{branch}.drop_path" for part in ("attns", "ffns") for branch in (0, 1))
# Written down from timm's source: the places of each layer of a stack of two.
TWO_LAYERS = {
    **dict.fromkeys(("vit", "vit with LayerScale", "distilled", "attention pooling", "hybrid", "relative"), VIT_LAYER),
    **dict.fromkeys(("ours", "ours, whole", "ours, hybrid"), VIT_LAYER),
    "parallel": PARALLEL,
    "cait": ("blocks.{}.drop_path",),
    "resmlp": ("blocks.{}.drop_path",),
    "axial": tuple(f"blocks.{{}}.{axis}.drop_path{part}" for axis in ("row", "column") for part in (1, 2)),
}
BLOCKS = [name for name in FAMILIES if name != "vgg"]


def network(family, **options):
    architecture, small = FAMILIES[family]
    return timm.create_model(architecture, num_classes=3, **(small | options))


def rates(model):
    return {name: module.drop_prob for name, module in model.named_modules() if isinstance(module, DropPath)}


@pytest.mark.parametrize("family", TWO_LAYERS)
def test_every_layer_has_the_uniform_rate(family):
    model = network(family, drop_path_rate=RATE)
    set_drop_path(model, RATE, "uniform")
    assert rates(model) == {place.format(layer): RATE for place in TWO_LAYERS[family] for layer in (0, 1)}


@pytest.mark.parametrize("family", TWO_LAYERS)
def test_linear_rates_grow_from_zero(family):
    depth = {"depth": 4}
    model = network(family, drop_path_rate=RATE, **depth)
    set_drop_path(model, RATE, "linear")
    expected = {place.format(layer): RATE * layer / 3 for place in TWO_LAYERS[family] for layer in (1, 2, 3)}
    assert rates(model) == pytest.approx(expected)


@pytest.mark.parametrize("family", ["vit", "distilled", "parallel", "axial", "swin", "convnext"])
def test_linear_is_what_timm_makes_of_most_networks(family):
    own, ours = network(family, drop_path_rate=RATE), network(family, drop_path_rate=RATE)
    set_drop_path(ours, RATE, "linear")
    assert rates(own)
    assert rates(ours) == pytest.approx(rates(own))


def test_the_pooling_of_patchconvnet_has_no_stochastic_depth():
    """As in patchconvnet_models.py of its public code, which builds the pooling with drop_path=0."""
    model = network("patchconvnet", drop_path_rate=RATE)
    assert rates(model) == {f"{place}.drop_path": RATE for place in ("blocks.0", "blocks.1")}
    set_drop_path(model, RATE, "linear")
    assert rates(model) == pytest.approx({"blocks.1.drop_path": RATE})


@pytest.mark.slow
@pytest.mark.parametrize("family", ["resnet", "resnet50", "resnet with attention", "swin", "convnext"])
def test_every_residual_block_of_a_pyramid_is_reached(family):
    model = network(family, drop_path_rate=RATE)
    set_drop_path(model, RATE, "uniform")
    blocks = [m for m in model.modules() if type(m).__name__ in ("BasicBlock", "Bottleneck", "SwinTransformerBlock")]
    blocks = blocks or [m for m in model.modules() if type(m).__name__ == "ConvNeXtBlock"]
    assert blocks
    for block in blocks:
        own = [module for name, module in block.named_children() if name.startswith("drop_path")]
        assert own
        assert [module.drop_prob for module in own] == [RATE] * len(own)


@pytest.mark.slow
@pytest.mark.parametrize("family", BLOCKS)
def test_every_place_is_computed(family):
    model, called = network(family, drop_path_rate=RATE).train(), set()
    set_drop_path(model, RATE, "uniform")
    for name, module in model.named_modules():
        if isinstance(module, DropPath):
            module.register_forward_hook(lambda *_, name=name: called.add(name))
    size = getattr(getattr(model, "patch_embed", None), "img_size", None) or (32, 32)
    model(torch.randn(2, 3, *size))
    assert called == set(rates(model))
    assert called


def test_a_single_layer_has_the_uniform_rate():
    model = network("vit", drop_path_rate=RATE, depth=1)
    set_drop_path(model, RATE, "uniform")
    assert rates(model) == {"blocks.0.drop_path1": RATE, "blocks.0.drop_path2": RATE}


def test_the_network_s_own_schedule_is_left_and_none_means_none():
    model = network("cait", drop_path_rate=RATE)
    before = rates(model)
    set_drop_path(model, RATE, "model")
    assert rates(model) == before
    plain = network("vit")
    set_drop_path(plain, 0.0, "uniform")
    assert rates(plain) == {}


def dropouts(model):
    return {name for name, module in model.named_modules() if isinstance(module, nn.Dropout) and module.p == RATE}


PARTS = ("attn.proj_drop", "mlp.drop1", "mlp.drop2")
ATTENTION_AND_MLP = [f"blocks.{layer}.{part}" for layer in (0, 1) for part in PARTS]


@pytest.mark.parametrize(
    "family",
    ["vit", "vit with LayerScale", "distilled", "attention pooling", "hybrid", "ours", "ours, whole", "ours, hybrid"],
)
def test_dropout_is_where_timm_s_own_options_put_it(family):
    model = network(family)
    set_dropout(model, RATE)
    assert dropouts(model) == {"pos_drop", *ATTENTION_AND_MLP}
    if not family.startswith("ours"):
        assert dropouts(model) == dropouts(network(family, proj_drop_rate=RATE, pos_drop_rate=RATE))


@pytest.mark.parametrize("family", ["cait", "resmlp", "parallel", "axial", "swin"])
def test_other_families_have_dropout_in_their_blocks(family):
    model = network(family)
    set_dropout(model, RATE)
    found = dropouts(model)
    assert any(name.endswith("drop2") for name in found)
    assert not any(name.startswith(("head", "attn_pool")) for name in found)


@pytest.mark.parametrize("family", ["ours", "ours, whole", "axial", "parallel"])
def test_dropout_acts_in_training_alone(family):
    torch.manual_seed(0)
    model = network(family)
    set_dropout(model, 0.5)
    images = torch.randn(2, 3, 32, 32)
    model.train()
    assert not torch.equal(model.forward_features(images), model.forward_features(images))
    model.eval()
    assert torch.equal(model.forward_features(images), model.forward_features(images))


def test_position_dropout_acts_on_our_own_positions():
    model = network("ours", position_at="stem")
    model.pos_drop.p = 0.5
    tokens = torch.ones(1, 4, 24)
    assert (model.train()._pos_embed(tokens) == 0).any()
    assert not (model.eval()._pos_embed(tokens) == 0).any()


def test_fused_branches_go_apart_where_dropout_acts():
    torch.manual_seed(0)
    model = network("ours", branches=2)
    assert fuse_branches(model) == 2
    set_dropout(model, 0.5)
    images = torch.randn(2, 3, 32, 32)
    assert not torch.equal(model.train().forward_features(images), model.forward_features(images))


SMALL = {"width": 24, "depth": 3, "mlp": 24, "heads": 2}


def test_a_build_takes_schedule_and_dropout():
    model = build_model(
        find_model("vit_ti16", SMALL),
        Weights("scratch"),
        n_classes=2,
        image_size=32,
        drop_path=RATE,
        drop_path_schedule="uniform",
        dropout=0.1,
    )
    assert set(rates(model).values()) == {RATE}
    assert len(rates(model)) == 6
    assert model.pos_drop.p == model.blocks[0].mlp.drop1.p == 0.1


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("vgg16", {"drop_path": 0.1, "drop_path_schedule": "uniform"}, r"no stochastic depth: set model\.drop_path"),
        ("vgg16", {"dropout": 0.1}, r"vgg16 has no dropout in its blocks: set model\.dropout to 0"),
        ("resnet50", {"dropout": 0.1}, r"resnet50 has no dropout in its blocks"),
    ],
)
def test_networks_without_them_say_so(name, options, says):
    with torch.device("meta"), pytest.raises(UsvitError, match=says):
        build_model(find_model(name), Weights("scratch"), n_classes=2, image_size=32, **options)
