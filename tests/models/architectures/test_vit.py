import pytest
import timm
import torch

from .networks import SIZE, images, scramble, small, tiny_vit

PLAIN = {"width": 192, "depth": 12, "mlp": 768, "heads": 3, "patch": 16, "img_size": 64, "num_classes": 7}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ({}, {}),
        ({"init_values": 0.1, "no_embed_class": True}, {"layer_scale": 0.1, "class_position": False}),
        ({"global_pool": "map", "class_token": False}, {"pool": "map"}),
        ({"global_pool": "avg", "class_token": False, "fc_norm": False}, {"pool": "avg"}),
        ({"pos_embed": "none"}, {"position": "none"}),
    ],
)  # fmt: skip
def test_plain_options_are_timms_own_vit(theirs, ours):
    reference = scramble(timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=7, **theirs).eval())
    model = timm.create_model("usvit_vit", **PLAIN, **ours).eval()
    model.load_state_dict(reference.state_dict())
    assert model(images()).equal(reference(images()))


def test_plain_options_start_as_timms_own_vit():
    torch.manual_seed(0)
    reference = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=7).state_dict()
    torch.manual_seed(0)
    state = timm.create_model("usvit_vit", **PLAIN).state_dict()
    assert all(tensor.equal(state[key]) for key, tensor in reference.items())


@pytest.mark.parametrize("mlp", [1, 47, 48, 100, 3001])
def test_the_mlp_has_just_the_width_asked_for(mlp):
    # 1152 wide with an MLP of 4304 is SoViT-400m's (Alabdulmohsin et al. 2023, Table 2).
    model = tiny_vit(mlp=mlp, pool="map")
    assert {model.blocks[0].mlp.fc1.out_features, model.attn_pool.mlp.fc1.out_features} == {mlp}


def test_sovit_has_its_own_mlp():
    with torch.device("meta"):
        model = timm.create_model("usvit_vit", width=1152, depth=1, mlp=4304, heads=16, patch=14, pool="map")
    assert model.blocks[0].mlp.fc1.out_features == 4304


def test_the_hidden_head_is_one_tanh_layer():
    model = scramble(tiny_vit(head="hidden"))
    linear = tiny_vit()
    linear.load_state_dict({key: value for key, value in model.state_dict().items() if "hidden" not in key})
    features = linear.forward_head(linear.forward_features(images()), pre_logits=True)
    hidden = torch.tanh(features @ model.hidden.fc.weight.T + model.hidden.fc.bias)
    assert model(images()).equal(linear.head(hidden))


def test_a_new_head_begins_anew_with_its_hidden_layer():
    model = tiny_vit(head="hidden")
    before = model.hidden.fc.weight.clone()
    model.reset_classifier(3)
    assert not model.hidden.fc.weight.equal(before)
    assert model.hidden.fc.weight.std().item() == pytest.approx(0.02, rel=0.1)


def test_only_a_head_that_reads_it_has_a_class_token():
    tokens = {pool: tiny_vit(pool=pool).forward_features(images()).shape[1] for pool in ("token", "avg", "map")}
    assert tokens == {"token": 17, "avg": 16, "map": 16}


def test_drop_path_grows_linearly_over_the_layers():
    model = tiny_vit(depth=5, drop_path_rate=0.4)
    rates = [getattr(block.drop_path1, "drop_prob", 0.0) for block in model.blocks]
    assert rates == pytest.approx([0, 0.1, 0.2, 0.3, 0.4])


def test_images_need_not_be_square():
    assert tiny_vit(img_size=(32, 96))(images(height=32, width=96)).shape == (2, 5)


def test_smaller_patches_resample_the_projection():
    model = tiny_vit()
    model.set_input_size(patch_size=8)
    assert model.patch_embed.grid_size == (8, 8)
    assert model(images()).shape == (2, 5)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"heads": 5}, "width 32 is not divisible by the 5 heads"),
        ({"img_size": 60}, "60 pixels is not a multiple of the patch size 16"),
        ({"img_size": (64, 8)}, "8 pixels is not a multiple of the patch size 16"),
        ({"depth": 0}, "depth is 0"),
        ({"mlp": -4}, "mlp is -4"),
        ({"branches": 0}, "branches is 0"),
        ({"attention": "axial"}, "axial attention does not support a class token"),
        ({"attention": "axial", "pool": "avg", "position": "relative"}, "axial"),
        ({"position": "relative", "position_at": "layers"}, "is available only at the stem"),
        ({"position": "none", "position_at": "shared"}, "is available only at the stem"),
        ({"position": "sincos_2d", "position_at": "layers"}, "set position_at to shared"),
        ({"position": "sincos_2d", "width": 36, "heads": 3, "mlp": 3, "img_size": 16, "patch": 1, "depth": 1}, None),
        ({"position": "sincos_2d", "width": 30, "heads": 3}, "a multiple of 4"),
        ({"position": "learned_2d", "width": 33, "heads": 3}, "the width 33 is odd"),
        ({"layer_scale": -0.1}, "layer_scale is -0.1"),
        ({"residual": "scalar"}, "residual 'scalar' needs layer_scale"),
        ({"residual": "fixup", "layer_scale": 0.1}, "starts its weights at 1: set layer_scale to none"),
        ({"residual": "rezero"}, "must be one of layer_scale, layer_scale_uniform, scalar"),
        ({"stem": "local", "patch": 2}, "a multiple of 4 pixels, not of 2"),
        ({"stem": "hmlp_bn", "patch": 4}, "patches of 8 or 16 or 32 pixels, not of 4"),
        ({"stem": "conv_ln", "patch": 32}, "patches of 16 pixels, not of 32"),
        ({"stem": "conv_ln", "width": 36}, "multiple of 8, not 36"),
        ({"stem": "hmlp_ln", "width": 34, "heads": 2}, "multiple of 4, not 34"),
        ({"stem": "linaer"}, "must be one of linear, linear_bn"),
        ({"pool": "max"}, "must be one of token, avg, map"),
    ],
)
def test_impossible_shapes_say_why(options, words):
    if words is None:
        assert tiny_vit(**options)
        return
    with pytest.raises(ValueError, match=words):
        tiny_vit(**options)


@pytest.mark.parametrize("kind", ["vit", "vit-hmlp_bn", "hybrid-16"])
def test_an_impossible_size_says_why_later_too(kind):
    with pytest.raises(ValueError, match="not a multiple"):
        small(kind).set_input_size(img_size=SIZE + 8)


def test_a_stem_of_convolutions_keeps_its_patches():
    with pytest.raises(ValueError, match="pixels cannot take patches of 8"):
        small("vit-hmlp_bn").set_input_size(patch_size=(8, 8))
