import json

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from tests.evaluation.conftest import CLASSES, make_study, with_inner_rows
from tests.evaluation.contents import summarise
from usvit.config.evaluation import UnitSettings
from usvit.errors import UsvitError
from usvit.evaluation.cross_validation_headline import headline_section
from usvit.evaluation.metrics_sections import patient_section
from usvit.evaluation.predictions import check_predictions
from usvit.evaluation.units import calibrated_units, refuse_missing_units, units_of
from usvit.metrics.bootstrap import FigureValues
from usvit.metrics.threshold_choice import RULES, choose_threshold
from usvit.models import pooled_views

TWO = ["benign", "malignant"]
PATIENTS = UnitSettings(unit="patient")


@pytest.fixture
def table(make_table):
    #        patient: a    b    a    c    a
    made = make_table(
        ["malignant", "benign", "malignant", "benign", "malignant"],
        [[0.8, 0.2], [0.7, 0.3], [0.1, 0.9], [0.5, 0.5], [0.6, 0.4]],
        TWO,
        groups=["a", "b", "a", "c", "a"],
    )
    return made.assign(patient_id=made["group_id"])


def pooled(table, pooling="mean", positive="malignant", **settings):
    found, _ = units_of(table, UnitSettings(unit="patient", pooling=pooling, **settings), positive)
    check_predictions(found, "units")
    return found


def with_patients():
    return with_inner_rows(make_study(0).assign(patient_id=lambda one: one["group_id"]))


@pytest.mark.parametrize(
    ("pooling", "expected"),
    [
        ("mean", [0.5, 0.3, 0.5]),
        ("max", [0.9, 0.3, 0.5]),
        ("top-2", [0.65, 0.3, 0.5]),
        ("top-9", [0.5, 0.3, 0.5]),
        ("noisy-or", [1 - 0.8 * 0.1 * 0.6, 0.3, 0.5]),
    ],
)
def test_each_rule_gives_one_probability_a_patient(table, pooling, expected):
    found = pooled(table, pooling)
    assert found["image_id"].tolist() == ["a", "b", "c"]
    assert found["prob_malignant"].tolist() == pytest.approx(expected)
    assert found["label"].tolist() == ["malignant", "benign", "benign"]
    assert found["n_images"].tolist() == [3, 1, 1]


def test_the_maximum_is_the_whole_row_of_an_image_and_noisy_or_divides_the_rest_as_the_images_do(make_table):
    prob = [[0.2, 0.5, 0.3], [0.6, 0.1, 0.3]]
    table = make_table(["malignant"] * 2, prob, CLASSES, groups=["a", "a"]).assign(patient_id="a")
    columns = [f"prob_{name}" for name in CLASSES]
    assert pooled(table, "max")[columns].values.tolist() == [prob[0]]
    rest = 0.5 * 0.9
    assert pooled(table, "noisy-or")[columns].values[0] == pytest.approx([rest * 0.8 / 1.4, 1 - rest, rest * 0.6 / 1.4])


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "max", "top-3", "noisy-or"])
def test_one_image_a_unit_gives_the_same_bytes_as_no_unit(pooling):
    study = make_study(0).assign(patient_id=lambda one: one["image_id"], group_id=lambda one: one["image_id"])
    study["prob_benign"] = study["prob_benign"].to_numpy()
    settings = UnitSettings(unit="patient", pooling=pooling)
    images = summarise(study, classes=CLASSES, positive="malignant")
    units = summarise(study, classes=CLASSES, positive="malignant", units=settings)
    assert units.pop("unit")["images_per_unit"] == {"least": 1, "median": 1, "most": 1}
    assert json.dumps(units) == json.dumps(images)


