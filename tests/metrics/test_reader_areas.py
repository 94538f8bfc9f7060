"""The mean AUC of readers against scikit-learn, a bootstrap of patients, and the figures of one reader."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from usvit.metrics.clustered import clustered_auc, clustered_difference
from usvit.metrics.fold_figures import area_figure
from usvit.metrics.reader_areas import difference_to_mean, mean_auc, mean_of_fold


def draw(seed=0, patients=150):
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(patients), rng.integers(1, 6, patients))
    cancer = (np.arange(patients) % 3 == 0)[group]
    common = rng.normal(size=patients)[group] + 1.2 * cancer
    readers = [np.digitize(common + rng.normal(size=len(group)), [-1, 0, 1, 2]).astype(float) for _ in range(3)]
    return cancer, readers, common + rng.normal(size=len(group)), group


def test_the_mean_is_that_of_the_aucs_and_one_reader_is_himself():
    cancer, readers, model, group = draw()
    expected = np.mean([roc_auc_score(cancer, one) for one in readers])
    assert mean_auc(cancer, readers, group).value == pytest.approx(expected)
    found = difference_to_mean(cancer, model, readers, group)
    assert found.value == pytest.approx(roc_auc_score(cancer, model) - expected)
    assert mean_auc(cancer, readers[:1], group) == clustered_auc(cancer, readers[0], group)
    one, other = (
        difference_to_mean(cancer, model, readers[:1], group),
        clustered_difference(cancer, model, readers[0], group),
    )
    assert (one.value, one.p, *one.ci95) == pytest.approx((other.value, other.p, *other.ci95))
    same = mean_auc(cancer, [readers[0]] * 3, group)
    assert same.ci95 == pytest.approx(clustered_auc(cancer, readers[0], group).ci95)


@pytest.mark.slow
def test_the_errors_are_those_of_a_bootstrap_of_patients():
    cancer, readers, model, group = draw(1)
    rng = np.random.default_rng(2)
    rows = [np.flatnonzero(group == one) for one in range(group.max() + 1)]
    means, differences = [], []
    for _ in range(1000):
        at = np.concatenate([rows[one] for one in rng.integers(0, len(rows), len(rows))])
        means.append(np.mean([roc_auc_score(cancer[at], one[at]) for one in readers]))
        differences.append(roc_auc_score(cancer[at], model[at]) - means[-1])
    low, high = difference_to_mean(cancer, model, readers, group).ci95
    assert (high - low) / 3.92 == pytest.approx(np.std(differences), rel=0.08)
    low, high = mean_auc(cancer, readers, group).ci95
    assert (high - low) / 3.92 == pytest.approx(np.std(means), rel=0.08)


def test_without_a_class_there_is_a_reason():
    _, readers, model, group = draw()
    none = np.zeros(len(group), bool)
    assert mean_auc(none, readers, group).value is None
    assert "no positive" in difference_to_mean(none, model, readers, group).reason


def test_readers_who_tie_everything_or_rank_perfectly():
    cancer, _, model, group = draw()
    flat = np.ones(len(group))
    found = mean_auc(cancer, [flat, flat], group)
    assert found.value == 0.5 and found.ci95 is None and "variance is 0" in found.reason
    perfect = mean_auc(cancer, [cancer.astype(float)] * 2, group)
    assert perfect.value == 1 and perfect.ci95[1] == 1
    assert difference_to_mean(cancer, model, [flat, flat], group).ci95 is not None


def test_the_mean_of_a_fold_averages_contributions_within_strata():
    cancer, readers, _, group = draw()
    figures = [area_figure(cancer, one, group, group.max() + 1) for one in readers]
    mean = mean_of_fold(figures)
    for name in ("positives", "negatives"):
        assert mean.strata[name].adds == pytest.approx(np.mean([one.strata[name].adds for one in figures], axis=0))
    assert mean_of_fold([figures[0], None]) is None
