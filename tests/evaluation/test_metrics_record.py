import json
import warnings
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss, roc_auc_score

from tests.evaluation.conftest import CLASSES, make_study
from tests.evaluation.contents import summarise
from usvit.errors import UsvitError
from usvit.metrics.area_interval import effective_images, score_interval
from usvit.metrics.basic import auc, decide, roc

pytestmark = pytest.mark.slow

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/reference/metrics.schema.json").read_text())
TWO = ["benign", "malignant"]


def pairs_won(positive, score):
    """The AUC by its meaning: of all (positive, negative) pairs, the share that is ordered rightly."""
    won = [(p > q) + 0.5 * (p == q) for p in score[positive] for q in score[~positive]]
    return sum(won) / len(won)


def is_valid(summary):
    text = json.dumps(summary, allow_nan=False)
    jsonschema.validate(json.loads(text), SCHEMA, jsonschema.Draft202012Validator)
    return True


@pytest.fixture(autouse=True)
def _no_warning_is_left_to_the_user():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.fixture(scope="module")
def summary() -> dict[str, Any]:
    """The figures of ``study``, which tests only read."""
    return summarise(make_study(seed=0), classes=CLASSES, positive="malignant")


@pytest.fixture(scope="module")
def summary_with_val() -> dict[str, Any]:
    """The figures of ``study`` with inner validation images, which tests only read."""
    return summarise(with_val(make_study(seed=0)), classes=CLASSES, positive="malignant")


def test_the_schema_itself_is_valid():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 4)), min_size=2, max_size=30))
def test_auc_is_the_share_of_pairs_ordered_rightly_ties_counting_half(cases):
    positive = np.array([case[0] for case in cases])
    score = np.array([case[1] / 4 for case in cases])
    if positive.all() or not positive.any():
        assert auc(positive, score) is None
        assert roc(positive, score) is None
    else:
        assert auc(positive, score) == pytest.approx(pairs_won(positive, score), abs=1e-12)
        x, y = roc(positive, score)
        assert np.trapezoid(y, x) == pytest.approx(pairs_won(positive, score), abs=1e-12)


@pytest.mark.parametrize(
    ("p_malignant", "area", "accuracy"),
    [([0.1, 0.2, 0.8, 0.9], 1.0, 1.0), ([0.9, 0.8, 0.2, 0.1], 0.0, 0.0), ([0.5] * 4, 0.5, 0.5)],
    ids=["perfect", "inverted", "constant"],
)
def test_two_classes_share_one_auc(make_table, p_malignant, area, accuracy):
    labels = ["benign", "benign", "malignant", "malignant"]
    summary = summarise(make_table(labels, [[1 - p, p] for p in p_malignant], TWO), classes=TWO, positive="malignant")
    assert is_valid(summary)
    pooled = summary["pooled"]
    assert pooled["auc"]["malignant_vs_rest"]["value"] == area
    assert pooled["auc"]["benign_vs_rest"] == pooled["auc"]["malignant_vs_rest"]
    assert pooled["auc_macro_ovr"]["value"] == area
    assert pooled["accuracy"]["value"] == accuracy


def test_rounding_does_not_give_two_classes_two_aucs(make_table):
    # 1 - 1e-20 is 1 in float64: the two images tie for one class, not for the other.
    table = make_table(["malignant", "benign"], [[1e-20, 1.0], [1e-19, 1.0]], TWO)
    pooled = summarise(table, classes=TWO, positive="malignant")["pooled"]
    assert pooled["auc"]["benign_vs_rest"] == pooled["auc"]["malignant_vs_rest"]
    assert pooled["auc_macro_ovr"]["value"] == pooled["auc"]["malignant_vs_rest"]["value"]