@pytest.mark.slow
def test_every_section_is_that_of_a_table_of_units_and_thresholds_are_chosen_on_units():
    table = with_patients()
    found = summarise(table, classes=CLASSES, positive="malignant", units=PATIENTS)
    units, record = units_of(table, PATIENTS, "malignant")
    direct = summarise(units, classes=CLASSES, positive="malignant")
    same = set(found) - {"unit", "patients", "warnings"}
    assert same > {"headline", "operating_points", "calibration", "decision_curve", "conformal", "selective"}
    assert {name for name in same if found[name] != direct[name]} == set()
    assert found["n_images"] == record.n_units == 100 and found["unit"]["n_images"] == 200
    inner = units[(units["part"] == "val") & (units["fold"] == 0)]
    rule = next(one for one in RULES if one.kind == "sensitivity")
    oracle = choose_threshold((inner["label"] == "malignant").to_numpy(), inner["prob_malignant"].to_numpy(), rule)
    point = next(one for one in found["operating_points"] if one["rule"] == rule.name)
    assert point["folds"][0]["threshold"] == oracle.threshold
    assert found["patients"]["n_images"] == 200  # beside it, from the images
    assert found["headline"]["auc"] == found["patients"]["headline"]["mean"]["auc"]


def test_the_label_rules(table):
    table.loc[0, "label"] = "benign"
    assert pooled(table)["label"].tolist() == ["malignant", "benign", "benign"]
    _, record = units_of(table, PATIENTS, "malignant")
    assert record.n_mixed == 1 and record.label_order == ["malignant", "benign"]
    assert pooled(table, positive="benign")["label"].tolist() == ["benign"] * 3
    with pytest.raises(UsvitError, match=r"Some patients have images of several labels \(benign, malignant\)"):
        pooled(table, unit_labels="refuse")
    with pytest.raises(UsvitError, match="needs the column lesion_id"):
        pooled(table, unit_labels="lesion")
    lesions = table.assign(lesion_id=["1", None, "2", None, "2"])
    assert pooled(lesions, unit_labels="lesion")["label"].tolist() == ["malignant", "benign", "benign"]
    with pytest.raises(UsvitError, match="1 lesion of 1 have images of several labels"):
        pooled(table.assign(lesion_id=["1", None, "1", None, "1"]), unit_labels="lesion")


def test_the_units_and_the_columns_that_identify_them(table):
    table = table.assign(
        lesion_id=["1", "2", "3", "4", "3"],
        side=["left", "left", "right", "left", "right"],
        exam_id=["x", "y", "x", "z", "x"],
        device=["A", "A", "B", "A", "B"],
    )
    names = {}
    for unit in ("lesion", "breast", "exam", "patient"):
        found, record = units_of(table, UnitSettings(unit=unit), "malignant")
        names[unit] = found["image_id"].tolist()
        assert record.n_units == len(found) and record.n_images == 5
    assert names == {
        "lesion": ["1", "2", "3", "4"],
        "breast": ["a/left", "b/left", "a/right", "c/left"],
        "exam": ["x", "y", "z"],
        "patient": ["a", "b", "c"],
    }
    assert found["device"].tolist() == [None, "A", "A"]  # a value that the images of the unit do not share


def test_what_contradicts_or_is_missing_is_one_clear_paragraph(table):
    with pytest.raises(UsvitError, match="no figures of the unit exam: the predictions have no column exam_id"):
        units_of(table, UnitSettings(unit="exam"), "malignant")
    with pytest.raises(UsvitError, match="no test image has lesion_id"):
        units_of(table.assign(lesion_id=None), UnitSettings(unit="lesion"), "malignant")
    with pytest.raises(UsvitError, match="belong to one lesion but have two patients"):
        units_of(table.assign(lesion_id="1"), UnitSettings(unit="lesion"), "malignant")
    sides = table.assign(lesion_id=["1", "2", "1", "3", "1"], side=["left", "left", "right", "left", "right"])
    with pytest.raises(UsvitError, match="belong to one lesion but have two sides"):
        units_of(sides, UnitSettings(unit="lesion"), "malignant")
    with pytest.raises(UsvitError, match=r"images of 1 patient were tested in several folds \(of the first: 0, 1\)"):
        pooled(table.assign(fold=[0, 0, 1, 1, 1]))
    with pytest.raises(UsvitError, match=r"Unknown positive class 'malign'.*Nearest: malignant"):
        pooled(table, positive="malign")
    with pytest.raises(UsvitError, match="no column side"):
        refuse_missing_units(table.drop(columns="fold"), UnitSettings(unit="breast"), TWO, "malignant")
    refuse_missing_units(table, UnitSettings(), TWO, "malignant")


