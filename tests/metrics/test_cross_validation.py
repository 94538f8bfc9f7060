"""Means over folds: against LeDell's formula written out, jackknife and bootstrap, and studies whose truth is known."""

from itertools import product

import numpy as np
import pytest
from scipy.special import logit
from scipy.stats import t as student

from benchmarks.coverage.comparisons import Comparison, comparison
from benchmarks.coverage.trained import Linear, headline, share_of
from usvit.estimate import Estimate
from usvit.metrics.clustered import clustered_auc
from usvit.metrics.cross_validation import PooledVariance, fold_mean, mean_value
from usvit.metrics.fold_figures import FoldFigure, Stratum, area_figure, mean_figure
from usvit.metrics.training_share import training_share
from usvit.records import TrainingShareRecord


@pytest.fixture
def rows():
    """(positive, score, group, fold): 5 folds of 24 patients with 1 to 3 images each, of either class."""
    rng = np.random.default_rng(3)
    patient = np.repeat(np.arange(120), rng.integers(1, 4, 120))
    positive = rng.random(len(patient)) < 0.4
    score = np.round(1.2 * positive + rng.normal(size=120)[patient] + rng.normal(size=len(patient)), 1)
    return positive, score, patient, patient % 5


def folds_of(positive, score, group, fold, n_groups=120):
    return [area_figure(positive[fold == k], score[fold == k], group[fold == k], n_groups) for k in np.unique(fold)]


def test_with_one_image_a_patient_it_is_the_variance_of_ledell_written_out():
    rng = np.random.default_rng(1)
    n, fold = 300, np.arange(300) % 5
    positive = rng.random(n) < 0.3
    score = positive + rng.normal(size=n) + fold  # folds far apart, which must not matter
    squares, areas = 0.0, []
    for k in range(5):
        up, down = score[(fold == k) & positive], score[(fold == k) & ~positive]
        area = np.mean([(a > b) + (a == b) / 2 for a, b in product(up, down)])
        areas.append(area)
        size = len(up) + len(down)
        # The influence of each image of the fold, over the fold's size and the number of folds.
        for a in up:
            squares += ((np.mean((a > down) + (a == down) / 2) - area) / (len(up) / size) / size / 5) ** 2
        for b in down:
            squares += ((np.mean((up > b) + (up == b) / 2) - area) / (len(down) / size) / size / 5) ** 2
    mean = fold_mean([folds_of(positive, score, np.arange(n), fold, n)])
    assert mean.value == pytest.approx(np.mean(areas), abs=1e-14)
    m = positive.sum()
    # Only the small-sample stretch, m / (m - 5), stands between the two.
    assert squares < mean.variance < squares * m / (m - 5)
    shifted = fold_mean([folds_of(positive, score - 7 * fold, np.arange(n), fold, n)])
    assert shifted.value == pytest.approx(mean.value, abs=1e-14)
    assert shifted.variance == pytest.approx(mean.variance, rel=1e-12)


def test_with_clusters_it_agrees_with_leaving_patients_out_one_by_one():
    rng = np.random.default_rng(4)
    group = np.repeat(np.arange(500), rng.integers(1, 4, 500))
    positive, fold = rng.random(len(group)) < 0.4, group % 5
    score = 1.2 * positive + rng.normal(size=500)[group] + rng.normal(size=len(group))
    mean = fold_mean([folds_of(positive, score, group, fold, 500)])
    without = []
    for one in range(500):
        keep = (group != one) & (fold == one % 5)  # the other folds stay as they are
        figure = area_figure(positive[keep], score[keep], group[keep], 500)
        without.append(mean.value + (figure.value - folds_of(positive, score, group, fold, 500)[one % 5].value) / 5)
    jackknife = 499 / 500 * ((np.array(without) - np.mean(without)) ** 2).sum()
    assert mean.variance == pytest.approx(jackknife, rel=0.05)
    assert mean.n_groups == 500


def test_one_fold_is_the_clustered_auc(rows):
    positive, score, group, _ = rows
    mean = fold_mean([folds_of(positive, score, group, np.zeros(len(group), int))])
    other = clustered_auc(positive, score, group)
    assert mean.value == other.value
    half = (logit(other.ci95[1]) - logit(other.ci95[0])) / 2
    error = half / 1.959964 * mean.value * (1 - mean.value)
    assert np.sqrt(mean.variance) == pytest.approx(error, rel=0.01)


