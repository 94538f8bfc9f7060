"""The distribution of the mean of several networks, from what each says of images that it has not seen."""

import numpy as np
import pytest
from scipy.special import expit

from usvit.metrics.ensemble_scores import MIN_PAIRS, mean_scores
from usvit.metrics.threshold_choice import Rule, choose_threshold


def networks(rng, positive, correlation, drift):
    """(n, K) probabilities; two networks' log-odds of an image correlate, and networks differ by a shift each."""
    n, k = len(positive), len(drift)
    noise = np.sqrt(correlation) * rng.normal(size=(n, 1)) + np.sqrt(1 - correlation) * rng.normal(size=(n, k))
    return expit(drift + 1.5 * (1.5 * positive[:, None] + noise) - 1.5)


def unseen(rng, prob, share=0.15):
    """What a cross-validation shows of them: each image by its test network, some by inner validation, too."""
    n, k = prob.shape
    fold = rng.permutation(n) % k
    tested, validated = np.full((n, k), np.nan), np.full((n, k), np.nan)
    tested[np.arange(n), fold] = prob[np.arange(n), fold]
    for j in range(k):
        own = rng.permutation(np.flatnonzero(fold != j))[: round(share * n)]
        validated[own, j] = prob[own, j]
    return tested, validated


@pytest.mark.parametrize("correlation", [0.3, 0.6, 0.9])
def test_a_rule_attains_its_target_on_the_mean_of_networks_that_disagree(correlation):
    attained = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        drift = rng.normal(0, 0.7, 5)
        positive = rng.random(780) < 0.27
        tested, validated = unseen(rng, networks(rng, positive, correlation, drift))
        drawn = mean_scores(tested, validated, positive, n_draws=4000)
        assert drawn.correlation[1] == pytest.approx(correlation, abs=0.2)
        labels = np.arange(8000) < 4000
        scores = np.concatenate([drawn.positive, drawn.negative])
        single = tested[~np.isnan(tested)]  # row by row, each image once
        new = networks(rng, np.zeros(4000, bool), correlation, drift).mean(axis=1)
        rule = Rule("specificity", 0.95)
        thresholds = (
            choose_threshold(labels, scores, rule).threshold,
            choose_threshold(positive, single, rule).threshold,
        )
        attained.append([(new < threshold).mean() for threshold in thresholds])
    ours, before = np.mean(attained, axis=0)
    assert ours == pytest.approx(0.95, abs=0.012)
    assert before > ours  # single networks' thresholds exceed the target, and pay with sensitivity
    assert correlation == 0.9 or before > 0.975


def test_what_cannot_be_known_is_said():
    rng = np.random.default_rng(0)
    positive = np.arange(200) < 60
    tested, validated = unseen(rng, networks(rng, positive, 0.5, np.zeros(3)))
    nothing = np.full_like(validated, np.nan)
    assert f"{MIN_PAIRS} are needed" in mean_scores(tested, nothing, positive)
    tested[positive, 1] = np.nan
    assert "the test images of a network contain none" in mean_scores(tested, validated, positive)


def test_repeats_give_pairs_without_inner_validation_images():
    rng = np.random.default_rng(1)
    positive = rng.random(400) < 0.4
    prob = networks(rng, positive, 0.6, np.zeros(6))
    tested = np.concatenate([unseen(rng, prob[:, :3])[0], unseen(rng, prob[:, 3:])[0]], axis=1)
    drawn = mean_scores(tested, np.full_like(tested, np.nan), positive)
    assert drawn.n_pairs == (positive.sum(), (~positive).sum())
    assert drawn.correlation == pytest.approx((0.6, 0.6), abs=0.12)


def test_networks_that_agree_keep_the_distribution_of_one():
    rng = np.random.default_rng(2)
    positive = rng.random(600) < 0.5
    prob = np.repeat(networks(rng, positive, 1.0, np.zeros(1)), 4, axis=1)
    drawn = mean_scores(*unseen(rng, prob), positive)
    for sign, scores in ((positive, drawn.positive), (~positive, drawn.negative)):
        np.testing.assert_allclose(
            np.quantile(scores, [0.1, 0.5, 0.9]), np.quantile(prob[sign, 0], [0.1, 0.5, 0.9]), atol=0.05
        )
