"""Sample sizes against published examples, other packages' published results and simulation."""

import math

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from usvit.metrics.clustered import clustered_auc
from usvit.metrics.influence import LinearPredictor, binormal_placements, design_effect
from usvit.metrics.intervals import Z, wilson
from usvit.metrics.sample_size import (
    AreaComparison,
    AreaPrecision,
    CalibrationSlope,
    NetBenefit,
    ObservedExpected,
    SharePrecision,
    difference_intraclass,
    difference_variance,
)


def test_o_e_and_auc_of_the_heart_valve_example():
    """Riley et al. (2021), section 4; pmvalsampsize prints 905 (its SE is rounded to 0.0001) and 4252."""
    assert ObservedExpected(0.018).size(1.0) == pytest.approx(905, abs=1)
    predictor = LinearPredictor.by_class(0.8, 0.018)
    assert math.ceil(AreaPrecision(0.8, 0.018, predictor).size(0.1)) == 4252


@pytest.mark.parametrize(
    ("predictor", "printed", "within"),
    [
        # The manual of pmvalsampsize; its numbers come from 1,000 and 10,000 random log-odds, hence the tolerance.
        (LinearPredictor.normal(-5, 2.5), 4501, 0.03),
        (LinearPredictor.of_beta(0.5, 0.5), 1641, 0.01),
        (LinearPredictor.by_class(0.8, 0.018), 16175, 0.07),
    ],
    ids=["normal", "beta", "by class"],
)
def test_the_slope_needs_what_pmvalsampsize_prints(predictor, printed, within):
    assert CalibrationSlope(predictor).size(0.2) == pytest.approx(printed, rel=within)


def test_the_deep_vein_thrombosis_example_needs_2430():
    """Snell et al. (2021), J. Clinical Epidemiology 135:79: 2,430 participants (531 events), by simulation."""
    predictor = LinearPredictor.normal(-1.75, 1.47)
    n = CalibrationSlope(predictor).size(0.2)
    assert n == pytest.approx(2430, rel=0.02) and n * 0.22 == pytest.approx(531, rel=0.02)
    assert max(ObservedExpected(0.22).size(0.22), AreaPrecision(0.82, 0.22, predictor).size(0.1)) < n


def test_the_slope_of_the_heart_valve_example_needs_9835():
    """Riley et al. (2021): log-odds of Pearson's type IV, mean -5.8, variance 5, skewness -0.5, kurtosis 4."""
    mean, variance, skew, kurtosis = -5.8, 5.0, -0.5, 4.0
    b = skew**2
    r = 6 * (kurtosis - b - 1) / (2 * kurtosis - 3 * b - 6)
    root = 16 * (r - 1) - b * (r - 2) ** 2
    m, nu = 1 + r / 2, -r * (r - 2) * skew / np.sqrt(root)
    a, centre = np.sqrt(variance * root) / 4, mean - (r - 2) * skew * np.sqrt(variance) / 4
    x = np.linspace(-40, 15, 20001)
    weight = (1 + ((x - centre) / a) ** 2) ** -m * np.exp(-nu * np.arctan((x - centre) / a))
    predictor = LinearPredictor._calibrated(x, weight, "")
    share = weight / weight.sum()
    assert share @ (x - mean) ** 3 / variance**1.5 == pytest.approx(skew, abs=0.01)  # the density is the stated one
    assert predictor.prevalence == pytest.approx(0.018, abs=0.001)
    # The printed moments are rounded: a mean that is lower or higher by 0.05 moves the size by about 4 %.
    assert CalibrationSlope(predictor).size(2 * Z * 0.051) == pytest.approx(9835, rel=0.08)


