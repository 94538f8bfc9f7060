"""External testing: known answers, a frozen threshold, what was seen, what failed, and what is counted."""

import json

import jsonschema
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import confusion_matrix, roc_auc_score

from tests.conftest import REPOSITORY
from tests.scoring.make_scores import evaluated, make_scores
from usvit.config.evaluation import UnitSettings
from usvit.errors import LeakageError, UsvitError
from usvit.evaluation.units import units_of
from usvit.metrics.proportions import clustered_share
from usvit.reports import report
from usvit.scoring.calibration import group_sha256
from usvit.scoring.external.evaluation import evaluate_scores
from usvit.scoring.external.labels import LabelTable
from usvit.scoring.external.scored_set import read_scored_set

pytestmark = pytest.mark.slow

SCHEMA = json.loads((REPOSITORY / "docs/reference/metrics.schema.json").read_text())


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def truth(home):
    found = make_scores(home / "scores", key=home / "key", n_patients=40, frames=2)
    found.to_csv(home / "labels.csv", index=False)
    found.to_csv(home / "patients.csv", columns=["patient", "label"], index=False)
    return found


@pytest.fixture(scope="module")
def labels(home, truth):
    return LabelTable(home / "labels.csv", key=home / "key", join="item_id")


@pytest.fixture(scope="module")
def measured(home, labels):
    """(metrics, predictions) of the set as it is."""
    return evaluated(home / "scores", labels)


@pytest.fixture
def with_rows(home, tmp_path):
    """A set whose rows were changed, and its labels."""

    def make(change, **options):
        truth = make_scores(tmp_path / "scores", key=home / "key", change=change, **options)
        truth.to_csv(tmp_path / "labels.csv", index=False)
        return tmp_path / "scores", LabelTable(tmp_path / "labels.csv", join="item_id", key=home / "key")

    return make


def point(metrics, start="frozen"):
    return next(one for one in metrics["operating_points"] if one["rule"].startswith(start))


def test_figures_are_those_of_the_rows_and_the_frozen_threshold_is_judged_as_it_is(home, truth, measured):
    metrics, found = measured
    jsonschema.validate(metrics, SCHEMA, jsonschema.Draft202012Validator)
    rows = read_scored_set(home / "scores").rows
    y = rows["item_id"].map(truth.set_index("item_id")["label"]) == "malignant"
    assert (metrics["n_images"], metrics["n_groups"]) == (160, 40)
    assert metrics["pooled"]["auc"]["malignant_vs_rest"]["value"] == pytest.approx(
        roc_auc_score(y, rows.prob_malignant)
    )
    (tn, fp), (fn, tp) = confusion_matrix(y, rows.calibrated_malignant >= 0.4)
    frozen = point(metrics)["pooled"]
    assert [frozen[name] for name in ("true_positive", "false_positive", "true_negative", "false_negative")] == [
        tp, fp, tn, fn,
    ]  # fmt: skip
    for name, value in (("sensitivity", tp / (tp + fn)), ("specificity", tn / (tn + fp)), ("ppv", tp / (tp + fp))):
        assert frozen[name]["value"] == pytest.approx(value)
    want = clustered_share((rows.calibrated_malignant >= 0.4)[y], rows.group_id[y])
    assert frozen["sensitivity"]["ci95"] == list(want.ci95)
    assert point(metrics)["source"].startswith("sensitivity >= 0.9 on 100")
    assert [one["by"] for one in metrics["subgroups"]] == ["unusual"]
    assert set(found.table["patient_id"]) == set(rows["patient_id"])
    assert metrics["headline"]["explains"].startswith("An external test: the scored model, as it is")


def test_intervals_count_patients(measured):
    metrics, _ = measured
    assert metrics["pooled"]["auc"]["malignant_vs_rest"]["n_groups"] == 40
    assert point(metrics)["pooled"]["sensitivity"]["n_groups"] == 20
    assert point(metrics)["pooled"]["sensitivity"]["method"] == "clustered Wilson"


def test_what_failed_counts_and_its_worst_case_is_told(truth, measured):
    metrics, _ = measured
    failures = metrics["external"]["failures"]
    assert (failures["n_failed"], failures["codes"]) == (3, {"truncated": 3})
    assert failures["share"]["value"] == pytest.approx(3 / 163)
    frozen = point(metrics)["pooled"]
    lost = truth[truth.failed].label.value_counts()
    worst = failures["worst_case"][0]
    n_positive = frozen["true_positive"] + frozen["false_negative"]
    assert worst["sensitivity"]["value"] == pytest.approx(frozen["true_positive"] / (n_positive + lost["malignant"]))
    n_negative = frozen["true_negative"] + frozen["false_positive"]
    assert worst["specificity"]["value"] == pytest.approx(frozen["true_negative"] / (n_negative + lost["benign"]))


