"""Intervals of balanced accuracy, F1, macro F1 and Matthews' correlation."""

import numpy as np
import pytest
from scipy.stats import norm

from usvit.metrics.bootstrap import cluster_bootstrap, figure_values
from usvit.metrics.figures import Figures, Key
from usvit.metrics.intervals import wilson

NAMES = ("balanced_accuracy", "f1_macro", "mcc")
TWO = ("benign", "malignant")


def figures(label, called, group, classes=TWO):
    return figure_values(
        label, np.eye(len(classes))[called], group, classes=classes, ranked=False, n_resamples=2
    ).values


def test_a_class_that_is_all_wrong_lengthens_every_figure_that_it_enters():
    """12 malignant images, none found, and 3 of 388 benign ones called: before, [0.490, 0.499] and no MCC, no F1."""
    label = np.r_[np.ones(12, int), np.zeros(388, int)]
    called = np.r_[np.zeros(12, int), np.ones(3, int), np.zeros(385, int)]
    found = figures(label, called, np.arange(400))
    half = wilson(0, 12)[1] / 2
    assert found["balanced_accuracy"].ci95[1] == pytest.approx(found["balanced_accuracy"].value + half, abs=1e-3)
    share = wilson(0, 15)[1]  # of the images that are malignant or called so
    assert found["f1"]["malignant"].ci95 == pytest.approx([0, 2 * share / (1 + share)])
    for name in ("mcc", "f1_macro"):
        assert found[name].ci95[1] - found[name].value > 0.15


@pytest.mark.slow
@pytest.mark.parametrize("n_classes", [2, 3])
def test_in_a_large_study_they_are_those_of_a_bootstrap(n_classes):
    rng = np.random.default_rng(n_classes)
    group = np.repeat(np.arange(500), rng.integers(1, 4, 500))
    label = rng.integers(0, n_classes, len(group))
    score = rng.normal(size=(len(group), n_classes)) + 0.7 * rng.normal(size=(500, n_classes))[group]
    called = (score + 1.2 * np.eye(n_classes)[label]).argmax(axis=1)
    classes = ("a", "b", "c")[:n_classes]
    found, prob = figures(label, called, group, classes), np.eye(n_classes)[called]
    resampled = cluster_bootstrap(Figures(label, prob, group, ranked=False), 500, n_resamples=1000)
    for name in NAMES:
        assert found[name].ci95 == pytest.approx(resampled[Key(name)].ci95, abs=0.012), name
    for k, name in enumerate(classes):
        assert found["f1"][name].ci95 == pytest.approx(resampled[Key("f1", k)].ci95, abs=0.012)


def test_the_names_of_the_classes_do_not_matter():
    rng = np.random.default_rng(5)
    label, called, group = rng.integers(0, 3, 90), rng.integers(0, 3, 90), np.repeat(np.arange(30), 3)
    once = figures(label, called, group, "abc")
    turned = figures((label + 1) % 3, (called + 1) % 3, group, "cab")
    for name in NAMES:
        assert turned[name].ci95 == pytest.approx(once[name].ci95, abs=1e-9)
    assert turned["f1"]["a"].ci95 == pytest.approx(once["f1"]["a"].ci95)


@pytest.mark.slow
def test_with_twelve_positives_they_contain_the_truth():
    """Sensitivity 0.159 and specificity 0.999: the bootstrap of groups contained these in 0.85 and 0.33 of studies."""
    up, down, share = norm.sf(1), norm.cdf(3), 12 / 400
    table = np.array([[down * (1 - share), (1 - down) * (1 - share)], [(1 - up) * share, up * share]])
    truth = {
        "balanced_accuracy": (up + down) / 2,
        "mcc": np.linalg.det(table) / np.sqrt(np.prod([*table.sum(0), *table.sum(1)])),
    }
    label, held, known = np.r_[np.ones(12, int), np.zeros(388, int)], dict.fromkeys(truth, 0), dict.fromkeys(truth, 0)
    for seed in range(150):
        rng = np.random.default_rng(seed)
        found = figures(label, (2 * label + rng.normal(size=400) > 3).astype(int), np.arange(400))
        for name, true in truth.items():
            if found[name].value is not None:
                low, high = found[name].ci95
                held[name] += low <= true <= high
                known[name] += 1
    for name in truth:
        assert held[name] / known[name] > 0.92, name
