"""The attention weights are the network's own."""

import pytest
import torch
from torch import nn

from tests.explaining.conftest import SMALL_SHAPE, TRANSFORMERS, network, pictures, transformer
from usvit.explaining.capture import capture
from usvit.models.architectures.parallel import fuse_branches


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_every_row_sums_to_one_and_the_network_stays_as_it_was(kind):
    model, images, _ = transformer(kind)
    with torch.no_grad():
        before = model(images)
    layers = capture(model, images)
    assert layers
    for layer in layers:
        assert layer.weights.min() >= 0
        assert torch.allclose(layer.weights.sum(-1), torch.ones(()), atol=1e-5), layer.name
    with torch.no_grad():
        assert torch.equal(model(images), before)
    assert not [
        hook for module in model.modules() for hook in module._forward_pre_hooks if kind in ("vit_ti16", "cait")
    ]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vit_ti16", "r_ti16", "distilled", "registers", "rotary"])
def test_the_weights_are_those_that_timm_computes_by_hand(kind):
    """Another road: with fused attention off, timm hands the softmax to its dropout, where a hook sees it."""
    model, images, _ = transformer(kind)
    mine = capture(model, images)
    by_hand = []
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
            module.attn_drop.register_forward_pre_hook(lambda _, inputs: by_hand.append(inputs[0]))
    with torch.no_grad():
        model(images)
    assert len(by_hand) == len(mine)
    for one, other in zip(mine, by_hand, strict=True):
        assert torch.allclose(one.weights, other, atol=1e-5)


def test_a_network_that_computes_by_hand_is_heard_too():
    model, images, _ = transformer("vit_ti16")
    fused = capture(model, images)
    for block in model.blocks:
        block.attn.fused_attn = False
    assert torch.allclose(capture(model, images)[1].weights, fused[1].weights)
    assert [block.attn.fused_attn for block in model.blocks] == [False, False]


def test_talking_heads_give_what_their_softmax_gives():
    model, images, _ = transformer("cait")
    softmax = []
    attention = model.blocks[0].attn
    attention.proj_l.register_forward_hook(lambda module, inputs, output: softmax.append(output.permute(0, 3, 1, 2)))
    layers = capture(model, images)
    assert torch.allclose(layers[0].weights, softmax[0].softmax(-1), atol=1e-6)
    assert [layer.kind for layer in layers] == ["self", "self", "class", "class"]
    assert layers[-1].weights.shape[2:] == (1, 17)


def test_relative_positions_are_in_the_weights():
    """Dosovitskiy et al. 2021, D.4, in loops: S_ij = q_i . r_(i - j) between patches, 0 with the class token."""
    model, images, _ = transformer("relative")
    attention, inside = model.blocks[0].attn, []
    attention.register_forward_pre_hook(lambda _, inputs: inside.append(inputs[0]))
    weights = capture(model, images)[0].weights
    x = inside[0][0]
    query, key, _ = attention.qkv(x).view(17, 3, 2, 12).permute(1, 2, 0, 3)
    for head in range(2):
        scores = torch.zeros(17, 17)
        for i in range(17):
            for j in range(17):
                scores[i, j] = query[head, i] @ key[head, j]
                if i > 0 and j > 0:
                    scores[i, j] += query[head, i] @ attention.relative[i - j + 15]
        assert torch.allclose(weights[0, head], (scores / 12**0.5).softmax(-1), atol=1e-5)


def test_axial_attention_stays_in_its_row_and_then_in_its_column():
    model, images, _ = transformer("axial")
    row, column = capture(model, images)[:2]
    place = torch.arange(16)
    same_row, same_column = (place[:, None] // 4 == place // 4), (place[:, None] % 4 == place % 4)
    assert (row.name, column.name) == ("blocks.0.row", "blocks.0.column")
    assert (row.weights[:, :, ~same_row] == 0).all() and (row.weights[:, :, same_row] > 0).all()
    assert (column.weights[:, :, ~same_column] == 0).all() and (column.weights[:, :, same_column] > 0).all()


def test_axial_weights_give_the_layers_own_output():
    """Weights times values, projected, is what the layer gave: nothing is transposed on the way."""
    model, images, _ = transformer("axial")
    for block, index in ((model.blocks[0].row, 0), (model.blocks[0].column, 1)):
        inside, outside = [], []
        handles = [
            block.attn.register_forward_pre_hook(lambda _, inputs, to=inside: to.append(inputs[0])),
            block.attn.register_forward_hook(lambda _, inputs, output, to=outside: to.append(output)),
        ]
        weights = capture(model, images)[index].weights
        value = block.attn.qkv(inside[0]).view(2, 16, 3, 2, 12)[:, :, 2].transpose(1, 2)
        again = block.attn.proj((weights @ value).transpose(1, 2).flatten(2))
        assert torch.allclose(again, outside[0], atol=1e-5)
        [handle.remove() for handle in handles]


def test_parallel_branches_are_one_layer_also_where_they_are_fused():
    model, images, _ = transformer("parallel")
    apart = capture(model, images)
    assert [(layer.name, layer.weights.shape[1]) for layer in apart] == [("blocks.0", 4), ("blocks.1", 4)]
    assert fuse_branches(model) == 2
    assert torch.allclose(capture(model, images)[1].weights, apart[1].weights, atol=1e-5)
    assert all(block.fused for block in model.blocks)


def test_a_network_without_attention_has_no_layers():
    assert capture(network("resnet10t"), pictures(32)) == []


def test_reduce_sees_each_attention_once():
    model, images, _ = transformer("parallel")
    layers = capture(model, images, lambda kind, weights: weights.mean(dim=1, keepdim=True))
    assert [tuple(layer.weights.shape) for layer in layers] == [(2, 2, 17, 17)] * 2  # two branches


def test_a_network_in_training_comes_back_in_training():
    model = network("usvit_vit", img_size=32, **SMALL_SHAPE).train()
    capture(model, pictures(32))
    assert model.training and all(module.training for module in model.modules() if not isinstance(module, nn.Identity))