def test_images_without_ids_are_left_out_and_counted(table):
    table.loc[[1, 3], "patient_id"] = [None, ""]
    found, record = units_of(table, PATIENTS, "malignant")
    assert len(found) == 1 and (record.n_images, record.n_images_left_out) == (3, 2)
    assert record.reason == "2 images without patient_id"


def test_ids_count_within_their_data_set_and_groups_that_share_a_unit_are_one(table):
    table["patient_id"] = ["1", "1", "1", "2", "1"]
    table["dataset"] = ["x", "y", "x", "x", "x"]
    found = pooled(table)
    assert found[["dataset", "patient_id", "n_images"]].values.tolist() == [["x", "1", 3], ["y", "1", 1], ["x", "2", 1]]
    found = pooled(table.assign(group_id=["p", "q", "r", "r", "p"]))
    assert (found["group_id"] == found["group_id"][0]).tolist() == [True, False, True]


@pytest.mark.slow
@pytest.mark.parametrize("which", [[0, 2, 4], [1, 3], [0]])
def test_one_class_and_one_unit_give_reasons_instead_of_figures(table, which):
    found = summarise(table.iloc[which], classes=TWO, positive="malignant", units=PATIENTS)
    assert found["headline"]["auc"]["value"] is None and found["headline"]["auc"]["reason"]
    assert found["unit"]["n_units"] == found["n_images"] == len(set(table["patient_id"].iloc[which]))


def test_every_repeat_and_inner_row_is_aggregated_by_model_and_patient():
    study = make_study(0).assign(patient_id=lambda one: one["group_id"])
    second = study.assign(fold=study["fold"] + 5, repeat=1)
    found = pooled(pd.concat([study.assign(repeat=0), second], ignore_index=True))
    assert len(found) == 200 and found["repeat"].value_counts().to_dict() == {0: 100, 1: 100}
    assert headline_section(found, "malignant", FigureValues()).n_repeats == 2
    assert pooled(with_patients(), "max")["part"].value_counts().to_dict() == {"test": 100, "val": 100}


def test_calibrated_units_pool_the_probabilities_after_the_temperature(table):
    found, record = calibrated_units(table.assign(part="val"), PATIENTS, "malignant", 2.0)
    odds = np.sqrt(table["prob_malignant"] / (1 - table["prob_malignant"]))
    expected = (odds / (1 + odds)).groupby(table["patient_id"]).mean()
    assert found["prob_malignant"].tolist() == pytest.approx(expected.tolist())
    assert record.n_units == 3


@pytest.mark.slow
def test_the_headline_by_patient_is_the_mean_of_the_folds_and_ignores_shifts_between_models():
    table = with_patients()
    found = patient_section(table, "malignant").content()
    patients = pooled(table[table["part"] == "test"])
    areas = [roc_auc_score(own["label"] == "malignant", own["prob_malignant"]) for _, own in patients.groupby("fold")]
    headline = found["headline"]["mean"]
    assert headline["auc"]["value"] == pytest.approx(np.mean(areas))
    assert headline["training_share"]["n_pairs"] == 100 and "reason" not in headline["training_share"]
    assert found["n_mixed"] > 0 and found["label_order"] == ["malignant", "benign", "normal"]
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


def test_attention_pools_as_the_module_that_was_trained(table):
    generator = np.random.default_rng(0)
    logits, scores = generator.normal(size=(5, 2)), generator.normal(size=5)
    prob = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    columns = {"prob_benign": prob[:, 0], "prob_malignant": prob[:, 1], "view_score": scores}
    found = pooled(table.assign(**columns), "attention")
    units = torch.from_numpy(pd.factorize(table["patient_id"])[0])
    expected, _ = pooled_views(torch.from_numpy(logits), torch.from_numpy(scores), units)
    assert found["image_id"].tolist() == ["a", "b", "c"]
    assert found["prob_malignant"].tolist() == pytest.approx(expected.softmax(1)[:, 1].tolist(), abs=1e-6)
    one = table["patient_id"].ne("a").to_numpy()
    assert found["prob_malignant"].tolist()[1:] == prob[one, 1].tolist()


def test_attention_needs_the_scores_of_the_views(table):
    with pytest.raises(UsvitError, match=r"no column view_score.*loss\.attention=trained"):
        pooled(table, "attention")
