"""Checkpoints with the names of the original repositories; small ones, written here from their source."""

import re

import pytest
import timm
import torch

from tests.models.conftest import SMALL_VIT, checkpoint_of, load_into, random_state, small
from usvit.errors import UsvitError
from usvit.models.weights.load import head_of

DEPTH_2 = {"embed_dim": 24, "depth": 2, "num_heads": 2}
PARALLEL = {  # models_v2.py of facebookresearch/deit: Layer_scale_init_Block_paralx2
    "attns.0.norm": "norm1", "attns.0.attn": "attn", "attns.0.ls.gamma": "gamma_1",
    "attns.1.norm": "norm11", "attns.1.attn": "attn1", "attns.1.ls.gamma": "gamma_1_1",
    "ffns.0.norm": "norm2", "ffns.0.mlp": "mlp", "ffns.0.ls.gamma": "gamma_2",
    "ffns.1.norm": "norm21", "ffns.1.mlp": "mlp1", "ffns.1.ls.gamma": "gamma_2_1",
}  # fmt: skip
RESMLP = {
    "stem.": "patch_embed.",
    "linear_tokens.": "attn.",
    "mlp_channels.": "mlp.",
    "ls1": "gamma_1",
    "ls2": "gamma_2",
}


def renamed(state, names):
    """A state dict with parts of its names exchanged: timm's -> the repository's."""
    result = {}
    for key, value in state.items():
        for timm_name, original in names.items():
            key = key.replace(timm_name, original)
        result[key] = value
    return result


def assert_loaded(model, state):
    """Every tensor but the head's is that of the state by timm's names."""
    is_head, own = head_of(model), model.state_dict()
    kept = {key for key in own if not is_head(key)}
    assert kept
    for key in kept:
        assert torch.equal(own[key], state[key]), key


@pytest.mark.parametrize("name", ["deit_tiny_patch16_224", "deit_tiny_distilled_patch16_224"])
def test_deit(name):
    state = random_state(name, **DEPTH_2)
    model, report = load_into(small(name, **DEPTH_2), checkpoint_of(state, "model"))
    assert_loaded(model, state)
    heads = {
        f"{head}.{kind}" for head in ("head", "head_dist") for kind in ("weight", "bias") if f"{head}.bias" in state
    }
    assert set(report.new) == {key for key, _ in report.skipped} == heads
    assert len(heads) == (4 if "distilled" in name else 2)
    assert not report.renamed and not report.resized


def test_deit3_layer_scale():
    name = "deit3_small_patch16_224"
    state = random_state(name, **DEPTH_2)
    original = renamed(state, {"ls1.gamma": "gamma_1", "ls2.gamma": "gamma_2"})
    assert "blocks.1.gamma_2" in original
    model, report = load_into(small(name, **DEPTH_2), checkpoint_of(original))
    assert_loaded(model, state)
    assert dict(report.renamed)["blocks.1.gamma_2"] == "blocks.1.ls2.gamma"
    assert len(report.renamed) == 4


@pytest.mark.parametrize("layer_scale", [1e-4, None])
def test_parallel_blocks_of_deit(layer_scale):
    name, options = "vit_small_patch16_18x2_224", {**DEPTH_2, "init_values": layer_scale}
    state = random_state(name, **options)
    original = {}
    for key, value in state.items():
        for theirs, own in PARALLEL.items():
            if f".{theirs}" in key:
                key = key.replace(theirs, own, 1)
                break
        original[key] = value
    assert {"blocks.0.attn1.qkv.weight", "blocks.1.norm21.bias"} <= original.keys()
    model, _ = load_into(small(name, **options), checkpoint_of(original))
    assert_loaded(model, state)


def test_cait():
    state = random_state("cait_xxs24_224", **DEPTH_2)
    model, report = load_into(small("cait_xxs24_224", **DEPTH_2), checkpoint_of(state))
    assert_loaded(model, state)
    assert report.loaded == len(state) - 2


@pytest.mark.slow
def test_resmlp():
    state = random_state("resmlp_12_224")
    original = renamed(state, RESMLP)
    original = {key: value.flatten() if key.endswith((".alpha", ".beta")) else value for key, value in original.items()}
    assert {"blocks.0.gamma_1", "blocks.1.attn.weight", "norm.alpha"} <= original.keys()
    model, report = load_into(small("resmlp_12_224"), checkpoint_of(original))
    assert_loaded(model, state)
    assert not report.resized  # another shape, but the same numbers


def mae(state):
    """A pre-training checkpoint of MAE: no head, a decoder."""
    encoder = {key: value for key, value in state.items() if not key.startswith("head.")}
    decoder = ["mask_token", "decoder_pos_embed", "decoder_embed.weight", "decoder_blocks.0.attn.qkv.weight"]
    decoder += ["decoder_norm.bias", "decoder_pred.weight"]
    return encoder | {key: torch.zeros(3) for key in decoder}


def test_mae_encoder_goes_into_a_vit_and_its_decoder_is_reported():
    name = "vit_base_patch16_224"
    state = random_state(name, **SMALL_VIT)
    model, report = load_into(small(name, **SMALL_VIT), checkpoint_of(mae(state), "model"))
    assert_loaded(model, state)
    assert {key for key, _ in report.skipped} == {key for key in mae(state) if key not in state}
    assert report.new == ("head.weight", "head.bias")
    assert "6 not used (" in report.line() and "decoder" in report.line()