def test_two_independent_aucs_need_what_hanley_and_mcneil_print():
    """Hanley & McNeil (1982), Radiology 143:29, table III: 652 of each class for 0.70 and 0.75, one-sided 5 %, 80 %."""
    one, other = binormal_placements(0.75, 0.5), binormal_placements(0.7, 0.5)
    figure = AreaComparison(
        0.05, difference_variance(one, other, 0.0), difference_variance(other, other, 0.0), alpha=0.1
    )
    assert figure.size(0.8) / 2 == pytest.approx(652, rel=0.02)  # their scores are exponential, ours normal


def test_a_share_has_the_stated_half_width_by_wilsons_interval():
    n = SharePrecision(0.9, 0.3).size(0.05)
    positives = round(n * 0.3)
    low, high = wilson(round(0.9 * positives), positives)
    assert (high - low) / 2 == pytest.approx(0.05, abs=0.001)
    assert positives == pytest.approx(Z**2 * 0.09 / 0.05**2, rel=0.03)  # Buderer (1996), with Wald's interval
    assert SharePrecision(0.9, 0.3).half_width(n) == pytest.approx(0.05)


@pytest.mark.parametrize("size", [50, 400, 5000])
def test_width_and_size_are_each_others_inverse(size):
    predictor = LinearPredictor.by_class(0.85, 0.2)
    for one in (
        ObservedExpected(0.2, 1.2),
        CalibrationSlope(predictor),
        AreaPrecision(0.85, 0.2, predictor),
        NetBenefit(0.8, 0.7, 0.2, 0.1),
    ):
        assert one.size(one.width(size)) == pytest.approx(size)


def test_the_distribution_by_class_is_calibrated_and_has_its_auc_and_prevalence():
    one = LinearPredictor.by_class(0.9, 0.3)
    assert one.area == pytest.approx(0.9, abs=1e-4) and one.prevalence == pytest.approx(0.3)
    assert one.positives / (one.positives + one.negatives) == pytest.approx(expit(one.nodes))
    sensitivity, specificity = one.called(0.3)
    spread = np.sqrt(2) * norm.ppf(0.9)
    assert (sensitivity, specificity) == pytest.approx((norm.cdf(spread / 2),) * 2, abs=2e-3)


def test_observed_log_odds_are_weighted_to_the_prevalence():
    rng = np.random.default_rng(0)
    positive = np.arange(400) < 200
    score = rng.normal(size=400).round(1) + 1.5 * positive
    one = LinearPredictor.observed(score, positive, 0.1, "")
    assert one.prevalence == pytest.approx(0.1)
    assert one.area == pytest.approx(clustered_auc(positive, score, np.arange(400)).value)


def drawn(rng, patients, area, share, m, rho):
    """Labels and log-odds (studies, patients * m) of a calibrated model; one label a patient."""
    spread = np.sqrt(2) * norm.ppf(area)
    positive = (rng.random((600, patients)) < share).repeat(m, axis=1)
    own = rng.normal(size=(600, patients)).repeat(m, axis=1)
    noise = np.sqrt(rho) * own + np.sqrt(1 - rho) * rng.normal(size=positive.shape)
    return positive, np.log(share / (1 - share)) + np.where(positive, 0.5, -0.5) * spread**2 + spread * noise


