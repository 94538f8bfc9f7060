"""A head on features of frozen networks: which features it sees, and where their weights come from."""

import pytest
import torch
from torch.nn import functional as F

from usvit.config import build_config
from usvit.errors import UsvitError
from usvit.models import create_model, find_model, resolve_weights
from usvit.models.architectures.frozen_features import EqualMaps
from usvit.models.architectures.small import FLOOR
from usvit.models.build import build_with_report

STAGES = {"features": "stages", "views": [1.0, 0.5], "lesion": True}


def built(name, features, weights="scratch", side=64):
    spec = find_model(name, None, features)
    torch.manual_seed(0)
    return build_with_report(spec, resolve_weights(weights, spec), n_classes=3, image_size=side)


@pytest.fixture
def images():
    return torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_features_are_the_means_of_each_map_over_image_and_lesion_at_each_size(images):
    model = built("timm:test_resnet", STAGES)[0].eval()
    network, small = model.networks
    expected = []
    for side in (64, 32):
        view = F.interpolate(images, size=(side, side), mode="bilinear")
        p = small.features_and_mask(view)[1].sigmoid()[:, None]
        last, maps = network.forward_intermediates(view)
        assert torch.equal(last, maps[-1])
        for one in (*maps[-4:], last):
            w = F.adaptive_avg_pool2d(p, one.shape[-2:]) + FLOOR
            expected += [one.mean((2, 3)), (one * w).sum((2, 3)) / w.sum((2, 3))]
    features = model.forward_features(images)
    assert torch.allclose(features, torch.cat(expected, dim=1), atol=1e-5)
    assert features.shape == (2, model.num_features)
    assert torch.allclose(model(images), model.forward_head(features))


@torch.no_grad()
def test_spread_is_the_standard_deviation_over_image_and_lesion(images):
    model = built("timm:test_resnet", STAGES | {"views": [1.0], "refinements": ["spread"]})[0].eval()
    network, small = model.networks
    p = small.features_and_mask(images)[1].sigmoid()[:, None]
    maps = network.forward_intermediates(images, intermediates_only=True)
    expected = []
    for one in (*maps[-4:], maps[-1]):
        w = F.adaptive_avg_pool2d(p, one.shape[-2:]) + FLOOR
        w = (w / w.sum((2, 3), keepdim=True)).expand_as(one)
        for weight in (torch.full_like(one, 1 / one[0, 0].numel()), w):
            mean = (one * weight).sum((2, 3))
            variance = (one.square() * weight).sum((2, 3)) - mean.square()
            expected += [mean, variance.clamp(min=0).sqrt()]
    assert torch.allclose(model.forward_features(images), torch.cat(expected, dim=1), atol=1e-3)


@torch.no_grad()
def test_mirrored_features_are_the_same_for_an_image_and_its_mirror_image(images):
    one, mirrored = (built("timm:test_resnet", STAGES | {"refinements": more})[0].eval() for more in ([], ["mirror"]))
    mirrored.load_state_dict(one.state_dict())
    expected = (one.forward_features(images) + one.forward_features(images.flip(-1))) / 2
    assert torch.allclose(mirrored.forward_features(images), expected, atol=1e-6)
    assert torch.allclose(mirrored(images), mirrored(images.flip(-1)), atol=1e-5)


@torch.no_grad()
def test_the_root_keeps_the_sign(images):
    one, root = (built("timm:test_vit", STAGES | {"refinements": more})[0].eval() for more in ([], ["root"]))
    root.load_state_dict(one.state_dict())
    features, of_root = one.forward_features(images), root.forward_features(images)
    assert (features < 0).any() and torch.allclose(of_root * of_root.abs(), features, atol=1e-6)


@torch.no_grad()
def test_equal_maps_have_the_same_variance_before_the_classifier():
    norm = EqualMaps([2, 50, 10])
    x = torch.randn(4000, 62, generator=torch.Generator().manual_seed(1)) * 7 + 3
    norm(x)  # updates the statistics
    variances = [part.var(0).sum().item() for part in norm.train()(x).split([2, 50, 10], dim=1)]
    assert variances == pytest.approx([62 / 3] * 3, rel=1e-3)


@torch.no_grad()
def test_the_last_map_alone_is_the_input_of_the_networks_own_head(images):
    model = built("timm:test_vit+timm:test_resnet", {"features": "last", "views": [1.0], "lesion": False})[0].eval()
    own = [one.forward_head(one.forward_features(images), pre_logits=True) for one in model.networks]
    assert torch.allclose(model.forward_features(images), torch.cat(own, dim=1), atol=1e-5)


@torch.no_grad()
def test_the_mask_is_that_of_the_weights_that_ship_with_usvit(images):
    model, report = built("timm:test_resnet", STAGES)
    small = create_model("usvit_small", n_classes=3, image_size=64, weights="phantom").eval()
    model.eval()
    mask = model.networks[-1].features_and_mask(model._input(images, 1))[1]
    seen = images * model.scale[1].view(3, 1, 1) + model.shift[1].view(3, 1, 1)
    assert torch.allclose(mask, small.forward_with_mask(seen)[1], atol=1e-4)
    assert report.loaded > 100
    assert all(name.startswith(("hidden.", "fc.", "networks.1.fc.")) for name in report.new)


@torch.no_grad()
def test_each_network_sees_the_statistics_that_it_was_trained_with(images):
    model = built("timm:test_resnet", {"features": "last", "views": [1.0], "lesion": True}, "scratch")[0]
    first, second = ((m, s) for m, s in ((0.5, 0.25), (0.2, 0.5)))
    model.match_statistics([([first[0]] * 3, [first[1]] * 3), ([second[0]] * 3, [second[1]] * 3)])
    pixels = torch.rand(1, 3, 4, 4)
    given = (pixels - first[0]) / first[1]
    assert torch.allclose(model._input(given, 0), given)
    assert torch.allclose(model._input(given, 1), (pixels - second[0]) / second[1], atol=1e-6)


def test_weights_of_each_network_are_named_and_joined():
    spec = find_model("timm:test_resnet+usvit_small", None, STAGES)
    record = resolve_weights("scratch+phantom", spec).record().content()
    assert record["name"] == "phantom"
    assert [one["recipe"] for one in record["lineage"]] == ["phantom_signs", "phantom_signs"]
    with pytest.raises(UsvitError, match=r"names 3 weights, and the model .* joins 2 networks"):
        resolve_weights("scratch+phantom+phantom", spec)


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"features": "last"}, r"model\.tune is full: set model\.tune=head"),
        ({"lesion": True}, r"set model\.features to last or stages"),
        ({"refinements": ["root"]}, r"model\.refinements.* set model\.features to last or stages"),
        ({"views": [0.5]}, r"set model\.features to last or stages"),
        ({"name": "resnet50+vgg16"}, r"set model\.features to last or stages"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, says):
    with pytest.raises(UsvitError, match=says):
        build_config({"model": settings})


def test_networks_without_maps_and_joined_names_without_features_are_refused():
    with pytest.raises(UsvitError, match=r"joins networks.*set model\.features"):
        find_model("resnet50+vgg16")
    with pytest.raises(UsvitError, match=r"Unknown model 'no_such'"):
        find_model("resnet50+no_such", None, STAGES)
    with pytest.raises(UsvitError, match=r"model\.vit"):
        find_model("vit_ti16", {"depth": 2}, STAGES)
