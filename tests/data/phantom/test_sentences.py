"""Sentences of phantoms: the descriptors follow the true signs, and the wording the seed alone."""

import dataclasses

import numpy as np
import pytest

from usvit.data.phantom import WORDING, descriptors, sentence
from usvit.data.phantom.signs import sample_signs

PLAIN = dataclasses.replace(
    sample_signs(np.random.default_rng(0), False),
    **{"orientation": 0.6, "irregularity": 0.03, "spiculation": 0.02, "margin": 0.2},
    **{"posterior": -0.5, "echo": -17.0, "heterogeneity": 1.0},
)


@pytest.mark.parametrize(
    ("changed", "kind", "expected"),
    [
        ({}, "shape", "oval"),
        ({"orientation": 1.0}, "shape", "round"),
        ({"orientation": 1.0}, "orientation", "not parallel"),
        ({"irregularity": 0.2}, "shape", "irregular"),
        ({"spiculation": 0.3}, "shape", "irregular"),
        ({"spiculation": 0.3, "margin": 2.0}, "margin", "spiculated"),
        ({"margin": 2.0}, "margin", "indistinct"),
        ({}, "margin", "circumscribed"),
        ({}, "posterior features", "enhancement"),
        ({"posterior": 0.0}, "posterior features", "none"),
        ({"posterior": 1.0}, "posterior features", "shadowing"),
        ({"echo": -26.0}, "echo pattern", "anechoic"),
        ({"echo": -10.0}, "echo pattern", "isoechoic"),
        ({"heterogeneity": 5.0}, "echo pattern", "heterogeneous"),
    ],
)
def test_each_descriptor_follows_its_sign(changed, kind, expected):
    assert descriptors(dataclasses.replace(PLAIN, **changed))[kind] == expected


def test_a_sentence_says_each_descriptor_once_and_never_the_class():
    rng = np.random.default_rng(1)
    written = set()
    for number in range(300):
        found = descriptors(sample_signs(rng, number % 2 == 0))
        text = sentence(found, rng)
        assert all(any(one in text for one in WORDING[kind][value]) for kind, value in found.items())
        assert not any(word in text for word in ("benign", "malignant", "cancer", "BI-RADS"))
        written.add(text)
    assert len(written) > 250
    assert sentence({}, rng)


def test_the_same_seed_writes_the_same_sentence():
    found = descriptors(PLAIN)
    one, same, other = (sentence(found, np.random.default_rng(seed)) for seed in (5, 5, 6))
    assert one == same != other
