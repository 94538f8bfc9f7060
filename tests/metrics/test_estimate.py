"""The public functions return the numbers that metrics.json and compare.json hold for the same rows."""

import doctest

import numpy as np
import pandas as pd
import pytest

import usvit.metrics as metrics
from tests.evaluation.contents import summarise
from tests.json_content import content_of
from usvit.errors import UsvitError
from usvit.evaluation.comparison import compare_tables
from usvit.metrics import decision_curves, of_decisions, of_scores

CLASSES = ["benign", "malignant"]
N = 120


def predictions(seed):
    rng = np.random.default_rng(seed)
    label = np.random.default_rng(0).permutation(np.repeat([0, 1], N // 2))
    p = 1 / (1 + np.exp(-rng.normal(size=N) - 1.5 * label + 0.7))
    return pd.DataFrame(
        {
            "image_id": [f"{i:03d}" for i in range(N)],
            "group_id": [f"p{i // 2}" for i in range(N)],
            "patient_id": None,
            "dataset": "toy",
            "fold": 0,
            "part": "test",
            "label": [CLASSES[k] for k in label],
            "prob_benign": 1 - p,
            "prob_malignant": p,
        }
    )


@pytest.fixture(scope="module")
def table():
    return predictions(1)


@pytest.fixture(scope="module")
def record(table):
    return summarise(table, classes=CLASSES, positive="malignant", prevalence=0.1)


@pytest.fixture(scope="module")
def arrays(table):
    p = table["prob_malignant"].to_numpy()
    return (table["label"] == "malignant").to_numpy(), p, p > table["prob_benign"].to_numpy(), table["group_id"]


def same(found, value):
    """The record's value, to the last bit, with all that stands beside it."""
    told = content_of(found)
    if found.warning:
        told["warning"] = found.warning.replace("'positive'", "'malignant'")
    return told == {key: one for key, one in content_of(value).items() if key != "p_holm"}


def test_figures_are_those_of_metrics_json(record, arrays):
    y, p, called, groups = arrays
    pooled = record["pooled"]
    assert same(metrics.auc(y, p, groups), pooled["auc"]["malignant_vs_rest"])
    assert same(metrics.brier(y, p, groups), pooled["brier_vs_rest"]["malignant"])
    names = [np.array(CLASSES)[one.astype(int)] for one in (y, called)]
    assert same(metrics.accuracy(*names, groups), pooled["accuracy"])
    assert same(metrics.balanced_accuracy(*names, groups), pooled["balanced_accuracy"])
    for name in ("sensitivity", "specificity"):
        assert same(getattr(metrics, name)(y, called, groups), pooled[name]["malignant"])
    values = metrics.predictive_values(y, called, groups)
    assert same(values.ppv, pooled["ppv"]["malignant"])
    assert same(values.npv, pooled["npv"]["malignant"])


def test_calibration_is_that_of_metrics_json(record, arrays):
    y, p, _, groups = arrays
    found, own = metrics.calibration(y, p, groups), record["calibration"]["pooled"]["classes"]["malignant"]
    for name in ("slope", "intercept", "in_the_large"):
        assert same(getattr(found, name), own[name])
    for name in ("ece", "ece_debiased"):
        assert same(getattr(found, name), own["reliability"][name])
    assert found.brier.value == pytest.approx(own["brier"]["score"]["value"], rel=1e-14)


def test_values_at_a_prevalence_and_the_decision_curve_are_those_of_metrics_json(record, arrays):
    y, p, called, groups = arrays
    rule = record["at_prevalence"]["rules"][0]
    found = metrics.predictive_values(y, called, groups, prevalence=0.1)
    assert same(found.ppv, rule["ppv"])
    assert same(found.npv, rule["npv"])
    assert list(metrics.decision_curve(y, p, groups).model) == record["decision_curve"]["model"]
    with pytest.raises(UsvitError, match="above 0 and below 1"):
        metrics.predictive_values(y, called, groups, prevalence=1.0)


def test_paired_tests_are_those_of_compare_json(table, arrays):
    y, p, called, groups = arrays
    other = predictions(2)
    q = other["prob_malignant"].to_numpy()
    pair = compare_tables(table, other, positive="malignant")
    assert same(metrics.auc_difference(y, p, q, groups), pair.auc)
    found = metrics.mcnemar(y, called, q > other["prob_benign"].to_numpy(), groups)
    assert found.p == pair.mcnemar.p
    assert found.value == pytest.approx((pair.mcnemar.only_a - pair.mcnemar.only_b) / N)
    assert found.ci95[0] <= found.value <= found.ci95[1]


def test_a_threshold_from_the_same_images_comes_with_a_warning():
    y, score = [0, 0, 0, 1, 1], [0.1, 0.2, 0.7, 0.6, 0.9]
    found = metrics.sensitivity_at(y, score, specificity=1.0)
    assert found.value == 0.5
    assert "same images" in found.warning
    assert metrics.specificity_at(y, score, sensitivity=0.5).value == 1
    assert metrics.specificity_at(y, score, sensitivity=0.51).value == pytest.approx(2 / 3)
    assert metrics.specificity_at([0, 1], [0.5, 0.5], sensitivity=1.0).value == 0
    assert (
        metrics.specificity_at([1, 1], [0.1, 0.2], sensitivity=0.9).reason
        == "no negative image to choose a threshold on"
    )


@pytest.mark.parametrize("name", ["sensitivity", "accuracy", "balanced_accuracy", "predictive_values"])
def test_lengths_must_agree(name):
    with pytest.raises(ValueError, match=r"length|decisions"):
        getattr(metrics, name)([0, 1, 1], [0, 1])


@pytest.mark.parametrize("module", [of_decisions, of_scores, decision_curves])
def test_the_examples_of_the_docstrings_run(module):
    assert doctest.testmod(module).failed == 0
