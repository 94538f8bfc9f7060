"""Agreement of readers, against scikit-learn, published examples and formulas written out."""

from itertools import combinations

import numpy as np
import pytest
from sklearn.metrics import cohen_kappa_score

from usvit.metrics.agreement import fleiss_kappa, gwet_ac1, rater_icc, repeat_kappa, weighted_kappa

GWET = [np.repeat([1, 1, 0, 0], [118, 5, 2, 0]), np.repeat([1, 0, 1, 0], [118, 5, 2, 0])]
"""The example of Gwet (2008): 125 subjects, of whom two raters call 118 positive alike and none negative alike."""


def ratings(seed, n=150, readers=4):
    rng = np.random.default_rng(seed)
    case = rng.normal(size=n)
    return np.clip(np.round(3 + case + 0.8 * rng.normal(size=(readers, n))), 1, 5)


def test_weighted_kappa_is_the_mean_of_scikit_learns():
    given = ratings(0)
    oracle = [cohen_kappa_score(a, b, weights="quadratic") for a, b in combinations(given, 2)]
    assert weighted_kappa(given, np.arange(150)).value == pytest.approx(np.mean(oracle), abs=1e-12)


def test_fleiss_kappa_of_categories_counted_in_a_table():
    called = ratings(1) >= 4
    table = np.stack([called.sum(axis=0), (~called).sum(axis=0)], axis=1)  # subjects x categories
    n, j = len(table), 4
    agree = ((table**2).sum(axis=1) - j) / (j * (j - 1))
    chance = ((table.sum(axis=0) / (n * j)) ** 2).sum()
    expected = (agree.mean() - chance) / (1 - chance)
    assert fleiss_kappa(called, np.arange(n)).value == pytest.approx(expected, abs=1e-12)


def test_the_example_of_gwet():
    found = gwet_ac1(GWET, np.arange(125))
    assert found.value == pytest.approx(0.9408, abs=5e-5) and found.ci95[0] < 0.94 < found.ci95[1]
    assert cohen_kappa_score(*GWET) == pytest.approx(-0.0234, abs=5e-5)  # what AC1 was made for
    assert fleiss_kappa(GWET, np.arange(125)).value == pytest.approx(-0.0288, abs=5e-5)  # Scott's pi of two raters


@pytest.mark.parametrize("figure", [weighted_kappa, lambda one, group: fleiss_kappa(one >= 4, group)])
def test_the_interval_is_a_jackknife_over_patients(figure):
    given, patient = ratings(2, n=90), np.arange(90) // 3
    found = figure(given, patient)
    z = [np.arctanh(figure(given[:, patient != one], patient[patient != one]).value) for one in range(30)]
    half = 2.0452 * np.sqrt(29 / 30 * ((z - np.mean(z)) ** 2).sum())
    assert found.ci95 == pytest.approx(np.tanh(np.arctanh(found.value) + np.array([-half, half])), abs=1e-4)
    assert found.n_groups == 30


def test_the_same_images_twice_add_nothing():
    given = ratings(3)
    once, twice = (weighted_kappa(np.tile(given, times), np.tile(np.arange(150), times)).ci95 for times in (1, 2))
    assert once == pytest.approx(twice)


def test_what_has_no_figure_or_no_interval_says_why():
    same, other = np.ones(9), np.arange(9.0)
    assert weighted_kappa([same, same], np.arange(9)).reason == "all ratings are equal"
    assert "call all images alike" in fleiss_kappa([same, same], np.arange(9)).reason
    assert gwet_ac1([same, same], np.arange(9)).value == 1 and gwet_ac1([same, same], np.arange(9)).ci95 is None
    assert weighted_kappa([other, other], np.arange(9)).ci95 is None
    assert weighted_kappa([other, -other], np.repeat([0, 1], [4, 5])).reason == "at least three patients are needed"
    with pytest.raises(ValueError, match="at least two readers"):
        weighted_kappa([same], np.arange(9))


SHROUT = np.array([[9, 6, 8, 7, 10, 6], [2, 1, 4, 1, 5, 2], [5, 3, 6, 2, 6, 4], [8, 2, 8, 6, 9, 7]])
"""Table 2 of Shrout & Fleiss (1979): four judges rate six targets."""


def test_the_icc_of_shrout_and_fleiss_and_its_published_interval():
    found = rater_icc(SHROUT, np.arange(6))
    assert found.value == pytest.approx(0.2898, abs=5e-5)  # 0.29 in the paper
    assert found.ci95 == pytest.approx((0.019, 0.761), abs=5e-4)  # as the package psych of R prints it


def test_the_icc_is_that_of_an_analysis_of_variance_written_out():
    given = ratings(4, n=60, readers=3) + np.array([[0], [1], [2]])
    k, n = given.shape
    target, judge = np.tile(np.arange(n), k), np.repeat(np.arange(k), n)
    y, total = given.ravel(), ((given - given.mean()) ** 2).sum()

    def explained(*factors):
        dummies = np.column_stack([np.ones(n * k), *(one[:, None] == np.unique(one) for one in factors)]).astype(float)
        return total - ((y - dummies @ np.linalg.lstsq(dummies, y, rcond=None)[0]) ** 2).sum()

    cases, readers = explained(target) / (n - 1), explained(judge) / (k - 1)
    rest = (total - explained(target, judge)) / ((n - 1) * (k - 1))
    expected = (cases - rest) / (cases + (k - 1) * rest + k * (readers - rest) / n)
    found, clustered = rater_icc(given, np.arange(n)), rater_icc(given, np.arange(n) // 3)
    assert found.value == pytest.approx(expected) and clustered.value == found.value
    assert clustered.ci95[0] < found.ci95[0] < found.ci95[1] < clustered.ci95[1]


def test_an_icc_without_figure_or_interval_says_why():
    assert rater_icc([np.ones(5), np.ones(5)], np.arange(5)).reason == "all ratings are equal"
    assert rater_icc([np.arange(5), np.arange(5)], np.arange(5)).value == 1
    assert rater_icc([np.arange(5), 1 + np.arange(5)], np.arange(5)).reason == "the readers differ by constants only"


def test_agreement_within_readers_is_the_mean_of_scikit_learns_over_cases_read_again():
    first, again = ratings(5), ratings(6)[::-1].copy() * 0.5 + ratings(5) * 0.5
    again = np.round(again)
    for k in range(4):
        again[k, np.arange(150) % 4 == k] = np.nan
    kept = np.isfinite(again)
    oracle = [
        cohen_kappa_score(one[own].astype(int), other[own].astype(int), weights="quadratic", labels=range(1, 6))
        for one, other, own in zip(first, again, kept, strict=True)
    ]
    found = repeat_kappa([*first], [*again], np.arange(150))
    assert found.value == pytest.approx(np.mean(oracle)) and found.ci95[0] < found.value < found.ci95[1]
    again[0, 2:] = np.nan
    assert repeat_kappa([*first], [*again], np.arange(150)).reason == "a reader has read fewer than three cases again"
