import json
import warnings
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss, roc_auc_score

from tests.metrics.conftest import CLASSES, make_study
from usvit.errors import UsvitError
from usvit.metrics.points import auc, decide, roc
from usvit.metrics.summary import summarise

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


def test_the_points_agree_with_scikit_learn(study):
    pooled = summarise(study, classes=CLASSES, positive="malignant")["pooled"]
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


def test_mean_and_sd_are_those_of_the_folds_own_values(study):
    summary = summarise(study, classes=CLASSES, positive="malignant")
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


def test_only_the_test_part_counts(study):
    others = study.assign(part="val", prob_benign=1.0, prob_malignant=0.0, prob_normal=0.0)
    both = pd.concat([study, others], ignore_index=True)
    assert summarise(both, classes=CLASSES, positive="malignant") == summarise(
        study, classes=CLASSES, positive="malignant"
    )


def test_logits_change_nothing(study):
    logits = study.filter(like="logit_").columns
    scrambled = study.assign(**dict.fromkeys(logits, 0.0))
    assert summarise(scrambled, classes=CLASSES, positive="malignant") == summarise(
        study, classes=CLASSES, positive="malignant"
    )


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 1000))
def test_the_order_of_the_rows_does_not_matter(seed):
    study = make_study(seed, n=60)
    shuffled = study.sample(frac=1, random_state=seed)
    one, other = (summarise(table, classes=CLASSES, positive="malignant") for table in (study, shuffled))
    for summary in (one, other):
        for points in (summary["pooled"], *summary["folds"]):
            points["log_loss"]["value"] = round(points["log_loss"]["value"], 12)
        summary["mean_sd"].pop("log_loss")  # a sum's last bit depends on its order
    assert one == other


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
