"""Position embeddings and first filters."""

import numpy as np
import pytest
import torch

from tests.explaining.conftest import SMALL_SHAPE, network
from usvit.errors import UsvitError
from usvit.explaining.parameters import filter_components, position_similarity
from usvit.models.architectures.positions import sincos_2d


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("vit_tiny_patch16_224", {"img_size": 64, "depth": 1}),
        ("deit_tiny_distilled_patch16_224", {"img_size": 64, "depth": 1}),
        ("vit_small_patch14_reg4_dinov2", {"img_size": 56, "depth": 1}),
        ("deit3_small_patch16_224", {"img_size": 64, "depth": 1}),
        ("cait_xxs24_224", {"img_size": 64, "depth": 1}),
    ],
)
def test_prefix_tokens_have_no_part_in_similarity(name, options):
    model = network(name, **options)
    with torch.no_grad():
        model.pos_embed[:, -16:] = torch.nn.functional.normalize(torch.randn_like(model.pos_embed[:, -16:]), dim=-1)
    found = position_similarity(model, name)
    patches = model.pos_embed[0, -16:].detach().double()
    assert found.grid == (4, 4) and found.cosine.shape == (16, 16)
    assert np.allclose(found.cosine, patches @ patches.T, atol=1e-6)


def test_fixed_positions_are_those_of_the_formula():
    model = network("usvit_vit", img_size=(32, 96), **SMALL_SHAPE, position="sincos_2d")
    table = sincos_2d((2, 6), 24)[0].double().numpy()
    norm = np.linalg.norm(table, axis=1)
    assert np.allclose(position_similarity(model, "ViT").cosine, table @ table.T / np.outer(norm, norm), atol=1e-6)


def test_embeddings_of_rows_are_alike_within_rows_alone():
    model = network("vit_tiny_patch16_224", img_size=(32, 48), depth=1)
    with torch.no_grad():
        model.pos_embed.zero_()
        model.pos_embed[0, 1:4, 0] = 1  # the first row; the second is orthogonal
        model.pos_embed[0, 4:, 1] = 2
    assert position_similarity(model, "ViT").mean_of_pairs() == (1.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("name", "options"),
    [("resnet10t", {}), ("usvit_vit", {"img_size": 32, **SMALL_SHAPE, "position": "none"}), ("resmlp_12_224", {})],
)
def test_a_network_without_positions_is_refused(name, options):
    with pytest.raises(UsvitError, match="no position embeddings"):
        position_similarity(network(name, **options), name)


def test_components_of_filters_made_of_two_patterns():
    """Filters a u + b v with uncorrelated a, b of variances 9 and 1: the components are u and v, 90% and 10%."""
    model = network("usvit_vit", img_size=32, **SMALL_SHAPE)
    u, v = torch.zeros(3, 16, 16), torch.zeros(3, 16, 16)
    u[0, 2, 3], v[2, 5, 1] = 1.0, 1.0
    a = torch.tensor([3.0, 3.0, -3.0, -3.0] * 6)
    b = torch.tensor([1.0, -1.0, 1.0, -1.0] * 6)
    with torch.no_grad():
        model.patch_embed.proj.weight.copy_(a[:, None, None, None] * u + b[:, None, None, None] * v + 7)
    found = filter_components(model, "ViT")
    assert (found.layer, found.n_filters) == ("patch_embed.proj", 24)
    assert np.allclose(found.explained, [0.9, 0.1]) and found.components.shape == (2, 16, 16, 3)
    assert abs(found.components[0, 2, 3, 0]) == pytest.approx(1) and abs(found.components[1, 5, 1, 2]) == pytest.approx(
        1
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layer", "side"),
    [("resnet50", "conv1", 7), ("vit_tiny_r_s16_p8_224", "patch_embed.backbone.conv", 7), ("resnet10t", "conv1", 3)],
)
def test_other_networks_show_the_first_layer_that_sees_the_image(name, layer, side):
    found = filter_components(network(name), name)
    assert found.layer.startswith(layer) and found.components.shape[1:] == (side, side, 3)
    assert (
        len(found.components) <= 28 and (np.diff(found.explained) <= 1e-12).all() and found.explained.sum() <= 1 + 1e-9
    )


def test_filters_that_are_all_alike_have_no_components():
    model = network("usvit_vit", img_size=32, **SMALL_SHAPE)
    torch.nn.init.ones_(model.patch_embed.proj.weight)
    with pytest.raises(UsvitError, match="are the same"):
        filter_components(model, "ViT")
