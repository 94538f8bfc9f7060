"""Classes of classifiers, and what they may be tested on."""

from types import SimpleNamespace

import numpy as np
import pytest
import timm.data

from usvit.errors import UsvitError
from usvit.upstream.classifier_test.matching import match
from usvit.upstream.config.test import TestConfig


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
