"""Reading times and courses of a session, against statsmodels' or NumPy's least squares, and simulated readers."""

import numpy as np
import pytest
from scipy.stats import ttest_rel
from sklearn.metrics import roc_auc_score

from usvit.metrics.reader_courses import change_over_readers, rank_errors, reader_means, reader_slopes


def test_rank_errors_count_the_cases_on_the_wrong_side_and_average_to_the_auc():
    rng = np.random.default_rng(0)
    positive, rating = np.arange(60) % 3 == 0, rng.integers(0, 6, 60)
    found = rank_errors(positive, rating)
    for k in range(60):
        other = rating[positive != positive[k]]
        wrong = other > rating[k] if positive[k] else other < rating[k]
        assert found[k] == pytest.approx((wrong + 0.5 * (other == rating[k])).mean())
    area = roc_auc_score(positive, rating)
    assert 1 - found[positive].mean() == pytest.approx(area) and 1 - found[~positive].mean() == pytest.approx(area)


def test_a_ratio_of_times_is_a_paired_t_test_of_log_times_over_readers():
    logs = np.random.default_rng(1).normal(size=(2, 5, 40)) + np.array([0.0, 0.3])[:, None, None]
    found = change_over_readers(reader_means(logs[1] - logs[0], np.arange(40)), "readers", logarithms=True)
    oracle = ttest_rel(logs[1].mean(axis=1), logs[0].mean(axis=1))
    assert found.p == pytest.approx(oracle.pvalue) and found.value == pytest.approx(np.exp((logs[1] - logs[0]).mean()))
    assert found.ci95 == pytest.approx(tuple(np.exp(oracle.confidence_interval())))


def test_the_variance_that_patients_cause_is_that_of_their_means():
    values, patient = np.random.default_rng(2).normal(size=(3, 90)), np.arange(90) // 3
    numbers = reader_means(values, patient)
    means = values.reshape(3, 30, 3).mean(axis=2)
    assert numbers.covariance == pytest.approx(np.cov(means) / 30)
    assert numbers.n_groups == 30


def test_slopes_are_least_squares_with_dummies_and_cluster_robust_errors():
    rng = np.random.default_rng(3)
    n, patient = 80, np.arange(80) // 2
    x, y, strata = rng.random((2, n)), rng.normal(size=(2, n)), rng.integers(0, 4, (2, n))
    found = reader_slopes(x, y, strata, patient)
    for k in range(2):
        design = np.column_stack([x[k], strata[k][:, None] == np.arange(4)]).astype(float)
        beta = np.linalg.lstsq(design, y[k], rcond=None)[0]
        bread, off = np.linalg.inv(design.T @ design), y[k] - design @ beta
        scores = np.stack([(design * off[:, None])[patient == one].sum(axis=0) for one in range(40)])
        robust = bread @ scores.T @ scores @ bread * 40 / 39 * (n - 1) / (n - 5)
        assert found.values[k] == pytest.approx(beta[0])
        assert found.covariance[k, k] == pytest.approx(robust[0, 0])
    assert reader_slopes(np.zeros((2, n)), y, strata, patient) is None


def test_without_an_interval_there_is_a_reason():
    one = change_over_readers(reader_means([np.arange(5.0)], np.arange(5)), "readers and patients")
    assert one.value == 2 and one.ci95 is None and one.reason == "one reader tells nothing about other readers"
