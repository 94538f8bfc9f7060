"""Inference on the images of a training."""

import lightning_fabric
import numpy as np
import pytest
import torch
from torch import nn

from usvit.models import find_model
from usvit.models.build import build_model
from usvit.models.features import logits_and_features
from usvit.models.weights import Weights
from usvit.training.head_training import HeadOnFeatures
from usvit.training.inference import predict

FABRIC = lightning_fabric.Fabric(accelerator="cpu", devices=1)


def scaled(images):
    return images.permute(0, 3, 1, 2).float() / 255


def batches(*sizes, side=32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randint(0, 256, (size, side, side, 3), dtype=torch.uint8, generator=generator) for size in sizes]


def test_outputs_come_in_the_order_of_the_images():
    model = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
    pixels = np.arange(10, dtype=np.uint8)[:, None, None, None].repeat(8, 1).repeat(8, 2).repeat(3, 3)
    found = predict(model, FABRIC, scaled, iter([torch.from_numpy(pixels[:7]), torch.from_numpy(pixels[7:])]))
    assert found.logits.shape == (10, 3) and (np.diff(found.logits[:, 0]) > 0).all()
    assert found.features is None, "it calls no classifier"


@pytest.mark.parametrize("name", ["vit_ti16", "timm:test_resnet"])
def test_logits_and_features_are_those_of_a_pass_for_each(name):
    model = build_model(find_model(name), Weights("scratch"), n_classes=3, image_size=32).train()
    images = batches(3, 2)
    found = predict(FABRIC.setup_module(model), FABRIC, scaled, iter(images))
    assert not model.training
    with torch.inference_mode():
        for start, batch in ((0, images[0]), (3, images[1])):
            logits, features = logits_and_features(model, scaled(batch))
            rows = slice(start, start + len(batch))
            torch.testing.assert_close(torch.from_numpy(found.logits[rows]), logits)
            torch.testing.assert_close(torch.from_numpy(found.features[rows]), features)


def test_a_head_on_features_has_them_already():
    head = HeadOnFeatures([nn.Linear(5, 2)])
    features = torch.randn(4, 1, 5)
    found = predict(FABRIC.setup_module(head), FABRIC, lambda batch: batch, iter([features[:3], features[3:]]))
    np.testing.assert_array_equal(found.features, features[:, 0].numpy())
    np.testing.assert_allclose(found.logits, head.parts[0](features[:, 0]).detach().numpy(), rtol=1e-5, atol=1e-6)


def test_outputs_of_two_sets_are_joined_in_their_order():
    model = build_model(find_model("timm:test_resnet"), Weights("scratch"), n_classes=3, image_size=32)
    first, second = batches(3, 2)
    joined = predict(model, FABRIC, scaled, iter([first])) + predict(model, FABRIC, scaled, iter([second]))
    whole = predict(model, FABRIC, scaled, iter([first, second]))
    np.testing.assert_array_equal(joined.logits, whole.logits)
    np.testing.assert_array_equal(joined.features, whole.features)
