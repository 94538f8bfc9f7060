"""Rollout, maps of heads and attention distance."""

import numpy as np
import pytest
import torch

from tests.explaining.conftest import SMALL_SHAPE, SMALL_SWIN, TRANSFORMERS, network, pictures, transformer
from usvit.errors import UsvitError
from usvit.explaining.attention import (
    attention_distances,
    choose_layers,
    head_maps,
    layer_maps,
    patch_distances,
    rollout,
    rollout_maps,
)
from usvit.explaining.capture import Layer, capture
from usvit.explaining.token_layout import Anatomy, anatomy_of


@pytest.mark.slow
@pytest.mark.parametrize("kind", TRANSFORMERS)
def test_rollout_is_a_share_of_each_token_and_its_map_of_the_patches_alone(kind):
    model, images, n_prefix = transformer(kind)
    anatomy = anatomy_of(model, kind)
    assert anatomy.n_prefix == n_prefix
    rolled = rollout(capture(model, images), anatomy)
    assert rolled.shape == (2, n_prefix + anatomy.n_patches, n_prefix + anatomy.n_patches)
    assert torch.allclose(rolled.sum(-1), torch.ones(()), atol=1e-5) and rolled.min() >= 0
    maps = rollout_maps(model, images, kind)
    assert maps.shape == (2, *anatomy.grid) and torch.allclose(maps.sum((1, 2)), torch.ones(2))
    heads = head_maps(model, images, kind).maps
    assert heads.shape[0] == 2 and heads.shape[2:] == anatomy.grid
    assert torch.allclose(heads.sum((2, 3)), torch.ones(()), atol=1e-5)


def test_rollout_by_hand():
    """Two layers, three tokens, two heads, in numpy."""
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(3), size=(2, 1, 2, 3))  # layer, image, head, row
    by_hand = np.eye(3)
    for layer in weights:
        by_hand = (0.5 * layer[0].mean(axis=0) + 0.5 * np.eye(3)) @ by_hand
    layers = [Layer(str(index), "self", torch.from_numpy(layer), 3) for index, layer in enumerate(weights)]
    assert np.allclose(rollout(layers, Anatomy((1, 2), 1, "token"))[0], by_hand)


def test_rollout_through_class_attention_by_hand():
    """One layer among two patches, then the class token looks at itself, 0.2, and at the patches, 0.5 and 0.3."""
    patches = torch.tensor([[[[0.6, 0.4], [0.1, 0.9]]]])
    late = torch.tensor([[[[0.2, 0.5, 0.3]]]])
    rolled = rollout([Layer("a", "self", patches, 2), Layer("b", "class", late, 3)], Anatomy((1, 2), 1, "token"))[0]
    of_patches = np.array([[0.8, 0.2], [0.05, 0.95]])
    expected = [0.6, *(0.25 * of_patches[0] + 0.15 * of_patches[1])]
    assert np.allclose(rolled[0], expected) and np.allclose(rolled[1:, 1:], of_patches)


def test_rollout_through_class_attention_to_the_patches_alone_by_hand():
    """The class token has no key: half of it stays, and half is what it reads."""
    late = torch.tensor([[[[0.7, 0.3]]]])
    rolled = rollout([Layer("b", "class", late, 2)], Anatomy((1, 2), 1, "token"))[0]
    assert np.allclose(rolled, [[0.5, 0.35, 0.15], [0, 1, 0], [0, 0, 1]])


def test_rollout_through_class_attention_of_two_tokens_by_hand():
    late = torch.tensor([[[[0.1, 0.2, 0.7], [0.6, 0.0, 0.4]]]])
    rolled = rollout([Layer("b", "class", late, 3)], Anatomy((1, 1), 2, "token", 2))[0]
    assert np.allclose(rolled, [[0.55, 0.1, 0.35], [0.3, 0.5, 0.2], [0, 0, 1]])


def without_preference(model):
    """Every query scores every key alike."""
    for block in model.blocks:
        torch.nn.init.zeros_(block.attn.qkv.weight)
        torch.nn.init.zeros_(block.attn.qkv.bias)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["vit_ti16", "r_ti16", "distilled", "registers", "registers, mean"])
def test_uniform_attention_gives_a_uniform_map(kind):
    model, images, _ = transformer(kind)
    maps = rollout_maps(without_preference(model), images, kind)
    assert torch.allclose(maps, torch.full_like(maps, 1 / maps[0].numel()), atol=1e-6)
    heads = head_maps(model, images, kind).maps
    assert torch.allclose(heads, torch.full_like(heads, 1 / maps[0].numel()), atol=1e-6)


