"""Calibration, thresholds, decision curves and subgroups: the extreme has a reason, the wrong is refused."""

import json
import warnings
from dataclasses import asdict

import numpy as np
import pytest

from tests.json_content import content_of
from usvit.errors import UsvitError
from usvit.estimate import Estimate
from usvit.evaluation.metrics_sections import calibration_of, run_decision_curve
from usvit.evaluation.prediction_arrays import rows_of
from usvit.evaluation.recalibration import fit_platt, fit_temperature, recalibrate
from usvit.evaluation.subgroups import subgroups
from usvit.evaluation.thresholds import operating_points
from usvit.metrics.calibration_statistics import brier, calibration_line, reliability, top_label_reliability
from usvit.metrics.decision_curves import decision_curve
from usvit.metrics.proportions import clustered_share
from usvit.metrics.threshold_choice import RULES, choose_threshold, outcome
from usvit.records import Record

TWO = ["benign", "malignant"]
GROUPS = ["a", "a", "b", "b", "c", "c", "d", "d"]

CASES = {
    "perfect": ([0, 0, 0, 0, 1, 1, 1, 1], [0.0, 0.1, 0.2, 0.3, 0.7, 0.8, 0.9, 1.0]),
    "inverted": ([1, 1, 1, 1, 0, 0, 0, 0], [0.0, 0.1, 0.2, 0.3, 0.7, 0.8, 0.9, 1.0]),
    "constant": ([0, 1, 0, 1, 0, 1, 0, 0], [0.3] * 8),
    "tied": ([0, 1, 0, 1, 0, 1, 0, 0], [0.2, 0.2, 0.2, 0.6, 0.6, 0.6, 0.2, 0.6]),
    "no positive": ([0] * 8, [0.0, 0.1, 0.2, 0.3, 0.7, 0.8, 0.9, 1.0]),
    "no negative": ([1] * 8, [0.0, 0.1, 0.2, 0.3, 0.7, 0.8, 0.9, 1.0]),
    "one case": ([1], [0.4]),
}


def scores(prob):
    p = np.clip(np.asarray(prob, dtype=float), 1e-9, 1 - 1e-9)
    return np.column_stack([np.log(1 - p), np.log(p)])


def both(prob):
    p = np.asarray(prob, dtype=float)
    return np.column_stack([1 - p, p])


BINARY = {
    "reliability": lambda y, p, g: reliability(y, p, g),
    "reliability, intervals": lambda y, p, g: reliability(y, p, g, n_bins=2, interval=clustered_share),
    "brier": lambda y, p, g: brier(y, p, g),
    "decision curve": lambda y, p, g: decision_curve(y, p, g),
    "decision curve, rare": lambda y, p, g: decision_curve(y, p, g, prevalence=0.01),
    "line": lambda y, p, g: asdict(calibration_line(y, scores(p)[:, 1] - scores(p)[:, 0], g)),
    "choice": lambda y, p, g: [asdict(choose_threshold(y, p, rule)) for rule in RULES],
    "outcome": lambda y, p, g: outcome(y, np.asarray(p) >= 0.5, g, interval=clustered_share),
    "top label": lambda y, p, g: top_label_reliability(y, both(p), g),
    "temperature": lambda y, p, g: asdict(fit_temperature(y, scores(p))),
    "platt": lambda y, p, g: asdict(fit_platt(y, scores(p), 1)),
}
TABLES = {
    "calibration": lambda t: calibration_of(rows_of(t, "test"), interval=clustered_share),
    "operating points": lambda t: operating_points(t, positive="malignant"),
    "decision curve": lambda t: run_decision_curve(t, positive="malignant"),
    "temperature": lambda t: recalibrate(t, positive="malignant").reason,
    "platt": lambda t: recalibrate(t, positive="malignant", method="platt").reason,
    "subgroups": lambda t: subgroups(t, "fold", positive="malignant"),
}


@pytest.fixture(autouse=True)
def _no_warning_is_left_to_the_user():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def values_of(found):
    """Every estimate inside a result."""
    if isinstance(found, Estimate):
        yield found
    elif isinstance(found, dict):
        for inner in found.values():
            yield from values_of(inner)
    elif isinstance(found, Record):
        yield from values_of(dict(found))
    elif isinstance(found, list | tuple):
        for inner in found:
            yield from values_of(inner)