def test_confusion_sensitivity_and_specificity_match_the_count_by_hand(make_table):
    #            decided: b    b    m    n    m    b    n    n
    prob = np.eye(3)[[0, 0, 1, 2, 1, 0, 2, 2]] * 0.7 + 0.1
    labels = ["benign", "benign", "benign", "benign", "malignant", "malignant", "normal", "normal"]
    summary = summarise(make_table(labels, prob, CLASSES), classes=CLASSES, positive="malignant")
    assert is_valid(summary)
    assert summary["confusion"] == {"labels": CLASSES, "counts": [[2, 1, 1], [1, 1, 0], [0, 0, 2]]}
    pooled = summary["pooled"]
    assert pooled["accuracy"]["value"] == 5 / 8
    assert {k: v["value"] for k, v in pooled["sensitivity"].items()} == {"benign": 0.5, "malignant": 0.5, "normal": 1}
    assert pooled["balanced_accuracy"]["value"] == pytest.approx(2 / 3)
    specificity = {k: v["value"] for k, v in pooled["specificity"].items()}
    assert specificity == {"benign": 3 / 4, "malignant": 5 / 6, "normal": 5 / 6}
    assert {k: v["n_groups"] for k, v in pooled["sensitivity"].items()} == {"benign": 4, "malignant": 2, "normal": 2}
    assert {k: v["n_groups"] for k, v in pooled["specificity"].items()} == {"benign": 4, "malignant": 6, "normal": 6}
    assert pooled["log_loss"]["value"] == pytest.approx(-(5 * np.log(0.8) + 3 * np.log(0.1)) / 8)


def test_the_points_agree_with_scikit_learn(study, summary):
    pooled = summary["pooled"]
    prob = study[[f"prob_{name}" for name in CLASSES]].to_numpy()
    label = study["label"].map(CLASSES.index).to_numpy()
    assert pooled["accuracy"]["value"] == pytest.approx(accuracy_score(label, prob.argmax(1)))
    assert pooled["balanced_accuracy"]["value"] == pytest.approx(balanced_accuracy_score(label, prob.argmax(1)))
    assert pooled["auc_macro_ovr"]["value"] == pytest.approx(roc_auc_score(label, prob, multi_class="ovr"))
    assert pooled["log_loss"]["value"] == pytest.approx(log_loss(label, prob))


def test_among_equal_probabilities_the_first_class_in_order_is_decided(make_table):
    assert decide(np.array([[0.4, 0.4, 0.2], [0.2, 0.4, 0.4]])).tolist() == [0, 1]
    table = make_table(["benign", "malignant"], [[0.5, 0.5]] * 2, TWO)
    assert summarise(table, classes=TWO, positive="malignant")["confusion"]["counts"] == [[1, 0], [1, 0]]
    assert summarise(table, classes=TWO[::-1], positive="malignant")["confusion"]["counts"] == [[1, 0], [1, 0]]


def test_an_absent_class_makes_its_numbers_null_with_a_reason_and_averages_too(make_table):
    table = make_table(["benign", "malignant"], [[0.8, 0.1, 0.1], [0.3, 0.6, 0.1]], CLASSES)
    summary = summarise(table, classes=CLASSES, positive="malignant")
    assert is_valid(summary)
    pooled = summary["pooled"]
    for one in (
        pooled["auc"]["normal_vs_rest"],
        pooled["sensitivity"]["normal"],
        pooled["auc_macro_ovr"],
        pooled["balanced_accuracy"],
    ):
        assert one["value"] is None
        assert one["reason"] == "no image of class 'normal'"
    assert pooled["specificity"]["normal"]["value"] == 1
    assert pooled["auc"]["malignant_vs_rest"]["value"] == 1
    assert summary["class_counts"] == {"benign": 1, "malignant": 1, "normal": 0}


def test_a_single_case_has_an_accuracy_and_little_else(make_table):
    summary = summarise(make_table(["malignant"], [[0.2, 0.8]], TWO), classes=TWO, positive="malignant")
    assert is_valid(summary)
    assert summary["pooled"]["accuracy"]["value"] == 1
    assert summary["pooled"]["sensitivity"]["malignant"]["value"] == 1
    assert summary["pooled"]["specificity"]["malignant"]["reason"] == "every image is of class 'malignant'"
    assert summary["pooled"]["auc"]["malignant_vs_rest"]["value"] is None


