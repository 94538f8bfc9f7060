"""Statistics of reader studies, against published results and a jackknife."""

import numpy as np
import pytest
from scipy.stats import t as student
from sklearn.metrics import recall_score, roc_auc_score

from usvit.metrics.reader_study import INFERENCES, ReaderNumbers, mean_over_readers, reader_parts, reader_power

VAN_DYKE = np.array(
    [
        [0.9196457, 0.8587762, 0.9038647, 0.9731079, 0.8297907],
        [0.9478261, 0.9053140, 0.9217391, 0.9993559, 0.9299517],
    ]
)
"""AUCs of five readers in two modalities, as MRMCaov and RJafroc print them for the data of Van Dyke et al. (1993)."""
VARIANCE, COV1, COV2, COV3 = 0.0008022883, 0.0003466137, 0.0003440748, 0.0002390284
BOTH, PATIENTS, READERS = INFERENCES


def numbers(values, variance, covariance, *, differences=True):
    matrix = np.full((len(values), len(values)), covariance)
    np.fill_diagonal(matrix, variance)
    return ReaderNumbers(np.asarray(values), matrix, 114, differences)


def test_the_published_analysis_of_van_dyke():
    pair = numbers(VAN_DYKE[0] - VAN_DYKE[1], 2 * (VARIANCE - COV1), 2 * (COV2 - COV3))
    found, limits = mean_over_readers(pair, BOTH)
    assert found.value == pytest.approx(-0.04380032, abs=1e-8) and found.error == pytest.approx(0.02074862, abs=1e-7)
    assert found.freedom == pytest.approx(15.25967, abs=1e-4) and found.p == pytest.approx(0.05166569, abs=1e-6)
    assert found.ci95 == pytest.approx((-0.0879594986, 0.0003588544), abs=1e-6) and limits.freedom == found.freedom
    one = numbers(VAN_DYKE[0], 0.0010141028, 0.0004839618, differences=False)
    mean, none = mean_over_readers(one, BOTH)
    assert (mean.error, mean.freedom) == (pytest.approx(0.03317360, abs=1e-7), pytest.approx(12.74465, abs=1e-4))
    assert none is None and mean.p is None and mean.method.endswith(", logit")


def test_readers_alone_are_a_paired_t_test_over_readers():
    from scipy.stats import ttest_rel

    pair = numbers(VAN_DYKE[0] - VAN_DYKE[1], 0.001, 0.0001)
    found, _ = mean_over_readers(pair, READERS)
    oracle = ttest_rel(*VAN_DYKE)
    assert found.p == pytest.approx(oracle.pvalue, abs=1e-12)
    assert found.ci95 == pytest.approx(tuple(oracle.confidence_interval()), abs=1e-12)


def study(seed, n=240, readers=4):
    rng = np.random.default_rng(seed)
    positive, case = np.arange(n) % 3 == 0, rng.normal(size=n)
    ratings = case + rng.normal(size=(2, readers, n)) + np.array([1.0, 1.5])[:, None, None] * positive
    return positive, np.round(2 * ratings)


def jackknife(positive, ratings, figure):
    """Return the (R,) figures of R ratings and their (R, R) covariance, one case left out at a time."""
    n = len(positive)
    kept = [np.delete(np.arange(n), k) for k in range(n)]
    values = np.array([[figure(positive[rows], one[rows]) for one in ratings] for rows in kept])
    return np.array([figure(positive, one) for one in ratings]), (n - 1) ** 2 / n * np.cov(values.T)


FIGURES = {
    "auc": roc_auc_score,
    "sensitivity": lambda positive, rating: recall_score(positive, rating >= 2),
    "specificity": lambda positive, rating: recall_score(~positive, rating < 2),
}


@pytest.mark.parametrize("name", FIGURES)
def test_figures_and_covariances_are_those_of_a_jackknife(name):
    positive, ratings = study(1)
    values, covariance = jackknife(positive, ratings.reshape(8, -1), FIGURES[name])
    first, second = (reader_parts(positive, one, np.arange(240), name, 2.0) for one in ratings)
    assert np.concatenate([first.values, second.values]) == pytest.approx(values, abs=1e-12)
    found = ReaderNumbers.of(second, first)
    contrast = np.hstack([-np.eye(4), np.eye(4)])
    np.testing.assert_allclose(found.covariance, contrast @ covariance @ contrast.T, rtol=0.03, atol=2e-5)
    model = ReaderNumbers.of(reader_parts(positive, ratings[1][:1], np.arange(240), name, 2.0), first)
    contrast = np.hstack([-np.eye(4), np.ones((4, 1)), np.zeros((4, 3))])
    np.testing.assert_allclose(model.covariance, contrast @ covariance @ contrast.T, rtol=0.03, atol=2e-5)


def test_the_same_case_twice_under_one_patient_adds_nothing():
    positive, ratings = study(2, n=90)
    once = ReaderNumbers.of(*(reader_parts(positive, one, np.arange(90)) for one in ratings))
    twice = ReaderNumbers.of(
        *(reader_parts(np.tile(positive, 2), np.tile(one, 2), np.tile(np.arange(90), 2)) for one in ratings)
    )
    np.testing.assert_allclose(twice.covariance, once.covariance, rtol=1e-9)
    assert mean_over_readers(twice, BOTH)[0].ci95 == pytest.approx(mean_over_readers(once, BOTH)[0].ci95)


def test_one_reader_speaks_for_patients_only():
    positive, ratings = study(3)
    alone = ReaderNumbers.of(reader_parts(positive, ratings[1][:1], np.arange(240)))
    for across in (BOTH, READERS):
        found, limits = mean_over_readers(alone, across)
        assert (found.ci95, limits) == (None, None) and found.reason == "one reader tells nothing about other readers"
    assert mean_over_readers(alone, PATIENTS)[0].ci95 is not None


