"""Wilson's interval by an effective number of images, and rates of several folds joined."""

import numpy as np
import pytest
from scipy.stats import norm

from usvit.metrics.clustered_wilson import ShareSums, pooled_rate, rate_record
from usvit.metrics.intervals import wilson


def clustered(rng, groups, images, rho=0.6):
    group = np.repeat(np.arange(groups), images)
    own = np.sqrt(rho) * rng.normal(size=groups)[group] + np.sqrt(1 - rho) * rng.normal(size=len(group))
    return own > norm.ppf(0.8), group


@pytest.mark.parametrize("hits", [0, 3, 20])
def test_with_one_image_a_group_it_is_wilsons(hits):
    found = ShareSums.of(np.arange(20) < hits, np.arange(20)).interval()
    assert found == pytest.approx(wilson(hits, 20), abs=1e-6)


def test_repeated_images_change_nothing_but_the_quantile():
    hits = np.arange(300) % 4 == 0
    once = ShareSums.of(hits, np.arange(300)).interval()
    five = ShareSums.of(hits.repeat(5), np.arange(300).repeat(5)).interval()
    assert five == pytest.approx(once, abs=0.002)


def test_its_variance_is_that_of_a_bootstrap_of_groups():
    rng = np.random.default_rng(0)
    hits, group = clustered(rng, 120, rng.integers(1, 6, 120))
    sums = ShareSums.of(hits, group)
    m, x = np.bincount(group), np.bincount(group[hits], minlength=120)
    drawn = rng.integers(0, 120, (20_000, 120))
    assert sums.variance == pytest.approx(np.var(x[drawn].sum(1) / m[drawn].sum(1)), rel=0.05)


def test_no_hit_among_few_patients_is_bounded_by_the_patients():
    low, high = ShareSums.of(np.zeros(400, bool), np.repeat(np.arange(10), 40)).interval()
    assert low == 0 and high > 0.25  # of 10 patients; by image it would be 0.01
    assert ShareSums.of(np.zeros(0, bool), np.zeros(0)).interval() is None


def test_it_counts_patients_and_holds_the_truth():
    held = by_image = 0
    for seed in range(400):
        hits, group = clustered(np.random.default_rng(seed), 40, 8)
        low, high = ShareSums.of(hits, group).interval()
        held += low <= 0.2 <= high
        low, high = wilson(int(hits.sum()), len(hits))
        by_image += low <= 0.2 <= high
    assert held / 400 > 0.93 and by_image / 400 < 0.85


def test_sums_of_folds_join_to_the_sums_of_all():
    hits, group = clustered(np.random.default_rng(1), 60, 3)
    fold = group % 3
    joined = ShareSums.joined(ShareSums.of(hits[fold == k], group[fold == k]) for k in range(3))
    assert joined == ShareSums.of(hits, group)
    records = [rate_record(ShareSums.of(hits[fold == k], group[fold == k])) for k in range(3)]
    whole = pooled_rate(records)
    assert whole == joined


def test_of_a_repeated_cross_validation_each_image_counts_once():
    hits, group = clustered(np.random.default_rng(2), 30, 2)
    sums = ShareSums.of(hits, group)
    assert pooled_rate([rate_record(sums, repeat=k) for k in range(3)]).n_images == 60
    assert pooled_rate([]).share is None