def test_a_certain_and_wrong_prediction_costs_a_finite_log_loss(make_table):
    summary = summarise(make_table(["malignant"], [[1.0, 0.0]], TWO), classes=TWO, positive="malignant")
    assert summary["pooled"]["log_loss"]["value"] == pytest.approx(-np.log(np.finfo(float).eps))
    assert is_valid(summary)


def test_mean_and_sd_are_those_of_the_folds_own_values(study, summary):
    assert is_valid(summary)
    own = [summarise(rows, classes=CLASSES, positive="malignant")["pooled"] for _, rows in study.groupby("fold")]
    areas = [one["auc"]["malignant_vs_rest"]["value"] for one in own]
    assert [one["auc"]["malignant_vs_rest"]["value"] for one in summary["folds"]] == areas
    mean_sd = summary["mean_sd"]["auc"]["malignant_vs_rest"]
    mean = sum(areas) / 5
    assert mean_sd["mean"] == pytest.approx(mean)
    assert mean_sd["sd"] == pytest.approx((sum((a - mean) ** 2 for a in areas) / 4) ** 0.5)
    assert (mean_sd["n_folds"], mean_sd["n_skipped"]) == (5, 0)
    assert summary["pooled"]["auc"]["malignant_vs_rest"]["value"] != pytest.approx(mean, abs=1e-9)


def test_one_fold_has_a_mean_and_no_sd(make_table):
    table = make_table(["benign", "malignant"], [[0.9, 0.1], [0.4, 0.6]], TWO)
    mean_sd = summarise(table, classes=TWO, positive="malignant")["mean_sd"]
    assert mean_sd["accuracy"] == {
        "mean": 1.0, "sd": None, "n_folds": 1, "n_skipped": 0, "reason": "an SD needs at least two folds"
    }  # fmt: skip


def test_folds_where_a_metric_is_undefined_are_skipped_and_counted(make_table):
    labels = ["benign", "malignant"] * 2 + ["benign"] * 2
    table = make_table(labels, [[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.7, 0.3]] + [[0.9, 0.1]] * 2, TWO,
                       folds=[0, 0, 1, 1, 2, 2])  # fmt: skip
    summary = summarise(table, classes=TWO, positive="malignant")
    assert is_valid(summary)
    mean_sd = summary["mean_sd"]["auc"]["malignant_vs_rest"]
    assert mean_sd == {"mean": 0.5, "sd": pytest.approx(0.5**0.5), "n_folds": 2, "n_skipped": 1}
    assert summary["mean_sd"]["accuracy"]["n_folds"] == 3


def test_groups_are_counted_once(make_table):
    table = make_table(["benign", "malignant", "malignant"], [[0.5, 0.5]] * 3, TWO, groups=["p1", "p2", "p2"])
    summary = summarise(table, classes=TWO, positive="malignant")
    assert (summary["n_images"], summary["n_groups"]) == (3, 2)
    assert summary["pooled"]["sensitivity"]["malignant"]["n_groups"] == 1


MEASURED = ("n_images", "pooled", "folds", "mean_sd", "confusion", "patients", "decision_curve", "subgroups")


def test_only_the_test_part_is_measured(study, summary):
    others = study.assign(part="val", prob_benign=1.0, prob_malignant=0.0, prob_normal=0.0)
    both = summarise(pd.concat([study, others], ignore_index=True), classes=CLASSES, positive="malignant")
    assert {key: both[key] for key in MEASURED} == {key: summary[key] for key in MEASURED}


