import dataclasses

import pytest
import torch

from usvit.errors import UsvitError
from usvit.experiments.api import _default_recipe, _own_size
from usvit.models.build import build_model, input_statistics
from usvit.models.trainable import head_parts
from usvit.models.weights import Weights
from usvit.models.zoo import find_model

IMAGENET, INCEPTION, CLIP = 0.485, 0.5, 0.48145466
TABLE = [
    # name, family, image size, mean of red, whether the head starts at zero, and the study's recipe
    ("eva02_tiny_patch14_224", "vit", 224, CLIP, True, "vit"),
    ("vit_small_patch16_dinov3", "vit", 256, IMAGENET, True, "vit"),
    ("vit_pe_core_tiny_patch16_384", "vit", 384, INCEPTION, True, "vit"),
    ("beit_base_patch16_224", "vit", 224, INCEPTION, True, "vit"),
    ("test_vit", "vit", 160, INCEPTION, True, "vit"),
    ("deit3_small_patch16_224", "vit", 224, IMAGENET, True, "vit"),
    ("cait_xxs24_224", "vit", 224, IMAGENET, True, "vit"),
    ("tnt_s_patch16_224", "vit", 224, INCEPTION, True, "vit"),
    ("vit_base_r50_s16_224", "hybrid", 224, INCEPTION, True, "vit"),
    ("swin_tiny_patch4_window7_224", "hierarchical", 224, IMAGENET, True, "vit"),
    ("hiera_tiny_224", "hierarchical", 224, IMAGENET, True, "vit"),
    ("test_maxvit", "hierarchical", 160, INCEPTION, True, "vit"),
    ("pvt_v2_b0", "hierarchical", 224, IMAGENET, True, "vit"),
    ("mixer_s32_224", "mlp", 224, INCEPTION, True, "vit"),
    ("convnext_atto", "cnn", 224, IMAGENET, False, "cnn"),
    ("resnet10t", "cnn", 176, IMAGENET, False, "cnn"),
    ("efficientnet_b0", "cnn", 224, IMAGENET, False, "cnn"),
    ("botnet26t_256", "cnn", 256, IMAGENET, False, "cnn"),
]


@pytest.mark.parametrize(("name", "family", "size", "mean", "zeroed", "recipe"), TABLE)
def test_the_architecture_says_how_a_network_of_timm_is_fine_tuned(name, family, size, mean, zeroed, recipe):
    spec = find_model(f"timm:{name}")
    assert (spec.family, spec.image_size) == (family, size)
    assert input_statistics(spec)[0][0] == pytest.approx(mean)
    assert _default_recipe("busi", f"timm:{name}") == f"gheflati2022_{recipe}"
    # A CNN takes any size, so that it keeps the recipe's 224 pixels.
    assert _own_size(f"timm:{name}") == ({} if family == "cnn" else {"model": {"image_size": size}})


SMALL = [
    # the same kinds, of little width and depth -> another image size than the network's own
    ("eva02_tiny_patch14_224", {"depth": 1, "embed_dim": 32, "num_heads": 2}, 70),
    ("vit_small_patch16_dinov3", {"depth": 1, "embed_dim": 32, "num_heads": 2}, 64),
    ("vit_pe_core_tiny_patch16_384", {"depth": 1, "embed_dim": 32, "num_heads": 2}, 64),
    ("beit_base_patch16_224", {"depth": 1, "embed_dim": 32, "num_heads": 2}, 64),
    ("swin_tiny_patch4_window7_224", {"depths": (1, 1), "embed_dim": 16, "num_heads": (1, 2)}, 96),
    ("hiera_tiny_224", {"stages": (1, 1, 1, 1), "embed_dim": 16, "num_heads": 1}, 64),
    ("test_maxvit", {}, 64),
    ("mixer_s32_224", {}, 64),
    ("levit_128s", {}, 64),
    ("convnext_atto", {"depths": (1, 1, 1, 1), "dims": (8, 8, 8, 8)}, 64),
    ("resnet10t", {}, 64),
]


@pytest.mark.parametrize(("name", "options", "size"), SMALL, ids=[name for name, *_ in SMALL])
def test_each_kind_takes_another_size_and_learns(name, options, size):
    spec = dataclasses.replace(find_model(f"timm:{name}"), options=options)
    model = build_model(spec, Weights("scratch"), n_classes=3, image_size=size)
    logits = model(torch.randn(2, 3, size, size))
    assert logits.shape == (2, 3)
    assert bool((logits == 0).all()) == (spec.family != "cnn")
    torch.nn.functional.cross_entropy(logits, torch.tensor([0, 1])).backward()
    # A head at zero passes no gradient to the layers before it, but gets one; otherwise nothing would ever learn.
    last = [layer for layer in head_parts(model)[0].modules() if isinstance(layer, torch.nn.Linear)][-1]
    assert last.weight.grad.abs().sum() > 0


def test_a_size_that_a_network_cannot_take_is_refused():
    for name, words in (
        ("eva02_tiny_patch14_224", "not a multiple of its patch size 14"),
        ("crossvit_tiny_240", "must"),
    ):
        with pytest.raises(UsvitError, match=f"timm:{name} cannot take images of 96 x 96 pixels.*{words}"):
            build_model(find_model(f"timm:{name}"), Weights("scratch"), n_classes=3, image_size=96)
