"""``usvit evaluate`` as a user meets it: tables of other tools, runs, and all that can be wrong with them."""

import json
import shutil
from pathlib import Path

import jsonschema
import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import brier_score_loss, roc_auc_score

from tests.conftest import REPOSITORY
from usvit.evaluation.subgroup_differences import FIGURES
from usvit.files import write_json

SCHEMA = json.loads((REPOSITORY / "docs/reference/metrics.schema.json").read_text())


@pytest.fixture
def other() -> pd.DataFrame:
    """What another tool might write: 0/1 labels, one score, patients with two images, folds counted from 1."""
    rng = np.random.default_rng(0)
    y = rng.permutation(np.repeat([0, 1], 60))
    return pd.DataFrame(
        {
            "file": [f"im{i}.png" for i in range(120)],
            "y": y,
            "score": np.clip(rng.normal(0.35 + 0.3 * y, 0.2), 0.01, 0.99),
            "who": np.arange(120) // 2,
            "k": np.arange(120) // 2 % 5 + 1,
            "mm": rng.uniform(3, 40, 120),
        }
    )


@pytest.fixture
def save(tmp_path):
    def write(table: pd.DataFrame, name: str = "other.csv") -> Path:
        path = tmp_path / name
        if name.endswith(".parquet"):
            table.to_parquet(path)
        else:
            table.to_csv(path, index=False, sep="\t" if name.endswith(".tsv") else ",")
        return path

    return write


COLUMNS = ("--label", "y", "--prob", "score", "--positive", "1", "--image", "file")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["other.csv", "other.tsv", "other.parquet"])
def test_another_tools_table_is_measured_from_its_own_columns(usvit, save, other, name):
    answer = usvit("evaluate", save(other, name), *COLUMNS, "--patient", "who", "--fold", "k", "--json")
    assert answer.code == 0, answer.err
    metrics = json.loads(answer.out)
    jsonschema.validate(metrics, SCHEMA, jsonschema.Draft202012Validator)
    assert (metrics["n_images"], metrics["n_groups"], metrics["patients"]["n_patients"]) == (120, 60, 60)
    assert metrics["pooled"]["auc"]["1_vs_rest"]["value"] == pytest.approx(roc_auc_score(other.y, other.score))
    assert metrics["pooled"]["brier"]["value"] == pytest.approx(brier_score_loss(other.y, other.score))
    assert [fold["fold"] for fold in metrics["folds"]] == [1, 2, 3, 4, 5]
    by_patient = other.groupby("who").agg(y=("y", "max"), score=("score", "mean"))
    area = metrics["patients"]["mean"]["auc"]["1_vs_rest"]["value"]
    assert area == pytest.approx(roc_auc_score(by_patient.y, by_patient.score))


@pytest.mark.slow
def test_without_groups_every_image_counts_alone_and_that_is_said(usvit, save, other):
    path = save(other)
    answer = usvit("evaluate", path, *COLUMNS)
    assert answer.code == 0
    assert "120 images in 120 groups" in answer.out
    assert "every image counts as its own patient" in answer.out
    assert answer.out.count("Warning:") == 1
    assert answer.out.count("No threshold for ") == 1  # once, not for every rule
    alone, grouped = (
        json.loads(usvit("evaluate", path, *COLUMNS, *more, "--json").out)["pooled"]["accuracy"]["method"]
        for more in ((), ("--group", "who"))
    )
    assert alone == "wilson"
    assert grouped == "clustered Wilson"


@pytest.mark.slow
def test_probabilities_are_named_class_by_class(usvit, save, other):
    table = other.assign(p0=1 - other.score, p1=other.score)
    answer = usvit(
        "evaluate", save(table), "--label", "y", "--prob", "1=p1", "--prob", "0=p0", "--positive", "1", "--json"
    )
    metrics = json.loads(answer.out)
    assert metrics["classes"] == ["1", "0"]  # in the order given
    assert metrics["pooled"]["auc"]["1_vs_rest"]["value"] == pytest.approx(roc_auc_score(other.y, other.score))


