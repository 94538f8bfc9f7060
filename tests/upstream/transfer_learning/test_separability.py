"""Section 2.2.1 of the thesis: random halves of the classes, separated by a linear classifier."""

import numpy as np
import pandas as pd
import pytest

from tests.upstream.transfer_learning.conftest import CLASSES
from tests.upstream.transfer_learning.test_experiment import accuracy_of, run
from usvit.upstream.transfer_learning.affine import Affine
from usvit.upstream.transfer_learning.separability import random_halves, separate


def test_every_class_is_halved_at_random_and_evenly():
    coarse = np.array([0] * 10 + [1] * 7 + [2] * 1)
    halves = [random_halves(coarse, 5, draw) for draw in range(10)]
    for labels in halves:
        assert np.array_equal(labels // 2, coarse)
        assert np.bincount(labels, minlength=6).tolist() == [5, 5, 4, 3, 1, 0]
    assert len({tuple(labels) for labels in halves}) == 10
    assert np.array_equal(random_halves(coarse, 5, 3), halves[3])


def test_halves_that_lie_apart_are_separated_and_random_ones_only_as_far_as_dimensions_go():
    """n points in n - 1 or more dimensions are always separable; in one dimension, arbitrary halves are not."""
    rng = np.random.default_rng(0)
    coarse = np.repeat([0, 1], 30)
    labels = random_halves(coarse, 0, 0)
    none = Affine(np.zeros((80, 2)), np.zeros(2))
    wide = separate(rng.normal(size=(60, 80)), labels, none, 2, 1e-6)
    assert wide.right.all() and wide.conditioned.all()
    line = rng.normal(size=(60, 1))
    narrow = separate(line, labels, Affine(np.zeros((1, 2)), np.zeros(2)), 2, 1e-6)
    assert 0.25 < narrow.right.mean() < 0.6


def test_conditioning_multiplies_the_probabilities_of_halves_by_those_of_their_class():
    """With a coarse classifier that is always right, no half of another class is predicted."""
    rng = np.random.default_rng(1)
    coarse = np.repeat([0, 1, 2], 20)
    features, labels = rng.normal(size=(60, 3)), random_halves(coarse, 2, 0)
    found = separate(features, labels, lambda _: 1000 * np.eye(3)[coarse], 3, 0.01)
    assert found.right.mean() < 0.4 < 0.5 < found.conditioned.mean() < 0.8


@pytest.mark.slow
def test_a_run_has_one_row_for_each_split_and_predicts_the_classes(settings, tmp_path):
    outcome = run(settings, tmp_path / "run", {"how": "separability", "draws": 4})
    table = pd.read_csv(outcome.path / "results.csv")
    halves = table[table.how == "separability, right"]
    assert halves.draw.tolist() == [0, 1, 2, 3] and (halves.part == "train").all() and (halves.n_images == 30).all()
    random, conditioned, classes = outcome.result.summary
    assert random.accuracy.value == pytest.approx(halves.accuracy.mean())
    assert random.accuracy.value <= conditioned.accuracy.value + 0.2
    assert "halves" in random.accuracy.covers
    assert classes.accuracy.value == pytest.approx(accuracy_of(outcome.path))
    assert outcome.result.images.classes == list(CLASSES)
