"""``usvit ensemble``, ``usvit score`` with several models, and ``usvit study best`` as their user meets them."""

import json
import shutil

import jsonschema
import numpy as np
import pandas as pd
import pytest

import usvit as api
from tests.conftest import REPOSITORY
from tests.experiments.ensembles.conftest import runs, trained  # noqa: F401 - fixtures
from tests.upstream.studies.conftest import RESNET, VIT, finished  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow


@pytest.fixture
def images(small_phantom, tmp_path, monkeypatch):
    folder = tmp_path / "images"
    folder.mkdir()
    pictures = [path for path in sorted(small_phantom.rglob("*.png")) if "_mask" not in path.name]
    for picture in pictures[:4]:
        shutil.copy(picture, folder / picture.name)
    monkeypatch.setenv("USVIT_KEY", str(tmp_path / "key"))
    return folder


def test_an_ensemble_is_made_with_its_weights_and_the_command_that_scores_with_it(usvit, runs, tmp_path):  # noqa: F811
    out = tmp_path / "both"
    answer = usvit("ensemble", runs / "a", runs / "b", "--out", out, "--weights", "validation")
    assert answer.code == 0, answer.err
    assert "2 runs, 48 images" in answer.out and f"usvit score --model {out} --input" in answer.out
    weights = [one["weights"] for one in json.loads((out / "ensemble.json").read_text())["folds"]]
    (line,) = [line for line in answer.out.splitlines() if line.split() and line.split()[0] == "a"]
    assert [float(number) for number in line.split()[1:]] == pytest.approx([one[0] for one in weights], abs=5e-4)
    again = usvit("ensemble", runs / "a", runs / "b", "--out", out, "--weights", "validation", "--json")
    assert json.loads(again.out) == json.loads((out / "metrics.json").read_text())
    assert (out / "report.html").is_file()


@pytest.mark.parametrize(
    ("names", "options", "says"),
    [
        ("ac", (), "--folds"),
        ("a", (), "at least two runs"),
        ("ab", ("--weights", "best"), "Known: equal, validation"),
        ("ax", (), "is not a run directory"),
    ],
)
def test_a_mistake_is_one_paragraph_and_exit_2(usvit, runs, tmp_path, names, options, says):  # noqa: F811
    answer = usvit("ensemble", *(runs / name for name in names), "--out", tmp_path / "both", *options)
    assert answer.code == 2 and says in answer.err and "Traceback" not in answer.err
    assert len(answer.err.strip().splitlines()) == 1 and not (tmp_path / "both").exists()


def test_several_models_are_scored_as_one(usvit, runs, images, tmp_path):  # noqa: F811
    for name in "ab":
        for fold in range(2):  # so short a training leaves some networks without a temperature
            path = runs / name / f"fold-{fold}" / "model.json"
            path.write_text(json.dumps(json.loads(path.read_text()) | {"temperature": 1.5}))
        record = json.loads((runs / name / "run.json").read_text())
        (runs / name / "run.json").write_text(json.dumps({**record, "files": {}}))
    models = [option for name in "ab" for option in ("--model", runs / name)]
    answer = usvit("score", *models, "--input", images, "--out", tmp_path / "scores", "--device", "cpu", "--workers", 1)
    assert answer.code == 0, answer.err
    assert "no decisions: sensitivity >= 0.9: the thresholds of the 2 models" in answer.out
    summary = json.loads((tmp_path / "scores" / "summary.json").read_text())
    schema = json.loads((REPOSITORY / "docs" / "reference" / "scores.schema.json").read_text())
    jsonschema.validate(summary, schema, jsonschema.Draft202012Validator)
    assert [one["run"] for one in summary["model"]["members"]] == ["a", "a", "b", "b"]
    scores = pd.read_csv(tmp_path / "scores" / "scores.csv")
    assert scores.seen.all()  # the phantom's own images
    alone = [api.load_model(runs / name, device="cpu").predict(images) for name in "ab"]
    mean = np.mean([table.prob_malignant.to_numpy() for table in alone], axis=0)
    np.testing.assert_allclose(scores.prob_malignant, mean, atol=1e-6)
    fixed = usvit(
        "score", *models, "--input", images, "--out", tmp_path / "fixed", "--operating-point", 0.4,
        "--device", "cpu", "--workers", 1,
    )  # fmt: skip
    assert fixed.code == 0 and "threshold 0.4000: fixed at 0.4" in fixed.out


def test_the_best_of_a_study_is_printed_with_its_command(usvit, finished, tmp_path):  # noqa: F811
    study = shutil.copytree(finished.path, tmp_path / "study")
    answer = usvit("study", "best", study, "--ensembles", 2)
    assert answer.code == 0, answer.err
    record = json.loads((study / "best.json").read_text())
    assert f"nested choice: {record['nested']['value']:.3f}" in answer.out
    assert f"\n{record['commands'][-1]}\n" in answer.out
    assert all(name in answer.out for name in (RESNET, VIT, "mean of the best 2", "apparent minus nested"))
    assert json.loads(usvit("study", "best", study, "--json", "--ensembles", 2).out) == record


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("best",), "Missing argument 'STUDY'"),
        (("best", "a", "b"), "Got unexpected extra argument"),
        (("best", "nowhere"), "There is no study in nowhere"),
        (("list", "--figure", "auc"), "No such option: --figure"),
        (("gheflati2022_table1", "--ensembles", "2"), "No such option: --ensembles"),
    ],
)
def test_a_mistake_with_best_is_one_paragraph_and_exit_2(usvit, tmp_path, monkeypatch, arguments, says):
    monkeypatch.chdir(tmp_path)
    answer = usvit("study", *arguments)
    assert answer.code == 2 and says in answer.err and "Traceback" not in answer.err
