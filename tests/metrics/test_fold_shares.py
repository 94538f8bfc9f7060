"""Intervals of shares over folds, and of balanced accuracy."""

import numpy as np
import pytest

from usvit.metrics.cross_validation import fold_mean, mean_value
from usvit.metrics.fold_figures import FoldFigure, mean_figure
from usvit.metrics.intervals import wilson


def value_of(right, label, fold, group=None, share=0.0, repeats=1):
    """The balanced accuracy of (n,) bool decisions over five folds, and the sensitivity."""
    n = len(right)
    group = np.arange(n) if group is None else group
    both, sensitivity = [], []
    for k in range(5):
        at = fold == k
        up, down = (
            mean_figure(right[at].astype(float), of[at], group[at], int(group.max()) + 1) for of in (label, ~label)
        )
        both.append(FoldFigure.mean([up, down]))
        sensitivity.append(up)
    return [mean_value(fold_mean([one] * repeats), share, absent="", n_groups=n) for one in (both, sensitivity)]


@pytest.fixture
def small_class():
    """15 positives, of whom none is right, and 385 negatives, of whom 382 are, in five folds."""
    label = np.arange(400) < 15
    right = ~label & (np.arange(400) < 397)
    return right, label, np.arange(400) % 5


def test_a_class_that_is_all_wrong_lengthens_the_balanced_accuracy(small_class):
    balanced, sensitivity = value_of(*small_class)
    assert balanced.value == pytest.approx(0.496, abs=1e-3)
    bound = 1 - 0.025 ** (1 / 15)
    assert sensitivity.ci95 == pytest.approx([0, bound])
    assert balanced.ci95[1] == pytest.approx(balanced.value + bound / 2, abs=2e-3)
    assert "15 groups" in balanced.warning
    wider = value_of(*small_class, share=1.0)[0].ci95
    assert np.ptp(wider) > 1.5 * np.ptp(balanced.ci95)


def test_a_share_of_independent_images_in_equal_folds_is_wilsons():
    label, fold = np.arange(200) < 100, np.arange(200) % 5
    right = np.arange(200) // 5 % 5 > 0
    sensitivity = value_of(right, label, fold)[1]
    assert sensitivity.ci95 == pytest.approx(wilson(80, 100), abs=3e-3)  # its variance is pooled within folds


def test_images_of_one_patient_count_as_one_and_repeats_as_one_study():
    label, fold = np.arange(200) < 100, np.arange(200) % 5
    right = np.arange(200) // 5 % 5 > 0
    once = value_of(right, label, fold)[1].ci95
    thrice = value_of(*(np.repeat(one, 3) for one in (right, label, fold)), np.repeat(np.arange(200), 3))[1].ci95
    assert thrice == pytest.approx(once, abs=0.01)
    repeated = value_of(right, label, fold, repeats=3)[1].ci95
    assert repeated == pytest.approx(once, abs=0.01) and np.ptp(repeated) >= np.ptp(once)
