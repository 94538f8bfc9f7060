import numpy as np
import pytest

from tests.evaluation.conftest import make_study
from usvit.errors import UsvitError
from usvit.evaluation.metrics_record import summarise
from usvit.evaluation.patients import by_patient
from usvit.evaluation.predictions import check_predictions

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
