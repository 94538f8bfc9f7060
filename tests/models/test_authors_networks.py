"""Networks against the outputs of their authors' public codes, with weights that are read as the authors' files are."""

import pytest
import torch
from torch import nn

from tests.models.authors_networks import NETWORKS, SHAPE, VIT, load, patchconvnet
from tests.oracles import authors
from usvit.errors import UsvitError
from usvit.models.architectures.parallel import fuse_branches
from usvit.models.weights.read import Checkpoint
from usvit.models.zoo import find_model


def assert_close(ours, theirs):
    torch.testing.assert_close(ours.detach(), torch.tensor(theirs).double(), rtol=1e-5, atol=1e-6)


def largest_difference(ours, theirs):
    return (ours.detach() - torch.tensor(theirs)).abs().max().item()


@pytest.mark.parametrize("name", NETWORKS)
def test_the_logits_are_those_of_the_authors_code(name):
    model, _ = load(name, NETWORKS[name])
    assert_close(model(authors.images(32)), authors.network(name)["logits"])


def test_deit3_s_exchangeable_vit_gives_them_too():
    model, _ = load("deit3", find_model("deit3_ti16", SHAPE))
    assert_close(model(authors.images(32)), authors.network("deit3")["logits"])


def test_both_heads_of_a_distilled_network_answer_in_training():
    model, _ = load("deit_distilled", NETWORKS["deit_distilled"])
    model.set_distilled_training(True)
    assert_close(torch.stack(model.train()(authors.images(32))), authors.network("deit_distilled")["both"])


def test_branches_at_once_give_the_authors_logits_too():
    model, _ = load("parallel_hmlp", NETWORKS["parallel_hmlp"])
    assert fuse_branches(model) == 2
    with torch.no_grad():
        assert_close(model(authors.images(32)), authors.network("parallel_hmlp")["logits"])


def test_our_own_class_attention_and_talking_heads_are_those_of_cait():
    """The networks of Table 3.20 of the thesis are built from ``usvit_vit``, which numbers all layers together."""
    parts = {"attention": "talking", "class_layers": 2, "class_position": False, "layer_scale": 0.1}
    state = authors.state_of("cait")
    for key in [key for key in state if key.startswith("blocks_token_only.")]:
        _, number, rest = key.split(".", 2)
        state[f"blocks.{2 + int(number)}.{rest}"] = state.pop(key)
    model, _ = load("cait", find_model("vit_ti16", SHAPE | parts), Checkpoint(state))
    assert_close(model(authors.images(32)), authors.network("cait")["logits"])


def test_the_features_of_dino_are_those_of_the_authors_code():
    model, _ = load("dino_vit", VIT)
    features = model.forward_head(model.forward_features(authors.images(32)), pre_logits=True)
    assert_close(features, authors.network("dino_vit")["features"]["32"])


def test_our_mean_over_patches_differs_from_mae_s_in_the_class_token_and_in_the_place_of_the_norm():
    """docs/reference/recipes.md: MAE keeps the class token in the layers, and normalises after the mean."""
    theirs = authors.network("mae_finetune_mean")["logits"]
    state = authors.state_of("mae_finetune_mean")
    for kind in ("weight", "bias"):
        state[f"norm.{kind}"] = state.pop(f"fc_norm.{kind}")
    ours, report = load("mae_finetune_mean", find_model("vit_ti16", SHAPE | {"pool": "avg"}), Checkpoint(state))
    assert "cls_token" in dict(report.skipped)
    assert largest_difference(ours(authors.images(32)), theirs) > 0.05
    with_token, _ = load("mae_finetune_mean", VIT, Checkpoint(state))
    tokens = with_token.blocks(with_token._pos_embed(with_token.patch_embed(authors.images(32))))
    assert_close(with_token.head(with_token.norm(tokens[:, 1:].mean(1))), theirs)


def test_a_patchconvnet_with_a_query_for_each_class_is_the_authors():
    model = patchconvnet("patchconvnet_multi")
    assert_close(model(authors.images(64)), authors.network("patchconvnet_multi")["logits"])


def test_a_patchconvnet_with_one_query_differs_from_the_authors_in_the_keys_of_its_pooling_alone():
    """docs/reference/recipes.md: in the public code the query is one of the keys."""
    model, theirs = patchconvnet("patchconvnet"), authors.network("patchconvnet")["logits"]
    patches = model.forward_features(authors.images(64)).flatten(2).transpose(1, 2)
    with_query = torch.cat([model.attn_pool.queries.expand(2, -1, -1), patches], dim=1)
    assert_close(model.head(model.norm(model.attn_pool(with_query)[:, 0])), theirs)
    assert largest_difference(model(authors.images(64)), theirs) > 0.01


BIG_VISION = {
    "tok": {},
    "hidden": {"head": "hidden"},
    "map": {"pool": "map"},
    "gap": {"pool": "avg", "position": "sincos_2d"},
}


@pytest.mark.parametrize("case", BIG_VISION)
def test_a_vit_of_big_vision_is_ours_with_the_approximate_gelu_and_its_own_fixed_positions(case):
    """docs/reference/recipes.md: ``nn.gelu`` of flax is the approximation by tanh. ``gap`` has fixed positions here."""
    name = f"big_vision_{case}"
    model, _ = load(name, find_model("vit_ti16", SHAPE | {"mlp": 64, "class_position": False} | BIG_VISION[case]))
    if case == "gap":
        model.pos_embeds[0].table = torch.tensor([authors.values("big_vision_positions")]).double()
    theirs = authors.network(name)["logits"]
    assert 1e-5 < largest_difference(model(authors.images(32)), theirs) < 1e-3
    for module in model.modules():
        if isinstance(module, nn.GELU):
            module.approximate = "tanh"
    assert_close(model(authors.images(32)), theirs)


def test_a_head_whose_hidden_layer_the_network_lacks_is_refused():
    """Without the layer, the logits would be others, and no shape shows it."""
    with pytest.raises(UsvitError, match=r"has no hidden layer before its head, but .* has one \(pre_logits/kernel\)"):
        load("big_vision_hidden", find_model("vit_ti16", SHAPE | {"mlp": 64, "class_position": False}))