@pytest.mark.slow
def test_text_is_not_taken_for_something_else(usvit, save):
    table = pd.DataFrame({"label": ["NA", "01"] * 4, "prob_NA": [0.7, 0.4] * 4, "prob_01": [0.3, 0.6] * 4})
    metrics = json.loads(usvit("evaluate", save(table), "--positive", "NA", "--json").out)
    assert metrics["class_counts"] == {"NA": 4, "01": 4}


@pytest.mark.slow
def test_measured_columns_are_cut_and_printed(usvit, save, other):
    answer = usvit("evaluate", save(other), *COLUMNS, "--by", "mm=10,20")
    assert answer.code == 0
    assert "By mm" in answer.out
    assert all(level in answer.out for level in ("< 10", "10 to < 20", ">= 20"))


@pytest.mark.slow
def test_out_holds_the_figures_and_the_table_as_understood(usvit, save, other, tmp_path):
    out = tmp_path / "out"
    path = save(other)
    printed = usvit("evaluate", path, *COLUMNS, "--patient", "who", "--out", out, "--json").out
    assert json.loads(printed) == json.loads((out / "metrics.json").read_text())
    again = json.loads(usvit("evaluate", out / "predictions.csv", "--positive", "1", "--json").out)
    assert again["pooled"] == json.loads(printed)["pooled"]
    (out / "notes.txt").write_text("mine")
    refused = usvit("evaluate", path, *COLUMNS, "--out", out)
    assert refused.code == 2
    assert "holds other files" in refused.err