def test_mae_into_mean_pooling_puts_its_norm_behind_the_mean():
    name = "vit_base_patch16_224"
    state = random_state(name, **SMALL_VIT)
    model, report = load_into(small(name, **SMALL_VIT, global_pool="avg"), checkpoint_of(mae(state)))
    assert torch.equal(model.fc_norm.weight, state["norm.weight"])
    assert ("norm.weight", "fc_norm.weight") in report.renamed


def test_a_class_token_is_left_out_where_the_network_has_none():
    state = random_state("vit_base_patch16_224", **SMALL_VIT)
    options = {**SMALL_VIT, "global_pool": "avg", "class_token": False, "fc_norm": False}
    model, report = load_into(small("vit_base_patch16_224", **options), checkpoint_of(state))
    assert torch.equal(model.pos_embed, state["pos_embed"][:, 1:])
    assert "cls_token" in dict(report.skipped)


def beit(state, shared):
    """A checkpoint of BEiT: pre-training has one table of relative positions, a norm, and a head for visual tokens."""
    original = {key: value for key, value in state.items() if not key.startswith(("head.", "fc_norm."))}
    original |= {"norm.weight": state["fc_norm.weight"], "norm.bias": state["fc_norm.bias"]}
    original |= {"mask_token": torch.zeros(1, 1, 24), "lm_head.weight": torch.zeros(7, 24)}
    if shared:
        table = original["blocks.0.attn.relative_position_bias_table"]
        original = {key: value for key, value in original.items() if not key.endswith("_bias_table")}
        original["rel_pos_bias.relative_position_bias_table"] = table
        original["rel_pos_bias.relative_position_index"] = torch.zeros(5, 5, dtype=torch.long)
    return original


@pytest.mark.parametrize("shared", [True, False])
def test_beit(shared):
    name = "beit_base_patch16_224"
    state = random_state(name, **DEPTH_2)
    if shared:  # one table in every layer
        table = state["blocks.0.attn.relative_position_bias_table"]
        state = {key: table if key.endswith("_bias_table") else value for key, value in state.items()}
    model, report = load_into(small(name, **DEPTH_2), checkpoint_of(beit(state, shared)))
    assert_loaded(model, state)
    assert {"mask_token", "lm_head.weight"} <= {key for key, _ in report.skipped}


def test_beit_at_another_resolution_resizes_its_tables():
    name = "beit_base_patch16_224"
    state = random_state(name, **DEPTH_2)
    model, report = load_into(small(name, **DEPTH_2), checkpoint_of(beit(state, shared=True)), image_size=64)
    assert "blocks.1.attn.relative_position_bias_table" in [key for key, _, _ in report.resized]
    assert model.eval()(torch.zeros(1, 3, 64, 64)).shape == (1, 3)


def test_beit_into_a_plain_vit_is_refused_with_what_differs():
    state = beit(random_state("beit_base_patch16_224", **DEPTH_2), shared=True)
    with pytest.raises(UsvitError) as caught:
        load_into(small("vit_base_patch16_224", **DEPTH_2), checkpoint_of(state))
    assert re.search(r"missing there: pos_embed \(1 x 5 x 24\), blocks\.0\.attn\.qkv\.bias", str(caught.value))
    assert re.search(r"unknown here: .*gamma_1.*q_bias", str(caught.value))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size", "file_size", "options"),
    [
        (
            "swin_tiny_patch4_window7_224",
            64,
            32,
            {"embed_dim": 24, "depths": (1, 1), "num_heads": (2, 2), "window_size": 4},
        ),
        ("convnext_atto", None, None, {}),
        ("regnety_002", None, None, {}),
        ("mixer_s16_224", 32, 32, {}),
        ("eva02_tiny_patch14_224", 56, 28, {"embed_dim": 24, "depth": 2, "num_heads": 2}),
    ],
)
def test_timm_s_other_networks_go_on_loading(name, size, file_size, options):
    size_option = {"img_size": file_size} if file_size else {}
    torch.manual_seed(2)
    state = timm.create_model(name, num_classes=5, **size_option, **options).state_dict()
    model, _ = load_into(small(name, **options), checkpoint_of(state), image_size=size or 64)
    assert model.eval()(torch.zeros(1, 3, size or 64, size or 64)).shape == (1, 3)
    if size == file_size:
        assert_loaded(model, state)


@pytest.mark.slow
def test_torchvision_s_vgg_is_renamed_by_timm():
    state = timm.create_model("vgg11", num_classes=5).state_dict()
    original = {key: value for key, value in state.items() if key.startswith("features")}
    for number, layer in ((0, "fc1"), (3, "fc2")):
        original[f"classifier.{number}.weight"] = state[f"pre_logits.{layer}.weight"].flatten(1)
        original[f"classifier.{number}.bias"] = state[f"pre_logits.{layer}.bias"]
    original |= {"classifier.6.weight": state["head.fc.weight"], "classifier.6.bias": state["head.fc.bias"]}
    model, report = load_into(small("vgg11"), checkpoint_of(original), image_size=64)
    assert_loaded(model, state)
    assert set(report.new) == {"head.fc.weight", "head.fc.bias"}