def looking_at(model, patch, strength=200.0):
    """Every token's key is 0 but this patch's, which every query likes; tokens pass every layer unchanged."""
    width = model.embed_dim
    with torch.no_grad():
        for parameter in model.patch_embed.parameters():
            parameter.zero_()
        common, special = torch.zeros(width), torch.zeros(width)
        common[0], common[1] = 1.0, -1.0
        special[2], special[3] = 1.0, -1.0
        tokens = common.expand(model.pos_embed.shape[1], -1).clone()
        tokens[model.pos_embed.shape[1] - model.patch_embed.num_patches + patch] = special
        model.pos_embed.copy_(tokens)
        for key in ("cls_token", "dist_token", "reg_token"):
            if getattr(model, key, None) is not None:
                getattr(model, key).zero_()
        for block in model.blocks:
            for layer in (block.attn.qkv, block.attn.proj, block.mlp.fc2):
                layer.weight.zero_()
                layer.bias.zero_()
            heads = block.attn.num_heads
            for head in range(heads):
                first = head * width // heads
                block.attn.qkv.bias[first] = strength  # of the query
                block.attn.qkv.weight[width + first, 2] = 1.0  # the key reads what is special
                block.attn.qkv.weight[width + first, 3] = -1.0
    return model


@pytest.mark.parametrize(("kind", "patch"), [("vit_ti16", 6), ("distilled", 0), ("distilled", 15), ("vit_ti16", 3)])
def test_a_network_made_to_look_at_one_patch_points_there(kind, patch):
    model, images, _ = transformer(kind)
    looking_at(model, patch)
    for maps in (rollout_maps(model, images, kind), head_maps(model, images, kind).maps.mean(1)):
        assert maps.flatten(1).argmax(1).tolist() == [patch, patch]
        assert maps[0, patch // 4, patch % 4] > 0.95


def test_the_grid_is_the_networks_and_not_a_square():
    model = looking_at(network("vit_tiny_patch16_224", img_size=(32, 96), depth=2), patch=8)  # second row, third patch
    maps = rollout_maps(model, torch.zeros(1, 3, 32, 96), "wide")
    assert maps.shape == (1, 2, 6) and maps[0].argmax() == 8 and maps[0, 1, 2] > 0.95


@pytest.mark.parametrize("size", [64, 96, 160])
def test_the_grid_follows_the_size_of_the_input(size):
    model = network("vit_tiny_patch16_224", img_size=size, depth=1)
    assert rollout_maps(model, pictures(size, 1), "ViT").shape == (1, size // 16, size // 16)


def test_the_mean_over_patches_is_read_as_one():
    """No class token: the map is the mean of the patches' rows."""
    model = network("usvit_vit", img_size=64, **SMALL_SHAPE, pool="avg")
    images = pictures(64)
    rolled = rollout(capture(model, images), anatomy_of(model, "mean"))
    assert torch.allclose(rollout_maps(model, images, "mean").flatten(1), rolled.mean(1), atol=1e-6)


@pytest.mark.parametrize("queries", ["one", "class"])
def test_the_pooling_of_a_patchconvnet_shows_its_own_maps(queries):
    model = network("usvit_patchconvnet", width=16, depth=1, queries=queries)
    images = pictures(64)
    found = head_maps(model, images, "PatchConvNet", torch.tensor([2, 0]))
    maps = model.attention_maps(images).detach()
    wanted = maps[:, :1] if queries == "one" else torch.stack([maps[0, 2:3], maps[1, 0:1]])
    assert torch.allclose(found.maps, wanted, atol=1e-6)
    with pytest.raises(UsvitError, match="--method attention"):
        rollout_maps(model, images, "PatchConvNet")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "options"),
    [("resnet10t", {}), ("resmlp_12_224", {}), ("swin_tiny_patch4_window7_224", SMALL_SWIN)],
)
def test_a_network_without_attention_among_all_patches_is_refused_with_what_it_can_do(name, options):
    model = network(name, **options)
    images = pictures(224, 1)
    for ask in (rollout_maps, head_maps, attention_distances):
        with pytest.raises(UsvitError, match=name) as refused:
            ask(model, images, name)
        assert "gradcam or occlusion" in str(refused.value)


def test_distances_between_patches_are_in_pixels_of_the_input():
    between = patch_distances(Anatomy((2, 3), 0, "mean"), 96)
    assert between[0, 1] == 32 and between[0, 3] == 48 and between[1, 3] == pytest.approx(np.hypot(32, 48))
    assert torch.equal(between, between.T) and (between.diagonal() == 0).all()


@pytest.mark.parametrize("kind", ["vit_ti16", "distilled", "registers"])
def test_attention_to_all_patches_alike_reaches_the_mean_distance_and_leaves_prefix_tokens_out(kind):
    model, images, n_prefix = transformer(kind)
    anatomy = anatomy_of(model, kind)
    layers = attention_distances(without_preference(model), images, kind)
    mean = float(patch_distances(anatomy, images.shape[-1]).mean())
    assert len(layers) == 2
    for layer in layers:
        assert torch.allclose(layer.distance, torch.full_like(layer.distance, mean), rtol=1e-4)
        assert torch.allclose(layer.prefix_share, torch.tensor(n_prefix / (n_prefix + anatomy.n_patches)), atol=1e-5)


