"""``usvit recalibrate`` and ``usvit evaluate SCORES`` as a user meets them."""

import json

import jsonschema
import pandas as pd
import pytest

from tests.conftest import REPOSITORY
from tests.scoring.make_scores import make_scores

METRICS = json.loads((REPOSITORY / "docs/reference/metrics.schema.json").read_text())


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    truth = make_scores(folder / "scores", key=folder / "key", n_patients=40)
    truth.to_csv(folder / "labels.csv", index=False)
    at = truth.index % 8 < 4
    truth[at][["path", "label"]].to_csv(folder / "a.csv", index=False)
    truth[~at][["path", "label"]].to_csv(folder / "b.csv", index=False)
    return folder


@pytest.mark.slow
def test_from_scores_to_a_calibration_and_its_judgement(usvit, home, tmp_path):
    out = tmp_path / "calibration.json"
    answer = usvit("recalibrate", home / "scores", "--labels", home / "a.csv", "--key", home / "key", "--out", out)
    assert answer.code == 0, answer.err
    assert "With 10 malignant patients, sensitivity >= 0.9 is compatible with" in answer.out
    assert "Judge the calibration on other patients" in answer.out
    assert "For research use" in answer.out
    judged = usvit("evaluate", home / "scores", "--labels", home / "b.csv", "--key", home / "key", "--calibration", out)
    assert judged.code == 0, judged.err
    assert "Frozen: sensitivity ≥ 0.9" in judged.out
    refused = usvit(
        "evaluate", home / "scores", "--labels", home / "a.csv", "--key", home / "key", "--calibration", out
    )
    assert refused.code == 2
    assert "has seen images" in refused.err


@pytest.mark.slow
def test_an_external_test_prints_its_frozen_threshold_failures_and_files(usvit, home, tmp_path):
    answer = usvit(
        "evaluate", home / "scores", "--labels", home / "labels.csv", "--out", tmp_path / "out", "--unit", "patient"
    )
    assert answer.code == 0, answer.err
    assert "40 patients (80 images) in 40 groups" in answer.out
    for words in (
        "Frozen: threshold 0.4",
        "PPV",
        "does not choose thresholds",
        "Calibrated probability",
        "By unusual",
    ):
        assert words in answer.out
    assert (tmp_path / "out" / "unmatched.csv").is_file()
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    jsonschema.validate(metrics, METRICS, jsonschema.Draft202012Validator)
    again = usvit("evaluate", tmp_path / "out" / "predictions.csv", "--json")  # its own table, like any other
    assert json.loads(again.out)["pooled"] == metrics["pooled"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ((), "give the labels of its images with --labels"),
        (("--labels", "nowhere.csv"), "no label table"),
        (("--labels", "labels.csv", "--prob", "p"), "--prob cannot be used for a scored set"),
        (("--labels", "labels.csv", "--map", "x"), "pass WORD=CLASS"),
        (("--labels", "labels.csv", "--map", "x=benign", "--map", "x=malignant"), "'x' twice"),
        (("--labels", "labels.csv", "--unit", "nodule"), "Unknown unit 'nodule'"),
        (("--labels", "labels.csv", "--unit", "file", "--pooling", "median"), "it must be mean, max, noisy-or"),
        (("--labels", "labels.csv", "--unit", "patient", "--pooling", "attention"), "was scored without attention"),
        (("--labels", "labels.csv", "--calibration", "nowhere.json"), "usvit recalibrate writes such a file"),
        (("--labels", "labels.csv", "--by", "path"), "a column of original ids"),
        (("--unit", "patient"), "is a scored set: give the labels of its images with --labels"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said(usvit, home, monkeypatch, options, said):
    monkeypatch.chdir(home)
    answer = usvit("evaluate", home / "scores", *options)
    assert answer.code == 2
    assert said in answer.err
    assert "Traceback" not in answer.err


@pytest.mark.slow
def test_words_and_columns_of_the_clinic_are_understood(usvit, home, tmp_path):
    table = pd.read_csv(home / "labels.csv").rename(columns={"patient": "case", "label": "histology"})
    table = table.replace({"histology": {"malignant": "IDC", "benign": "FA"}})
    table[["case", "histology"]].to_excel(tmp_path / "clinic.xlsx", index=False)
    answer = usvit(
        *(
            "evaluate",
            home / "scores",
            "--labels",
            tmp_path / "clinic.xlsx",
            "--label",
            "histology",
            "--key",
            home / "key",
        ),
        *("--join", "original_patient_id=case", "--map", "IDC=malignant", "--map", "FA=", "--json"),
    )
    assert answer.code == 0, answer.err
    metrics = json.loads(answer.out)
    assert metrics["class_counts"] == {"benign": 0, "malignant": 40}
    assert metrics["external"]["counts"]["labels_left_out"] == 22  # 20 patients, and two whose file failed


def test_help_tells_both(usvit):
    for command in ("recalibrate", "evaluate"):
        answer = usvit(command, "--help")
        assert answer.code == 0
        assert "--labels" in answer.out


def test_fewer_patients_than_alpha_needs_are_one_paragraph_and_exit_2(usvit, home, tmp_path):
    out = tmp_path / "c.json"
    words = ("--labels", home / "a.csv", "--key", home / "key", "--out", out, "--alpha", 0.002)
    answer = usvit("recalibrate", home / "scores", *words)
    assert answer.code == 2 and answer.err.count("\n") == 1 and not out.exists()
    assert "alpha = 0.002 needs 499 of each" in answer.err
