"""Nested choice: the rule on numbers by hand, and its honesty on simulated models."""

import numpy as np
import pytest

from usvit.metrics.basic import auc
from usvit.metrics.fold_figures import FoldFigure, Stratum, area_figure, mean_figure
from usvit.metrics.nested_choice import nested_choice, one_standard_error


def figure(value, spread=0.0, n_groups=50):
    """A figure whose standard error is ``spread``, by Obuchowski's factor."""
    adds = np.tile([1.0, -1.0], n_groups // 2)
    adds *= spread / np.sqrt((adds @ adds) * n_groups / (n_groups - 1))
    return FoldFigure(value, {"all": Stratum(adds, np.ones(n_groups, bool))}, n_groups)


@pytest.mark.parametrize(
    ("values", "error", "parameters", "within", "chosen"),
    [
        ([0.90, 0.88, 0.80], 0.03, [30, 20, 10], (0, 1), 1),  # the simplest is not within one standard error
        ([0.90, 0.88, 0.80], 0.11, [30, 20, 10], (0, 1, 2), 2),
        ([0.90, 0.88, 0.80], 0.01, [30, 20, 10], (0,), 0),
        ([0.90, 0.88, 0.89], 0.03, [30, 10, 10], (0, 1, 2), 2),  # of equal sizes the better one
        ([0.80, 0.90, 0.95], 0.01, [1, 2, 3], (2,), 2),
    ],
)
def test_the_simplest_within_one_standard_error_of_the_best_is_chosen(values, error, parameters, within, chosen):
    choice = one_standard_error([[figure(value, error)] for value in values], parameters, [0])
    assert choice.best == int(np.argmax(values)) and choice.within == within and choice.chosen == chosen
    assert choice.errors[0] == pytest.approx(error)
    brier = one_standard_error([[figure(1 - value, error)] for value in values], parameters, [0], lower_is_better=True)
    assert (brier.best, brier.within, brier.chosen) == (choice.best, within, chosen)


def test_the_standard_error_is_that_of_the_mean_and_counts_groups():
    rng = np.random.default_rng(0)
    code = np.repeat(np.arange(40), 3)
    right = (rng.random(40) < 0.7)[code].astype(float)  # the images of a group are alike
    own = mean_figure(right, np.ones(120, bool), code, 40)
    choice = one_standard_error([[own]], [1], [0])
    by_group = right[::3]
    assert choice.values[0] == pytest.approx(right.mean())
    assert choice.errors[0] == pytest.approx(by_group.std(ddof=1) / np.sqrt(40))


def test_without_a_standard_error_only_the_best_is_within():
    one_group = FoldFigure(0.7, {"all": Stratum(np.zeros(1), np.ones(1, bool))}, 1)
    other = FoldFigure(0.8, {"all": Stratum(np.zeros(1), np.ones(1, bool))}, 1)
    choice = one_standard_error([[one_group], [other]], [1, 2], [0])
    assert choice.errors == (None, None) and choice.within == (1,) and choice.chosen == 1


def test_each_fold_is_measured_with_its_own_choice():
    val = [[figure(0.9, 0.01), figure(0.7, 0.01)], [figure(0.8, 0.01), figure(0.9, 0.01)]]
    test = [[figure(0.60), figure(0.80)], [figure(0.75), figure(0.65)]]
    found = nested_choice(val, test, [[1, 1], [2, 2]], [0, 0])
    assert [one.chosen for one in found.folds] == [0, 1]
    assert [one.value for one in found.figures] == [0.60, 0.65]
    assert found.apparent == 0  # means 0.70 and 0.70: the first
    assert found.apparent_minus_nested.value == pytest.approx(0.70 - 0.625)


def test_a_single_candidate_has_no_optimism():
    found = nested_choice([[figure(0.9, 0.1)]], [[figure(0.8, 0.1)]], [[1]], [0])
    gap = found.apparent_minus_nested
    assert gap.value == 0 and gap.ci95 is None and "only one" in gap.reason


def test_a_fold_without_a_test_figure_is_left_out():
    val = [[figure(0.9, 0.01)] * 2, [figure(0.8, 0.01)] * 2]
    found = nested_choice(val, [[figure(0.6), None], [figure(0.7), None]], [[1, 1], [2, 2]], [0, 0])
    assert found.figures[1] is None and found.apparent_minus_nested.value == pytest.approx(0.1)
    nothing = nested_choice(val, [[None, None]] * 2, [[1, 1], [2, 2]], [0, 0])
    assert nothing.apparent_minus_nested.value is None


def simulated(rng, n_models, n_groups=80, per_group=2, n_folds=4):
    """Equally good models on the same patients: (val, test) figures by model and fold."""
    positive = (rng.random(n_groups) < 0.4)[code := np.repeat(np.arange(n_groups), per_group)]
    fold = (rng.permutation(n_groups) % n_folds)[code]
    inner = [(rng.random(n_groups) < 0.3)[code] for _ in range(n_folds)]
    shared = rng.normal(size=len(code))
    val, test = [], []
    for _ in range(n_models):
        score = 1.2 * positive + 0.5 * shared + rng.normal(size=n_groups)[code] * 0.6 + 0.6 * rng.normal(size=len(code))
        parts = [((fold != k) & inner[k], fold == k) for k in range(n_folds)]
        own = [[area_figure(positive[at], score[at], code[at], n_groups) for at in pair] for pair in parts]
        val.append([one for one, _ in own])
        test.append([one for _, one in own])
    return val, test


def test_the_nested_figure_is_unbiased_and_the_apparent_best_flatters(monkeypatch):
    monkeypatch.setattr("usvit.metrics.nested_choice.N_RESAMPLES", 50)
    rng, n_models = np.random.default_rng(0), 8
    many = 200_000
    y = rng.random(many) < 0.4
    score = 1.2 * y + np.sqrt(0.25 + 0.36 + 0.36) * rng.normal(size=many)
    truth = auc(y, score)  # of every model
    nested, apparent = [], []
    while len(nested) < 120:
        val, test = simulated(rng, n_models)
        if any(one is None for part in (val, test) for model in part for one in model):
            continue
        found = nested_choice(val, test, [[c] * 4 for c in range(n_models)], [0] * 4, seed=len(nested))
        nested.append(np.mean([one.value for one in found.figures]))
        apparent.append(np.mean([one.value for one in test[found.apparent]]))
        assert found.apparent_minus_nested.value == pytest.approx(apparent[-1] - nested[-1])
    error = np.std(nested) / np.sqrt(len(nested))
    assert abs(np.mean(nested) - truth) < 3 * error
    assert np.mean(apparent) - truth > 5 * error
