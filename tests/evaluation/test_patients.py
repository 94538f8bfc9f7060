import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from tests.evaluation.conftest import make_study, with_inner_rows
from tests.evaluation.contents import summarise
from usvit.errors import UsvitError
from usvit.evaluation.cross_validation_headline import headline_section
from usvit.evaluation.metrics_sections import patient_section
from usvit.evaluation.patients import by_patient, patients_of_models
from usvit.evaluation.predictions import check_predictions
from usvit.metrics.bootstrap import FigureValues

TWO = ["benign", "malignant"]


@pytest.fixture
def table(make_table):
    #        patient: a    b    a    c    a
    return make_table(
        ["malignant", "benign", "malignant", "benign", "malignant"],
        [[0.8, 0.2], [0.7, 0.3], [0.1, 0.9], [0.5, 0.5], [0.6, 0.4]],
        TWO,
        groups=["a", "b", "a", "c", "a"],
    )


def test_the_mean_of_a_patients_images(table):
    found = by_patient(table, positive="malignant")
    assert found["group_id"].tolist() == ["a", "b", "c"]
    assert found["prob_malignant"].tolist() == pytest.approx([0.5, 0.3, 0.5])
    assert found["label"].tolist() == ["malignant", "benign", "benign"]
    assert found["n_images"].tolist() == [3, 1, 1]


def test_the_most_suspicious_image_of_a_patient(table):
    found = by_patient(table, how="max", positive="malignant")
    assert found["prob_malignant"].tolist() == [0.9, 0.3, 0.5]
    assert found["prob_benign"].tolist() == [0.1, 0.7, 0.5]
    assert by_patient(table, how="max", positive="benign")["prob_benign"].tolist() == [0.8, 0.7, 0.5]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["mean", "max"])
def test_the_result_is_a_predictions_table_that_the_metrics_take(table, how):
    found = by_patient(table, how=how, positive="malignant")
    check_predictions(found, "patients")
    summary = summarise(found, classes=TWO, positive="malignant")
    assert (summary["n_images"], summary["n_groups"]) == (3, 3)


def test_one_image_a_patient_changes_no_number(make_table):
    table = make_table(["benign", "malignant"] * 5, np.linspace([0.05, 0.95], [0.9, 0.1], 10), TWO)
    for how in ("mean", "max"):
        found = by_patient(table.sample(frac=1, random_state=0), how=how, positive="malignant")
        assert found["prob_malignant"].tolist() == table["prob_malignant"].tolist()


def test_a_patient_with_two_labels_is_refused_unless_an_order_is_given(table):
    table.loc[0, "label"] = "benign"
    with pytest.raises(UsvitError, match=r"'a' has images labelled benign, malignant\. Say which label"):
        by_patient(table, positive="malignant")
    found = by_patient(table, positive="malignant", precedence=["malignant", "benign"])
    assert found["label"].tolist() == ["malignant", "benign", "benign"]
    found = by_patient(table, positive="malignant", precedence=["benign", "malignant"])
    assert found["label"].tolist() == ["benign", "benign", "benign"]
    with pytest.raises(UsvitError, match="the order malignant does not list them all"):
        by_patient(table, positive="malignant", precedence=["malignant"])


def test_images_of_one_patient_tested_by_different_models_are_refused(table):
    table["fold"] = [0, 0, 1, 1, 1]
    with pytest.raises(UsvitError, match=r"Images of 'a' were tested in folds 0, 1"):
        by_patient(table, positive="malignant")


def test_patient_ids_count_within_their_data_set_and_must_all_be_there(table):
    table["patient_id"] = ["1", "1", "1", "2", "1"]
    table["dataset"] = ["x", "y", "x", "x", "x"]
    found = by_patient(table, positive="malignant", unit="patient_id")
    assert found[["dataset", "patient_id", "n_images"]].values.tolist() == [["x", "1", 3], ["x", "2", 1], ["y", "1", 1]]
    check_predictions(found, "patients")
    table.loc[3, "patient_id"] = None
    with pytest.raises(UsvitError, match=r"1 images have no patient_id \(first: 'image \(3\)'\)"):
        by_patient(table, positive="malignant", unit="patient_id")


