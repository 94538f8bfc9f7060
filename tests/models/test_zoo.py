import pytest
import timm
import torch

from usvit.errors import UsvitError
from usvit.models.build import build_model, count_parameters
from usvit.models.weights import Weights
from usvit.models.zoo import ZOO, find_model

NINE = ["vit_ti16", "vit_s32", "vit_b32", "r_ti16", "r26_s32", "resnet50", "vgg16", "inception_v3", "nasnet_large"]


def parameters(name: str, n_classes: int = 1000, image_size: int = 224) -> int:
    with torch.device("meta"):
        model = build_model(find_model(name), Weights("scratch"), n_classes=n_classes, image_size=image_size)
    return count_parameters(model)


def vit_parameters(width: int, patch: int, n_classes: int = 1000, depth: int = 12, image_size: int = 224) -> int:
    """The formula of the thesis digest, section 0: patches, positions, class token, blocks, last norm, head."""
    tokens = (image_size // patch) ** 2
    embedding = 3 * patch**2 * width + width + (tokens + 1) * width + width
    blocks = depth * (12 * width**2 + 13 * width)
    return embedding + blocks + 2 * width + n_classes * (width + 1)


def test_the_nine_of_the_study_are_there_under_its_names():
    assert list(ZOO) == NINE
    assert all(find_model(name).name == name for name in NINE)


@pytest.mark.parametrize("name", NINE)
def test_each_is_one_of_timm_s_with_released_weights_and_a_licence(name):
    spec = find_model(name)
    assert spec.timm_name in timm.list_pretrained(f"{spec.architecture}.*")
    config = timm.get_pretrained_cfg(spec.timm_name)
    assert config.hf_hub_id == f"timm/{spec.timm_name}"
    assert config.license


@pytest.mark.parametrize(
    ("name", "width", "patch"), [("vit_ti16", 192, 16), ("vit_s32", 384, 32), ("vit_b32", 768, 32)]
)
@pytest.mark.parametrize("n_classes", [3, 1000])
def test_vits_have_the_parameters_of_the_formula(name, width, patch, n_classes):
    assert parameters(name, n_classes) == vit_parameters(width, patch, n_classes)


def test_the_formula_gives_the_published_counts_at_patch_16():
    published = {192: 5.72, 384: 22.05, 768: 86.57}  # Touvron 2022; the thesis digest, section 0
    for width, millions in published.items():
        assert round(vit_parameters(width, 16) / 1e6, 2) == millions


@pytest.mark.parametrize(
    ("name", "width", "millions"), [("vit_ti16", 192, 5.8), ("r_ti16", 192, 6.4), ("r26_s32", 384, 36.6)]
)
def test_counts_of_the_augreg_paper_are_met_with_the_hidden_layer_of_its_head(name, width, millions):
    """Steiner et al. 2022, Tables 1 and 2, count 1000 classes and a hidden layer in the head (width^2 + width),
    which the released ImageNet-21k models, and so timm's and ours, do not have."""
    assert round((parameters(name) + width**2 + width) / 1e6, 1) == millions


@pytest.mark.parametrize(
    ("name", "size", "millions"),
    [
        ("resnet50", 224, 25.56),  # He et al. 2016, in torchvision's count
        ("vgg16", 224, 138.36),  # Simonyan & Zisserman 2015, Table 2: 138 million
        ("inception_v3", 299, 23.83),  # Szegedy et al. 2016, without the auxiliary head
        ("nasnet_large", 331, 88.75),  # Zoph et al. 2018, Table 2: 88.9 million
    ],
)
def test_convolutional_networks_have_their_published_counts(name, size, millions):
    assert round(parameters(name, image_size=size) / 1e6, 2) == millions


def test_family_tells_who_gets_an_input_size_and_a_zero_head():
    assert {name: find_model(name).family for name in NINE} == {
        **dict.fromkeys(["vit_ti16", "vit_s32", "vit_b32"], "vit"),
        **dict.fromkeys(["r_ti16", "r26_s32"], "hybrid"),
        **dict.fromkeys(["resnet50", "vgg16", "inception_v3", "nasnet_large"], "cnn"),
    }


def test_a_misprint_of_the_study_is_explained():
    with pytest.raises(UsvitError, match=r"prints 'R26\+S/16'.*use r26_s32"):
        find_model("r26_s16")


@pytest.mark.parametrize(("name", "near"), [("vit_b16", "vit_b32"), ("resnet_50", "resnet50"), ("VGG16", "vgg16")])
def test_unknown_name_suggests_the_nearest(name, near):
    with pytest.raises(UsvitError, match=rf"Unknown model '{name}'\. (Nearest|Known): .*{near}.*usvit models list"):
        find_model(name)


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("timm:vit_tiny_patch16_224", "vit"),
        ("timm:deit_tiny_distilled_patch16_224", "vit"),
        ("timm:vit_base_r50_s16_224", "hybrid"),
        ("timm:efficientnet_b0", "cnn"),
        ("timm:resnet18.a1_in1k", "cnn"),
    ],
)
def test_any_of_timm_s_is_reached_by_its_own_name(name, family):
    spec = find_model(name)
    assert spec.name == name
    assert spec.family == family
    assert spec.architecture in timm.list_models()


def test_unknown_timm_model_and_unknown_weights_of_a_known_one_suggest_the_nearest():
    with pytest.raises(UsvitError, match=r"Unknown timm model 'resnet5'. Nearest: .*resnet50"):
        find_model("timm:resnet5")
    with pytest.raises(UsvitError, match=r"'augreg_in1k'. Nearest: augreg_in21k"):
        find_model("timm:vit_tiny_patch16_224.augreg_in1k")
    with pytest.raises(UsvitError, match="There are none"):
        find_model("timm:vit_small_patch16_36x1_224.some")