@pytest.mark.parametrize(("m", "rho"), [(1, 0.0), (3, 0.6)])
def test_a_study_of_the_planned_size_is_as_precise_as_planned(m, rho):
    area, share, threshold = 0.85, 0.35, 0.3
    predictor = LinearPredictor.by_class(area, share)
    benefit = NetBenefit(*predictor.called(threshold), share, threshold)
    slope, auc = CalibrationSlope(predictor), AreaPrecision(area, share, predictor)
    rng, patients = np.random.default_rng(1), 300
    positive, x = drawn(rng, patients, area, share, m, rho)
    n = patients * m
    effects = [design_effect(one.influence.intraclass(rho), m) for one in (benefit, slope, auc)]
    called = x >= np.log(threshold / (1 - threshold))
    net = (called & positive).mean(1) - (called & ~positive).mean(1) * threshold / (1 - threshold)
    seen = 2 * Z * np.std(net / positive.mean(1))
    assert seen == pytest.approx(benefit.width(n / effects[0]), rel=0.1)
    # One Newton step from the truth is as good as the fit: the slope of each study.
    line = np.stack([np.ones_like(x), x], axis=2)
    p = expit(x)
    information = np.einsum("sni,sn,snj->sij", line, p * (1 - p), line)
    step = np.linalg.solve(information, np.einsum("sni,sn->si", line, positive - p)[..., None])[:, 1, 0]
    assert 2 * Z * np.std(step) == pytest.approx(slope.width(n / effects[1]), rel=0.1)
    areas = [clustered_auc(up, score, np.arange(n)).value for up, score in zip(positive[:200], x[:200], strict=True)]
    assert 2 * Z * np.std(areas) == pytest.approx(auc.width(n / effects[2]), rel=0.15)
    ratios = np.log(positive.mean(1) / share)  # the formula takes the expected number as given
    assert 2 * Z * np.std(ratios) == pytest.approx(2 * Z * np.sqrt((1 - share) / (share * patients)), rel=0.1)


@pytest.mark.parametrize(("m", "rho"), [(1, 0.0), (2, 0.6)])
def test_the_variance_of_a_difference_of_aucs_is_that_of_simulated_ones(m, rho):
    share, agreement, patients = 0.4, 0.5, 120
    one, other = binormal_placements(0.9, share), binormal_placements(0.8, share)
    variance = difference_variance(one, other, agreement)
    effect = design_effect(difference_intraclass(one, other, agreement, rho), m)
    rng, found = np.random.default_rng(2), []
    for _ in range(300):
        positive = (rng.permutation(patients) < share * patients).repeat(m)

        def noise(rng=rng):
            return np.sqrt(rho) * rng.normal(size=patients).repeat(m) + np.sqrt(1 - rho) * rng.normal(size=patients * m)

        common = noise()
        values = []
        for area in (0.9, 0.8):
            score = np.sqrt(0.5) * (common + noise()) + np.sqrt(2) * norm.ppf(area) * positive
            up, down = score[positive], np.sort(score[~positive])
            values.append(np.searchsorted(down, up).mean() / len(down))
        found.append(values[0] - values[1])
    assert np.std(found) == pytest.approx(np.sqrt(variance * effect / (patients * m)), rel=0.12)


def test_tests_with_a_margin_need_more_patients_the_closer_the_difference_is_to_it():
    one = binormal_placements(0.9, 0.3)
    variance = difference_variance(one, one, 0.5)
    sizes = [AreaComparison(d, variance, variance, "noninferiority", 0.05).size(0.8) for d in (0.02, 0.0, -0.02)]
    assert sizes == sorted(sizes)
    z = norm.ppf(0.975) + norm.ppf(0.8)
    assert sizes[1] == pytest.approx(variance * (z / 0.05) ** 2)
    same = AreaComparison(0.0, variance, variance, "equivalence", 0.05).size(0.8)
    assert same == pytest.approx(variance * ((norm.ppf(0.95) + norm.ppf(0.9)) / 0.05) ** 2)
    assert AreaComparison(-0.05, variance, variance, "noninferiority", 0.05).size(0.8) is None


def test_the_design_effect_grows_with_unequal_numbers():
    assert design_effect(0.5, 1) == 1 and design_effect(0.5, 3) == 2 and design_effect(0.0, 18) == 1
    assert design_effect(0.5, 3, 0.8) == pytest.approx(1 + ((1 + 0.64) * 3 - 1) * 0.5)  # Eldridge et al. (2006)
    assert binormal_placements(0.9, 0.3).intraclass(1.0) == pytest.approx(1.0)
    assert binormal_placements(0.9, 0.3).intraclass(0.0) == pytest.approx(0.0, abs=1e-6)