def test_labels_of_patients_cannot_tell_what_failed_and_that_is_said(home, truth):
    metrics, _ = evaluated(home / "scores", LabelTable(home / "patients.csv", key=home / "key"))
    assert metrics["n_images"] == 160
    assert metrics["external"]["joined_by"] == "patient_id"
    assert metrics["external"]["failures"]["n_failed"] is None
    assert metrics["external"]["counts"]["labelled_not_scored"] == 3
    assert "known by its item_id alone" in metrics["external"]["failures"]["reason"]


@pytest.mark.parametrize("how", ["mean", "max"])
def test_patients_are_rolled_up_as_usvit_evaluate_does(home, labels, measured, how):
    _, frames = measured
    metrics, found = evaluated(home / "scores", labels, unit="patient", pooling=how)
    jsonschema.validate(metrics, SCHEMA, jsonschema.Draft202012Validator)
    known = frames.table.assign(patient_id=frames.table["group_id"])
    oracle = units_of(known, UnitSettings(unit="patient", pooling=how), "malignant")[0].set_index("group_id")
    own = found.table.set_index("group_id").loc[oracle.index]
    assert len(own) == 40
    np.testing.assert_allclose(own["prob_malignant"], oracle["prob_malignant"], rtol=0, atol=1e-12)
    assert (own["label"] == oracle["label"]).all()
    assert (own["n_images"] == 4).all()


@pytest.mark.parametrize(("unit", "table"), [("file", "files"), ("exam", "studies"), ("patient", "patients")])
def test_what_is_judged_is_the_mean_that_the_tables_show(with_rows, unit, table):
    folder, labels = with_rows(lambda rows: rows.drop(rows.index[2::4]).drop(rows.index[3::8]), frames=2, n_patients=20)
    _, found = evaluate_scores(folder, labels, unit=unit)
    name = {"file": "item_id", "exam": "study_id"}.get(unit, "patient_id")
    shown = pd.read_csv(folder / f"{table}.csv").set_index(name)["mean_calibrated_malignant"]
    own = found.table.set_index("patient_id" if unit == "patient" else "image_id")["calibrated"]
    assert len(own) == len(shown)
    np.testing.assert_allclose(own, shown[own.index], rtol=0, atol=1e-8)


def test_files_count_their_frames_once(home, labels):
    metrics, _ = evaluated(home / "scores", labels, unit="file")
    assert (metrics["n_images"], metrics["n_groups"]) == (80, 40)
    assert metrics["external"]["failures"]["share"]["value"] == pytest.approx(3 / 83)


def test_a_patient_with_images_of_two_labels_is_positive_and_that_is_said(home, truth, tmp_path):
    mixed = truth.copy()
    mixed.loc[0, "label"] = "benign"  # of two images of a patient with a malignant one
    mixed.to_csv(tmp_path / "labels.csv", index=False)
    metrics, _ = evaluated(home / "scores", LabelTable(tmp_path / "labels.csv", join="item_id"), unit="patient")
    assert metrics["class_counts"] == {"benign": 20, "malignant": 20}
    assert any("1 of 40 patients have images of several labels" in one for one in metrics["warnings"])


def test_seen_images_are_refused_by_group_or_left_out_with_their_groups(with_rows):
    folder, labels = with_rows(lambda rows: rows.assign(seen=rows.index == 5))
    with pytest.raises(
        LeakageError, match=r"The model has seen images of 1 groups \(2 of 120 labelled images\)"
    ) as caught:
        evaluate_scores(folder, labels)
    scored = read_scored_set(folder)
    assert scored.rows["group_id"][5] in str(caught.value)
    metrics, found = evaluated(folder, labels, drop_seen=True)
    assert scored.rows["group_id"][5] not in set(found.table["group_id"])
    assert (metrics["n_images"], metrics["external"]["counts"]["seen_images_left_out"]) == (118, 2)


def test_a_seen_image_without_a_label_gives_its_patient_away(with_rows):
    folder, labels = with_rows(lambda rows: rows.assign(seen=rows.index == 5))
    table = pd.read_csv(labels.path)
    table.drop(index=5).to_csv(labels.path, index=False)
    with pytest.raises(LeakageError, match="1 of 119"):
        evaluate_scores(folder, labels)


