"""Preprocessing of test images for weights: timm's own transforms are the oracle for weights of the hub."""

import numpy as np
import pytest
import timm.data
from PIL import Image

from usvit.data.transforms import test_view as view_of_test_image
from usvit.errors import UsvitError
from usvit.models import ZOO, Weights, evaluation_view, timm_test_config
from usvit.models.evaluation_view import _of_timm, view_of

PICTURES = [
    Image.fromarray(np.random.default_rng(at).integers(0, 255, (9, 7, 3), dtype=np.uint8)).resize(size)
    for at, size in enumerate([(500, 375), (333, 500), (100, 90)])
]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "upstream"),
    [("vit_b16", "in1k"), ("resnet50", None), ("convnext_s", "in21k_ft_in1k_384"), ("deit_b_distilled", None)],
)
def test_images_are_prepared_as_timm_tests_the_weights(name, upstream):
    spec = ZOO[name]
    upstream = upstream if upstream in spec.weights else next(iter(spec.weights))
    weights = Weights("hub", upstream=upstream)
    view = view_of(spec, weights)
    config = timm_test_config(spec, weights)
    theirs = timm.data.create_transform(**config, is_training=False)
    for picture in PICTURES:
        ours = view_of_test_image(
            picture, view.image_size, view.test_crop, resize=view.resize, interpolation=view.interpolation
        )
        normalised = (ours / 255 - np.array(view.mean)) / np.array(view.std)
        assert np.allclose(normalised.transpose(2, 0, 1), theirs(picture).numpy(), atol=1e-5)
    assert view.origin == "timm's configuration of these weights"


def test_all_weights_of_the_zoo_can_be_tested_as_timm_does():
    for spec in ZOO.values():
        for upstream in spec.weights:
            size, resize, crop, interpolation, _ = _of_timm(spec, Weights("hub", upstream=upstream))
            assert size >= 32 and 0 < crop <= 1 and resize in ("short_side", "squash") and interpolation


def test_settings_change_the_preprocessing_and_the_result_says_so():
    changes = {"image_size": 384, "test_crop": 1.0, "interpolation": "bilinear"}
    weights = Weights("hub", upstream=next(iter(ZOO["convnext_s"].weights)))
    view = view_of(ZOO["convnext_s"], weights, **changes)
    assert (view.image_size, view.resize, view.test_crop, view.interpolation) == (384, "short_side", 1.0, "bilinear")
    assert view.origin.endswith("; changed by a setting: image_size, test_crop, interpolation")


def test_a_way_of_timm_that_usvit_lacks_is_said(monkeypatch):
    found = {"crop_mode": "border", "interpolation": "bicubic", "input_size": (3, 224, 224), "crop_pct": 0.9}
    monkeypatch.setattr(evaluation_view, "timm_test_config", lambda spec, weights: found)
    with pytest.raises(UsvitError, match=r"crop mode border and interpolation bicubic.*Set views.test_crop"):
        _of_timm(ZOO["vit_b16"], Weights("hub"))
