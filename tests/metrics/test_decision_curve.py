import json
from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.conftest import REPOSITORY
from usvit.metrics.decision_curve import THRESHOLDS, decision_curve, run_decision_curve

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
    assert curve.useful == ((0.25, 0.25),)


def test_a_perfect_model_has_the_prevalence_as_its_benefit_everywhere():
    curve = decision_curve([1, 0, 0, 0], [1.0, 0.0, 0.0, 0.0])
    np.testing.assert_allclose(curve.model, 0.25)
    np.testing.assert_allclose(curve.standardised, 1.0)
    assert curve.useful == ((0.01, 0.99),)


def test_a_model_that_says_the_prevalence_of_everyone_is_never_useful():
    curve = decision_curve([1, 0, 0, 0], [0.25] * 4)
    assert curve.useful == ()
    best = np.maximum(curve.treat_all, 0)
    np.testing.assert_allclose(curve.model, best, atol=1e-12)


def test_useful_thresholds_come_as_runs():
    curve = decision_curve([1, 0, 1, 0], [0.6, 0.55, 0.3, 0.2], thresholds=[0.1, 0.25, 0.4, 0.58, 0.7])
    assert curve.useful == ((0.25, 0.25), (0.58, 0.58))


def test_the_own_prevalence_given_changes_nothing():
    own = decision_curve([1, 0, 0, 1, 0], [0.8, 0.4, 0.2, 0.35, 0.6])
    given_it = decision_curve([1, 0, 0, 1, 0], [0.8, 0.4, 0.2, 0.35, 0.6], prevalence=0.4)
    np.testing.assert_allclose(own.model, given_it.model, atol=1e-12)


def test_an_absent_class_is_said():
    none = decision_curve([0, 0], [0.3, 0.7], thresholds=[0.5])
    assert none.model == (-0.5,)
    assert none.standardised == (None,)
    assert none.reason == "no positive image: there is no benefit to be a share of"
    every = decision_curve([1, 1], [0.3, 0.7], thresholds=[0.5])
    assert every.model == every.standardised == (0.5,)
    elsewhere = decision_curve([1, 1], [0.3, 0.7], thresholds=[0.5], prevalence=0.1)
    assert elsewhere.model == (None,)
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
    json.dumps(asdict(curve), allow_nan=False)
