"""Decisions of two models fold by fold, and which claims get a verdict."""

import numpy as np
import pandas as pd
import pytest

from tests.records.contents import content
from usvit.errors import UsvitError
from usvit.estimate import Difference
from usvit.evaluation.decision_comparison import (
    compare_accuracy,
    compare_decisions,
    correct_claims,
    decision_difference,
    judge_margin,
    primary_name,
)
from usvit.evaluation.decisions import MOST_PROBABLE, decided_by_repeat, decided_of
from usvit.evaluation.predictions import predictions_table
from usvit.metrics.margin_tests import StudentLimits, non_inferiority
from usvit.metrics.paired_tests import corrected_t, paired_difference
from usvit.records import Pair

CLASSES = ["benign", "malignant"]
SHARE_SEEN = 0.25


def tables(shifts, n=200, n_folds=5, repeats=1, seed=0):
    """Two models with the same scores; in fold k those of the second are shifted, as its threshold may be."""
    rng = np.random.default_rng(seed)
    positive = np.arange(n) % 10 < 4
    rows = pd.DataFrame(
        {
            "image_id": [f"{k:04d}" for k in range(n)],
            "group_id": [f"g{k}" for k in range(n)],
            "patient_id": [str(k) for k in range(n)],
            "dataset": "demo",
            "label": np.array(CLASSES)[positive.astype(int)],
        }
    )
    found = ([], [])
    for repeat in range(repeats):
        fold = rng.permutation(n) % n_folds
        for k in range(n_folds):
            at = np.flatnonzero(fold == k)
            score = 2.0 * positive[at] - 1 + rng.normal(size=len(at))
            for into, shift in zip(found, (0.0, shifts[k % len(shifts)]), strict=True):
                logits = np.column_stack([np.zeros(len(at)), score + shift])
                number = repeat * n_folds + k
                more = {"repeat": repeat} if repeats > 1 else {}
                table = predictions_table(rows.iloc[at], logits, classes=CLASSES, fold=number, part="test", **more)
                into.append(table)
    return [pd.concat(one, ignore_index=True) for one in found]


def decided(shifts, **given):
    return [decided_by_repeat(table, "malignant", CLASSES) for table in tables(shifts, **given)]


def test_a_shift_of_some_folds_is_evidence_for_mcnemar_and_not_for_the_folds():
    a, b = decided([1.5, 1.2, -0.3, 0.0, 0.1])
    up, group = a[0].reference, a[0].rows.group
    right = [run[0].called[MOST_PROBABLE][~up] for run in (a, b)]
    assert paired_difference(~right[0], ~right[1], group[~up], of="x").p < 0.001
    found = compare_decisions(a, b, SHARE_SEEN)[0]
    assert found.rule == MOST_PROBABLE and found.specificity.p > 0.1
    assert found.specificity.method == "Nadeau-Bengio corrected t"


def test_the_folds_of_all_repeats_count_and_one_without_a_positive_is_left_out():
    a, b = decided([0.4, -0.2, 0.3, 0.0, 0.1], repeats=3)
    differences = []
    for one, other in zip(a, b, strict=True):
        for k in np.unique(one.rows.fold):
            at = one.reference & (one.rows.fold == k)
            differences.append(one.called[MOST_PROBABLE][at].mean() - other.called[MOST_PROBABLE][at].mean())
    found = decision_difference(a, b, "sensitivity", MOST_PROBABLE, SHARE_SEEN)
    assert found.n_folds == 15 and found.p == pytest.approx(corrected_t(differences, SHARE_SEEN).p)

    one, other = (table[(table["fold"] > 0) | (table["label"] == "benign")] for table in tables([0.4, -0.2]))
    a, b = ([decided_of(table, "malignant", CLASSES)] for table in (one, other))
    found = decision_difference(a, b, "sensitivity", MOST_PROBABLE, SHARE_SEEN)
    assert found.n_folds == 4 and "undefined in 1 folds" in found.warning


def test_one_fold_takes_models_and_thresholds_as_given():
    a, b = decided([0.5], n_folds=1)
    found, rows = compare_accuracy(a, b, 1.0), a[0].rows
    right = [run[0].called[MOST_PROBABLE] == run[0].reference for run in (a, b)]
    assert found.content() == paired_difference(right[0], right[1], rows.group, of="images").content()


def judged(margin, *shifts):
    """Pairs as in compare.json, each with its claims of non-inferiority."""
    pairs = []
    for shift in shifts:
        a, b = decided(shift)
        changes = {
            "headline": Difference(value=0.0, ci95=(-0.02, 0.02), error=0.01, freedom=40.0),
            "decisions": compare_decisions(a, b, SHARE_SEEN),
            "accuracy": compare_accuracy(a, b, SHARE_SEEN),
        }
        pair = Pair.model_validate(content("compare")["pairs"][0]).model_copy(update=changes)
        claims = judge_margin(a, b, pair, margin, "noninferiority")
        pairs.append(pair.model_copy(update={"non_inferiority": claims}))
    return pairs


def test_margins_of_decisions_rest_on_the_interval_of_the_folds():
    (pair,) = judged(0.1, [0.3, 0.1, 0.2, -0.1, 0.3])
    value = pair.decisions[0].specificity
    expected = non_inferiority(StudentLimits.of(value), 0.1)
    assert pair.non_inferiority.decisions[0].specificity == expected
    assert expected.a_vs_b.bound == pytest.approx(max(value.ci95[0], -1.0))


def test_a_verdict_uses_the_corrected_p_of_the_declared_figure_alone():
    pairs = judged(0.1, [0.3, 0.1], [0.2, 0.1], [0.1, 0.0])
    for k, difference in enumerate((-0.0795, -0.0775, 0.0)):  # p 0.023, 0.015 and far below
        limits = StudentLimits(difference, 0.01, 40.0)
        claims = pairs[k].non_inferiority.model_copy(update={"auc": non_inferiority(limits, 0.1)})
        pairs[k] = pairs[k].model_copy(update={"non_inferiority": claims})
    corrected, name = correct_claims(pairs, "non_inferiority", "auc")
    assert name == "AUC"
    claims = [pair.non_inferiority.auc.a_vs_b for pair in corrected]
    assert [claim.p < 0.025 for claim in claims] == [True, True, True]
    assert [claim.verdict == "non-inferior" for claim in claims] == [claim.p_holm < 0.025 for claim in claims]
    assert claims[0].verdict == "not shown to be non-inferior" and "Holm" in claims[0].reason
    assert {pair.non_inferiority.accuracy.a_vs_b.verdict for pair in corrected} == {None}
    (alone,), _ = correct_claims(pairs[:1], "non_inferiority", "AUC")
    assert alone.non_inferiority.auc.a_vs_b.verdict == "non-inferior"


def test_the_primary_figure_is_named_as_the_tables_name_it():
    known = ["AUC", "accuracy", f"specificity, {MOST_PROBABLE}", "specificity, sensitivity >= 0.95"]
    assert primary_name("auc", known) == "AUC" and primary_name("Specificity", known) == known[2]
    assert primary_name("specificity, sensitivity >= 0.95", known) == known[3]
    with pytest.raises(UsvitError, match="Unknown primary figure 'kappa'"):
        primary_name("kappa", known)