def broken(**cells):
    def change(table):
        for name, (row, value) in cells.items():
            table[name] = table[name].astype(object)
            table.loc[row, name] = value
        return table

    return change


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (lambda t: t, ("--prob", "score", "--positive", "1"), "no column 'label'. Name it with --label"),
        (lambda t: t, ("--label", "y"), "no columns prob_<class>"),
        (lambda t: t, ("--label", "y", "--prob", "scor", "--positive", "1"), "Unknown column 'scor'. Nearest: score"),
        (lambda t: t, ("--label", "y", "--prob", "score"), "name it with --positive, one of 0, 1"),
        (lambda t: t, ("--label", "y", "--prob", "score", "--positive", "2"), "Unknown positive class '2'"),
        (lambda t: t, (*COLUMNS, "--group", "hwo"), "Unknown column 'hwo'. Nearest: who"),
        (lambda t: t, (*COLUMNS, "--by", "colour"), "Unknown column 'colour'"),
        (lambda t: t, (*COLUMNS, "--by", "mm"), "give limits"),
        (lambda t: t, (*COLUMNS, "--by", "mm=ten"), "expected COLUMN, or COLUMN=10,20"),
        (lambda t: t, ("--label", "y", "--prob", "0=score", "--prob", "0=score"), "names the class '0' twice"),
        (lambda t: t, ("--label", "y", "--prob", "0=score", "--prob", "1=score", "--positive", "1"), "do not sum to 1"),
        (lambda t: t[t.k != 3], (*COLUMNS, "--fold", "k"), "missing folds: 3"),
        (lambda t: pd.concat([t, t.iloc[[4]]]), COLUMNS, "predicted twice in part test, in row 121, image 'im4.png'"),
        (broken(score=(7, np.nan)), COLUMNS, "'score' must hold finite numbers, in row 8, image 'im7.png'"),
        (broken(score=(7, "high")), COLUMNS, "'score' must hold finite numbers, in row 8"),
        (broken(score=(7, 1.5)), COLUMNS, "outside 0 to 1, in row 8"),
        (broken(y=(2, "")), COLUMNS, "column 'y' is empty, in row 3"),
        (broken(y=(2, "maybe")), COLUMNS, "describes two classes, but the labels"),
        (broken(k=(2, 1.5)), (*COLUMNS, "--fold", "k"), "whole numbers of folds"),
        (lambda t: t.iloc[:0], COLUMNS, "has no row"),
        (lambda t: t.assign(part="val"), COLUMNS, "no row of part test"),
        (lambda t: t, (*COLUMNS, "--metadata", "model.json"), "give --manifest, too"),
        (lambda t: t, (*COLUMNS, "--manifest", "nowhere.parquet"), "There is no manifest"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_table_is_named(usvit, save, other, change, options, said):
    answer = usvit("evaluate", save(change(other.copy())), *options)
    assert answer.code == 2
    assert said in answer.err
    assert "Traceback" not in answer.err


def test_an_unknown_label_is_named_with_the_nearest_class(usvit, save, other):
    table = other.assign(y=np.where(other.y == 1, "malignant", "benign"))
    table = table.assign(prob_benign=1 - other.score, prob_malignant=other.score)
    table.loc[5, "y"] = "malig"
    answer = usvit("evaluate", save(table), "--label", "y")
    assert answer.code == 2
    assert "Unknown label 'malig'. Nearest: malignant" in answer.err


def test_a_file_that_is_no_table_is_refused(usvit, tmp_path):
    (tmp_path / "x.parquet").write_text("no parquet")
    (tmp_path / "twice.csv").write_text("a,a\n1,2\n")
    (tmp_path / "empty.csv").write_text("")
    for name, said in (
        ("x.parquet", "Cannot read"),
        ("twice.csv", "two columns 'a'"),
        ("empty.csv", "Cannot read"),
        ("nowhere.csv", "There is no predictions table"),
        ("", "is not a run directory"),
    ):
        answer = usvit("evaluate", tmp_path / name)
        assert (answer.code, said in answer.err) == (2, True), answer.err


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """A run's folder as usvit leaves it, of three folds with inner validation rows, metadata and a manifest."""
    from tests.cli.runs import make_run

    return make_run(tmp_path_factory.mktemp("runs") / "first", seed=1)


@pytest.fixture
def own_run(run, tmp_path) -> Path:
    return Path(shutil.copytree(run, tmp_path / "run"))


@pytest.mark.slow
def test_a_run_is_measured_with_thresholds_of_its_inner_validation_rows(usvit, run):
    answer = usvit("evaluate", run, "--json")
    assert answer.code == 0, answer.err
    metrics = json.loads(answer.out)
    jsonschema.validate(metrics, SCHEMA, jsonschema.Draft202012Validator)
    assert metrics["operating_points"][0]["source"] == "inner validation images of the same fold"
    assert [one["by"] for one in metrics["subgroups"]] == ["device"]  # from the run's own manifest
    printed = usvit("evaluate", run).out
    assert printed.count("pooled, procedure") > 2 and "target missed in" in printed
    assert "Temperatures by fold, from inner validation images" in printed


def test_a_run_without_one_of_its_folds_is_refused(usvit, own_run):
    (own_run / "fold-1" / "predictions.csv").unlink()
    answer = usvit("evaluate", own_run)
    assert answer.code == 2
    assert "missing folds: 1" in answer.err
    table = pd.read_csv(own_run / "predictions.csv", dtype=str)
    table[table.fold != "2"].to_csv(own_run / "predictions.csv", index=False)
    answer = usvit("evaluate", own_run / "predictions.csv")
    assert answer.code == 2
    assert "missing folds: 2" in answer.err


@pytest.mark.slow
def test_a_run_tested_on_what_its_network_had_seen_is_refused(usvit, own_run):
    manifest = pd.read_parquet(own_run / "manifest.parquet")
    test = pd.read_csv(own_run / "fold-1" / "predictions.csv", dtype=str).query("part == 'test'")
    sha256 = manifest.set_index("image_id").loc[test.image_id.iloc[0], "sha256"]
    metadata = json.loads((own_run / "fold-1" / "model.json").read_text())
    metadata["seen_sha256"]["upstream"] = [sha256]  # as if pre-training had held it
    write_json(own_run / "fold-1" / "model.json", metadata)
    for path in (own_run, own_run / "predictions.csv", own_run / "fold-1" / "predictions.csv"):
        answer = usvit("evaluate", path)
        assert answer.code == 2, path
        assert "has seen images of 1 groups" in answer.err
        assert test.group_id.iloc[0] in answer.err
    assert usvit("evaluate", own_run / "fold-0" / "predictions.csv").code == 0


@pytest.mark.slow
def test_a_run_that_was_split_by_image_as_asked_is_measured_and_said_to_leak(usvit, own_run):
    record = json.loads((own_run / "run.json").read_text())
    write_json(own_run / "run.json", {**record, "folds": {**record["folds"], "unit": "image"}})
    for fold in range(3):  # the second image of every patient goes to the next fold
        path = own_run / f"fold-{fold}" / "predictions.csv"
        table = pd.read_csv(path, dtype={"image_id": str, "patient_id": str})
        odd = table.image_id.astype(int) % 2 == 1
        moved = table.part.where(~odd, table.part.map({"test": "val", "val": "test"}))
        table.assign(part=moved).to_csv(path, index=False)
    (own_run / "folds.csv").unlink()
    answer = usvit("evaluate", own_run)
    assert answer.code == 0, answer.err
    assert "the split leaks" in answer.out
    assert "is among both the images that choose" in answer.out


@pytest.mark.slow
def test_a_metadata_given_by_name_is_looked_into(usvit, own_run, tmp_path):
    moved = tmp_path / "moved.csv"
    shutil.copy(own_run / "predictions.csv", moved)
    manifest = ("--manifest", own_run / "manifest.parquet")
    assert usvit("evaluate", moved, *manifest).code == 0
    answer = usvit("evaluate", moved, *manifest, "--metadata", own_run / "fold-0")
    assert answer.code == 2
    assert "has seen images of" in answer.err  # fold 0's network was trained on the other folds' images


def test_columns_of_a_run_are_known(usvit, run):
    answer = usvit("evaluate", run, "--label", "y")
    assert answer.code == 2
    assert "columns are known" in answer.err


@pytest.mark.slow
def test_predictive_values_at_a_stated_prevalence_are_printed_and_written(usvit, save, other, tmp_path):
    given = ("evaluate", save(other), *COLUMNS, "--patient", "who", "--fold", "k", "--prevalence", "0.01")
    metrics = json.loads(usvit(*given, "--json", "--out", tmp_path / "out").out)
    jsonschema.validate(metrics, SCHEMA, jsonschema.Draft202012Validator)
    found = metrics["at_prevalence"]
    assert found["prevalence"] == 0.01 and found["of_test_images"] == 0.5
    called, up = other.score > 0.5, other.y == 1
    se, fpr = called[up].mean(), called[~up].mean()
    (half,) = (one for one in found["rules"] if one["rule"] == "threshold 0.5")
    assert half["ppv"]["value"] == pytest.approx(0.01 * se / (0.01 * se + 0.99 * fpr))
    assert half["ppv"]["ci95"][0] < half["ppv"]["value"] < half["ppv"]["ci95"][1]
    points = {one["rule"] for one in metrics["operating_points"] if one["pooled"]}
    assert {one["rule"] for one in found["rules"]} == {"most probable class", *points}
    printed = usvit(*given).out
    assert "at a prevalence of 0.01" in printed and "most probable class" in printed


@pytest.mark.parametrize("prevalence", ["0", "1", "-0.2", "nan"])
def test_a_prevalence_out_of_range_is_refused_before_anything_is_written(usvit, save, other, tmp_path, prevalence):
    answer = usvit("evaluate", save(other), *COLUMNS, f"--prevalence={prevalence}", "--out", tmp_path / "out")
    assert answer.code == 2 and answer.err.startswith("Error: --prevalence is ") and not (tmp_path / "out").exists()


@pytest.mark.slow
def test_differences_between_subgroups_carry_p_and_holm(usvit, save, other):
    other["device"] = np.where(other.who % 2, "A", "B")
    given = ("evaluate", save(other), *COLUMNS, "--patient", "who", "--by", "device", "--by", "mm=15")
    metrics = json.loads(usvit(*given, "--json").out)
    jsonschema.validate(metrics, SCHEMA, jsonschema.Draft202012Validator)
    every = [one[name] for by in metrics["subgroups"] for one in by["differences"] for name in FIGURES]
    assert len(every) == 8 and all(value["p_holm"] >= value["p"] for value in every)
    device = next(by for by in metrics["subgroups"] if by["by"] == "device")
    areas = {level["level"]: level["figures"]["auc"]["1_vs_rest"]["value"] for level in device["levels"]}
    assert device["differences"][0]["auc"]["value"] == pytest.approx(areas["A"] - areas["B"])
    said = usvit(*given).out
    assert "A minus B (" in said and "\n  Sensitivity  " in said