def test_a_mean_of_losses_is_the_variance_of_group_sums_within_folds():
    group = np.arange(120).repeat(3)  # equally many images in each group
    right, fold = np.random.default_rng(2).random(360) < 0.7, group % 5
    figures = [
        mean_figure(right[fold == k].astype(float), np.ones((fold == k).sum(), bool), group[fold == k], 120)
        for k in range(5)
    ]
    mean = fold_mean([figures])
    expected, shares = 0.0, []
    for k in range(5):
        at = fold == k
        shares.append(right[at].mean())
        for one in np.unique(group[at]):
            expected += ((right[at & (group == one)] - shares[-1]).sum() / at.sum() / 5) ** 2
    assert mean.value == pytest.approx(np.mean(shares))
    assert mean.variance == pytest.approx(expected * 120 / 115, rel=1e-12)
    assert mean.freedom == pytest.approx(115)


def test_the_variance_of_unequal_groups_is_unbiased_and_has_the_freedom_of_its_quadratic_form():
    """Oracle: the form as a matrix, whose trace is its mean and twice the trace of its square its variance."""
    every, square, true, start = [], np.zeros((11, 11)), 0.0, 0
    for sizes in ([1, 20, 3, 7], [2, 2], [15, 1, 1, 1, 9]):
        images, at = np.zeros(11, int), slice(start, start + len(sizes))
        images[at], start = sizes, start + len(sizes)
        w = np.array(sizes) / sum(sizes)
        away = np.eye(len(w)) - w  # each group's value less the weighted mean
        square[at, at] = away.T @ np.diag(w**2) @ away / (w @ w) ** 2
        true += w @ w / 9  # of the mean of three means, whose groups have variance 1
        every.append(images)

    def pooled(value):
        strata = []
        for images in every:
            w = images / images.sum()
            strata.append(Stratum(w * (value - w @ value), images))
        return PooledVariance.of(strata)

    freedom = np.trace(square) ** 2 / np.trace(square @ square)
    assert pooled(np.arange(11.0)).freedom == pytest.approx(freedom)
    assert freedom < 7  # 11 groups less 3 folds would be 8
    # Its mean over values of variance 1 without correlation is its trace: the sum over unit vectors.
    found = sum(one.adds @ one.adds for one in (pooled(unit) for unit in np.eye(11)))
    assert found == pytest.approx(true)


@pytest.mark.slow
def test_a_fold_with_one_group_counts_with_the_variance_of_the_others():
    rng, sizes = np.random.default_rng(8), (1, 2, 4, 5)
    fold = np.repeat(np.arange(4), sizes)

    def mean_of(values):
        figures = [
            mean_figure(values[fold == k], np.ones(sizes[k], bool), np.flatnonzero(fold == k), 12) for k in range(4)
        ]
        return fold_mean([figures])

    drawn = [mean_of(rng.normal(size=12)) for _ in range(3000)]
    true = sum(1 / size for size in sizes) / 16  # of a mean of four means of independent values with variance 1
    assert np.var([one.value for one in drawn]) == pytest.approx(true, rel=0.1)
    assert np.mean([one.variance for one in drawn]) == pytest.approx(true, rel=0.05)


def test_repeats_average_a_patients_contributions_and_add_the_spread_of_training(rows):
    positive, score, group, fold = rows
    rng = np.random.default_rng(0)
    scores = [score + rng.normal(size=len(score)) for _ in range(3)]
    repeats = [folds_of(positive, one, group, fold) for one in scores]
    single = [fold_mean([one]) for one in repeats]
    mean = fold_mean(repeats)
    assert mean.value == pytest.approx(np.mean([one.value for one in single]))
    assert mean.variance < np.mean([one.variance for one in single])  # the noise of training averages out
    whole, freedom = mean.variance_with(0.5)
    spread = np.var([one.value for one in single], ddof=1) / 3
    assert whole == pytest.approx(1.5 * mean.variance + spread)
    assert freedom >= 2
    same = fold_mean([repeats[0]] * 3)  # a training that always gives the same: repeats add no certainty
    assert same.variance_with(0.0)[0] == pytest.approx(single[0].variance, rel=1e-12)


