"""The ROC band: what it must hold, and how it answers to more groups."""

import numpy as np
import pytest

from usvit.metrics.basic import roc
from usvit.reports.roc_band import roc_band


def cases(n, seed=0, repeat=1):
    rng = np.random.default_rng(seed)
    positive = rng.random(n) < 0.4
    score = rng.normal(size=n) + 1.2 * positive
    return np.repeat(positive, repeat), np.repeat(score, repeat), np.repeat(np.arange(n), repeat)


def test_the_band_holds_the_curve_and_stays_within_zero_and_one():
    positive, score, group = cases(300)
    along, low, high = roc_band(positive, score, group)
    curve = np.interp(along, *roc(positive, score))
    assert ((low <= curve + 1e-12) & (curve <= high + 1e-12)).mean() > 0.97
    assert low.min() >= 0 and high.max() <= 1
    assert (np.diff(low) >= -1e-12).all()


def test_repeating_every_image_within_its_group_changes_nothing_but_repeating_as_new_groups_narrows_it():
    one = roc_band(*cases(150))
    positive, score, group = cases(150, repeat=4)
    again = roc_band(positive, score, group)
    assert np.allclose(one[1], again[1]) and np.allclose(one[2], again[2])
    naive = roc_band(positive, score, np.arange(600))
    assert (naive[2] - naive[1]).mean() < 0.6 * (one[2] - one[1]).mean()


@pytest.mark.slow
def test_the_band_is_that_of_a_slow_bootstrap():
    positive, score, group = cases(80)
    along, low, high = roc_band(positive, score, group, n_resamples=400)
    rng, curves = np.random.default_rng(5), []
    for _ in range(400):
        drawn = rng.integers(0, 80, 80)
        curves.append(np.interp(along, *roc(positive[drawn], score[drawn])))
    # Two bootstraps of 400 agree to a few hundredths.
    expected = np.quantile(curves, [0.025, 0.975], axis=0)
    assert np.abs(np.array([low, high]) - expected).mean() < 0.03


def test_perfect_constant_and_one_sided_scores():
    positive = np.arange(60) % 2 == 0
    along, low, high = roc_band(positive, positive.astype(float), np.arange(60))
    assert (low == 1).all() and (high == 1).all()
    along, low, high = roc_band(positive, np.zeros(60), np.arange(60))
    assert np.allclose(low, along) and np.allclose(high, along)
    assert roc_band(np.ones(60, bool), np.zeros(60), np.arange(60)) is None
    assert roc_band(positive, np.zeros(60), np.zeros(60, int)) is None
    with pytest.raises(ValueError, match="index 3"):
        roc_band(positive, np.where(np.arange(60) == 3, np.nan, 0.5), np.arange(60))
