"""Risk-coverage curves against brute force, and their intervals against the truth."""

import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import t as student

from benchmarks.coverage.generators import uneven_patients
from usvit.metrics.intervals import effective_wilson
from usvit.metrics.proportions import clustered_share
from usvit.metrics.selective import RiskFigures, risk_coverage


def brute(confidence, wrong, share):
    """Error among the share of images with the highest confidence."""
    order = sorted(range(len(wrong)), key=lambda k: -confidence[k])
    n = round(share * len(wrong))
    return sum(wrong[k] for k in order[:n]) / n


def test_the_curve_and_its_area_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    confidence, wrong = rng.random(40), rng.random(40) < 0.3
    found = risk_coverage(confidence, wrong, np.arange(40), shares=[0.25, 0.5, 1.0])
    assert found.error == pytest.approx([brute(confidence, wrong, share) for share in (0.25, 0.5, 1.0)])
    assert found.area.value == pytest.approx(np.mean([brute(confidence, wrong, (k + 1) / 40) for k in range(40)]))


def test_images_of_equal_confidence_are_accepted_together():
    confidence, wrong = np.array([0.9, 0.9, 0.9, 0.5]), np.array([True, False, False, False])
    found = risk_coverage(confidence, wrong, np.arange(4), shares=[0.25, 0.75, 1.0])
    assert found.error == pytest.approx([1 / 3, 1 / 3, 1 / 4])
    assert found.area.value == pytest.approx((3 * 1 / 3 + 1 / 4) / 4)
    other = risk_coverage(confidence, wrong[[1, 2, 0, 3]], np.arange(4), shares=[0.25])
    assert other.error == pytest.approx([1 / 3])


def test_a_group_that_is_drawn_twice_counts_as_two():
    rng = np.random.default_rng(2)
    code = np.repeat(np.arange(6), 3)
    confidence, wrong, counts = rng.random(18), rng.random(18) < 0.4, np.array([2, 0, 1, 3, 0, 1])
    again = np.repeat(np.arange(18), counts[code])
    figures = RiskFigures(confidence, wrong, code, [0.5, 1.0])(counts[None].astype(float))
    repeated = risk_coverage(confidence[again], wrong[again], np.arange(len(again)), shares=[0.5, 1.0])
    assert [figures[share][0] for share in (0.5, 1.0)] == pytest.approx(repeated.error)
    assert figures["area"][0] == pytest.approx(repeated.area.value)


def test_a_curve_without_errors_has_the_exact_bound_of_its_groups():
    found = risk_coverage(np.linspace(0, 1, 20), np.zeros(20, bool), np.repeat(np.arange(10), 2))
    assert set(found.error) == {0.0} and set(found.lower) == {0.0}
    assert found.upper[-1] == pytest.approx(1 - 0.025 ** (1 / 10))  # Clopper-Pearson for 10 patients


def test_the_band_holds_the_truth_in_about_95_of_100_studies():
    """Probit model: the truth is 1 where a normal score and noise exceed 0; 120 patients with two images."""
    held = []
    fine = norm.ppf((np.arange(200_000) + 0.5) / 200_000)
    size = np.sort(np.abs(fine))[::-1]
    true = norm.cdf(-size[: len(size) // 2]).mean()
    for seed in range(120):
        rng = np.random.default_rng(seed)
        group = np.repeat(np.arange(120), 2)
        own, noise = (np.sqrt(0.5) * rng.normal(size=120)[group] + np.sqrt(0.5) * rng.normal(size=240) for _ in "ab")
        wrong = (own + noise > 0) != (own > 0)
        found = risk_coverage(np.abs(own), wrong, group, shares=[0.5])
        held.append(found.lower[0] <= true <= found.upper[0])
    assert np.mean(held) >= 0.9


def test_a_share_of_clustered_images_has_an_interval_at_0_and_1():
    group = np.repeat(np.arange(10), 3)
    none = clustered_share(np.zeros(30, bool), group)
    assert none.value == 0 and none.ci95[0] == 0 and 0.2 < none.ci95[1] < 0.5


@pytest.mark.parametrize("shares", [[], [0.0], [1.1]])
def test_shares_that_are_none_are_refused(shares):
    with pytest.raises(ValueError, match="shares"):
        risk_coverage([0.5], [True], ["a"], shares=shares)


def test_without_a_choice_of_images_the_interval_is_wilsons_of_the_jackknife_variance():
    """At a share of 1 the risk is the error rate, whose jackknife variance for single images is p (1 - p) / (n - 1)."""
    wrong = np.arange(60) < 12
    found = risk_coverage(np.random.default_rng(4).random(60), wrong, np.arange(60), shares=[1.0])
    away = wrong - wrong.mean()
    kurtosis = (away**4).mean() / (away**2).mean() ** 2
    freedom = min(59, 2 * 60 / (kurtosis - 1))
    expected = effective_wilson(0.2, 59, quantile=float(student.ppf(0.975, freedom)))
    assert (found.lower[0], found.upper[0]) == pytest.approx(expected)


def test_the_band_is_longer_if_the_errors_gather_in_a_few_patients():
    confidence, group = np.linspace(0, 1, 90), np.repeat(np.arange(30), 3)
    spread = risk_coverage(confidence, np.arange(90) % 9 == 0, group, shares=[1.0])
    gathered = risk_coverage(confidence, group % 9 == 0, group, shares=[1.0])
    assert gathered.upper[0] - gathered.lower[0] > 1.4 * (spread.upper[0] - spread.lower[0])


def test_two_patients_give_no_band():
    found = risk_coverage([0.9, 0.8, 0.3, 0.2], [False, True, False, True], ["a", "a", "b", "b"], shares=[1.0])
    assert found.area.ci95 is None and "groups" in found.area.reason and found.lower == [None]


@pytest.mark.slow
def test_with_eleven_patients_of_unequal_size_the_area_is_not_missed_too_often():
    """Without the design effect of one more patient, the interval contained it in 0.86 of such studies."""
    true, held = 0.088, []
    for seed in range(150):
        rng = np.random.default_rng([11, seed])
        images, own = uneven_patients(rng, 11, informative=0.5)
        group = np.repeat(np.arange(11), images)
        right = 1 - np.sqrt(0.5) * own[group] - np.sqrt(0.5) * rng.normal(size=len(group))
        low, high = risk_coverage(np.abs(right), right < 0, group, shares=[1.0]).area.ci95
        held.append(low <= true <= high)
    assert np.mean(held) > 0.93