def test_only_the_test_part_counts(table):
    other = table.assign(part="val", prob_malignant=1.0, prob_benign=0.0)
    both = by_patient(other.assign(image_id="v").iloc[[0]].merge(table, how="outer"), positive="malignant")
    assert both["prob_malignant"].tolist() == by_patient(table, positive="malignant")["prob_malignant"].tolist()
    with pytest.raises(UsvitError, match="no row of part test"):
        by_patient(other, positive="malignant")


def test_what_is_unknown_is_named(table):
    with pytest.raises(UsvitError, match=r"Unknown positive class 'malign'.*Nearest: malignant"):
        by_patient(table, positive="malign")
    with pytest.raises(UsvitError, match="Unknown rule for a patient's images 'maximum'"):
        by_patient(table, how="maximum", positive="malignant")


def test_a_study_of_a_hundred_patients_needs_the_rule_for_its_mixed_ones():
    study = make_study(0)
    with pytest.raises(UsvitError, match="has images labelled"):
        by_patient(study, positive="malignant")
    found = by_patient(study, positive="malignant", precedence=["malignant", "benign", "normal"])
    assert len(found) == 100
    any_malignant = study.assign(is_=study["label"] == "malignant").groupby("group_id")["is_"].any()
    assert ((found.set_index("group_id")["label"] == "malignant") == any_malignant).all()


ORDER = ["malignant", "benign", "normal"]


@pytest.mark.slow
def test_the_headline_by_patient_is_the_mean_of_the_folds_and_ignores_shifts_between_models():
    table = with_inner_rows(make_study(0).assign(patient_id=lambda t: t["group_id"]))
    found = patient_section(table, "malignant").content()
    patients = by_patient(table, positive="malignant", unit="patient_id", precedence=ORDER)
    areas = [roc_auc_score(own["label"] == "malignant", own["prob_malignant"]) for _, own in patients.groupby("fold")]
    headline = found["headline"]["mean"]
    assert headline["auc"]["value"] == pytest.approx(np.mean(areas))
    assert headline["training_share"]["n_pairs"] == 100 and "reason" not in headline["training_share"]
    assert found["n_mixed"] > 0 and found["label_order"] == ORDER
    # The scores of each model are shifted: the pooled figure changes, the headline does not.
    shifted = table.copy()
    power = np.exp(shifted["fold"].to_numpy() - 2.0)
    odds = shifted["prob_malignant"] / (1 - shifted["prob_malignant"]) * power
    rest = 1 - shifted["prob_malignant"]
    shifted["prob_malignant"] = odds / (1 + odds)
    for name in ("benign", "normal"):
        shifted[f"prob_{name}"] *= (1 - shifted["prob_malignant"]) / rest
    moved = patient_section(shifted, "malignant").content()
    assert moved["headline"]["max"]["auc"]["value"] == pytest.approx(found["headline"]["max"]["auc"]["value"])
    assert moved["max"]["auc"]["malignant_vs_rest"] != found["max"]["auc"]["malignant_vs_rest"]


def test_every_repeat_and_inner_row_is_aggregated_by_model_and_patient():
    study = make_study(0).assign(patient_id=lambda t: t["group_id"])
    second = study.assign(fold=study["fold"] + 5, repeat=1)
    table = pd.concat([study.assign(repeat=0), second], ignore_index=True)
    found = patients_of_models(table, how="mean", positive="malignant", precedence=ORDER)
    assert len(found) == 200 and found["repeat"].value_counts().to_dict() == {0: 100, 1: 100}
    assert headline_section(found, "malignant", FigureValues()).n_repeats == 2
    inner = with_inner_rows(study)
    parts = patients_of_models(inner, how="max", positive="malignant", precedence=ORDER)["part"].value_counts()
    assert parts.to_dict() == {"test": 100, "val": 100}
