"""Class attention and the late class token, against timm's CaiT and against the equations computed by hand."""

import re

import pytest
import torch
from timm.models.cait import Cait
from timm.models.vision_transformer import Block

from usvit.models.complexity import count
from usvit.models.zoo import ZOO, find_model

from .networks import CAIT, CLASSES, SIZE, TINY, images, scramble, small, tiny_vit


def as_timm_names(state, depth):
    """The names of timm's CaiT for the weights of our ViT with class attention."""
    renamed = {}
    for key, value in state.items():
        if found := re.fullmatch(r"blocks\.(\d+)\.(.*)", key):
            index, rest = int(found[1]), re.sub(r"ls(\d)\.gamma", r"gamma_\1", found[2])
            key = f"blocks.{index}.{rest}" if index < depth else f"blocks_token_only.{index - depth}.{rest}"
        renamed[key] = value
    return renamed


def test_talking_heads_layer_scale_and_two_class_layers_make_timm_s_cait():
    ours = scramble(tiny_vit(**CAIT))
    mlp = {"mlp_ratio": 1.5, "mlp_ratio_token_only": 1.5}
    theirs = Cait(SIZE, 16, num_classes=CLASSES, embed_dim=32, depth=2, num_heads=4, **mlp).eval()
    theirs.load_state_dict(as_timm_names(ours.state_dict(), TINY["depth"]))
    torch.testing.assert_close(ours.forward_features(images()), theirs.forward_features(images()))
    torch.testing.assert_close(ours(images()), theirs(images()))
    assert ours(images()).std() > 0.01


def test_a_late_class_token_is_inserted_at_its_layer():
    model = scramble(tiny_vit(depth=3, class_at=2))
    plain = scramble(tiny_vit(depth=3))
    plain.load_state_dict(model.state_dict())
    tokens = plain._pos_embed(plain.patch_embed(images()))
    patches = tokens[:, 1:]
    for block in plain.blocks[:2]:
        patches = block(patches)
    expected = plain.norm(plain.blocks[2](torch.cat([tokens[:, :1], patches], dim=1)))
    torch.testing.assert_close(model.forward_features(images()), expected)
    assert not torch.allclose(model(images()), plain(images()), atol=1e-2)


def test_inserted_at_layer_0_it_is_the_plain_network():
    assert all(type(block) is Block for block in tiny_vit(class_at=0).blocks)


@pytest.mark.parametrize("keys", ["all", "patches"])
def test_class_attention_is_the_equations(keys):
    block = scramble(tiny_vit(class_layers=1, class_keys=keys)).blocks[-1]
    attn, x = block.attn, torch.randn(1, 5, 32)
    z = x if keys == "all" else x[:, 1:]
    expected = []
    for head in range(4):
        rows = slice(8 * head, 8 * head + 8)
        query = attn.q.weight[rows] @ x[0, 0] + attn.q.bias[rows]
        scores = [query @ (attn.k.weight[rows] @ token + attn.k.bias[rows]) / 8**0.5 for token in z[0]]
        shares = torch.stack(scores).softmax(0)
        expected += [sum(s * (attn.v.weight[rows] @ t + attn.v.bias[rows]) for s, t in zip(shares, z[0], strict=True))]
    out = attn.proj.weight @ torch.cat(expected) + attn.proj.bias
    torch.testing.assert_close(attn(x)[0, 0], out, rtol=1e-4, atol=1e-4)
    attn.fused_attn = False
    torch.testing.assert_close(attn(x)[0, 0], out, rtol=1e-4, atol=1e-4)


def test_class_layers_leave_the_patches_alone_and_need_no_layer_scale():
    model = scramble(tiny_vit(**CAIT, class_layer_scale=False))
    x = torch.randn(2, 17, 32)
    after = model.blocks[2:](x)
    assert after[:, 1:].equal(x[:, 1:])
    assert not torch.allclose(after[:, 0], x[:, 0], atol=0.1)
    scales = {name.split(".")[1] for name, _ in model.named_parameters() if name.endswith("gamma")}
    assert scales == {"0", "1"}


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"class_at": 2}, "below the depth of 2"),
        ({"class_at": -1}, "class_at is -1"),
        ({"class_layers": -1}, "class_layers is -1"),
        ({"class_at": 1, "class_layers": 1}, "set class_at to 0"),
        ({"class_at": 1, "pool": "avg"}, "set pool to token"),
        ({"class_layers": 1, "pool": "map"}, "set pool to token"),
        ({"class_layers": 1, "position_at": "layers"}, "set position_at to stem"),
        ({"class_keys": "patches"}, "set class_layers"),
        ({"class_layer_scale": False}, "set class_layers"),
        ({"attention": "talking", "position": "relative"}, "talking"),
    ],
)
def test_impossible_combinations_say_why(wrong, words):
    with pytest.raises(ValueError, match=words):
        tiny_vit(**wrong)


@pytest.mark.parametrize(
    ("depth", "class_layers", "millions", "billions"),
    [(9, 3, 22, 3.6), (10, 2, 22, 4.0), (11, 1, 22, 4.3), (12, 1, 24, 4.7), (12, 2, 26, 4.7), (12, 3, 27, 4.8)],
)
def test_table_3_13_prints_these_costs(depth, class_layers, millions, billions):
    ours = count(find_model("deit_s", {"depth": depth, "class_layers": class_layers}))
    assert round(ours.params / 1e6) == millions
    # Normalisation, softmax and activations, which we do not count, are 0.4 % of the papers' numbers.
    assert billions - 0.05 <= 1.004 * ours.macs / 1e9 < billions + 0.05


TALKING = {"heads": 8, "attention": "talking"}
CA = {"class_layers": 2, "class_position": False}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("parts", "millions", "billions"),
    [
        ({"heads": 8}, 22, 4.6),
        (TALKING, 22, 4.6),
        ({**TALKING, "depth": 36}, 64, 13.8),
        ({**TALKING, "depth": 36, "layer_scale": 1e-6}, 64, 13.8),
        ({**TALKING, "depth": 36, "layer_scale": 1e-6, **CA}, 68, 13.9),
    ],
)
def test_table_3_20_prints_these_costs_from_deit_s_to_cait_s36(parts, millions, billions):
    ours = count(find_model("deit_s", parts))
    assert int(ours.params / 1e6) == millions
    assert ours.macs / 1e9 == pytest.approx(billions, rel=0.013)


@pytest.mark.slow
def test_the_end_of_that_path_is_cait_s36():
    parts = {**TALKING, "depth": 36, "layer_scale": 1e-6, **CA}
    assert count(find_model("deit_s", parts)) == count(ZOO["cait_s36"])


def test_intermediate_features_count_class_layers():
    model = small("vit-class")
    assert [info["module"] for info in model.feature_info] == [f"blocks.{index}" for index in range(4)]
    features = model.forward_intermediates(images(), indices=[3], output_fmt="NLC", intermediates_only=True)
    assert features[0].shape == (2, 16, 32)
