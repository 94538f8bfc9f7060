"""FlexiViT's patches of several sizes, against timm's resizing and against the plain ViT that loads the weights."""

import pytest
import torch
from timm.layers import resample_patch_embed

from usvit.models.architectures.flexible import make_flexible
from usvit.models.weights.resize import resize_embeddings

from .networks import SIZE, images, scramble, small, tiny_vit


@pytest.mark.parametrize("patch", [4, 8, 16, 32])
@pytest.mark.parametrize("kernel", [8, 12])
def test_the_kernel_is_resized_as_timm_resizes_it(kernel, patch):
    model = tiny_vit()
    embed = make_flexible(model, (4, 8, 16, 32), kernel=kernel)
    embed.patch = patch
    torch.testing.assert_close(
        embed.kernel(), resample_patch_embed(embed.proj.weight, [patch, patch]), rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("kind", ["vit", "vit-avg", "vit-layerscale", "vit-late", "vit-class", "vit-talking"])
def test_with_its_own_patch_size_alone_it_is_the_plain_vit(kind):
    plain, model = scramble(small(kind)), scramble(small(kind))
    make_flexible(model, (16,))
    assert {name: tensor.shape for name, tensor in model.state_dict().items()} == {
        name: tensor.shape for name, tensor in plain.state_dict().items()
    }
    assert model(images()).equal(plain(images()))


@pytest.mark.parametrize("options", [{}, {"class_position": False}, {"pool": "map"}])
@pytest.mark.parametrize("patch", [8, 16, 32])
def test_at_each_patch_size_it_is_the_plain_vit_that_loads_its_weights(options, patch):
    model = tiny_vit(**options)
    embed = make_flexible(model, (8, 16, 32), kernel=12, grid=3, seed=1)
    scramble(model)
    embed.patch = patch
    plain = tiny_vit(seed=1, **options, patch=patch)
    state = dict(model.state_dict())
    assert state["patch_embed.proj.weight"].shape == (32, 3, 12, 12)
    resize_embeddings(state, plain)
    plain.load_state_dict(state)
    torch.testing.assert_close(model(images()), plain(images()), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("patch", [8, 32])
def test_gradients_of_every_patch_size_reach_the_kernel_and_the_table(patch):
    model = scramble(tiny_vit())
    embed = make_flexible(model, (8, 32))
    embed.patch = patch
    model(images()).square().sum().backward()
    for parameter in (embed.proj.weight, model.pos_embed):
        assert parameter.grad.abs().gt(0).float().mean() > 0.9


def test_a_new_kernel_depends_on_the_seed_alone():
    kernels = []
    for global_seed, seed in ((0, 7), (1, 7), (0, 8)):
        model = tiny_vit()
        torch.manual_seed(global_seed)
        before = torch.random.get_rng_state()
        make_flexible(model, (8, 16), kernel=32, grid=2, seed=seed)
        assert torch.random.get_rng_state().equal(before)
        kernels.append(model.patch_embed.proj.weight)
    assert kernels[0].equal(kernels[1])
    assert not kernels[0].equal(kernels[2])
    assert model.pos_embed.shape == (1, 1 + 4, 32)


def test_frozen_embeddings_stay_frozen():
    model = tiny_vit()
    model.patch_embed.requires_grad_(False)
    make_flexible(model, (8,), kernel=32)
    assert not any(parameter.requires_grad for parameter in model.patch_embed.parameters())


@pytest.mark.parametrize(
    "kind", ["vit-hmlp_bn", "vit-sincos_2d", "vit-none", "vit-learned-layers", "hybrid-16", "resmlp"]
)
def test_networks_that_cannot_say_why(kind):
    with pytest.raises(ValueError, match="patches of several sizes need"):
        make_flexible(small(kind), (16,))


def test_the_image_must_be_a_multiple_of_every_patch_size():
    with pytest.raises(ValueError, match=f"{SIZE} pixels is not a multiple of the patch size 24"):
        make_flexible(tiny_vit(), (16, 24))
