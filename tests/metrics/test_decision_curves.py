import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import REPOSITORY
from usvit.evaluation.metrics_sections import run_decision_curve
from usvit.metrics.decision_curves import THRESHOLDS, decision_curve, simultaneous_band

GOLDEN = json.loads((REPOSITORY / "tests/oracles/golden_calibration.json").read_text())


def literal(positive, prob, pt):
    """Vickers & Elkin's formula, image by image."""
    n = len(positive)
    true = sum(1 for y, p in zip(positive, prob, strict=True) if p >= pt and y)
    false = sum(1 for y, p in zip(positive, prob, strict=True) if p >= pt and not y)
    return true / n - false / n * pt / (1 - pt)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 20)), min_size=1, max_size=30))
def test_net_benefit_is_the_literal_formula_ties_with_the_threshold_included(images):
    positive, prob = [y for y, _ in images], [p / 20 for _, p in images]
    curve = decision_curve(positive, prob, thresholds=np.arange(20) / 20)
    np.testing.assert_allclose(curve.model, [literal(positive, prob, pt) for pt in np.arange(20) / 20], atol=1e-12)
    np.testing.assert_allclose(
        curve.treat_all, [literal(positive, np.ones(len(prob)), pt) for pt in np.arange(20) / 20], atol=1e-12
    )
    assert set(curve.treat_none) == {0.0}


@pytest.mark.parametrize(("name", "prevalence"), [("own", None), ("rare", 0.02)])
def test_net_benefit_is_that_of_dcurves(name, prevalence):
    curve = decision_curve(GOLDEN["positive"], GOLDEN["prob"], thresholds=GOLDEN["thresholds"], prevalence=prevalence)
    np.testing.assert_allclose(curve.model, GOLDEN["net_benefit"][name]["model"], atol=1e-12)
    np.testing.assert_allclose(curve.treat_all, GOLDEN["net_benefit"][name]["all"], atol=1e-12)


def test_a_hand_worked_curve():
    curve = decision_curve([1, 1, 0, 0, 0], [0.9, 0.3, 0.6, 0.2, 0.1], thresholds=[0.25, 0.5])
    # At 0.25 three are acted on, one in vain, worth a third: 2/5 - 1/5 * 1/3. At 0.5 one is found, one in vain.
    np.testing.assert_allclose(curve.model, [2 / 5 - 1 / 15, 0.0], atol=1e-15)
    np.testing.assert_allclose(curve.treat_all, [2 / 5 - 3 / 5 / 3, 2 / 5 - 3 / 5], atol=1e-15)
    np.testing.assert_allclose(curve.standardised, [5 / 6, 0.0], atol=1e-15)
    assert curve.estimated_useful == [[0.25, 0.25]]


