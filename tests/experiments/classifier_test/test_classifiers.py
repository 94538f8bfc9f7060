"""Preprocessing and classes of classifiers: timm's own transforms are the oracle for weights of the hub."""

from types import SimpleNamespace

import numpy as np
import pytest
import timm.data
from PIL import Image

from usvit.config import TestConfig, build
from usvit.data.transforms import test_view as view_of_test_image
from usvit.errors import UsvitError
from usvit.experiments.classifier_test.classifiers import _kept_last_step, _of_timm, _view_of
from usvit.experiments.classifier_test.matching import match
from usvit.models import ZOO, Weights, timm_test_config

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
    view = _view_of(spec, weights, TestConfig())
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
    settings = {"model": {"image_size": 384}, "views": {"test_crop": 1.0, "interpolation": "bilinear"}}
    weights = Weights("hub", upstream=next(iter(ZOO["convnext_s"].weights)))
    view = _view_of(ZOO["convnext_s"], weights, build(TestConfig, settings))
    assert (view.image_size, view.resize, view.test_crop, view.interpolation) == (384, "short_side", 1.0, "bilinear")
    assert view.origin.endswith("; changed by a setting: image_size, test_crop, interpolation")


def test_a_way_of_timm_that_usvit_lacks_is_said(monkeypatch):
    from usvit.experiments.classifier_test import classifiers

    found = {"crop_mode": "border", "interpolation": "bicubic", "input_size": (3, 224, 224), "crop_pct": 0.9}
    monkeypatch.setattr(classifiers, "timm_test_config", lambda spec, weights: found)
    with pytest.raises(UsvitError, match=r"crop mode border and interpolation bicubic.*Set views.test_crop"):
        _of_timm(ZOO["vit_b16"], Weights("hub"))


@pytest.mark.parametrize(
    ("kind", "stopping", "kept"),
    [
        ("pretrain", {"keep": "last", "patience": None}, True),
        ("pretrain", {"keep": "best", "patience": None}, False),
        ("pretrain", {"keep": "last", "patience": 3}, False),
        ("transfer", {"keep": "last", "patience": None}, False),  # its cells were chosen on validation images
        ("pretrain", None, False),
    ],
)
def test_validation_images_may_be_tested_only_if_nothing_was_chosen_on_them(kind, stopping, kept):
    config = SimpleNamespace(as_written=lambda: {"train": {"early_stopping": stopping}})
    assert _kept_last_step(SimpleNamespace(kind=kind, config=config)) == kept


def source_of(classes, **more):
    targets = np.arange(len(classes))
    return SimpleNamespace(**{"classes": tuple(classes), "targets": targets, "multi": None, "answers": None} | more)


def test_a_classifier_of_more_classes_is_restricted_to_those_of_a_named_set():
    wide = tuple(timm.data.ImageNetInfo("imagenet-21k-goog").label_names())
    narrow = tuple(timm.data.ImageNetInfo("imagenet-1k").label_names())
    with pytest.raises(UsvitError, match=r"imagenet:val has 1 of 1000 classes .* \(n04399382\)"):
        match("wide", wide, source_of(narrow), "imagenet:val", TestConfig())
    known = tuple(one for one in narrow if one in wide)
    found = match("wide", wide, source_of(known), "imagenet_a:test", TestConfig())
    assert found.rule == "subset" and len(found.kept) == 999 and list(found.kept) == sorted(found.kept)
    for label in (0, 65, 998):
        (position,) = found.right[label]
        assert wide[found.kept[position]] == known[label]


def test_classes_in_another_order_are_matched_by_name():
    found = match("it", ("b", "a", "c"), source_of(("a", "b", "c")), "folder:test", TestConfig())
    assert found.rule == "all" and found.kept is None and found.right == ((1,), (0,), (2,))
    assert found.right_of([0, 2]) == [1, 2]


def test_images_without_labels_are_refused():
    with pytest.raises(UsvitError, match="A test needs labelled images, and unlabeled:test has none"):
        match("it", ("a", "b"), source_of((), targets=np.array([-1])), "unlabeled:test", TestConfig())
