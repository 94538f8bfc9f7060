import pytest
import torch
from torch.nn import functional as F

from tests.models.conftest import SMALL_VIT, checkpoint_of, load_into, random_state, small
from tests.oracles import authors
from usvit.errors import UsvitError
from usvit.models.zoo import find_model

NAME = "vit_tiny_patch16_224"
SHAPE = {"width": 24, "depth": 2, "mlp": 48, "heads": 2}


def smooth_positions(side, prefix, width=24):
    """Position embeddings as training makes them: they change little from patch to patch."""
    generator = torch.Generator().manual_seed(1)
    coarse = torch.randn(1, width, 4, 4, generator=generator)
    grid = F.interpolate(coarse, (side, side), mode="bicubic", align_corners=True)
    return torch.cat([torch.randn(1, prefix, width, generator=generator), grid.flatten(2).transpose(1, 2)], dim=1)


@pytest.mark.parametrize(
    ("name", "prefix"), [(NAME, 1), ("deit_tiny_distilled_patch16_224", 2), ("deit3_small_patch16_224", 0)]
)
@pytest.mark.parametrize("side", [10, 18])
def test_positions_move_to_another_grid_and_those_of_tokens_stay(name, prefix, side):
    """Grid and prefix are the network's: with a class token, with a distillation token, and with no_embed_class."""
    state = random_state(name, image_size=224, **SMALL_VIT)
    state["pos_embed"] = smooth_positions(14, prefix)
    model, report = load_into(small(name, **SMALL_VIT), checkpoint_of(state), image_size=16 * side)
    own = model.pos_embed.detach()
    assert torch.equal(own[:, :prefix], state["pos_embed"][:, :prefix])
    grid = state["pos_embed"][:, prefix:].transpose(1, 2).reshape(1, 24, 14, 14)
    expected = F.interpolate(grid, (side, side), mode="bicubic", antialias=True)
    torch.testing.assert_close(own[:, prefix:], expected.flatten(2).transpose(1, 2))
    assert report.resized == (("pos_embed", (1, 196 + prefix, 24), (1, side * side + prefix, 24)),)


def test_the_norm_of_positions_is_kept_where_bilinear_interpolation_shrinks_it():
    """Thesis, section 3.4.5."""
    state = random_state(NAME, image_size=224, **SMALL_VIT)
    generator = torch.Generator().manual_seed(1)
    state["pos_embed"] = torch.randn(1, 197, 24, generator=generator)
    before = state["pos_embed"][:, 1:].norm(dim=-1).mean()
    model, _ = load_into(small(NAME, **SMALL_VIT), checkpoint_of(state), image_size=384)
    kept = model.pos_embed[:, 1:].norm(dim=-1).mean() / before
    grid = state["pos_embed"][:, 1:].transpose(1, 2).reshape(1, 24, 14, 14)
    bilinear = F.interpolate(grid, (24, 24), mode="bilinear").flatten(2).norm(dim=1).mean() / before
    assert kept > bilinear + 0.1
    state["pos_embed"] = smooth_positions(14, 1)  # as trained ones are
    before = state["pos_embed"][:, 1:].norm(dim=-1).mean()
    model, _ = load_into(small(NAME, **SMALL_VIT), checkpoint_of(state), image_size=384)
    after = model.pos_embed.detach()[:, 1:].norm(dim=-1).mean()
    assert float(after / before) == pytest.approx(1, abs=0.02)


def test_the_position_of_a_class_token_becomes_part_of_the_token_where_there_is_none():
    state = random_state(NAME, **SMALL_VIT)
    with_position, _ = load_into(small(NAME, **SMALL_VIT), checkpoint_of(state))
    without, report = load_into(small(NAME, **SMALL_VIT, no_embed_class=True), checkpoint_of(state))
    assert without.pos_embed.shape == (1, 4, 24)
    assert report.resized[0][0] == "pos_embed"
    images = torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        features = [model.eval().forward_features(images) for model in (with_position, without)]
    torch.testing.assert_close(features[0], features[1])
    back, _ = load_into(small(NAME, **SMALL_VIT), checkpoint_of(without.state_dict()))
    with torch.no_grad():
        torch.testing.assert_close(back.eval().forward_features(images), features[0])


@pytest.mark.parametrize("patch", [8, 32])
def test_a_patch_projection_is_resized_so_that_resized_patches_give_the_same_tokens(patch):
    """FlexiViT (Beyer et al. 2023), section 3.4: exact where patches grow."""
    state = random_state(NAME, image_size=64, **SMALL_VIT)
    model, report = load_into(small(NAME, **SMALL_VIT, patch_size=patch), checkpoint_of(state), image_size=4 * patch)
    old, new = state["patch_embed.proj.weight"], model.patch_embed.proj.weight.detach()
    assert report.resized == (("patch_embed.proj.weight", (24, 3, 16, 16), (24, 3, patch, patch)),)
    patches = torch.randn(5, 3, 16, 16)
    resized = F.interpolate(patches, (patch, patch), mode="bicubic", antialias=True)
    tokens, after = (torch.einsum("nchw,dchw->nd", x, kernel) for x, kernel in ((patches, old), (resized, new)))
    if patch > 16:
        torch.testing.assert_close(after, tokens, rtol=1e-3, atol=1e-3)
    else:
        smooth = F.interpolate(torch.randn(5, 3, 4, 4), (16, 16), mode="bicubic")
        small_ones = F.interpolate(smooth, (8, 8), mode="bicubic", antialias=True)
        one = torch.einsum("nchw,dchw->nd", smooth, old)
        two = torch.einsum("nchw,dchw->nd", small_ones, new)
        assert torch.corrcoef(torch.stack([one.flatten(), two.flatten()]))[0, 1] > 0.8


