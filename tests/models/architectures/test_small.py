"""The small offline model: how it pools, and that timm's ways of calling it agree."""

import pytest
import torch
from torch.nn import functional as F

from usvit.models import create_model
from usvit.models.architectures.small import FLOOR


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return create_model("usvit_small", n_classes=3, image_size=64).eval()


@pytest.fixture(scope="module")
def images():
    return torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def test_the_head_sees_the_mean_over_the_image_and_the_mean_over_the_predicted_lesion(model, images):
    last = images
    for part in (model.conv1, model.bn1, model.act1, model.maxpool):
        last = part(last)
    maps = []
    for stage in (model.layer1, model.layer2, model.layer3, model.layer4):
        last = stage(last)
        maps.append(last)
    p = F.avg_pool2d(model.mask_decoder(maps[1:]).sigmoid()[:, None], 4) + FLOOR
    of_lesion = (maps[-1] * p).sum((2, 3)) / p.sum((2, 3))
    expected = model.fc(torch.cat([maps[-1].mean((2, 3)), of_lesion], dim=1))
    assert torch.allclose(model(images), expected, atol=1e-5)


@torch.no_grad()
def test_every_way_to_call_it_gives_the_same_logits(model, images):
    logits = model(images)
    features = model.forward_features(images)
    assert features.shape == (2, 512, 2, 2)
    assert torch.equal(model.forward_head(features), logits)
    assert torch.equal(model.forward_with_mask(images)[0], logits)
    last, maps = model.forward_intermediates(images, indices=[3, 4])
    assert torch.equal(model.forward_head(last), logits)
    assert [one.shape[1] for one in maps] == [128, 256]
    assert model.forward_head(features, pre_logits=True).shape == (2, 512)


def test_it_takes_other_sizes_and_numbers_of_classes(model):
    other = create_model("usvit_small", n_classes=2, image_size=96)
    assert other(torch.zeros(2, 3, 96, 96)).shape == (2, 2)
    other.reset_classifier(5)
    assert other(torch.zeros(2, 3, 80, 96)).shape == (2, 5)


def test_half_precision_weights_are_small_enough_to_ship(model):
    assert sum(value.numel() * 2 for value in model.state_dict().values()) < 5_700_000


@pytest.fixture(scope="module")
def multi(model):
    torch.manual_seed(0)
    network = create_model("usvit_small_multi", n_classes=3, image_size=160).eval()
    own = {name: value for name, value in model.state_dict().items() if not name.startswith("fc.")}
    missing = set(network.load_state_dict(own, strict=False).missing_keys)
    assert missing == {"fc.weight", "fc.bias", "hidden.running_mean", "hidden.running_var"}
    return network


@torch.no_grad()
def test_three_views_and_two_stages_are_the_features_of_each_side_by_side(model, multi):
    """The mean over positions of each part is that of the part alone, whatever the size of its own map."""
    images = torch.randn(2, 3, 160, 160, generator=torch.Generator().manual_seed(2))
    pooled = multi.forward_features(images).mean((2, 3))
    assert pooled.shape == (2, 3 * 2 * (128 + 256))
    for start, side in ((0, 160), (768, 128), (1536, 64)):  # half of 160 is rounded to a multiple of 32
        view = F.interpolate(images, size=(side, side), mode="bilinear")
        maps, mask = model.forward_intermediates(view, indices=[3])[1], model.forward_with_mask(view)[1]
        p = F.avg_pool2d(mask.sigmoid()[:, None], 2) + FLOOR
        of_lesion = (maps[0] * p).sum((2, 3)) / p.sum((2, 3))
        last = model.forward_features(view).mean((2, 3))
        expected = torch.cat([maps[0].mean((2, 3)), of_lesion, last], dim=1)
        assert torch.allclose(pooled[:, start : start + 768], expected, atol=1e-5)
    logits, mask = multi.forward_with_mask(images)
    assert torch.equal(logits, multi(images))
    assert mask.shape == (2, 20, 20)


@torch.no_grad()
def test_the_classifier_of_three_views_sees_standardised_features(multi):
    images = torch.randn(8, 3, 160, 160, generator=torch.Generator().manual_seed(3)) * torch.arange(8).view(8, 1, 1, 1)
    features = multi.forward_features(images)
    multi.hidden.train()
    seen = multi.forward_head(features, pre_logits=True)
    multi.hidden.eval()
    assert seen.mean(0).abs().max() < 1e-4
    varied = features.mean((2, 3)).var(0, unbiased=False) > 1e-3
    assert varied.any()
    assert torch.allclose(seen[:, varied].std(0, unbiased=False), torch.ones(int(varied.sum())), atol=1e-2)


def test_three_views_take_the_shipped_weights():
    network = create_model("usvit_small_multi", n_classes=3, image_size=160, weights="phantom")
    assert network(torch.zeros(2, 3, 160, 160)).shape == (2, 3)
