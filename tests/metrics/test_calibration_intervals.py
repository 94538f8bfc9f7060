"""Intervals of calibration: slope, intercept, in the large, and the debiased calibration error."""

import numpy as np
import pytest
from scipy.special import expit, logit

from usvit.metrics.calibration_intervals import debiased_ece, logistic_errors
from usvit.metrics.calibration_statistics import calibration_line, equal_mass_bins, reliability


def study(seed, n=300, per=1, slope=1.0, shift=0.0, skill=1.5):
    """Labels by patient, predicted log-odds, patients; logit P(positive) = shift + slope * log-odds."""
    rng = np.random.default_rng(seed)
    patient = np.repeat(np.arange(n // per), per)
    positive = (rng.random(n // per) < 0.3)[patient]
    noise = np.sqrt(0.5) * (rng.normal(size=n // per)[patient] + rng.normal(size=n))
    odds = (logit(0.3) + skill * (skill * positive + noise - skill / 2) - shift) / slope
    return positive, odds, patient


@pytest.mark.slow
def test_errors_are_those_of_statsmodels():
    statsmodels = pytest.importorskip("statsmodels.api")
    positive, odds, patient = study(0, per=3)
    design = np.stack([odds, np.ones(len(odds))], axis=1)
    fit = statsmodels.Logit(positive.astype(float), design).fit(disp=0)
    by_group = statsmodels.Logit(positive.astype(float), design).fit(
        disp=0, cov_type="cluster", cov_kwds={"groups": patient}
    )
    n = len(odds)
    small = np.sqrt((n - 1) / (n - 2))  # of statsmodels, for two coefficients
    found = logistic_errors(design, positive, design @ fit.params, patient)
    np.testing.assert_allclose(found * small, by_group.bse, rtol=1e-6)


def test_the_line_has_intervals_that_count_groups():
    positive, odds, _ = study(1, n=240)
    once = calibration_line(positive, odds)
    tripled = calibration_line(np.repeat(positive, 3), np.repeat(odds, 3), np.repeat(np.arange(240), 3))
    for name in ("slope", "intercept", "in_the_large"):
        one, three = getattr(once, name), getattr(tripled, name)
        assert one.ci95[0] < one.value < one.ci95[1]
        np.testing.assert_allclose(one.ci95, three.ci95, rtol=1e-5)  # copies of a patient's image add nothing
    lonely = calibration_line([True, False, True, False], [1.0, -1.0, -0.5, 0.5], ["a"] * 4)
    assert lonely.slope.ci95 is None and lonely.slope.reason == "there is only one group"


@pytest.mark.slow
def test_intervals_of_the_line_hold_the_truth():
    held = np.zeros(2)
    for seed in range(100):
        found = calibration_line(*study(seed, per=2, slope=0.6, shift=0.3))
        for k, (value, truth) in enumerate(((found.slope, 0.6), (found.intercept, 0.3))):
            held[k] += value.ci95[0] <= truth <= value.ci95[1]
    assert (held >= 88).all()


@pytest.mark.slow
def test_chance_alone_is_taken_off_the_calibration_error():
    plain, debiased, held, floor = [], [], 0, []
    for seed in range(60):
        positive, odds, patient = study(seed)
        found = reliability(positive, expit(odds), patient)
        plain.append(found.ece.value)
        debiased.append(found.ece_debiased.value)
        floor.append(found.ece_noise_floor)
        held += found.ece_debiased.ci95[0] == 0
    assert np.mean(plain) > 0.04  # of perfectly calibrated models
    assert np.mean(floor) == pytest.approx(np.mean(plain), rel=0.15)
    assert np.mean(debiased) < np.mean(plain) / 2
    assert held >= 54


def test_the_interval_of_the_error_holds_a_known_error():
    # All images of a bin share one probability, so that the error of the bins is known: 0.1 in each.
    bins = np.repeat(np.arange(10), 30)
    truth = np.linspace(0.15, 0.85, 10)[bins]
    prob, held = truth + np.where(bins % 2, 0.1, -0.1), 0
    for seed in range(100):
        positive = np.random.default_rng(seed).random(300) < truth
        found = debiased_ece(positive - prob, equal_mass_bins(prob), np.arange(300), n_resamples=300)
        held += found.ci95[0] <= 0.1 <= found.ci95[1]
    assert held >= 88


def test_no_interval_where_nothing_varies():
    certain = reliability([1, 0, 1, 0], [1.0, 0.0, 1.0, 0.0])
    assert certain.ece_debiased.ci95 is None and certain.ece_noise_floor is None
    assert certain.ece_debiased.reason == "every resample gives the same value"
    one = reliability([1, 0], [0.5, 0.4], ["a", "a"])
    assert one.ece_debiased.reason == "there is only one group"