def stands_up(found):
    """JSON holds it without NaN; what is undefined says why; an interval surrounds its value."""
    json.dumps(content_of(found), allow_nan=False)
    for one in values_of(found):
        if one.value is None:
            assert one.reason
        elif one.ci95:
            assert one.ci95[0] <= one.value <= one.ci95[1]
            if not one.method.startswith("maximum likelihood"):  # a slope or an intercept is no share
                assert 0 <= one.ci95[0] <= one.ci95[1] <= 1
    return True


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", BINARY)
def test_extremes_of_arrays_have_a_number_or_a_reason(name, case):
    label, prob = CASES[case]
    assert stands_up(BINARY[name](label, prob, GROUPS[: len(label)]))


@pytest.mark.slow
@pytest.mark.parametrize("inner", [False, True], ids=["test only", "with val"])
@pytest.mark.parametrize("logits", [False, True], ids=["prob", "logits"])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("name", TABLES)
def test_extremes_of_tables_have_a_number_or_a_reason(name, case, logits, inner, make_table):
    label, prob = CASES[case]
    groups, folds = GROUPS[: len(label)], [0, 0, 0, 0, 1, 1, 1, 1][: len(label)]
    if case in ("perfect", "inverted"):  # so that each fold has both classes
        folds, groups = [0, 0, 1, 1, 0, 0, 1, 1], list("aabbccdd")
    names = [TWO[k] for k in label]
    table = make_table(names, both(prob), TWO, folds=folds, groups=groups)
    if inner:
        val = make_table(names, both(prob), TWO, folds=folds, groups=["v" + g for g in groups], part="val")
        table = type(table)({c: [*table[c], *val[c]] for c in table})
    if logits:
        both_scores = scores(table["prob_malignant"])
        table["logit_benign"], table["logit_malignant"] = both_scores.T
    assert stands_up(TABLES[name](table))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -0.1, 1.1])
@pytest.mark.parametrize("name", ["reliability", "brier", "decision curve", "top label"])
def test_a_probability_that_is_none_is_refused_by_its_index(name, bad):
    prob = [0.2, 0.4, bad, 0.6]
    with pytest.raises(ValueError, match="index 2"):
        BINARY[name]([0, 1, 0, 1], prob, GROUPS[:4])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_score_that_is_not_finite_is_refused_by_its_index(bad):
    score = [0.2, bad, 0.3, 0.6]
    for call in (
        lambda: choose_threshold([0, 1, 0, 1], score, RULES[0]),
        lambda: calibration_line([0, 1, 0, 1], score),
        lambda: fit_temperature([0, 1, 0, 1], np.column_stack([score, score])),
        lambda: fit_platt([0, 1, 0, 1], np.column_stack([np.zeros(4), score]), 1),
    ):
        with pytest.raises(ValueError, match="index 1"):
            call()


@pytest.mark.parametrize("bad", [2, -1])
@pytest.mark.parametrize("name", BINARY)
def test_a_label_that_is_none_is_refused_by_its_index(name, bad):
    with pytest.raises(ValueError, match="index 3"):
        BINARY[name]([0, 1, 0, bad], [0.2, 0.4, 0.3, 0.6], GROUPS[:4])


@pytest.mark.parametrize("name", BINARY)
def test_no_images_and_unequal_lengths_are_refused(name):
    with pytest.raises(ValueError):
        BINARY[name]([], [], [])
    with pytest.raises(ValueError):
        BINARY[name]([0, 1, 1], [0.2, 0.4], GROUPS[:2])


@pytest.mark.parametrize("name", TABLES)
@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("prob_malignant", np.nan, "'prob_malignant' is not finite"),
        ("label", "malign", "Unknown label 'malign'.*malignant"),
        ("part", "Test", "train, val or test"),
        ("group_id", None, "'group_id' is empty"),
    ],
)
def test_a_table_that_no_number_should_be_made_from_is_refused(name, column, value, message, make_table):
    table = make_table(["benign", "malignant", "malignant"], both([0.2, 0.8, 0.4]), TWO)
    table.loc[1, column] = value
    with pytest.raises(UsvitError, match=message):
        TABLES[name](table)
