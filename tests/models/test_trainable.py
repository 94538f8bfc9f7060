"""What trains, family by family; frozen parts stand still; gradients computed again are the same."""

import re

import pytest
import timm
import torch
from torch import nn

import usvit.models.architectures  # noqa: F401 - registers ours with timm
from usvit.errors import UsvitError
from usvit.models.trainable import checkpoint_gradients, head_parts, set_trainable, train_mode

SMALL = {"embed_dim": 24, "num_heads": 2, "depth": 2, "img_size": 32}
TINY = {"width": 24, "depth": 2, "mlp": 48, "heads": 2, "patch": 16, "img_size": 32}
FAMILIES = {
    "vit": ("vit_tiny_patch16_224", SMALL),
    "vit with LayerScale": ("deit3_small_patch16_224", SMALL),
    "distilled": ("deit_tiny_distilled_patch16_224", SMALL),
    "parallel": ("vit_small_patch16_18x2_224", SMALL),
    "attention pooling": ("vit_base_patch16_siglip_224", SMALL),
    "cait": ("cait_xxs24_224", SMALL),
    "resmlp": ("usvit_resmlp", {"width": 24, "depth": 2, "img_size": 32}),
    "hybrid": ("vit_tiny_r_s16_p8_224", SMALL),
    "swin": ("swin_tiny_patch4_window7_224", {"embed_dim": 24, "depths": (1, 1), "num_heads": (2, 2), "img_size": 56}),
    "relative": ("vit_relpos_small_patch16_224", SMALL),
    "convnext": ("convnext_small", {"depths": (1, 1, 1, 1), "dims": (8, 16, 24, 32)}),
    "resnet": ("test_resnet", {}),
    "resnet50": ("resnet50", {}),
    "vgg": ("vgg16", {}),
    "ours": ("usvit_vit", {**TINY, "position": "learned_2d", "position_at": "layers"}),
    "ours, whole": ("usvit_vit", {**TINY, "position": "relative", "pool": "map", "head": "hidden"}),
    "axial": ("usvit_vit", {**TINY, "attention": "axial", "pool": "avg"}),
    "ours, hybrid": ("usvit_hybrid", {"width": 24, "depth": 2, "mlp": 48, "heads": 2, "layers": (1, 1, 1, 1)}),
    "patchconvnet": ("usvit_patchconvnet", {"width": 24, "depth": 2, "queries": "class"}),
    "resnet with attention": ("usvit_resnet50_attn", {"layers": (1, 1, 1, 1)}),
}
# Written down from the names in timm's source: what trains besides the head.
ATTENTION = r"blocks\.\d+\.attn\.(qkv|proj)\.(weight|bias)|pos_embed"
MLP = r"blocks\.\d+\.mlp\.fc[12]\.(weight|bias)|pos_embed"
NORM = r"blocks\.\d+\.norm[12]\.(weight|bias)|norm\.(weight|bias)"
POOL = r"attn_pool\.(latent|(q|kv|proj)\.(weight|bias))"
QUERIES = r"attn_pool\.(queries|(q|k|v|proj)\.(weight|bias))"
SWIN_TABLE = r"layers\.\d\.blocks\.\d\.attn\.relative_position_bias_table"
EXPECTED = {
    ("vit", "attn"): ATTENTION,
    ("vit", "ffn"): MLP,
    ("vit", "norm"): NORM,
    ("vit with LayerScale", "attn"): ATTENTION,
    ("vit with LayerScale", "norm"): NORM,
    ("distilled", "attn"): ATTENTION,
    ("distilled", "norm"): NORM,
    ("parallel", "attn"): r"blocks\.\d+\.attns\.\d\.attn\.(qkv|proj)\.(weight|bias)|pos_embed",
    ("parallel", "ffn"): r"blocks\.\d+\.ffns\.\d\.mlp\.fc[12]\.(weight|bias)|pos_embed",
    ("parallel", "norm"): r"blocks\.\d+\.(attns|ffns)\.\d\.norm\.(weight|bias)|norm\.(weight|bias)",
    ("attention pooling", "attn"): f"{ATTENTION}|{POOL}",
    ("attention pooling", "ffn"): rf"{MLP}|attn_pool\.mlp\.fc[12]\.(weight|bias)",
    ("attention pooling", "norm"): rf"{NORM}|attn_pool\.norm\.(weight|bias)",
    ("cait", "attn"): r"blocks(_token_only)?\.\d+\.attn\.(qkv|q|k|v|proj|proj_l|proj_w)\.(weight|bias)|pos_embed",
    ("cait", "ffn"): r"blocks(_token_only)?\.\d+\.mlp\.fc[12]\.(weight|bias)|pos_embed",
    ("cait", "norm"): r"blocks(_token_only)?\.\d+\.norm[12]\.(weight|bias)|norm\.(weight|bias)",
    ("resmlp", "ffn"): r"blocks\.\d+\.mlp_channels\.fc[12]\.(weight|bias)",
    ("resmlp", "norm"): r"(blocks\.\d+\.norm[12]|norm)\.(alpha|beta)",
    ("hybrid", "attn"): ATTENTION,
    ("hybrid", "norm"): rf"{NORM}|patch_embed\.backbone\.(.*\.)?norm\d?\.(weight|bias)",
    ("swin", "attn"): rf"layers\.\d\.blocks\.\d\.attn\.(qkv|proj)\.(weight|bias)|{SWIN_TABLE}",
    ("swin", "ffn"): rf"layers\.\d\.blocks\.\d\.mlp\.fc[12]\.(weight|bias)|{SWIN_TABLE}",
    ("relative", "attn"): r"blocks\.\d+\.attn\..*",
    ("convnext", "ffn"): r"stages\.\d\.blocks\.\d\.mlp\.fc[12]\.(weight|bias)",
    ("ours", "attn"): r"blocks\.\d+\.attn\.(qkv|proj)\.(weight|bias)|pos_embeds\.\d\.(prefix|x_table|y_table)",
    ("ours, whole", "attn"): rf"{ATTENTION}|blocks\.\d\.attn\.relative|{POOL}",
    ("ours, whole", "ffn"): rf"{MLP}|blocks\.\d\.attn\.relative|attn_pool\.mlp\.fc[12]\.(weight|bias)",
    ("axial", "attn"): r"blocks\.\d\.(row|column)\.attn\.(qkv|proj)\.(weight|bias)|pos_embed",
    ("axial", "ffn"): r"blocks\.\d\.(row|column)\.mlp\.fc[12]\.(weight|bias)|pos_embed",
    ("ours, hybrid", "attn"): ATTENTION,
    ("patchconvnet", "attn"): QUERIES,
    ("patchconvnet", "ffn"): r"attn_pool\.mlp\.fc[12]\.(weight|bias)",
    ("patchconvnet", "norm"): r"(blocks\.\d\.norm|attn_pool\.norm[12]|norm)\.(weight|bias)",
    ("resnet with attention", "attn"): QUERIES,
    ("resnet50", "norm"): r".*(bn\d|downsample\.1)\.(weight|bias)",
}


