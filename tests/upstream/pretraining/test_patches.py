import copy

import pytest
import timm
import torch

import usvit.models.architectures  # noqa: F401  (registers ours with timm)
from tests.upstream.pretraining.toy import STEMS, tiny_vit
from usvit.errors import UsvitError
from usvit.upstream.pretraining.patches import Tokens, freeze_head, patchify, unpatchify

VARIANTS = {
    "linear": {},
    "hmlp_bn": {"stem": "hmlp_bn"},
    "hmlp_ln": {"stem": "hmlp_ln"},
    "linear_bn_gelu": {"stem": "linear_bn_gelu"},
    "sincos": {"position": "sincos_2d"},
    "learned_2d": {"position": "learned_2d"},
    "no class position": {"class_position": False},
    "no class token": {"pool": "avg"},
    "attention pooling": {"pool": "map"},
    "layer scale": {"layer_scale": 0.1},
    "branches": {"branches": 2},
    "no positions": {"position": "none"},
}
TIMM = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2, "num_classes": 3}


def images(size: int = 2, side: int = 32) -> torch.Tensor:
    return torch.randn(size, 3, side, side, generator=torch.Generator().manual_seed(5))


def whole(network: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    tokens = Tokens.of(network, "mae", subsets=True)
    return torch.cat(tokens.encode(network, tokens.embed(network, x)), dim=1)


def test_patches_hold_their_pixels_row_by_row_with_channels_last():
    x = images(side=12)
    got = patchify(x, 4)
    assert got.shape == (2, 9, 48)
    for row in range(3):
        for column in range(3):
            for i in range(4):
                for j in range(4):
                    for channel in range(3):
                        pixel = x[1, channel, 4 * row + i, 4 * column + j]
                        assert got[1, 3 * row + column, (4 * i + j) * 3 + channel] == pixel


def test_unpatchify_undoes_patchify_also_where_the_image_is_no_square():
    x = torch.randn(2, 3, 8, 20)
    assert torch.equal(unpatchify(patchify(x, 4), 4, (2, 5)), x)


def test_an_image_that_patches_do_not_divide_is_refused():
    with pytest.raises(ValueError, match="30 x 32 are not a multiple of patches of 8"):
        patchify(torch.zeros(1, 3, 30, 32), 8)


def test_patches_stand_in_the_order_of_the_tokens():
    network, x = tiny_vit(), images()
    weight = network.patch_embed.proj.weight.permute(0, 2, 3, 1).flatten(1)  # rows, columns, channels
    by_hand = patchify(x, 8) @ weight.T + network.patch_embed.proj.bias
    assert torch.allclose(Tokens.of(network, "mae").embed(network, x), by_hand, atol=1e-5)


@pytest.mark.parametrize("name", VARIANTS)
def test_all_patches_give_the_networks_own_features(name: str):
    network = tiny_vit(**VARIANTS[name]).eval()
    assert torch.allclose(whole(network, images()), network.forward_features(images()), atol=1e-5)


@pytest.mark.parametrize(
    ("architecture", "options", "n_prefix"),
    [
        ("vit_tiny_patch16_224", {}, 1),
        ("vit_tiny_patch16_224", {"reg_tokens": 3}, 4),
        ("deit_tiny_distilled_patch16_224", {}, 2),
        ("deit3_small_patch16_224", {}, 1),
        ("vit_base_patch16_clip_224", {}, 1),  # a normalisation before the layers
    ],
)
def test_timms_networks_go_through_with_all_their_tokens(architecture: str, options: dict[str, int], n_prefix: int):
    network = timm.create_model(architecture, **TIMM, **options).eval()
    facts = Tokens.of(network, "mae", subsets=True)
    assert (facts.patch, facts.grid, facts.width, facts.n_prefix, facts.count) == (8, (4, 4), 16, n_prefix, 16)
    assert torch.allclose(whole(network, images()), network.forward_features(images()), atol=1e-5)


def test_a_network_that_normalises_after_pooling_normalises_its_patches_all_the_same():
    network = timm.create_model("vit_tiny_patch16_224", **TIMM, global_pool="avg", class_token=False).eval()
    assert torch.allclose(whole(network, images()), network.fc_norm(network.forward_features(images())), atol=1e-5)


@pytest.mark.parametrize("name", ["linear", "hmlp_bn", "no class token", "sincos", "no class position"])
def test_a_dropped_patch_does_not_show_in_the_others(name: str):
    network, x = tiny_vit(**VARIANTS[name]).eval(), images()
    tokens = Tokens.of(network, "mae", subsets=True)
    visible = torch.tensor([[1, 4, 6, 15], [0, 2, 9, 10]])
    seen = torch.zeros(2, 16, dtype=torch.bool).scatter(1, visible, True)
    pixels = unpatchify(seen[..., None].expand(-1, -1, 3 * 64).float(), 8, (4, 4)).bool()
    other = torch.where(pixels, x, torch.randn(x.shape))
    first = torch.cat(tokens.encode(network, tokens.embed(network, x), visible), 1)
    assert first.shape == (2, tokens.n_prefix + 4, 16)
    assert torch.allclose(first, torch.cat(tokens.encode(network, tokens.embed(network, other), visible), 1), atol=1e-5)
    moved = x.clone()
    moved[0, :, 0:8, 8:16] += 1  # patch 1, which is seen
    seen_moved = tokens.encode(network, tokens.embed(network, moved), visible)[1]
    assert not torch.allclose(first[0, tokens.n_prefix :], seen_moved[0], atol=1e-3)


def test_visible_patches_keep_their_own_positions():
    network, x = tiny_vit().eval(), images()
    tokens = Tokens.of(network, "mae", subsets=True)
    patches = tokens.embed(network, x)
    order = torch.tensor([[3, 0, 12], [3, 0, 12]])
    _, one = tokens.encode(network, patches, order)
    _, other = tokens.encode(network, patches, order.flip(1))
    assert torch.allclose(one, other.flip(1), atol=1e-5)
    by_hand = network._pos_embed(patches)
    by_hand = network.norm(network.blocks(torch.cat([by_hand[:, :1], by_hand[:, [4, 1, 13]]], dim=1)))
    assert torch.allclose(one, by_hand[:, 1:], atol=1e-5)


@pytest.mark.parametrize("stem", STEMS)
def test_masking_before_the_stem_and_after_it_is_the_same(stem: str):
    network, x = tiny_vit(stem=stem, patch=16, img_size=64).eval(), images(side=64)
    blank = torch.randn(2, 16, generator=torch.Generator().manual_seed(0)) < 0.5
    hidden = unpatchify(blank[..., None].expand(-1, -1, 3 * 256).float(), 16, (4, 4)).bool()
    before = network.patch_embed(x.masked_fill(hidden, 0.7))
    after = network.patch_embed(x)
    assert torch.allclose(before[~blank], after[~blank], atol=1e-5)
    assert not torch.allclose(before[blank], after[blank], atol=1e-2)


def test_a_convolutional_stem_shows_a_masked_patch_in_its_neighbours_and_is_refused():
    network, x = tiny_vit(stem="conv_ln", patch=16, img_size=64).eval(), images(side=64)
    hidden = x.clone()
    hidden[:, :, :16, :16] = 0
    assert not torch.allclose(network.patch_embed(hidden)[:, 1], network.patch_embed(x)[:, 1], atol=1e-3)
    with pytest.raises(UsvitError, match="the stem ConvStem mixes neighbouring patches"):
        Tokens.of(network, "mae", subsets=True)
    assert Tokens.of(network, "beit", mixing=True).grid == (4, 4)


@pytest.mark.slow
@pytest.mark.parametrize(
    "network",
    [
        ("resnet18", {}),
        ("cait_xxs24_224", {"embed_dim": 16, "depth": 1, "num_heads": 2}),
        ("mixer_s32_224", {}),
    ],
    ids=lambda network: network[0],
)
def test_networks_that_are_no_plain_vit_are_refused_and_what_would_do_is_named(network):
    with pytest.raises(
        UsvitError, match=r"objective mae needs a plain ViT, whose tokens it masks, not a \w+. Use vit_"
    ):
        Tokens.of(timm.create_model(network[0], **network[1]), "mae")


def test_a_hybrid_is_refused():
    options = {"width": 16, "depth": 1, "mlp": 16, "heads": 2, "layers": (1, 1), "img_size": 32}
    with pytest.raises(UsvitError, match="the stem HybridEmbed mixes"):
        Tokens.of(timm.create_model("usvit_hybrid", **options), "mae")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"position_at": "layers"}, "set model.vit.position_at to stem"),
        ({"position": "relative"}, "set model.vit.position to"),
        ({"attention": "axial", "pool": "avg"}, "set model.vit.attention to global"),
    ],
)
def test_what_needs_all_tokens_is_refused_only_where_some_are_dropped(options, said: str):
    network = tiny_vit(**options).eval()
    with pytest.raises(UsvitError, match=said):
        Tokens.of(network, "mae", subsets=True)
    tokens = Tokens.of(network, "beit")
    got = torch.cat(tokens.encode(network, tokens.embed(network, images())), dim=1)
    assert torch.allclose(got, network.forward_features(images()), atol=1e-5)


def test_a_copy_is_encoded_with_its_own_weights():
    network = tiny_vit().eval()
    tokens, other = Tokens.of(network, "mae"), copy.deepcopy(network)
    torch.nn.init.zeros_(other.norm.weight)
    patches = tokens.embed(other, images())
    assert tokens.encode(other, patches)[1].std(dim=1).max() < 1e-6
    assert tokens.encode(network, patches)[1].std(dim=1).max() > 1e-2


def test_recomputing_the_layers_changes_no_gradient():
    plain, frugal = tiny_vit(), tiny_vit()
    frugal.set_grad_checkpointing()
    for network in (plain, frugal):
        whole(network, images()).square().sum().backward()
    for one, other in zip(plain.blocks.parameters(), frugal.blocks.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-5)


def test_the_head_and_nothing_else_is_frozen():
    for options in ({"head": "hidden"}, {"pool": "map"}, {}):
        network = tiny_vit(**options)
        freeze_head(network)
        frozen = {name.split(".")[0] for name, one in network.named_parameters() if not one.requires_grad}
        assert frozen == {"head"} | ({"hidden"} if "head" in options else {"attn_pool"} if options else set())
