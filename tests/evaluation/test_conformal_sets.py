"""Prediction sets of a cross-validation: who calibrates, who is tested, and what is counted."""

import numpy as np
import pandas as pd
import pytest

from usvit.evaluation.conformal_sets import conformal_section, judged_sets, sets_of
from usvit.evaluation.prediction_arrays import rows_of
from usvit.records import ConformalRecord


def folds(n_patients=160, n_folds=2, seed=0):
    """Two images a patient; half of the patients outside a fold's test are its inner validation patients."""
    rng, tables = np.random.default_rng(seed), []
    for fold in range(n_folds):
        patient = np.repeat(np.arange(n_patients), 2)
        test = patient % n_folds == fold
        told = test | (patient // n_folds % 2 == 0)
        ill = patient // (2 * n_folds) % 2 == 0
        prob = 1 / (1 + np.exp(-(2.0 * ill - 1 + rng.normal(size=n_patients)[patient] + rng.normal(size=len(patient)))))
        table = pd.DataFrame(
            {
                "image_id": [f"i{k}" for k in range(len(patient))],
                "group_id": [f"p{k}" for k in patient],
                "patient_id": None,
                "dataset": "x",
                "fold": fold,
                "part": np.where(test, "test", "val"),
                "label": np.where(ill, "malignant", "benign"),
                "prob_benign": 1 - prob,
                "prob_malignant": prob,
            }
        )
        tables.append(table[told])
    return pd.concat(tables, ignore_index=True)


def entry(table, alpha, guarantee):
    (found,) = [
        one for one in conformal_section(table, "malignant") if (one.alpha, one.guarantee) == (alpha, guarantee)
    ]
    ConformalRecord.model_validate(found)
    return found


def test_the_sets_of_a_fold_are_those_of_its_inner_validation_patients_by_hand():
    table = folds()
    found = entry(table, 0.1, "every image")
    assert found.source == "inner validation images of the same fold"
    covered = []
    for one in found.folds:
        own = table[table["fold"] == one.fold]
        inner, test = own[own["part"] == "val"], own[own["part"] == "test"]
        worst = inner[inner["label"] == "malignant"].groupby("group_id")["prob_malignant"].min().sort_values()
        best = inner[inner["label"] == "benign"].groupby("group_id")["prob_malignant"].max().sort_values()
        assert one.positive_from == worst.iloc[int(0.1 * (len(worst) + 1)) - 1]
        assert one.rest_up_to == best.iloc[-int(0.1 * (len(best) + 1))]
        assert (one.n_positive, one.n_rest) == (len(worst), len(best))
        ill = test[test["label"] == "malignant"]
        covered += (ill.groupby("group_id")["prob_malignant"].min() >= one.positive_from).tolist()
    of_class = {one.reference: one for one in found.sets}
    assert of_class["malignant"].coverage.value == pytest.approx(np.mean(covered))
    assert list(of_class) == ["malignant", "not malignant", "all"]
    for one in of_class.values():
        kinds = [getattr(one, name).value for name in ("one_class", "both_classes", "no_class")]
        assert sum(kinds) == pytest.approx(1) and one.mean_size == pytest.approx(kinds[0] + 2 * kinds[1])


def test_no_label_of_a_test_image_changes_a_bound():
    table = folds()
    test = table["part"] == "test"
    other = table.assign(label=table["label"].where(~test, "benign"))
    other.loc[np.flatnonzero(test)[0], "label"] = "malignant"
    for alpha in (0.1, 0.05):
        a, b = (entry(one, alpha, "one image").folds for one in (table, other))
        assert a == b


def test_too_few_patients_give_no_sets_and_the_reason():
    found = entry(folds(n_patients=20), 0.05, "every image")
    assert found.sets == [] and "alpha = 0.05 needs 19" in found.reason and "fold 0" in found.reason
    assert found.folds[0].positive_from is None


def test_a_split_that_leaks_gives_no_sets():
    table = folds()
    table["group_id"] = "p0"
    found = entry(table, 0.1, "every image")
    assert found.sets == [] and "test images" in found.reason


def test_without_inner_validation_images_the_other_folds_calibrate():
    table = folds()
    found = entry(table[table["part"] == "test"], 0.1, "every image")
    assert found.source == "test images of the other folds" and found.sets


def test_an_image_between_the_bounds_has_both_classes_or_none(make_table):
    assert sets_of(np.array([0.1, 0.5, 0.9]), 0.3, 0.7).tolist() == [[False, True], [True, True], [True, False]]
    assert sets_of(np.array([0.1, 0.5, 0.9]), 0.7, 0.3).tolist() == [[False, True], [False, False], [True, False]]
    table = make_table(["malignant", "benign"], [[0.5, 0.5], [0.9, 0.1]], ["benign", "malignant"])
    rows = rows_of(table, "test")
    sets = sets_of(rows.prob[:, 1], 0.7, 0.3)
    of_class = {one.reference: one for one in judged_sets(sets, rows, "malignant", "every image")}
    assert of_class["malignant"].coverage.value == 0 and of_class["malignant"].no_class.value == 1
    assert of_class["malignant"].one_class_right.value is None
    assert of_class["all"].coverage.value == 0.5