def test_logits_change_nothing_but_how_the_odds_of_sure_networks_are_read(study, summary):
    logits = study.filter(like="logit_").columns
    other = summarise(study.drop(columns=logits), classes=CLASSES, positive="malignant")
    assert {key: summary[key] for key in MEASURED} == {key: other[key] for key in MEASURED}
    slope, same = (each["calibration"]["pooled"]["classes"]["malignant"]["slope"] for each in (summary, other))
    assert slope["value"] == pytest.approx(same["value"], rel=1e-6)


def leaves(value, path=()):
    """Every number, text and null of a nested answer, with its path."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, (*path, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, (*path, index))
    else:
        yield path, value


@pytest.mark.parametrize("seed", [0, 1])
def test_the_order_of_the_rows_does_not_matter(seed):
    study = with_val(make_study(seed, n=60))
    shuffled = study.sample(frac=1, random_state=seed)
    one, other = (dict(leaves(summarise(table, classes=CLASSES, positive="malignant"))) for table in (study, shuffled))
    assert one.keys() == other.keys()
    for path, value in one.items():  # a sum's last bit depends on its order
        expected = pytest.approx(value, rel=1e-9, abs=1e-9) if isinstance(value, float) else value
        assert other[path] == expected, path


def test_the_same_table_gives_the_same_bytes(study, summary):
    assert json.dumps(summarise(study, classes=CLASSES, positive="malignant")) == json.dumps(summary)


def with_val(study):
    """The same, with the next fold's images as each fold's inner validation images."""
    val = study.assign(part="val", fold=(study["fold"] - 1) % study["fold"].nunique())
    return pd.concat([study, val], ignore_index=True)


def test_pooled_aucs_carry_obuchowskis_interval_and_the_others_a_bootstraps(study, summary):
    pooled = summary["pooled"]
    positive, score = (study["label"] == "malignant").to_numpy(), study["prob_malignant"].to_numpy()
    area = pooled["auc"]["malignant_vs_rest"]
    # Obuchowski (1997), literally: what each patient's positives and negatives fare, summed by patient.
    up = {
        i: np.mean((score[i] > score[~positive]) + 0.5 * (score[i] == score[~positive])) for i in np.where(positive)[0]
    }
    down = {
        j: np.mean((score[positive] > score[j]) + 0.5 * (score[positive] == score[j])) for j in np.where(~positive)[0]
    }
    m, n, value = len(up), len(down), np.mean(list(up.values()))
    s10, s01, s11, groups = 0.0, 0.0, 0.0, study["group_id"].to_numpy()
    for one in set(groups):
        x = sum(up[i] - value for i in up if groups[i] == one)
        y = sum(down[j] - value for j in down if groups[j] == one)
        s10, s01, s11 = s10 + x * x, s01 + y * y, s11 + x * y
    i10, i01, i = (len(set(groups[list(which)])) for which in (up, down, range(200)))
    variance = s10 * i10 / (i10 - 1) / m**2 + s01 * i01 / (i01 - 1) / n**2 + 2 * s11 * i / (i - 1) / (m * n)
    # Few patients are misranked, so that the interval is the score's, with that variance.
    shares = s10 * i10 / (i10 - 1) / m**2, s01 * i01 / (i01 - 1) / n**2
    freedom = sum(shares) ** 2 / (shares[0] ** 2 / (i10 - 1) + shares[1] ** 2 / (i01 - 1))
    worth = effective_images(positive, score, np.unique(groups, return_inverse=True)[1])
    expected = score_interval(value, variance, n_positive=worth[0], n_negative=worth[1], freedom=freedom)
    assert area["ci95"] == pytest.approx(expected, abs=1e-6)
    assert area["method"].startswith("clustered (Obuchowski)")
    for one in (pooled["accuracy"], pooled["brier"], pooled["mcc"], pooled["average_precision"]["malignant"]):
        assert one["ci95"][0] < one["value"] < one["ci95"][1]
        assert one["method"].startswith(("cluster bootstrap", "clustered Wilson"))
    assert "warning" not in pooled["accuracy"]
    assert "50" in pooled["sensitivity"]["normal"]["warning"]  # fewer groups have a normal image


def test_folds_and_thresholds_by_fold_are_numbers_alone(summary_with_val):
    assert is_valid(summary_with_val)
    for fold in summary_with_val["folds"]:
        assert all(value is None for path, value in leaves(fold) if "ci95" in path)
    for rule in summary_with_val["operating_points"]:
        assert all(value is None for path, value in leaves(rule["folds"]) if "ci95" in path)
        assert rule["pooled"]["sensitivity"]["ci95"] is not None


def test_a_threshold_comes_from_inner_validation_images_and_never_from_the_test(study, summary, summary_with_val):
    table = with_val(study)
    assert {rule["source"] for rule in summary_with_val["operating_points"]} == {
        "inner validation images of the same fold", "none: fixed beforehand"
    }  # fmt: skip
    rule = summary_with_val["operating_points"][0]
    for fold in rule["folds"]:
        own = table[(table["fold"] == fold["fold"]) & (table["part"] == "val")]
        called = own.loc[own["label"] == "malignant", "prob_malignant"] >= fold["threshold"]
        assert called.mean() >= 0.9
        tested = table[(table["fold"] == fold["fold"]) & (table["part"] == "test") & (table["label"] == "malignant")]
        by_hand = (tested["prob_malignant"] >= fold["threshold"]).mean()
        assert fold["on_test"]["sensitivity"]["value"] == pytest.approx(by_hand)
    counts = [fold["on_test"]["true_positive"] for fold in rule["folds"]]
    assert rule["pooled"]["true_positive"] == sum(counts)

    assert summary["operating_points"][0]["source"] == "test images of the other folds"
    assert any("no inner validation images" in one for one in summary["warnings"])


def test_a_temperature_undoes_a_network_that_is_twice_too_sure(study):
    table = with_val(study)
    names = [f"logit_{name}" for name in CLASSES]
    doubled = 6 * table[names].to_numpy()
    power = np.exp(doubled - doubled.max(axis=1, keepdims=True))
    prob = power / power.sum(axis=1, keepdims=True)
    table = table.assign(**{name: doubled[:, k] for k, name in enumerate(names)})
    table = table.assign(**{f"prob_{name}": prob[:, k] for k, name in enumerate(CLASSES)})
    temperature = summarise(table, classes=CLASSES, positive="malignant")["calibration"]["recalibration"][0]
    assert temperature["method"] == "temperature"
    assert all(2.5 < fold["temperature"] < 8 for fold in temperature["folds"])
    assert temperature["after"]["log_loss"]["value"] < 0.8 * temperature["before"]["log_loss"]["value"]
    assert temperature["before"]["slope"]["value"] < 0.5 < temperature["after"]["slope"]["value"]


def test_without_inner_validation_images_there_is_no_temperature_and_it_says_so(summary):
    temperature, platt = summary["calibration"]["recalibration"]
    for one in (temperature, platt):
        assert one["after"] is None
        assert "no inner validation images" in one["reason"]


def test_a_split_by_image_has_no_thresholds_and_says_that_it_leaks(study):
    leaking = with_val(study.assign(fold=np.arange(200) % 5))
    summary = summarise(leaking, classes=CLASSES, positive="malignant")
    assert is_valid(summary)
    assert "is among both the images that choose" in summary["operating_points"][0]["reason"]
    assert summary["operating_points"][-1]["pooled"]["n_images"] == 200  # 0.5 was chosen by nobody
    assert summary["calibration"]["recalibration"][0]["after"] is None
    assert any("the split leaks" in one for one in summary["warnings"])
    assert summary["patients"]["n_patients"] is None
    assert "different models" in summary["patients"]["reason"]


def test_patients_are_measured_where_they_are_known(study, summary):
    patients = summary["patients"]
    known = study[study["patient_id"].notna()]
    assert patients["n_patients"] == known["patient_id"].nunique()
    assert patients["n_images"] + patients["n_images_without_id"] == 200
    by_hand = known.groupby("patient_id")["prob_malignant"].mean()
    truth = known.groupby("patient_id")["label"].agg(lambda labels: "malignant" in set(labels))
    area = roc_auc_score(truth, by_hand)
    assert patients["mean"]["auc"]["malignant_vs_rest"]["value"] == pytest.approx(area)
    assert patients["n_mixed"] == int((known.groupby("patient_id")["label"].nunique() > 1).sum())
    assert sum(patients["class_patients"].values()) == patients["n_patients"]

    none = summarise(study.assign(patient_id=None), classes=CLASSES, positive="malignant")
    assert none["patients"] == {"n_patients": None, "reason": "no image has a patient id"}
    assert any(one.startswith("No image has a patient id") for one in none["warnings"])


def test_subgroups_are_those_columns_that_divide_the_images(study, summary):
    beside = study[["dataset", "image_id"]].assign(
        device=["A", "B"] * 100, birads="4", lesion_size_mm=np.linspace(2, 40, 200)
    )
    divided = summarise(study, classes=CLASSES, positive="malignant", columns=beside)
    assert is_valid(divided)
    assert [one["by"] for one in divided["subgroups"]] == ["device", "lesion_size_mm"]
    device, size = (one["levels"] for one in divided["subgroups"])
    assert [level["level"] for level in device] == ["A", "B"]
    assert [level["level"] for level in size] == ["< 10", "10 to < 20", ">= 20"]
    half = study[beside["device"] == "A"]
    area = roc_auc_score(half["label"] == "malignant", half["prob_malignant"])
    figure = device[0]["figures"]["auc"]["malignant_vs_rest"]
    assert figure["value"] == pytest.approx(area)
    assert figure["ci95"][0] < area < figure["ci95"][1]
    assert summary["subgroups"] == []


def test_a_subgroup_that_was_asked_for_and_is_not_there_is_refused(study):
    with pytest.raises(UsvitError, match="Unknown column 'devise'"):
        summarise(study, classes=CLASSES, positive="malignant", by={"devise": None})


def test_few_groups_are_warned_of(make_table):
    table = make_table(["benign", "malignant"] * 10, [[0.6, 0.4], [0.3, 0.7]] * 10, TWO)
    warned = summarise(table, classes=TWO, positive="malignant")["warnings"]
    assert any("20 groups only" in one for one in warned)


def test_the_order_of_the_classes_is_the_callers(study, summary):
    turned = CLASSES[::-1]
    other = summarise(study, classes=turned, positive="malignant")
    assert other["confusion"]["labels"] == turned
    assert list(other["calibration"]["pooled"]["classes"]) == turned
    assert other["pooled"]["auc"]["malignant_vs_rest"] == summary["pooled"]["auc"]["malignant_vs_rest"]


def test_what_cannot_be_measured_is_refused(study):
    with pytest.raises(UsvitError, match="not finite"):
        summarise(study.assign(prob_benign=np.nan), classes=CLASSES, positive="malignant")
    with pytest.raises(UsvitError, match="Unknown label 'cyst'"):
        summarise(study.assign(label="cyst"), classes=CLASSES, positive="malignant")
    with pytest.raises(UsvitError, match=r"Unknown positive class 'malign'.*Nearest: malignant"):
        summarise(study, classes=CLASSES, positive="malign")
    with pytest.raises(UsvitError, match="expected benign, malignant"):
        summarise(study, classes=TWO, positive="malignant")
    with pytest.raises(UsvitError, match="no row of part test"):
        summarise(study.assign(part="val"), classes=CLASSES, positive="malignant")
    with pytest.raises(UsvitError, match="predicted twice"):
        summarise(pd.concat([study, study.iloc[[0]]]), classes=CLASSES, positive="malignant")