def test_the_interval_is_a_t_interval_on_the_logit_scale(rows):
    mean = fold_mean([folds_of(*rows)])
    value = mean_value(mean, 0.25, absent="", n_groups=120)
    variance, freedom = mean.variance_with(0.25)
    half = student.ppf(0.975, freedom) * np.sqrt(variance) / (mean.value * (1 - mean.value))
    np.testing.assert_allclose(logit(value.ci95), logit(mean.value) + np.array([-half, half]))
    assert value.value == mean.value


def test_a_perfect_score_in_every_fold_gets_the_bound_of_all_or_none():
    positive, fold = np.arange(60) % 3 == 0, np.arange(60) // 3 % 5
    value = mean_value(fold_mean([folds_of(positive, positive, np.arange(60), fold, 60)]), 1.0, absent="", n_groups=60)
    assert value.value == 1.0
    assert value.ci95[0] == pytest.approx(0.025 ** (1 / 20))
    assert value.method.startswith("Clopper-Pearson")


def test_a_fold_without_a_class_is_left_out_and_said(rows):
    positive, score, group, fold = rows
    keep = positive | (fold != 2)
    figures = folds_of(positive[keep], score[keep], group[keep], fold[keep])
    assert figures[2] is None
    value = mean_value(fold_mean([figures]), 0.0, absent="", n_groups=120)
    assert value.value == pytest.approx(np.mean([one.value for one in figures if one]))
    assert "undefined in 1 folds" in value.warning
    assert fold_mean([[None, None]]) is None
    assert mean_value(None, 0.0, absent="why", n_groups=7) == Estimate(value=None, ci95=None, reason="why", n_groups=7)


def shares_of(values, size=25):
    """One figure a fold: as many of its ``size`` images are right as the value says, each image of another patient."""
    n = size * len(values)
    code, fold = np.arange(n), np.repeat(np.arange(len(values)), size)
    right = np.concatenate([np.arange(size) < round(size * value) for value in values]).astype(float)
    return [mean_figure(right[fold == k], np.ones(size, bool), code[fold == k], n) for k in range(len(values))]


def test_folds_that_contradict_each_other_lengthen_the_interval_and_say_so():
    unlike = mean_value(fold_mean([shares_of([0.6, 0, 0.4, 0, 1.0])]), 0.0, absent="", n_groups=125)
    assert unlike.value == pytest.approx(0.4)
    low, high = unlike.ci95
    # The bare t interval of the five values on the logit scale: 0.069 to 0.857.
    half = student.ppf(0.975, 4) * np.std([0.6, 0, 0.4, 0, 1.0], ddof=1) / np.sqrt(5) / 0.24
    np.testing.assert_allclose(logit([low, high]), logit(0.4) + np.array([-half, half]), rtol=0.05)
    assert "differ by more than their patients explain (0.000 to 1.000)" in unlike.warning
    assert unlike.method.endswith("with the variance between models")
    alike = mean_value(fold_mean([shares_of([0.44, 0.4, 0.36, 0.32, 0.48])]), 0.0, absent="", n_groups=125)
    assert alike.warning is None and alike.ci95[1] - alike.ci95[0] < 0.2
    # All patients of a fold alike: the patients show no variance at all, the folds do.
    extreme = mean_value(fold_mean([shares_of([1.0, 0, 0, 0, 1.0])]), 0.0, absent="", n_groups=125)
    assert extreme.ci95[0] < 0.1 and extreme.ci95[1] > 0.9
    # Repeats measure the variation of training themselves.
    repeated = fold_mean([shares_of([0.6, 0, 0.4, 0, 1.0])] * 2)
    assert repeated.between_models == 0


def test_few_positives_among_many_patients_are_warned_of():
    rng = np.random.default_rng(0)
    positive, fold = np.arange(400) < 12, np.arange(400) % 5
    figures = folds_of(positive, positive + rng.normal(size=400), np.arange(400), fold, 400)
    value = mean_value(fold_mean([figures]), 0.0, absent="", n_groups=400)
    assert value.n_groups == 400
    assert value.warning.startswith("from 12 groups with positive images only: below 50")
    both = fold_mean([[FoldFigure.mean([one, one]) for one in figures]])
    assert "12 groups with images of the rarest class" in mean_value(both, 0.0, absent="", n_groups=400).warning


