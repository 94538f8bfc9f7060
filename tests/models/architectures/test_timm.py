"""What the papers say of networks that are timm's own."""

import timm
import torch

from .networks import images, scramble


def test_class_attention_of_cait_leaves_the_patches():
    model = scramble(timm.create_model("cait_xxs24_224", img_size=64, num_classes=3, depth=2).eval())
    x = model.patch_embed(images()) + model.pos_embed
    patches = model.norm(model.blocks(x))
    features = model.forward_features(images())
    torch.testing.assert_close(features[:, 1:], patches)
    # and only the class token is read, so a class-attention layer alone can change the answer
    before = model(images())
    model.blocks_token_only[0].attn.v.weight.data += 0.1
    assert not torch.allclose(model(images()), before)
    torch.testing.assert_close(model.forward_features(images())[:, 1:], patches)


def test_a_distilled_deit_has_two_heads_and_answers_with_their_mean():
    model = scramble(timm.create_model("deit_tiny_distilled_patch16_224", img_size=64, num_classes=3, depth=2).eval())
    tokens = model.forward_features(images())
    assert tokens.shape[1] == 2 + 16
    by_class, by_teacher = model.head(tokens[:, 0]), model.head_dist(tokens[:, 1])
    torch.testing.assert_close(model(images()), (by_class + by_teacher) / 2)
    model.train()
    model.set_distilled_training(True)
    assert [logits.shape for logits in model(images())] == [(2, 3), (2, 3)]
    assert model.get_classifier() == (model.head, model.head_dist)
