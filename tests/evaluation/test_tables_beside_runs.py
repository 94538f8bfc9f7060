"""Tables of other tools beside a run, as ``usvit compare`` reads them: what is found, taken over, and refused."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from tests.cli.runs import make_run

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return make_run(tmp_path_factory.mktemp("runs") / "ours", seed=1, skill=2.0, n=60)


@pytest.fixture(scope="module")
def truth(run):
    """What a user of scikit-learn has: the tested rows of folds.csv, labels as 0 and 1, rounded probabilities."""
    folds = pd.read_csv(run / "folds.csv", dtype=str)
    rows = pd.read_parquet(run / "manifest.parquet")[["image_id", "label"]]
    table = folds[folds.part == "test"].merge(rows, on="image_id").sample(frac=1, random_state=0)
    y = (table.label == "malignant").to_numpy(int)
    prob = 1 / (1 + np.exp(-(np.random.default_rng(5).normal(size=len(y)) + 1.5 * (y - 0.5))))
    return pd.DataFrame({"file": table.image_id + ".png", "y_true": y, "p": prob, "fold": table.fold})


@pytest.fixture
def compared(usvit, run, tmp_path):
    def of(table, *options, name="sk.csv"):
        path = tmp_path / name
        table.to_excel(path, index=False) if name.endswith(".xlsx") else table.to_csv(path, index=False)
        return usvit("compare", run, path, *options, "--out", tmp_path / "out")

    return of


def rounded(truth, **more):
    """Both probabilities to three decimals, so that some pairs sum to 1.001."""
    pair = {"p_benign": (1 - truth.p).round(3), "p_malignant": (truth.p + 0.0004).round(3)}
    return truth.drop(columns=["p", "fold"]).assign(**pair, **more)


@pytest.mark.parametrize("name", ["sk.csv", "sk.xlsx"])
def test_columns_are_found_and_groups_and_folds_are_the_runs(compared, run, truth, tmp_path, name):
    answer = compared(rounded(truth), "--name", "sklearn", name=name)
    assert answer.code == 0, answer.err
    record = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert (record["n_images"], record["n_groups"], record["n_folds"]) == (60, 30, 3)
    assert [one["name"] for one in record["runs"]] == ["ours", "sklearn"]
    expected = roc_auc_score(truth.y_true, (truth.p + 0.0004).round(3))
    assert record["runs"][1]["auc"]["value"] == pytest.approx(expected, abs=2e-3)
    assert any("rounded to 3 decimals" in one for one in record["warnings"])


def test_one_column_is_enough_for_two_classes(compared, truth):
    answer = compared(truth[["file", "p"]].rename(columns={"p": "malignant score"}))
    assert answer.code == 0, answer.err
    assert compared(truth[["file", "p"]], "--prob", "malignant=p").code == 0


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: t.iloc[1:], "1 of 60 tested images of ours have no row"),
        (lambda t: pd.concat([t, t.iloc[:1]]), "1 images have several rows"),
        (lambda t: t.assign(y_true=np.roll(t.y_true, 1)), "the labels in column 'y_true' contradict those of ours"),
        (lambda t: t.assign(fold=np.arange(60) % 3), "the folds in column 'fold' contradict those of ours"),
        (lambda t: t.assign(file="x"), "No column of .* holds names of the images of ours"),
        (lambda t: t.drop(columns="p_benign").rename(columns={"p_malignant": "q"}), "Name them with --prob"),
        (lambda t: t.assign(p_benign=t.p_benign + 0.02), "do not sum to 1"),
    ],
)
def test_what_does_not_fit_the_run_is_named(compared, truth, change, says):
    answer = compared(change(rounded(truth)))
    assert answer.code == 2
    assert pd.Series([" ".join(answer.err.split())]).str.contains(says).all(), answer.err


def test_an_evaluation_of_the_table_is_compared_like_a_run(usvit, run, truth, tmp_path):
    whole = truth.assign(image_id=truth.file.str.removesuffix(".png"), prob_malignant=truth.p, prob_benign=1 - truth.p)
    whole["label"] = np.where(truth.y_true, "malignant", "benign")
    whole.drop(columns=["file", "p", "y_true"]).to_csv(tmp_path / "sk.csv", index=False)
    manifest = ("--manifest", run / "manifest.parquet")
    answer = usvit("evaluate", tmp_path / "sk.csv", *manifest, "--out", tmp_path / "evaluated")
    assert answer.code == 0, answer.err
    assert "60 images in 30 groups" in answer.out  # the groups of the manifest; the folds file has none
    answer = usvit("compare", run, tmp_path / "evaluated", "--name", "theirs", "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert "ours minus theirs" in answer.out
    answer = usvit("compare", run, tmp_path / "evaluated", *["--name", "a"] * 3, "--out", tmp_path / "out")
    assert (answer.code, "--name was given 3 times" in answer.err) == (2, True)