def network(family, **more):
    name, options = FAMILIES[family]
    torch.manual_seed(0)
    return timm.create_model(name, num_classes=3, **options, **more)


def on_meta(family):
    with torch.device("meta"):
        return network(family)


def trained(model):
    return {name for name, parameter in model.named_parameters() if parameter.requires_grad}


def classifier_of(model):
    names = model.pretrained_cfg["classifier"]
    names = (names,) if isinstance(names, str) else names
    names += ("hidden.fc",)  # of a head with a hidden layer
    return {name for name, _ in model.named_parameters() if name.rpartition(".")[0] in names}


@pytest.mark.slow
@pytest.mark.parametrize(("family", "tune"), EXPECTED)
def test_what_trains_is_what_the_names_in_timms_source_say(family, tune):
    model = on_meta(family)
    report = set_trainable(model, tune)
    expected = {name for name, _ in model.named_parameters() if re.fullmatch(EXPECTED[family, tune], name)}
    assert trained(model) == expected | classifier_of(model) and expected
    assert report.trainable == sum(model.get_parameter(name).numel() for name in trained(model))


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_head_alone_is_the_classifier_and_full_is_everything(family):
    model = on_meta(family)
    assert len(head_parts(model)) == (2 if family == "distilled" else 1)
    assert set_trainable(model, "full").trainable == sum(parameter.numel() for parameter in model.parameters())
    set_trainable(model, "head")
    assert trained(model) == classifier_of(model)


@pytest.mark.parametrize(
    ("family", "tune", "said"),
    [
        (
            "resnet",
            "attn",
            "no attention layers, so model.tune=attn would train nothing. It supports model.tune=full, he",
        ),
        ("resmlp", "attn", "It supports model.tune=full, head, ffn, norm."),
        ("resnet", "ffn", "no MLPs"),
        ("vgg", "norm", "no normalisation layers"),
    ],
)
def test_a_part_that_a_network_does_not_have_is_refused_with_what_it_has(family, tune, said):
    with pytest.raises(UsvitError, match=said):
        set_trainable(on_meta(family), tune)


