"""Networks on images of another side, against the same weights in a network of that side."""

import pytest
import timm
import torch
from torch.func import functional_call
from torch.nn import functional as F

from tests.models.authors_networks import VIT, load
from tests.oracles import authors
from usvit.models.architectures.other_sizes import accept_side, forward_at_side

from .networks import scramble, small, tiny_vit


@pytest.mark.parametrize("options", [{}, {"class_position": False}, {"pool": "avg"}])
@pytest.mark.parametrize("side", [32, 96])
def test_it_is_the_network_of_that_side_with_a_resized_table(options, side):
    network = scramble(tiny_vit(**options)).eval()
    accept_side(network, side)
    own, new = network.patch_embed.grid_size[0], side // 16
    other = tiny_vit(**options, img_size=side).eval()
    table = network.pos_embed.data
    n_prefix = table.shape[1] - own**2
    grid = table[:, n_prefix:].reshape(1, own, own, -1).permute(0, 3, 1, 2)
    resized = F.interpolate(grid, size=(new, new), mode="bicubic").permute(0, 2, 3, 1).flatten(1, 2)
    state = network.state_dict() | {"pos_embed": torch.cat([table[:, :n_prefix], resized], dim=1)}
    other.load_state_dict(state)
    images = torch.randn(2, 3, side, side)
    torch.testing.assert_close(forward_at_side(network, images), other(images), rtol=1e-4, atol=1e-5)


def test_its_own_side_is_unchanged_to_the_byte_and_the_table_learns_from_the_other():
    network = scramble(tiny_vit()).train()
    state = {key: value.clone() for key, value in network.state_dict().items()}
    side = network.patch_embed.img_size[0]
    images = torch.randn(2, 3, side, side)
    before = network.eval()(images)
    network.train()
    accept_side(network, side // 2)
    assert network.training
    assert torch.equal(forward_at_side(network.eval(), images), before)
    assert all(torch.equal(value, state[key]) for key, value in network.state_dict().items())
    forward_at_side(network, images[..., : side // 2, : side // 2]).square().sum().backward()
    assert (network.pos_embed.grad.abs().sum(2) > 0).all()


def test_convolutions_and_networks_that_resize_their_positions_themselves_take_any_side():
    for network in (timm.create_model("test_resnet"), timm.create_model("test_vit", dynamic_img_size=True)):
        accept_side(network, 64)
        assert forward_at_side(network, torch.randn(2, 3, 64, 64)).shape == (2, 1000)


@pytest.mark.parametrize(
    "make",
    [
        lambda: timm.create_model("usvit_resmlp", img_size=64, width=16, depth=1),
        lambda: small("vit-relative"),
        lambda: small("vit-axial"),
        lambda: tiny_vit(position="sincos_2d"),
    ],
    ids=["resmlp", "relative", "axial", "sincos"],
)
def test_a_fixed_number_of_patches_is_refused(make):
    with pytest.raises(ValueError, match=r"\w"):
        accept_side(make(), 16)


def test_a_side_that_is_no_multiple_of_the_patch_is_refused():
    with pytest.raises(ValueError, match="divisible by patch size"):
        accept_side(tiny_vit(), 24)


@pytest.mark.parametrize("side", [16, 48])
def test_dino_s_local_crops_are_the_authors_but_for_the_tenth_of_a_patch_that_they_add(side):
    """docs/reference/recipes.md: their code resizes by (n + 0.1) / N, against rounding, which moves the patches."""
    network, _ = load("dino_vit", VIT)
    stored, images = authors.network("dino_vit"), authors.images(side)
    theirs = torch.tensor(stored["features"][str(side)]).double()
    table = network.pos_embed.data
    grid = table[:, 1:].unflatten(1, (4, 4)).permute(0, 3, 1, 2)
    scale = (side / 8 + 0.1) / 4
    moved = F.interpolate(grid, scale_factor=(scale, scale), mode="bicubic").flatten(2).transpose(1, 2)
    torch.testing.assert_close(
        moved[0, :, :3], torch.tensor(stored["positions"][str(side)]).double(), atol=1e-6, rtol=0
    )
    network.reset_classifier(0)
    network.patch_embed.strict_img_size = False
    ours = forward_at_side(network, images)
    like_theirs = functional_call(network, {"pos_embed": torch.cat([table[:, :1], moved], dim=1)}, (images,))
    torch.testing.assert_close(like_theirs, theirs, rtol=1e-5, atol=1e-6)
    assert 0.01 < (ours - theirs).abs().max() < 0.1