def test_uniform_attention_along_a_row_reaches_a_row():
    """Four patches of 16 pixels: the mean of |i - j| is 1.25 patches."""
    model, images, _ = transformer("axial")
    for block in model.blocks:
        for part in (block.row, block.column):
            torch.nn.init.zeros_(part.attn.qkv.weight)
            torch.nn.init.zeros_(part.attn.qkv.bias)
    for layer in attention_distances(model, images, "axial"):
        assert torch.allclose(layer.distance, torch.full((2, 2), 20.0), rtol=1e-4)


def test_looking_at_one_corner_is_as_far_as_the_corner_is():
    model, images, _ = transformer("vit_ti16")
    between = patch_distances(Anatomy((4, 4), 1, "token"), 64)
    for layer in attention_distances(looking_at(model, 0), images, "corner"):
        assert torch.allclose(layer.distance, between[:, 0].mean(), rtol=1e-3)


def by_hand(query, key, width, heads):
    """softmax(q k / sqrt(d)), one head and one pair of tokens at a time: (Q, D), (T, D) -> (heads, Q, T)."""
    each = width // heads
    scores = np.zeros((heads, len(query), len(key)))
    for head in range(heads):
        part = slice(head * each, (head + 1) * each)
        for i, q in enumerate(query):
            for j, k in enumerate(key):
                scores[head, i, j] = (q[part] * k[part]).sum() / each**0.5
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    return shares / shares.sum(-1, keepdims=True)


def inputs_of(model, images, modules):
    """What each module gets, (T, D) of the first image."""
    seen = []
    handles = [module.register_forward_hook(lambda _, inputs, output: seen.append(inputs[0][0])) for module in modules]
    with torch.no_grad():
        model(images)
    for handle in handles:
        handle.remove()
    return seen


def test_every_layer_of_a_vit_is_as_computed_by_hand():
    model, images, _ = transformer("vit_ti16")
    found = layer_maps(model, images, "ViT", layers=("all",))
    assert [one.layer for one in found] == ["blocks.0", "blocks.1"]
    layers = [block.attn for block in model.blocks]
    for one, attn, x in zip(found, layers, inputs_of(model, images, layers), strict=True):
        width, heads = x.shape[-1], attn.num_heads
        query, key, _ = attn.qkv(x).detach().double().numpy().reshape(len(x), 3, width).swapaxes(0, 1)
        row = by_hand(query[:1], key, width, heads)[:, 0, 1:]  # of the class token, to the patches
        assert np.allclose(one.maps[0].flatten(1), row / row.sum(1, keepdims=True), atol=1e-5)


def test_both_layers_of_class_attention_of_a_cait_are_as_computed_by_hand():
    """Thesis, Fig. 3.9: the first layer is -2, the second -1."""
    model, images, _ = transformer("cait")
    found = layer_maps(model, images, "CaiT", layers=("-2", "-1"))
    assert [one.layer for one in found] == ["blocks_token_only.0", "blocks_token_only.1"]
    layers = [block.attn for block in model.blocks_token_only]
    for one, attn, x in zip(found, layers, inputs_of(model, images, layers), strict=True):
        query, key = (part(rows).detach().double().numpy() for part, rows in ((attn.q, x[:1]), (attn.k, x)))
        row = by_hand(query, key, x.shape[-1], attn.num_heads)[:, 0, 1:]
        assert np.allclose(one.maps[0].flatten(1), row / row.sum(1, keepdims=True), atol=1e-5)
    assert not torch.allclose(found[0].maps, found[1].maps)
    assert torch.equal(head_maps(model, images, "CaiT").maps, found[1].maps)


def test_layers_are_chosen_by_number_from_either_end_by_name_or_all():
    names = ["a.0", "a.1", "b.0"]
    for wanted, chosen in ((("1",), [0]), (("-1",), [2]), (("b.0", "1", "-3"), [0, 2]), (("all",), [0, 1, 2])):
        assert choose_layers(names, wanted, "it") == chosen
    for wanted in ("0", "4", "-4", "c", "", "1.0", "٣"):
        with pytest.raises(UsvitError, match="it has no layer"):
            choose_layers(names, (wanted,), "it")


def test_pooling_by_attention_is_the_only_layer():
    model = network("usvit_patchconvnet", width=16, depth=1)
    assert layer_maps(model, pictures(64), "PatchConvNet", layers=("1",))[0].layer == "attn_pool"
    with pytest.raises(UsvitError, match="has no layer '2'"):
        layer_maps(model, pictures(64), "PatchConvNet", layers=("2",))
