"""CaiT with a distillation token (thesis, Table 3.14)."""

import timm
import torch
from timm.models import group_parameters
from timm.models.cait import Cait

from usvit.models.weights.load import load_checkpoint
from usvit.models.weights.read import Checkpoint
from usvit.models.zoo import find_model

from .networks import CLASSES, SIZE, images, scramble


def distilled(**options):
    torch.manual_seed(0)
    base = {"width": 48, "depth": 2, "layer_scale": 0.1, "img_size": SIZE, "num_classes": CLASSES}
    return timm.create_model("usvit_cait_distilled", **{**base, **options}).eval()


def test_both_tokens_ask_and_are_keys_and_the_patches_stay():
    model = scramble(distilled())
    patches = model.blocks(model.patch_embed(images()) + model.pos_embed)
    tokens = torch.cat([model.cls_token, model.dist_token], dim=1).expand(2, -1, -1)
    for block in model.blocks_token_only:
        normed = block.norm1(torch.cat([tokens, patches], dim=1))
        attn = block.attn
        query, key, value = attn.q(normed[:, :2]), attn.k(normed), attn.v(normed)  # one head of 48 channels
        shares = (query @ key.transpose(1, 2) / 48**0.5).softmax(-1)
        assert shares.shape == (2, 2, 2 + 16)
        tokens = tokens + block.gamma_1 * attn.proj(shares @ value)
        tokens = tokens + block.gamma_2 * block.mlp(block.norm2(tokens))
    expected = model.norm(torch.cat([tokens, patches], dim=1))
    torch.testing.assert_close(model.forward_features(images()), expected, rtol=1e-4, atol=1e-4)
    answer = (model.head(expected[:, 0]) + model.head_dist(expected[:, 1])) / 2
    torch.testing.assert_close(model(images()), answer, rtol=1e-4, atol=1e-4)


def test_without_the_second_token_it_is_timm_s_cait():
    ours = scramble(distilled())
    theirs = Cait(SIZE, 16, num_classes=CLASSES, embed_dim=48, depth=2, num_heads=1).eval()
    state = {key: value for key, value in ours.state_dict().items() if "dist" not in key}
    theirs.load_state_dict(state)  # the same names and shapes
    features = ours.forward_features(images())
    torch.testing.assert_close(features[:, 2:], theirs.forward_features(images())[:, 1:])
    for block in ours.blocks_token_only:
        block.attn.n_queries = 1
    with torch.no_grad():
        alone = ours.norm(torch.cat([_class_only(ours, images())], dim=1))[:, 0]
    torch.testing.assert_close(alone, theirs.forward_features(images())[:, 0])


def _class_only(model, pictures):
    patches = model.blocks(model.patch_embed(pictures) + model.pos_embed)
    token = model.cls_token.expand(len(patches), -1, -1)
    for block in model.blocks_token_only:
        token = block(patches, token)
    return token


def test_it_returns_both_answers_only_in_distilled_training():
    model = scramble(distilled())
    model.set_distilled_training(True)
    assert model(images()).shape == (2, CLASSES)
    of_labels, of_teacher = model.train()(images())
    assert of_labels.shape == of_teacher.shape == (2, CLASSES)
    torch.testing.assert_close(model.eval()(images()), (of_labels + of_teacher) / 2)
    model.set_distilled_training(False)
    assert model.train()(images()).shape == (2, CLASSES)


def test_classifiers_are_replaced_together():
    model = distilled()
    model.reset_classifier(3)
    assert [head.out_features for head in model.get_classifier()] == [3, 3]
    model.reset_classifier(0)
    assert model(images()).shape == (2, 48)


def test_every_parameter_has_a_layer_and_the_tokens_have_no_decay():
    model = distilled()
    layers = group_parameters(model, model.group_matcher(), reverse=True)
    assert set(layers) == {name for name, _ in model.named_parameters()}
    assert layers["dist_token"] == layers["cls_token"] == 0
    assert model.no_weight_decay() <= set(layers)
    assert "dist_token" in model.no_weight_decay()


def test_weights_for_other_classes_load_and_both_heads_are_new():
    model, other = scramble(distilled()), distilled(num_classes=3)
    report = load_checkpoint(other, Checkpoint(dict(model.state_dict())), file="weights", name="cait_xxs24_distilled")
    assert other.dist_token.equal(model.dist_token)
    assert set(report.new) == {"head.weight", "head.bias", "head_dist.weight", "head_dist.bias"}


def test_names_of_any_cait():
    assert find_model("cait_s36_distilled").options == {"width": 384, "depth": 36, "layer_scale": 1e-6}