def test_without_groups_to_spare_there_is_no_interval_but_a_reason():
    positive, score = np.array([True, False, False] * 2), np.array([0.5, 0.1, 0.7, 0.9, 0.2, 0.3])
    figures = folds_of(positive, score, np.arange(6), np.repeat([0, 1], 3), 6)
    value = mean_value(fold_mean([figures]), 0.0, absent="", n_groups=6)
    assert value.ci95 is None
    assert "more groups than folds" in value.reason


def test_models_that_always_agree_have_no_training_share_and_models_of_pure_chance_the_whole():
    n, models, agree, chance = 400, 8, [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        group = np.concatenate([rng.permutation(n)[:100] for _ in range(models)])
        positive, score, fold = rng.random(n) < 0.5, rng.normal(size=n), np.repeat(np.arange(models), 100)
        # Each fold on a scale of its own: only the order counts.
        agree.append(training_share(positive[group], [np.exp(score[group] * (1 + fold))], group, fold, n))
        chance.append(training_share(positive[group], [rng.normal(size=len(group))], group, fold, n).value)
    assert np.mean([one.value for one in agree]) < 0.06
    assert agree[0].n_pairs > 500
    assert min(chance) == 1.0


@pytest.mark.parametrize("distance", [0.0, 1.0, 3.0])
def test_the_training_share_is_that_of_the_weights(distance):
    """With normal features and the identity as covariance, s = (noise of w) / |w|^2, known from many trainings."""
    rng = np.random.default_rng(2)
    p, n, models = 15, 400, 12
    mu = np.r_[distance, np.zeros(p - 1)]
    shares, truths = [], []
    for _ in range(10):
        positive = np.arange(n) % 2 == 0
        x = rng.normal(size=(n, p)) + positive[:, None] * mu
        rows, weights = [], []
        for k in range(models):
            hidden = rng.permutation(n)[: n // 4]
            train = np.setdiff1d(np.arange(n), hidden)
            w = x[train][positive[train]].mean(0) - x[train][~positive[train]].mean(0)
            weights.append(w)
            rows.append((positive[hidden], x[hidden] @ w, hidden, np.full(len(hidden), k)))
        shares.append(share_of(rows, n).value)
        noise = p * 4 / (0.75 * n)  # of the difference of two means of 150 images each
        truths.append(noise / (noise + distance**2))
    assert np.mean(shares) == pytest.approx(np.mean(truths), abs=0.12)


def test_what_cannot_be_estimated_is_taken_for_the_most_it_can_be(rows):
    positive, score, group, fold = rows
    found = training_share(positive, [score], group, fold, 120)
    assert found == TrainingShareRecord(value=1.0, n_pairs=0, reason=found.reason)
    assert "no repeats and no inner validation rows" in found.reason


@pytest.mark.slow
@pytest.mark.parametrize("row", [Linear(240, 0.0), Linear(240, 1.5), Linear(240, 1.5, repeats=3)])
def test_real_training_in_folds_is_covered(row):
    found = [headline(row, seed) for seed in range(150)]
    assert 0.90 <= np.mean([one["AUC"].holds for one in found]) <= 0.995
    if not row.distance:  # the defect: the pooled interval excludes 0.5 far more often than in 5 %
        assert np.mean([one["pooled AUC"].holds for one in found]) < 0.90


@pytest.mark.slow
def test_equal_procedures_are_not_told_apart_more_often_than_promised():
    row = Comparison("logistic", 240, 72, distance=0.0, noise_features=29)
    found = [comparison(row, seed) for seed in range(150)]
    assert np.mean([one["headline"] for one in found]) <= 0.08
    assert np.mean([one["pooled"] for one in found]) > 0.09  # the pooled test takes the models as given


def test_fold_figures_of_classes_are_averaged():
    a, b = (
        mean_figure(np.array(values), np.ones(4, bool), np.arange(4), 4) for values in ([1.0, 0, 1, 1], [0.0, 0, 1, 0])
    )
    both = FoldFigure.mean([a, b])
    assert both.value == pytest.approx(0.5)
    np.testing.assert_allclose(sum(one.adds for one in both.strata.values()), (np.array([1, 0, 2, 1]) - 1) / 8)