def test_readers_who_agree_leave_the_variance_of_patients():
    same = numbers([0.8, 0.8, 0.8], 0.001, 0.001, differences=False)
    both, patients = (mean_over_readers(same, across)[0] for across in (BOTH, PATIENTS))
    assert both.freedom is None and both.ci95 == pytest.approx(patients.ci95)
    assert mean_over_readers(same, READERS)[0].reason == "the readers do not differ, and the patients cause no variance"


@pytest.mark.parametrize("n_positive", [1, 2])
def test_two_patients_of_a_class_are_needed(n_positive):
    positive = np.arange(20) < n_positive
    ratings = np.random.default_rng(0).normal(size=(3, 20))
    found, _ = mean_over_readers(ReaderNumbers.of(reader_parts(positive, ratings, np.arange(20))), BOTH)
    assert (found.ci95 is None) == (n_positive == 1)
    assert n_positive == 2 or found.reason.startswith("at least two patients with")


def test_a_single_class_has_no_figure():
    assert reader_parts(np.ones(5, bool), [np.arange(5)], np.arange(5)) is None


def test_power_is_how_often_such_studies_find_the_effect():
    pilot = numbers(np.array([0.02, 0.05, 0.08, 0.01, 0.06]), 0.0012, 0.0003)
    stated = reader_power(pilot, 0.05, 8, 2.0)
    rng, within = np.random.default_rng(0), (0.0012 - 0.0003) / 2
    between = max(pilot.mean_square - (0.0012 - 0.0003), 0) + within
    n, j = 20_000, 8
    values = 0.05 + np.sqrt(0.0003 / 2) * rng.normal(size=(n, 1)) + np.sqrt(between) * rng.normal(size=(n, j))
    square, shared = values.var(axis=1, ddof=1), j * 0.0003 / 2
    error, freedom = np.sqrt((square + shared) / j), (j - 1) * ((square + shared) / square) ** 2
    reached = np.abs(values.mean(axis=1)) / error > student.ppf(0.975, freedom)
    assert stated == pytest.approx(reached.mean(), abs=0.02)


def test_more_readers_and_more_patients_find_more():
    pilot = numbers(np.array([0.02, 0.05, 0.08, 0.01, 0.06]), 0.0012, 0.0003)
    power = [reader_power(pilot, 0.04, readers, patients) for readers, patients in ((3, 1.0), (6, 1.0), (6, 3.0))]
    assert power == sorted(power) and 0 < power[0] < power[2] < 1


def areas_without_each_case(positive, ratings):
    """Return the (n, R) AUCs of R ratings without ties, one case left out at a time, from one matrix of comparisons."""
    found = np.empty((len(positive), len(ratings)))
    m, n = positive.sum(), (~positive).sum()
    for column, one in enumerate(ratings):
        won = one[positive][:, None] > one[~positive]
        found[positive, column] = (won.sum() - won.sum(axis=1)) / ((m - 1) * n)
        found[~positive, column] = (won.sum() - won.sum(axis=0)) / (m * (n - 1))
    return found


def check_published(first, second, positive, expected):
    """Compare a difference with results that RJafroc gave for the same simulated data.

    Its covariances are a jackknife's: with these, everything is equal; with Obuchowski's, which count patients, nearly.
    """
    effect, p, low, high, freedom = expected
    found = ReaderNumbers.of(*(reader_parts(positive, one, np.arange(len(positive))) for one in (second, first)))
    left_out = areas_without_each_case(positive, second) - areas_without_each_case(positive, first)
    n = len(positive)
    covariance = np.cov(left_out.T, ddof=1) * (n - 1) ** 2 / n
    for numbers, near in ((ReaderNumbers(found.values, covariance, n, True), 1e-5), (found, 0.01)):
        value, limits = mean_over_readers(numbers, BOTH)
        assert value.value == pytest.approx(effect, abs=2e-6) and value.p == pytest.approx(p, rel=near)
        assert value.ci95 == pytest.approx((low, high), rel=near) and limits.freedom == pytest.approx(freedom, rel=near)


def test_rjafroc_agrees_about_a_model_and_ten_readers():
    """Golden values and simulation: google-health/analysis, test of ``model_vs_readers_orh``."""
    rng, positive = np.random.RandomState(1987), np.repeat([True, False], [200, 800])
    case = rng.randn(1000)
    readers = []
    for _ in range(10):
        shift = 0.075 * rng.randn(2)
        noise = np.sqrt(1 - 0.6**2) * rng.randn(1000)
        readers.append(positive + np.where(positive, shift[1], shift[0]) + 0.6 * case + noise)
    expected = (-0.00584125, 0.6560453, -0.03233184, 0.02064934, 31.00905)
    check_published(readers, [positive + case], positive, expected)


def test_rjafroc_agrees_about_two_modalities():
    """Golden values and simulation: google-health/analysis, test of ``two_treatment_orh`` (Roe and Metz, HL)."""
    rng, positive = np.random.RandomState(1987), np.repeat([False, True], 200)
    case, *modality_case = (np.sqrt(0.3) * rng.randn(400) for _ in range(3))
    ratings = ([], [])
    for _ in range(10):
        reader, reader_case = np.sqrt(0.0082) * rng.randn(2), np.sqrt(0.2) * rng.randn(400)
        for modality in range(2):
            own = reader + np.sqrt(0.0082) * rng.randn(2)
            noise = case + reader_case + modality_case[modality] + np.sqrt(0.2) * rng.randn(400)
            ratings[modality].append(np.where(positive, 0.821 + own[0], own[1]) + noise)
    check_published(*ratings, positive, (0.00451, 0.8502715, -0.04284442691, 0.05186442691, 85.5241922))