@pytest.mark.slow
def test_attention_is_a_third_of_vit_b_and_the_mlps_two_thirds():
    """Touvron et al. 2022, Three things, section 4: "the attention weights correspond to approximately one third"."""
    width, depth = 768, 12
    with torch.device("meta"):
        shares = {
            tune: set_trainable(timm.create_model("vit_base_patch16_224"), tune) for tune in ("attn", "ffn", "norm")
        }
    beside = 1000 * (width + 1) + 197 * width  # the head and the position embeddings
    assert shares["attn"].trainable == depth * (4 * width**2 + 4 * width) + beside == 29_268_712
    assert shares["ffn"].trainable == depth * (8 * width**2 + 5 * width) + beside
    assert shares["norm"].trainable == (2 * depth + 1) * 2 * width + 1000 * (width + 1)
    assert shares["attn"].trainable / shares["attn"].total == pytest.approx(1 / 3, abs=0.01)
    assert str(shares["attn"]) == "tuning attn: 29.3 of 86.6 M parameters"


def test_a_small_head_is_counted_one_by_one():
    assert str(set_trainable(on_meta("vit"), "head")).startswith("tuning head: 75 of 0.0 M")


def test_what_a_network_holds_fixed_itself_stays_fixed():
    model = network("vit")
    model.pos_embed.requires_grad = False
    set_trainable(model, "attn")
    assert "pos_embed" not in trained(model) and "blocks.0.attn.qkv.weight" in trained(model)


def test_frozen_parts_stand_in_eval_mode_and_stochastic_depth_works_where_something_trains():
    model = network("vit", drop_path_rate=0.5, proj_drop_rate=0.1)
    set_trainable(model, "attn")
    train_mode(model)
    block = model.blocks[1]
    assert block.attn.training and block.attn.proj_drop.training and block.drop_path1.training
    assert not block.mlp.training and not block.mlp.drop1.training and not block.norm1.training
    assert not model.patch_embed.training
    set_trainable(model, "head")
    train_mode(model)
    assert not any(module.training for module in model.blocks.modules()) and model.head.training


def test_statistics_of_a_frozen_batch_normalisation_stand_still_and_of_a_trained_one_move():
    images = torch.randn(4, 3, 64, 64)
    for tune, moves in (("head", False), ("norm", True)):
        model = network("resnet")
        set_trainable(model, tune)
        before = {name: buffer.clone() for name, buffer in model.named_buffers()}
        model.eval()
        train_mode(model)
        model(images)
        same = [torch.equal(before[name], buffer) for name, buffer in model.named_buffers()]
        assert not any(same) if moves else all(same)


def three_steps(model, images):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    torch.manual_seed(1)
    for _ in range(3):
        model.train()
        loss = nn.functional.cross_entropy(model(images), torch.tensor([0, 1, 2, 0]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        model.eval()
        losses.append(model(images).sum().item())  # statistics that were counted twice would show here
    return losses


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "again", "options"),
    [
        ("vit", "blocks.0", {"drop_path_rate": 0.4}),
        ("parallel", "blocks.0", {}),
        ("cait", "blocks.0", {}),
        ("resmlp", "blocks.0", {}),
        ("swin", "layers.0.blocks.0", {}),
        ("convnext", "stages.0.blocks.0", {}),
        ("resnet", "layer1.0", {}),
        ("ours, whole", "blocks.0", {}),
        ("patchconvnet", "blocks.0", {"norm": "bn"}),
    ],
)
def test_checkpointed_gradients_are_the_same_bit_for_bit(family, again, options):
    images = torch.randn(4, 3, FAMILIES[family][1].get("img_size", 64), FAMILIES[family][1].get("img_size", 64))
    plain, checkpointed = network(family, **options), network(family, **options)
    checkpoint_gradients(checkpointed)
    calls = []
    checkpointed.get_submodule(again).register_forward_pre_hook(lambda module, _: calls.append(module.training))
    assert three_steps(checkpointed, images) == three_steps(plain, images)
    assert len(calls) == 3 * 3, "a block is run forward, again for its gradient, and in the evaluation"
    for (name, one), two in zip(plain.state_dict().items(), checkpointed.state_dict().values(), strict=True):
        assert torch.equal(one, two), name


@pytest.mark.slow
@pytest.mark.parametrize("name", ["vgg16", "inception_v3", "nasnetalarge"])
def test_checkpointing_is_refused_where_there_is_none(name):
    with torch.device("meta"):
        model = timm.create_model(name)
    with pytest.raises(UsvitError, match=r"no gradient checkpointing: set model.grad_checkpointing to false"):
        checkpoint_gradients(model)
