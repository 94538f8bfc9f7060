"""Norms of residual branches: each layer written out."""

import pytest
import torch

from tests.explaining.conftest import SMALL_SHAPE, network, pictures, transformer
from usvit.errors import UsvitError
from usvit.explaining.residuals import branch_ratios


def norm(x):
    """Over tokens and channels of each image."""
    return (x**2).sum(dim=(1, 2)) ** 0.5


def stem(model, images):
    x = model.patch_embed(images)
    return model._pos_embed(x) if hasattr(model, "_pos_embed") else x + model.pos_embed


@pytest.mark.parametrize("layer_scale", [None, 0.3, 1e-6])
def test_both_branches_of_a_vit_are_as_written_out(layer_scale):
    shape = {**SMALL_SHAPE, "layer_scale": layer_scale}
    model, images = network("usvit_vit", img_size=64, **shape), pictures(64)
    if layer_scale is not None:
        for block in model.blocks:
            torch.nn.init.constant_(block.ls1.gamma, layer_scale)
            torch.nn.init.constant_(block.ls2.gamma, 2 * layer_scale)
    found = branch_ratios(model, images, "ViT")
    assert [one.layer for one in found] == ["blocks.0", "blocks.1"]
    assert next(model.parameters()).dtype == torch.float32  # the network is left as it was
    model = model.double()
    with torch.no_grad():
        x = stem(model, images.double())
        for one, block in zip(found, model.blocks, strict=True):
            attention = (layer_scale or 1.0) * block.attn(block.norm1(x))
            assert torch.allclose(one.attention, norm(attention) / norm(x), rtol=1e-6)
            x = x + attention
            mlp = (1.0 if layer_scale is None else 2 * layer_scale) * block.mlp(block.norm2(x))
            assert torch.allclose(one.mlp, norm(mlp) / norm(x), rtol=1e-6)
            x = x + mlp


def test_the_layers_of_a_cait_are_as_written_out_and_class_attention_counts_its_token():
    model, images, _ = transformer("cait")
    found = {one.layer: one for one in branch_ratios(model, images, "CaiT")}
    assert list(found) == ["blocks.0", "blocks.1", "blocks_token_only.0", "blocks_token_only.1"]
    model = model.double()
    with torch.no_grad():
        x = stem(model, images.double())
        for at, block in enumerate(model.blocks):
            branch = block.gamma_1 * block.attn(block.norm1(x))
            assert torch.allclose(found[f"blocks.{at}"].attention, norm(branch) / norm(x))
            x = block(x)
        token = model.cls_token.expand(len(x), -1, -1)
        for at, block in enumerate(model.blocks_token_only):
            branch = block.gamma_1 * block.attn(block.norm1(torch.cat([token, x], dim=1)))
            assert torch.allclose(found[f"blocks_token_only.{at}"].attention, norm(branch) / norm(token))
            between = token + branch
            mlp = block.gamma_2 * block.mlp(block.norm2(between))
            assert torch.allclose(found[f"blocks_token_only.{at}"].mlp, norm(mlp) / norm(between))
            token = between + mlp


def test_layers_before_the_class_token_count_the_patches():
    model, images, _ = transformer("late class token")
    first = branch_ratios(model, images, "ViT")[0]
    model = model.double()
    with torch.no_grad():
        block, x = model.blocks[0], stem(model, images.double())[:, 1:]
        between = x + block.attn(block.norm1(x))
        assert torch.allclose(first.attention, norm(between - x) / norm(x))
        assert torch.allclose(first.mlp, norm(block.mlp(block.norm2(between))) / norm(between))


def test_a_branch_of_zeros_contributes_nothing():
    model, images, _ = transformer("vit_ti16")
    torch.nn.init.zeros_(model.blocks[1].attn.proj.weight)
    torch.nn.init.zeros_(model.blocks[1].attn.proj.bias)
    first, second = branch_ratios(model, images, "ViT")
    assert (first.attention > 0).all() and torch.equal(second.attention, torch.zeros(2, dtype=torch.float64))


@pytest.mark.parametrize(("kind", "options"), [("resnet10t", {}), ("usvit_vit", {**SMALL_SHAPE, "branches": 2})])
def test_other_layers_are_refused(kind, options):
    with pytest.raises(UsvitError, match=f"{kind} has no layers of an attention branch and then an MLP branch"):
        branch_ratios(network(kind, **options), pictures(224, 1), kind)