def test_a_perfect_model_has_the_prevalence_as_its_benefit_everywhere():
    curve = decision_curve([1, 0, 0, 0], [1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(curve.model, 0.25)
    np.testing.assert_allclose(curve.standardised, 1.0)
    assert curve.estimated_useful == [[0.01, 0.99]]
    assert curve.useful == []  # four images show nothing


def test_a_model_that_says_the_prevalence_of_everyone_is_never_useful():
    curve = decision_curve([1, 0, 0, 0], [0.25] * 4)
    assert curve.useful == curve.estimated_useful == []
    best = np.maximum(curve.treat_all, 0)
    np.testing.assert_allclose(curve.model, best, atol=1e-12)


def test_useful_thresholds_come_as_runs():
    curve = decision_curve([1, 0, 1, 0], [0.6, 0.55, 0.3, 0.2], thresholds=[0.1, 0.25, 0.4, 0.58, 0.7])
    assert curve.estimated_useful == [[0.25, 0.25], [0.58, 0.58]]


def test_the_own_prevalence_given_changes_nothing():
    own = decision_curve([1, 0, 0, 1, 0], [0.8, 0.4, 0.2, 0.35, 0.6])
    given_it = decision_curve([1, 0, 0, 1, 0], [0.8, 0.4, 0.2, 0.35, 0.6], prevalence=0.4)
    np.testing.assert_allclose(own.model, given_it.model, atol=1e-12)


def test_an_absent_class_is_said():
    none = decision_curve([0, 0], [0.3, 0.7], thresholds=[0.5])
    assert none.model == [-0.5]
    assert none.standardised == [None]
    assert none.reason == "no positive image: the maximum benefit is 0"
    every = decision_curve([1, 1], [0.3, 0.7], thresholds=[0.5])
    assert every.model == every.standardised == [0.5]
    elsewhere = decision_curve([1, 1], [0.3, 0.7], thresholds=[0.5], prevalence=0.1)
    assert elsewhere.model == [None]
    assert elsewhere.reason.startswith("no negative image")
    np.testing.assert_allclose(elsewhere.treat_all, 0.1 - 0.9)


@pytest.mark.parametrize("thresholds", [[], [1.0], [-0.1], [0.5, 0.4], [0.2, 0.2], [np.nan], [[0.1]]])
def test_thresholds_out_of_range_are_refused(thresholds):
    with pytest.raises(ValueError, match="thresholds must be one ascending row"):
        decision_curve([0, 1], [0.1, 0.9], thresholds=thresholds)


@pytest.mark.parametrize("prevalence", [0.0, 1.0, -0.2, np.nan])
def test_a_prevalence_out_of_range_is_refused(prevalence):
    with pytest.raises(ValueError, match="prevalence"):
        decision_curve([0, 1], [0.1, 0.9], prevalence=prevalence)


def test_a_run_is_its_test_images(study):
    curve = run_decision_curve(study, positive="malignant")
    assert (curve.n_images, curve.n_groups, curve.n_positive) == (200, 100, 50)
    positive, prob = (study["label"] == "malignant").to_numpy(), study["prob_malignant"].to_numpy()
    np.testing.assert_allclose(curve.model, [literal(positive, prob, pt) for pt in THRESHOLDS], atol=1e-12)
    json.dumps(curve.content(), allow_nan=False)


def studies(n_studies, skill, n=200, per=2):
    """Patients with ``per`` images each; log-odds that say something of the label, or nothing."""
    for seed in range(n_studies):
        rng = np.random.default_rng(seed)
        patient = np.repeat(np.arange(n // per), per)
        positive = (rng.random(n // per) < 0.3)[patient]
        noise = np.sqrt(0.5) * (rng.normal(size=n // per)[patient] + rng.normal(size=n))
        odds = np.log(0.3 / 0.7) + (skill * (skill * positive + noise - skill / 2) if skill else noise)
        yield positive, 1 / (1 + np.exp(-odds)), patient


def test_a_model_without_skill_is_not_called_useful():
    curves = [decision_curve(*study, n_resamples=200) for study in studies(40, skill=0)]
    assert np.mean([bool(curve.estimated_useful) for curve in curves]) > 0.6  # what was said of it before
    assert sum(bool(curve.useful) for curve in curves) <= 2


def test_a_model_with_skill_is_called_useful_within_its_estimate():
    for study in studies(5, skill=2.0):
        curve = decision_curve(*study, n_resamples=200)
        assert curve.useful
        at = np.array(curve.thresholds)

        def inside(runs, at=at):
            return sum(((at >= first) & (at <= last) for first, last in runs), np.zeros(len(at), bool))

        assert (inside(curve.useful) <= inside(curve.estimated_useful)).all()


def test_the_band_is_that_of_a_literal_bootstrap():
    rng = np.random.default_rng(1)
    group = np.repeat(np.arange(30), 2)
    positive = (rng.random(30) < 0.4)[group]
    prob = np.clip(0.35 + 0.3 * positive + 0.2 * rng.normal(size=60), 0, 1)
    at = np.array([0.2, 0.4, 0.6])
    band = simultaneous_band(positive, prob, group, at, n_resamples=300, seed=5)
    draws = np.random.default_rng(5).integers(0, 30, (300, 30))

    def differences(images):
        model = np.array([literal(positive[images], prob[images], pt) for pt in at])
        everybody = np.array([literal(positive[images], np.ones(len(images)), pt) for pt in at])
        return np.stack([model - everybody, model], axis=1)

    value = differences(np.arange(60))
    drawn = np.array([differences(np.concatenate([np.flatnonzero(group == g) for g in one])) for one in draws])
    odds = at / (1 - at)
    floor = np.empty((3, 2))
    for j, pt in enumerate(at):
        for side, which in enumerate((prob < pt, prob >= pt)):
            same = odds[j] * (np.bincount(group[which], minlength=30) ** 2).sum()
            further = (2 * (odds[j] if side else 1)) ** 2  # two images: a missed positive, or a needless intervention
            floor[j, side] = np.sqrt(same + further) / 60
    error = np.maximum(drawn.std(axis=0), floor)
    critical = np.quantile((np.abs(drawn - value) / error).max(axis=(1, 2)), 0.95)
    np.testing.assert_allclose(band.critical, critical, rtol=1e-9)
    np.testing.assert_allclose(band.difference, value.min(axis=1), atol=1e-12)
    np.testing.assert_allclose(band.lower, (value - critical * error).min(axis=1), atol=1e-12)
    np.testing.assert_allclose(band.upper, (value + critical * error).min(axis=1), atol=1e-12)


def test_without_a_band_nothing_is_called_useful_and_the_reason_is_given():
    one = decision_curve([1, 0, 0], [0.9, 0.1, 0.2], [7, 7, 7])
    assert one.band is None and one.useful == [] and one.band_reason == "there is only one group"
    none = decision_curve([0, 0], [0.3, 0.7])
    assert none.band is None and none.band_reason == "no positive image"
    few = decision_curve([1, 0], [0.9, 0.1])  # half of the resamples lack a class
    assert few.band is None and "a class is absent" in few.band_reason
    same = decision_curve([1, 0] * 30, [1.0] * 60)  # acts on all: is a default, and never better than it
    assert same.useful == [] and max(same.band.lower) <= 0


def test_the_order_of_rows_changes_no_band():
    (study,) = studies(1, skill=1.0)
    order = np.random.default_rng(0).permutation(len(study[0]))
    assert decision_curve(*(one[order] for one in study)).band == decision_curve(*study).band