def test_the_flow_of_images_and_labels_adds_up_to_the_test(with_rows):
    folder, labels = with_rows(lambda rows: rows.assign(seen=rows.index == 5))
    table = pd.read_csv(labels.path)
    rows = [table.drop(index=[20, 21]), table[:1], table[2:3].assign(**{"item_id": "0" * 16})]
    pd.concat(rows).to_csv(labels.path, index=False)
    metrics, found = evaluated(folder, labels, drop_seen=True)
    images, of_labels = (one["steps"] for one in metrics["external"]["flow"])
    counts, scored = metrics["external"]["counts"], read_scored_set(folder)
    lost = {step["what"]: step["n"] for step in images if step["left_out"]}
    assert images[0]["n"] == len(scored.rows) + len(scored.failures)
    assert images[-1]["n"] == images[0]["n"] - sum(lost.values()) == metrics["n_images"] == len(found.table)
    assert images[-1]["n_patients"] == found.table["patient_id"].nunique()
    unlabelled = scored.rows["item_id"].isin(table["item_id"][20:22]).sum()
    assert (lost["without a label"], lost["could not be scored"]) == (unlabelled, len(scored.failures))
    assert lost["in a group that the model or its calibration has seen"] == counts["seen_images_left_out"]
    lost = {step["what"]: step["n"] for step in of_labels if step["left_out"]}
    assert (of_labels[0]["n"], lost) == (counts["label_rows"], {"further rows of one id": 1, "match no scored file": 1})
    assert of_labels[-1]["n"] == counts["labels"] - counts["labelled_not_scored"]


def test_nothing_left_is_no_test(with_rows):
    folder, labels = with_rows(lambda rows: rows.assign(seen=True))
    with pytest.raises(LeakageError, match="Nothing would be left"):
        evaluate_scores(folder, labels, drop_seen=True)


def test_abstentions_are_counted_and_the_rest_is_judged_apart(with_rows):
    folder, labels = with_rows(None, abstain=True)
    metrics, _ = evaluated(folder, labels)
    rows = read_scored_set(folder).rows
    assert metrics["n_images"] == 120
    assert metrics["external"]["abstained"]["n_images"] == rows["unusual"].sum() > 0
    decided = metrics["external"]["abstained"]["decided_only"][0]["outcome"]
    assert decided["n_images"] == 120 - rows["unusual"].sum()


def test_a_model_without_a_threshold_has_no_frozen_point_and_says_why(with_rows):
    folder, labels = with_rows(lambda rows: rows.assign(threshold_origin="none: no positive image"), threshold=None)
    metrics, _ = evaluated(folder, labels)
    jsonschema.validate(metrics, SCHEMA, jsonschema.Draft202012Validator)
    assert point(metrics)["pooled"] is None
    assert point(metrics)["reason"] == "no positive image"


def test_three_classes_and_columns_of_both_tables_make_subgroups(with_rows):
    folder, labels = with_rows(None, classes=("normal", "benign", "malignant"))
    table = pd.read_csv(labels.path)
    table.assign(site=np.where(table.index % 4 < 2, "A", "B")).to_csv(labels.path, index=False)
    metrics, _ = evaluated(folder, labels, by={"site": None, "quality": [0.5]})
    jsonschema.validate(metrics, SCHEMA, jsonschema.Draft202012Validator)
    assert [one["by"] for one in metrics["subgroups"]] == ["unusual", "site", "quality"]
    assert metrics["confusion"]["labels"] == ["normal", "benign", "malignant"]
    with pytest.raises(UsvitError, match="Unknown column 'sit'"):
        evaluate_scores(folder, labels, by={"sit": None})
    for private in ("path", "patient"):
        with pytest.raises(UsvitError, match=r"column of original ids|column of ids"):
            evaluate_scores(folder, labels, by={private: None})


def test_what_is_written_names_no_one(home, labels, tmp_path):
    evaluate_scores(home / "scores", labels, out=tmp_path / "out")
    report(tmp_path / "out")
    files = sorted(path.name for path in (tmp_path / "out").iterdir() if path.suffix != ".xlsx")
    assert files == ["metrics.json", "predictions.csv", "report.html", "report.md", "run.json", "unmatched.csv"]
    text = "".join((tmp_path / "out" / name).read_text() for name in files)
    assert not [word for word in ("NAME", "HOSPITAL", "export", "1.2.3.") if word in text]
    (tmp_path / "out" / "notes.txt").write_text("mine")
    with pytest.raises(UsvitError, match="holds other files"):
        evaluate_scores(home / "scores", labels, out=tmp_path / "out")


def test_groups_are_remembered_without_their_names():
    assert group_sha256("patient:ab") != group_sha256("patient:ac")
    assert len(group_sha256("patient:ab")) == 64
