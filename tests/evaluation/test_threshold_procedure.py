"""The interval of an operating point that includes the choice of its thresholds."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import norm

from usvit.evaluation.metrics_sections import operating_section
from usvit.evaluation.prediction_arrays import rows_of
from usvit.evaluation.threshold_procedure import draw_procedure, procedure_of, resampled_thresholds
from usvit.evaluation.thresholds import choosing_rows, operating_points
from usvit.metrics.proportions import clustered_share
from usvit.metrics.threshold_choice import RULES, Rule, choose_threshold

CHOSEN = [rule for rule in RULES if rule.kind != "fixed"]


@pytest.mark.slow
@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 9), st.integers(0, 3)), min_size=1, max_size=30),
    st.sampled_from([*CHOSEN, Rule("sensitivity", 1.0), Rule("specificity", 1.0)]),
)
def test_a_resample_s_threshold_is_that_of_its_images(images, rule):
    positive = np.array([one for one, _, _ in images])
    score = np.array([one / 10 for _, one, _ in images])
    counts = np.array([one for _, _, one in images])
    found = resampled_thresholds(positive, score, np.stack([counts, np.ones_like(counts)]), rule)
    for times, threshold in zip((counts, np.ones_like(counts)), found, strict=True):
        expected = (
            choose_threshold(np.repeat(positive, times), np.repeat(score, times), rule).threshold
            if times.sum()
            else None
        )
        assert np.isnan(threshold) if expected is None else threshold == expected


def study(seed, n=300, n_folds=3, n_val=50, shift=2.0):
    """Test and inner validation rows of each fold; scores are normal, a positive image's higher by ``shift``."""
    rng = np.random.default_rng(seed)
    positive = rng.permutation(np.arange(n) < 0.3 * n)
    fold, tables = np.arange(n) % n_folds, []
    for k in range(n_folds):
        others = rng.permutation(np.flatnonzero(fold != k))[:n_val]
        for part, at in (("test", np.flatnonzero(fold == k)), ("val", others)):
            prob = expit(shift * positive[at] + rng.normal(size=len(at)))
            label = np.where(positive[at], "malignant", "benign")
            ids = [f"image {i}" for i in at]
            columns = {"image_id": ids, "group_id": ids, "patient_id": None, "dataset": "busi", "fold": k}
            columns |= {"part": part, "label": label, "prob_benign": 1 - prob, "prob_malignant": prob}
            tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def procedure(table, rule, n_resamples=200):
    test, chooser = rows_of(table, "test"), choosing_rows(table)[1]
    (point,) = operating_points(table, positive="malignant", rules=[rule])
    threshold = {one.fold: one.threshold for one in point.folds}
    called = test.prob[:, 1] >= np.array([threshold[fold] for fold in test.fold])
    drawn = draw_procedure(test, chooser, 1, [rule], n_resamples=n_resamples)[:, 0]
    return procedure_of(point.pooled, drawn, called, test.label == 1, test.group), called, test, drawn


@pytest.mark.slow
def test_resamples_are_those_of_a_literal_bootstrap():
    table, rule = study(0), Rule("sensitivity", 0.9)
    drawn = procedure(table, rule, n_resamples=20)[-1]
    names = np.array(sorted(set(table.group_id)))
    draws = np.random.default_rng(0).integers(0, len(names), (20, len(names)))
    for groups, found in zip(draws, drawn, strict=True):
        again = pd.DataFrame({"group_id": names[groups]}).merge(table, on="group_id")
        hits = {True: [], False: []}
        for _, own in again.groupby("fold"):
            val, tested = own[own.part == "val"], own[own.part == "test"]
            threshold = choose_threshold(val.label == "malignant", val.prob_malignant, rule).threshold
            for label, prob in zip(tested.label, tested.prob_malignant, strict=True):
                hits[label == "malignant"].append((prob >= threshold) == (label == "malignant"))
        np.testing.assert_allclose(found[:2], [np.mean(hits[True]), np.mean(hits[False])])


@pytest.mark.slow
def test_specificity_at_a_sensitivity_is_held_only_by_the_interval_of_the_procedure():
    truth = norm.cdf(norm.ppf(0.1) + 2.0)  # at a sensitivity of exactly 0.9
    held = np.zeros(2)
    for seed in range(30):
        whole, called, test, _ = procedure(study(seed), Rule("sensitivity", 0.9))
        negative = test.label == 0
        given_them = clustered_share(~called[negative], test.group[negative])["ci95"]
        for k, (low, high) in enumerate((whole.specificity["ci95"], given_them)):
            held[k] += low <= truth <= high
    assert held[1] / 30 < 0.8  # what was said before
    assert held[0] / 30 > 0.88


def test_the_section_holds_both_intervals_and_json_can_hold_it():
    section = operating_section(study(1), "malignant")
    json.dumps(section, allow_nan=False)
    for rule, one in zip(RULES, section, strict=True):
        if rule.kind == "fixed":
            assert one["procedure"] is None
            continue
        for name in ("sensitivity", "specificity", "ppv", "npv"):
            whole, given_them = one["procedure"][name], one["pooled"][name]
            assert whole["value"] == given_them["value"] and "through the choice" in whole["method"]
    other = "specificity"
    width = [np.ptp(one[other]["ci95"]) for one in (section[0]["procedure"], section[0]["pooled"])]
    assert width[0] > 1.5 * width[1]


def test_a_rule_that_often_finds_no_threshold_has_no_interval_but_a_reason():
    table = study(2, n=60, n_val=8, shift=0.0)
    rule = Rule("specificity", 0.95)
    test, chooser = rows_of(table, "test"), choosing_rows(table)[1]
    drawn = draw_procedure(test, chooser, 1, [rule], n_resamples=200)[:, 0]
    assert np.isnan(drawn).any(axis=1).mean() > 0.2
    fixed = operating_points(table, positive="malignant", rules=[Rule("fixed", 0.5)])[0].pooled
    called = test.prob[:, 1] >= 0.5
    whole = procedure_of(fixed, drawn, called, test.label == 1, test.group)
    assert whole.sensitivity["ci95"] is None and "200 resamples" in whole.sensitivity["reason"]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
def test_the_order_of_rows_changes_no_interval(seed):
    table = study(seed)
    mixed = table.sample(frac=1, random_state=seed)
    rule = Rule("youden")
    assert procedure(table, rule)[0] == procedure(mixed, rule)[0]
