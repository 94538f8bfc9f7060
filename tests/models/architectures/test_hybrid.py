import pytest
import timm
import torch

from .networks import images, scramble

R26_S32 = {"layers": (2, 2, 2, 2), "width": 384, "depth": 12, "mlp": 1536, "heads": 6}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("vit_base_r50_s16_224", {"layers": (3, 4, 9)}),  # "(ii) extended stage 3"
        ("vit_small_r26_s32_224", R26_S32),
        (
            "vit_large_r50_s32_224",
            {"width": 1024, "depth": 24, "mlp": 4096, "heads": 16},
        ),  # "(i) stage 4 of a ResNet50"
    ],
)
def test_hybrids_have_the_weights_of_timms(theirs, ours):
    with torch.device("meta"):
        reference = timm.create_model(theirs, num_classes=1000).state_dict()
        state = timm.create_model("usvit_hybrid", **ours).state_dict()
    assert {key: tensor.shape for key, tensor in state.items()} == {key: t.shape for key, t in reference.items()}


@pytest.mark.slow
def test_a_hybrid_computes_what_timms_does():
    reference = scramble(timm.create_model("vit_small_r26_s32_224", num_classes=3, img_size=64, depth=2).eval())
    model = timm.create_model("usvit_hybrid", **(R26_S32 | {"depth": 2}), num_classes=3, img_size=64).eval()
    model.load_state_dict(reference.state_dict())
    assert model(images()).equal(reference(images()))


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "tokens"), [((3, 4, 6, 3), 49), ((3, 4, 9), 196)])
def test_the_extended_stage_3_gives_four_times_the_tokens(layers, tokens):
    with torch.device("meta"):
        model = timm.create_model("usvit_hybrid", layers=layers)
    assert sum(layers) == 16
    assert model.patch_embed.num_patches == tokens
    norms = [
        type(module).__name__ for module in model.patch_embed.backbone.modules() if "Norm" in type(module).__name__
    ]
    assert set(norms) == {"GroupNormAct"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"img_size": 80}, "80 pixels are not a multiple of the 32 that become one token"),
        ({"img_size": 96, "patch": 2}, "multiple of the 64"),
        ({"layers": (3,)}, "2 to 4 stages"),
        ({"layers": (3, 0, 2)}, "2 to 4 stages"),
        ({"stem": "hmlp_bn"}, "no stem 'hmlp_bn'"),
        ({"heads": 7}, "768 is not divisible by the 7 heads"),
    ],
)
def test_impossible_hybrids_say_why(options, words):
    with torch.device("meta"), pytest.raises(ValueError, match=words):
        timm.create_model("usvit_hybrid", **options)