def test_resolution_and_patch_together_keep_the_grid():
    state = random_state(NAME, image_size=224, **SMALL_VIT)
    model, report = load_into(small(NAME, **SMALL_VIT, patch_size=32), checkpoint_of(state), image_size=448)
    assert torch.equal(model.pos_embed, state["pos_embed"])
    assert [key for key, _, _ in report.resized] == ["patch_embed.proj.weight"]


def test_cait_positions_have_no_token_s_among_them():
    options = {"embed_dim": 24, "depth": 1, "num_heads": 2}
    state = random_state("cait_xxs24_224", image_size=64, **options)
    model, report = load_into(small("cait_xxs24_224", **options), checkpoint_of(state), image_size=96)
    assert model.pos_embed.shape == (1, 36, 24)
    assert report.resized == (("pos_embed", (1, 16, 24), (1, 36, 24)),)


@pytest.mark.parametrize(
    ("position", "at", "resized"),
    [
        ("learned", "layers", {"pos_embeds.0.table", "pos_embeds.1.table"}),
        ("learned_2d", "stem", {"pos_embeds.0.x_table", "pos_embeds.0.y_table"}),
        ("relative", "stem", {"blocks.0.attn.relative", "blocks.1.attn.relative"}),
        ("sincos_2d", "shared", set()),
        ("none", "stem", set()),
    ],
)
def test_every_kind_of_position_of_our_vits_is_resized_as_the_network_does_it_itself(position, at, resized):
    spec = find_model("vit_ti16", {**SHAPE, "position": position, "position_at": at})
    torch.manual_seed(4)
    trained, _ = load_into_nothing(spec, 64)
    model, report = load_into(spec, checkpoint_of(trained.state_dict()), image_size=96)
    assert {key for key, _, _ in report.resized} == resized
    trained.set_input_size(96)
    own, expected = model.state_dict(), trained.state_dict()
    for key in own:
        if not key.startswith("head."):
            torch.testing.assert_close(own[key], expected[key])


def load_into_nothing(spec, image_size):
    from usvit.models.build import build_with_report
    from usvit.models.weights import Weights

    return build_with_report(spec, Weights("scratch"), n_classes=3, image_size=image_size)


@pytest.mark.slow
def test_what_cannot_be_resized_is_refused():
    """ResMLP's layers over tokens belong to one grid."""
    state = random_state("resmlp_12_224")
    with pytest.raises(UsvitError, match=r"linear_tokens.weight is 4 x 4 there and 16 x 16 here"):
        load_into(small("resmlp_12_224"), checkpoint_of(state), image_size=64)


@pytest.mark.parametrize("positions", [torch.zeros(1, 8, 24), torch.zeros(1, 0, 24), torch.zeros(5, 24)])
def test_positions_on_no_square_grid_are_refused(positions):
    state = random_state(NAME, **SMALL_VIT) | {"pos_embed": positions}
    with pytest.raises(UsvitError, match=r"pos_embed is .* there and 1 x 5 x 24 here"):
        load_into(small(NAME, **SMALL_VIT), checkpoint_of(state))


def test_enlarged_positions_are_mae_s_but_for_the_sharpness_of_the_cubic_kernel():
    """util/pos_embed.py of MAE, as DeiT's: PyTorch's kernel with a = -0.75. With antialiasing it has a = -0.5."""
    theirs = torch.tensor(authors.values("mae_enlarged_positions"))
    positions = torch.from_numpy(authors.numbers("positions", (1, 17, 4)))
    grid = positions[:, 1:].transpose(1, 2).reshape(1, 4, 4, 4)
    sharper = F.interpolate(grid, (6, 6), mode="bicubic").flatten(2).transpose(1, 2)[0]
    torch.testing.assert_close(sharper, theirs, rtol=0, atol=1e-6)
    spec = find_model("vit_ti16", {**SHAPE, "width": 4, "patch": 8})
    trained, _ = load_into_nothing(spec, 32)
    state = trained.state_dict() | {"pos_embed": positions}
    model, _ = load_into(spec, checkpoint_of(state), image_size=48)
    ours = model.pos_embed.detach()[0, 1:]
    assert 0.05 < (ours - theirs).abs().max() < 0.2
    assert torch.corrcoef(torch.stack([ours.flatten(), theirs.flatten()]))[0, 1] > 0.99
