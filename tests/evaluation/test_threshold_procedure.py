"""The interval of an operating point that includes the choice of its thresholds."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from scipy.stats import norm

from tests.json_content import content_of
from usvit.evaluation.metrics_sections import operating_section
from usvit.evaluation.prediction_arrays import Rows, rows_of
from usvit.evaluation.threshold_procedure import (
    draw_procedure,
    procedure_from_folds,
    procedure_of,
    why_no_bootstrap,
)
from usvit.evaluation.thresholds import choosing_rows, operating_points
from usvit.metrics.proportions import clustered_share
from usvit.metrics.threshold_choice import RULES, Rule, choose_threshold, chosen_thresholds, outcome

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
    found = chosen_thresholds(positive, score, np.stack([counts, np.ones_like(counts)]), rule)
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
    return procedure_of(given_thresholds(test, called), drawn), called, test, drawn


def given_thresholds(test, called):
    return outcome(test.label == 1, called, test.group, interval=clustered_share)


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
        given_them = clustered_share(~called[negative], test.group[negative]).ci95
        for k, (low, high) in enumerate((whole.specificity.ci95, given_them)):
            held[k] += low <= truth <= high
    assert held[1] / 30 < 0.8  # what was said before
    assert held[0] / 30 > 0.88


def test_the_section_holds_both_intervals_and_json_can_hold_it():
    section = operating_section(study(1), "malignant")
    json.dumps(content_of(section), allow_nan=False)
    for rule, one in zip(RULES, section, strict=True):
        if rule.kind == "fixed":
            assert one.procedure is None
            continue
        for name in ("sensitivity", "specificity", "ppv", "npv"):
            whole, given_them = getattr(one.procedure, name), getattr(one.pooled, name)
            assert whole.value == given_them.value
            few = rule.name == "sensitivity >= 0.95"  # 15 positive inner validation images a fold
            assert ("variation between folds" if few else "through the choice") in whole.method
            assert whole.ci95[0] <= given_them.ci95[0] and given_them.ci95[1] <= whole.ci95[1]
    other = "specificity"
    width = [np.ptp(getattr(one, other).ci95) for one in (section[0].procedure, section[0].pooled)]
    assert width[0] > 1.5 * width[1]


def test_a_rule_that_often_finds_no_threshold_has_no_interval_but_a_reason():
    table = study(2, n=60, n_val=8, shift=0.0)
    rule = Rule("specificity", 0.95)
    test, chooser = rows_of(table, "test"), choosing_rows(table)[1]
    drawn = draw_procedure(test, chooser, 1, [rule], n_resamples=200)[:, 0]
    assert np.isnan(drawn).any(axis=1).mean() > 0.2
    whole = procedure_of(given_thresholds(test, test.prob[:, 1] >= 0.5), drawn)
    assert whole.sensitivity.ci95 is None and "200 resamples" in whole.sensitivity.reason


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4])
def test_the_order_of_rows_changes_no_interval(seed):
    table = study(seed)
    mixed = table.sample(frac=1, random_state=seed)
    rule = Rule("youden")
    assert procedure(table, rule)[0] == procedure(mixed, rule)[0]


def choosers(n_positive, n_negative, per_patient=1):
    """The images that choose the threshold of three folds."""
    label = np.repeat([1] * n_positive + [0] * n_negative, per_patient)
    patients = np.repeat(np.arange(n_positive + n_negative), per_patient)
    found = {}
    for fold in range(3):
        group = np.array([f"{fold}-{p}" for p in patients], object)
        prob = np.full((len(label), 2), 0.5)
        nothing = np.zeros(len(label), int)
        found[fold] = Rows(("benign", "malignant"), label, prob, prob, group, nothing + fold, nothing)
    return found


@pytest.mark.parametrize(
    ("rule", "n_positive", "n_negative", "per_patient", "there_is_a_bootstrap"),
    [
        (Rule("sensitivity", 0.9), 9, 100, 1, False),
        (Rule("sensitivity", 0.9), 10, 100, 1, True),
        (Rule("sensitivity", 0.95), 19, 100, 1, False),
        (Rule("sensitivity", 0.95), 20, 100, 1, True),
        (Rule("specificity", 0.9), 100, 9, 1, False),
        (Rule("specificity", 0.9), 9, 100, 1, True),
        (Rule("sensitivity", 0.9), 9, 100, 4, False),  # 36 images, but of 9 patients
        (Rule("sensitivity", 1.0), 500, 500, 1, False),
        (Rule("youden"), 5, 5, 1, True),
    ],
)
def test_a_threshold_that_is_an_extreme_score_of_a_few_patients_has_no_bootstrap(
    rule, n_positive, n_negative, per_patient, there_is_a_bootstrap
):
    why = why_no_bootstrap(rule, choosers(n_positive, n_negative, per_patient), 1)
    assert (why is None) == there_is_a_bootstrap
    if why and rule.target < 1:
        assert f"{'lowest' if rule.kind == 'sensitivity' else 'highest'} score of its" in why


def from_folds(table, rule):
    test, chooser = rows_of(table, "test"), choosing_rows(table)[1]
    (point,) = operating_points(table, positive="malignant", rules=[rule])
    threshold = {one.fold: one.threshold for one in point.folds}
    called = test.prob[:, 1] >= np.array([threshold[fold] for fold in test.fold])
    return procedure_from_folds(rule, "why", given_thresholds(test, called), test, called, chooser, 1), called, test


@pytest.mark.slow
def test_with_few_positives_the_interval_of_the_procedure_holds_where_a_bootstrap_fails():
    """About nine positive inner images a fold: the mean specificity of such thresholds, over many studies."""
    rule, held, of_bootstrap, means = Rule("sensitivity", 0.95), [], [], []
    for seed in range(24):
        table = study(seed, n=400, n_folds=5, n_val=30, shift=3.0)
        whole, called, test = from_folds(table, rule)
        means.append((~called)[test.label == 0].mean())
        held.append(whole.specificity.ci95)
        of_bootstrap.append(procedure(table, rule, n_resamples=40)[0].specificity.ci95)
    share = [np.mean([low <= np.mean(means) <= high for low, high in one]) for one in (held, of_bootstrap)]
    assert share[0] >= 0.9 and share[1] < 0.85


def test_one_fold_or_common_choosing_images_give_no_interval_but_the_reason():
    hold_out = study(1, n_folds=3)
    whole, *_ = from_folds(hold_out[hold_out.fold == 0], Rule("sensitivity", 0.95))
    assert whole.specificity.ci95 is None and "1 fold(s)" in whole.specificity.reason
    shared = study(1, n_folds=5)
    shared = shared[shared.part == "test"]  # the other folds choose: three quarters are common
    whole, *_ = from_folds(shared, Rule("sensitivity", 0.99))
    assert whole.specificity.ci95 is None and "75% of the groups in common" in whole.specificity.reason
