"""ResMLP's other parts (thesis, Table 4.3), each against what defines it."""

import pytest
import timm
import torch
from timm.models.mlp_mixer import Affine, MlpMixer, ResBlock
from torch.nn import functional as F

from usvit.models.trainable import set_trainable

from .networks import RESMLP, SIZE, images, scramble, small

GRID = SIZE // 16


def one_layer(**options):
    torch.manual_seed(0)
    return scramble(
        timm.create_model("usvit_resmlp", img_size=SIZE, num_classes=5, **{**RESMLP, "depth": 1, **options})
    )


def changed_patches(model):
    """The patches whose features differ if the patch in row 1, column 2 of the image does."""
    model.eval()
    before = images(1)
    after = before.clone()
    after[:, :, 16:32, 32:48] += 1
    with torch.no_grad():
        differ = (model.forward_features(before) - model.forward_features(after)).abs().sum(-1)[0] > 1e-6
    return {divmod(int(index), GRID) for index in differ.nonzero()}


EVERYWHERE = {(row, column) for row in range(GRID) for column in range(GRID)}
NEIGHBOURS = {(row, column) for row in (0, 1, 2) for column in (1, 2, 3)}


@pytest.mark.parametrize(
    ("mixing", "reached"),
    [
        ("linear", EVERYWHERE),
        ("none", {(1, 2)}),
        ("mlp", EVERYWHERE),
        ("conv", NEIGHBOURS),
        ("dwconv", NEIGHBOURS),
        ("sepconv", NEIGHBOURS),
    ],
)
def test_a_patch_reaches_the_patches_that_the_communication_allows(mixing, reached):
    assert changed_patches(one_layer(mixing=mixing)) == reached


@pytest.mark.parametrize(("mixing", "crosses"), [("conv", True), ("dwconv", False), ("sepconv", True), ("mlp", False)])
def test_only_full_and_separable_convolutions_mix_channels(mixing, crosses):
    mix = one_layer(mixing=mixing).blocks[0].mix
    x = torch.randn(1, 32, GRID**2)
    other = x.clone()
    other[:, 7] += 1
    with torch.no_grad():
        channels = set((mix(x) - mix(other)).abs().amax(dim=2)[0].gt(1e-6).nonzero().flatten().tolist())
    assert channels == set(range(32)) if crosses else channels == {7}


def test_without_communication_and_positions_the_order_of_the_patches_does_not_matter():
    whole = images(1)
    rolled = whole.roll((16, 32), dims=(2, 3))
    bag, plain = scramble(small("resmlp-none")), scramble(small("resmlp"))
    torch.testing.assert_close(bag(whole), bag(rolled), rtol=1e-4, atol=1e-4)
    assert not torch.allclose(plain(whole), plain(rolled), rtol=1e-2, atol=1e-2)


def test_layer_norm_replaces_the_affine_layers_before_the_sublayers_and_at_the_end():
    model = one_layer(norm="ln")
    assert not any(isinstance(module, Affine) for module in model.modules())
    assert isinstance(model.norm, torch.nn.LayerNorm)
    assert model.blocks[0].ls1.shape == (32,)
    # The counts cannot tell them apart: the same parameters.
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in one_layer().parameters())


def test_class_mlp_is_the_formula_and_leaves_the_patches_alone():
    model = scramble(small("resmlp-ln-class_mlp"))
    with torch.no_grad():
        patches = model.blocks(model.stem(images()))
        features = model.forward_features(images())
        torch.testing.assert_close(features[:, 1:], model.norm(patches))
        token = model.cls_token.expand(2, -1, -1)
        for layer in model.class_layers:
            norm = layer.norm1
            tokens = [F.layer_norm(one, (32,), norm.weight, norm.bias, norm.eps) for one in (token, patches)]
            weight = layer.linear_tokens.weight[0]
            summed = weight[0] * tokens[0][:, 0] + torch.einsum("n,bnd->bd", weight[1:], tokens[1])
            token = token + layer.ls1.gamma * (summed + layer.linear_tokens.bias)[:, None]
            norm, mlp = layer.norm2, layer.mlp_channels
            hidden = F.linear(
                F.layer_norm(token, (32,), norm.weight, norm.bias, norm.eps), mlp.fc1.weight, mlp.fc1.bias
            )
            token = token + layer.ls2.gamma * F.linear(F.gelu(hidden), mlp.fc2.weight, mlp.fc2.bias)
        torch.testing.assert_close(features[:, :1], model.norm(token), rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(model(images()), model.head(model.norm(token)[:, 0]), rtol=1e-4, atol=1e-4)


def test_the_default_has_the_names_and_the_outputs_of_timm_s():
    ours = scramble(small("resmlp"))
    options = {"block_layer": ResBlock, "norm_layer": Affine, "mlp_ratio": 4, "embed_dim": 32, "num_blocks": 2}
    theirs = MlpMixer(5, SIZE, **options).eval()
    theirs.load_state_dict(ours.state_dict())
    assert theirs(images()).equal(ours(images()))


@pytest.mark.parametrize("wrong", [{"mixing": "attention"}, {"norm": "bn"}, {"pool": "map"}])
def test_unknown_parts_are_refused(wrong):
    with pytest.raises(ValueError, match="must be one of"):
        one_layer(**wrong)


def test_norms_and_mlps_of_the_variants_can_be_trained_alone():
    model = small("resmlp-ln-class_mlp")
    set_trainable(model, "norm")
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert "class_layers.0.norm1.weight" in trained
    assert "class_layers.0.linear_tokens.weight" not in trained
