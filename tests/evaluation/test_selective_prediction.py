"""Deferral and rule-out of a cross-validation, counted again by hand."""

import numpy as np
import pytest

from tests.evaluation.test_conformal_sets import folds
from usvit.evaluation.selective_prediction import selective_section
from usvit.metrics.basic import decide


@pytest.fixture(scope="module")
def table():
    return folds(n_patients=80)


@pytest.fixture(scope="module")
def section(table):
    return selective_section(table, "malignant")


def test_the_images_of_low_confidence_are_deferred_by_the_cut_of_their_fold(table, section):
    for point in section.deferral:
        n = deferred = wrong = 0
        for _, own in table.groupby("fold"):
            high = own[["prob_benign", "prob_malignant"]].max(axis=1)
            cut = np.quantile(high[own["part"] == "val"], point.target)
            test = own["part"] == "test"
            kept = test & (high >= cut)
            called = np.where(own["prob_malignant"] > 0.5, "malignant", "benign")
            n, deferred = n + test.sum(), deferred + (test & ~kept).sum()
            wrong += (kept & (called != own["label"])).sum()
        assert point.deferred.value == pytest.approx(deferred / n)
        assert point.error.value == pytest.approx(wrong / (n - deferred))


def test_a_patient_is_ruled_out_if_all_images_are_below_the_cut(table, section):
    for point in section.rule_out:
        missed = spared = n = ill = 0
        for _, own in table.groupby("fold"):
            patients = own.groupby(["part", "group_id"]).agg(score=("prob_malignant", "max"), label=("label", "first"))
            test, cut = patients.loc["test"], np.quantile(patients.loc["val", "score"], point.target)
            left = test["score"] < cut
            missed += (left & (test["label"] == "malignant")).sum()
            spared += (left & (test["label"] == "benign")).sum()
            n, ill = n + len(test), ill + (test["label"] == "malignant").sum()
        assert (point.n_missed, point.n_spared) == (missed, spared)
        assert point.not_read.value == pytest.approx((missed + spared) / n)
        assert point.sensitivity_lost.value == pytest.approx(missed / ill)
        assert point.false_omission.value == pytest.approx(missed / (missed + spared))
        assert point.spared_per_missed == (pytest.approx(spared / missed) if missed else None)


def test_the_error_of_all_images_is_the_end_of_the_curve(table, section):
    test = table[table["part"] == "test"]
    wrong = decide(test[["prob_benign", "prob_malignant"]].to_numpy()) != (test["label"] == "malignant")
    assert section.risk_coverage.error[-1] == pytest.approx(wrong.mean())


def test_one_fold_without_inner_validation_images_has_a_curve_and_no_cuts(table):
    alone = table[(table["part"] == "test") & (table["fold"] == 0)]
    found = selective_section(alone, "malignant")
    assert found.deferral == found.rule_out == [] and "inner validation" in found.reason
    assert len(found.risk_coverage.error) == 20
