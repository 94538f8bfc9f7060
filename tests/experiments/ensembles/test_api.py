"""Ensembles of tiny runs, from their members to their scores."""

import json
import shutil

import jsonschema
import numpy as np
import pandas as pd
import pytest

import usvit
from tests.conftest import REPOSITORY
from usvit.data.io.decoding import read_image
from usvit.errors import UsvitError
from usvit.evaluation.predictions import read_predictions
from usvit.evaluation.recalibration import Temperature
from usvit.files import sha256_of_file
from usvit.metrics.threshold_choice import Rule, choose_threshold
from usvit.scoring.ensemble import Ensemble

pytestmark = pytest.mark.slow

CPU = {"device": "cpu", "precision": "fp32"}
CLASSES = ["benign", "malignant", "normal"]


@pytest.fixture(autouse=True)
def _no_report(monkeypatch):
    monkeypatch.setattr("usvit.experiments.ensembles.api.write_report", lambda path: None)  # seconds


def columns(table, kind="prob"):
    return table[[f"{kind}_{name}" for name in CLASSES]].to_numpy()


def record_of(folder):
    return json.loads((folder / "ensemble.json").read_text())


def pixels_of(run, root, table):
    manifest = pd.read_parquet(run / "manifest.parquet").set_index("image_id")
    preprocessing = Ensemble.load(run / "fold-0", **CPU).preprocessing
    return np.stack([preprocessing.resized(read_image(root / manifest.path[one])) for one in table.image_id])


def edit(path, **changed):
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))


def rehash(run, name):
    record = json.loads((run / "run.json").read_text())
    record["files"][name] = sha256_of_file(run / name)
    (run / "run.json").write_text(json.dumps(record))


def test_an_ensemble_is_a_run_directory_without_networks(runs, tmp_path):
    out = tmp_path / "both"
    run = usvit.ensemble(runs / "a", runs / "b", out=out)
    assert run.record.kind == "ensemble" and run.record.state == "finished"
    assert not list(out.rglob("*.safetensors")) and not list(out.rglob("model.json"))
    for name in ("run", "ensemble", "metrics"):
        schema = json.loads((REPOSITORY / "docs" / "reference" / f"{name}.schema.json").read_text())
        jsonschema.validate(json.loads((out / f"{name}.json").read_text()), schema, jsonschema.Draft202012Validator)
    a, b, both = (read_predictions(one / "predictions.csv") for one in (runs / "a", runs / "b", out))
    assert both[["image_id", "fold", "part"]].equals(a[["image_id", "fold", "part"]])
    other = b.set_index("image_id").loc[a.image_id].reset_index()
    np.testing.assert_allclose(columns(both), (columns(a) + columns(other)) / 2, atol=1e-12)
    sizes = [json.loads((runs / name / "run.json").read_text())["model"]["params"] for name in "ab"]
    assert run.record.model.params == sum(sizes)
    assert [one["path"] for one in record_of(out)["members"]] == ["../runs/a", "../runs/b"]


def test_evaluate_and_compare_take_it_and_find_the_same_figures(runs, tmp_path):
    out = tmp_path / "both"
    run = usvit.ensemble(runs / "a", runs / "b", out=out, weights="validation")
    again = usvit.evaluate(out)
    assert again.headline == run.result.headline
    assert "each of one ensemble of 2 networks" in again.headline.explains
    assert again.operating_points[0].source == "inner validation images of the same fold"
    record, _ = usvit.compare(out, runs / "a", out=tmp_path / "comparison")
    assert [one.name for one in record.runs] == ["both", "a"]


def test_the_report_says_what_it_is_and_checks_every_network(runs, tmp_path):
    from usvit.reports import report
    from usvit.reports.leakage import leakage_checks
    from usvit.reports.run_files import read_run

    out = tmp_path / "both"
    usvit.ensemble(runs / "a", runs / "b", out=out)
    checks = leakage_checks(read_run(out))
    assert [one.found for one in checks if "model trained" in one.question] == [0]
    assert len(read_run(out).networks) == 4
    report(out)
    page = (out / "report.html").read_text()
    assert "the probabilities of 2 runs are averaged with equal weights (a and b)" in page
    assert "Nothing was trained here" in page and "recipe not recorded" not in page
    assert "of each network are in the report of its own run (a and b)" in page
    assert "Training curves: not recorded" not in page and "<dd>not recorded" not in page


@pytest.mark.parametrize("weights", ["equal", "validation"])
def test_scores_are_the_out_of_fold_predictions_of_the_same_images(runs, small_phantom, tmp_path, weights):
    out = tmp_path / "both"
    usvit.ensemble(runs / "a", runs / "b", out=out, weights=weights)
    for fold in (0, 1):
        table = read_predictions(out / f"fold-{fold}" / "predictions.csv")
        table = table[table.part == "test"]
        ensemble = Ensemble.load(out, folds=str(fold), **CPU)
        scores = ensemble.score(pixels_of(runs / "a", small_phantom, table))
        np.testing.assert_allclose(scores.prob, columns(table), atol=1e-6)
        entry = record_of(out)["folds"][fold]
        scaling = Temperature(entry["temperature"] or 1.0)
        expected = np.exp(scaling.log_prob(columns(table, "logit")))[:, 1]
        np.testing.assert_allclose(scores.calibrated, expected, atol=1e-6)
        stated = {one["rule"]: one for one in entry["thresholds"]}["sensitivity >= 0.9"]
        assert ensemble.threshold == stated["threshold"]


def test_all_folds_together_are_their_mean_and_have_a_threshold_of_their_own(runs, small_phantom, tmp_path):
    out = tmp_path / "both"
    usvit.ensemble(runs / "a", runs / "b", out=out)
    images = pixels_of(runs / "a", small_phantom, read_predictions(out / "predictions.csv").head(6))
    folds = [one | {"temperature": one["temperature"] or 1.5} for one in record_of(out)["folds"]]
    edit(out / "ensemble.json", folds=folds)  # so short a training leaves some without a temperature
    rehash(out, "ensemble.json")
    whole, each = Ensemble.load(out, **CPU), [Ensemble.load(out, folds=str(k), **CPU) for k in range(2)]
    found = whole.score(images)
    np.testing.assert_allclose(found.prob, np.mean([one.score(images).prob for one in each], axis=0), atol=1e-9)
    calibrated = [one.score(images).calibrated for one in each]
    np.testing.assert_allclose(found.calibrated, np.mean(calibrated, axis=0), atol=1e-9)
    assert whole.n_members == 4 and "out-of-fold images" in whole.threshold_origin
    members = whole.record().members
    assert [(one.run, one.fold, one.weight) for one in members] == [
        ("a", 0, 0.5), ("b", 0, 0.5), ("a", 1, 0.5), ("b", 1, 0.5),
    ]  # fmt: skip
    mirrored = Ensemble.load(out, flip=True, **CPU).score(images)
    np.testing.assert_allclose(mirrored.prob, (found.prob + whole.score(images[:, :, ::-1].copy()).prob) / 2, atol=1e-9)


def test_a_unit_decides_patients_at_a_threshold_of_the_mean(runs, tmp_path, caplog):
    out = tmp_path / "both"
    run = usvit.ensemble(runs / "a", runs / "b", out=out, unit="patient", pooling="max")
    unit = run.result.unit
    assert (unit.unit, unit.pooling, unit.n_units) == ("patient", "max", run.result.n_images)
    assert usvit.evaluate(out).headline == run.result.headline
    images = read_predictions(out / "fold-1" / "predictions.csv")
    inner = images[images.part == "val"]
    entry = record_of(out)["folds"][1]
    calibrated = np.exp(Temperature(entry["temperature"] or 1.0).log_prob(columns(inner, "logit")))[:, 1]
    score = pd.Series(calibrated, inner.index).groupby(inner.patient_id).max()
    positive = (inner.label == "malignant").groupby(inner.patient_id).max()
    oracle = choose_threshold(positive.to_numpy(), score.to_numpy(), Rule("sensitivity", 0.9))
    one = Ensemble.load(out, folds="1", **CPU).record().unit
    assert one.threshold == pytest.approx(oracle.threshold) and one.decides == "patients.csv"
    assert one.origin == f"sensitivity >= 0.9 on {len(score)} inner validation patients of fold 1"
    whole = Ensemble.load(out, **CPU).record()
    assert "out-of-fold patients" in whole.unit.origin and "out-of-fold images" in whole.threshold_origin
    with pytest.raises(UsvitError, match="no figures of the unit lesion"):
        usvit.ensemble(runs / "a", runs / "b", out=tmp_path / "none", unit="lesion")
    with pytest.raises(UsvitError, match="a mean of networks has no attention"):
        usvit.ensemble(runs / "a", runs / "b", out=tmp_path / "none", unit="patient", pooling="attention")
    assert not (tmp_path / "none").exists()


def test_the_unit_is_that_of_the_members_if_they_have_one_in_common(runs, tmp_path, caplog):
    config = json.loads((runs / "a" / "run.json").read_text())["config"]
    for name in ("a", "b"):
        edit(runs / name / "run.json", config=config | {"units": {"unit": "patient"}})
    assert usvit.ensemble(runs / "a", runs / "b", out=tmp_path / "same").result.unit.unit == "patient"
    edit(runs / "b" / "run.json", config=config)
    assert usvit.ensemble(runs / "a", runs / "b", out=tmp_path / "unlike").result.unit is None
    assert Ensemble.load(tmp_path / "unlike", **CPU).record().unit is None
    assert "are those of images, at which studies and patients are decided" in caplog.text
    assert "(a: patient by mean, b: image by mean). Name one with --unit" in caplog.text


def test_several_models_are_averaged_with_equal_weights(runs, small_phantom):
    images = pixels_of(runs / "a", small_phantom, read_predictions(runs / "a" / "predictions.csv").head(5))
    for name in "ab":
        for fold in range(2):
            edit(runs / name / f"fold-{fold}" / "model.json", temperature=1.0 + fold)
            rehash(runs / name, f"fold-{fold}/model.json")
    both = Ensemble.load([runs / "a", runs / "b"], **CPU)
    single = [Ensemble.load(runs / name / f"fold-{fold}", **CPU) for name in "ab" for fold in range(2)]
    found, alone = both.score(images), [one.score(images) for one in single]
    np.testing.assert_allclose(found.prob, np.mean([one.prob for one in alone], axis=0), atol=1e-12)
    calibrated = np.stack([one.calibrated for one in alone])
    np.testing.assert_allclose(found.calibrated, calibrated.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.spread, calibrated.std(axis=0), atol=1e-12)
    np.testing.assert_allclose(found.ood, np.median([one.ood for one in alone], axis=0))
    assert both.threshold is None and "usvit ensemble chooses one" in both.threshold_origin
    assert Ensemble.load([runs / "a", runs / "b"], operating_point="0.4", **CPU).threshold == 0.4
    rate = both.record().novelty.in_distribution
    assert rate.n_images == 48  # each test image once
    assert [one.run for one in both.record().members] == ["a", "a", "b", "b"]


def test_an_image_that_any_member_has_seen_is_marked(runs):
    # Networks of fold 0 of a, and of fold 1 of c: together they have seen what either has.
    members = runs / "a" / "fold-0", runs / "c" / "fold-1"
    for folder in members:
        edit(folder / "model.json", temperature=1.0)
        rehash(folder.parent, f"{folder.name}/model.json")
    both = Ensemble.load(members, **CPU)
    told = [json.loads((folder / "model.json").read_text())["seen_sha256"] for folder in members]
    seen = [set(one["train"] + one["val"]) for one in told]
    assert seen[0] != seen[1]
    assert all(both.seen(one, "file:x") for one in seen[0] | seen[1])
    every = set(pd.read_parquet(runs / "a" / "manifest.parquet").sha256)
    assert not any(both.seen(one, "file:x") for one in every - seen[0] - seen[1])


def change_classes(runs):
    for fold in range(2):
        edit(runs / "b" / f"fold-{fold}" / "model.json", classes=["malignant", "benign", "normal"])
        rehash(runs / "b", f"fold-{fold}/model.json")


def copy_weights(runs):
    shutil.rmtree(runs / "b")
    shutil.copytree(runs / "a", runs / "b")


def change_size(runs):
    for fold in range(2):
        path = runs / "b" / f"fold-{fold}" / "model.json"
        edit(path, preprocessing=json.loads(path.read_text())["preprocessing"] | {"crop": "whole"})
        rehash(runs / "b", f"fold-{fold}/model.json")


@pytest.mark.parametrize(
    ("change", "models", "says"),
    [
        (change_classes, "ab", "the second malignant, benign, normal with 'malignant', in another order"),
        (change_size, "ab", r"crop tissue\), the second of 32 \(resize pad, crop whole\)"),
        (lambda runs: None, "aa", r"a/fold-0 is named twice, so that one network would count twice"),
        (copy_weights, "ab", r"a/fold-0 and .*b/fold-0 hold the same weights"),
    ],
)
def test_models_that_cannot_be_averaged_are_refused(runs, change, models, says):
    change(runs)
    with pytest.raises(UsvitError, match=says):
        Ensemble.load([runs / name for name in models], operating_point="0.5", **CPU)


def test_a_member_that_is_missing_or_changed_is_named(runs, tmp_path):
    out = tmp_path / "both"
    usvit.ensemble(runs / "a", runs / "b", out=out)
    edit(runs / "b" / "fold-1" / "model.json", temperature=9.0)
    with pytest.raises(UsvitError, match=r"b/fold-1/model\.json was changed since the ensemble"):
        Ensemble.load(out, **CPU)
    shutil.rmtree(runs / "b")
    with pytest.raises(UsvitError, match=r"needs its member b, which is not at .*\.\./runs/b"):
        Ensemble.load(out, **CPU)
    assert usvit.evaluate(out).n_images == 48  # its figures need no networks


def test_where_networks_are_needed_an_ensemble_is_refused_by_name(runs, tmp_path):
    out = tmp_path / "both"
    usvit.ensemble(runs / "a", runs / "b", out=out)
    with pytest.raises(UsvitError, match="is an ensemble of usvit ensemble, which holds no networks of its own"):
        usvit.export(out, format="safetensors", out=tmp_path / "exported")
    with pytest.raises(UsvitError, match="Name its members instead"):
        usvit.ensemble(out, runs / "a", out=tmp_path / "nested")


def other_split(runs):
    path = runs / "b" / "folds.csv"
    folds = pd.read_csv(path, dtype=str)
    train = folds.index[(folds.part == "train") & (folds.fold == "1")][0]
    folds.loc[train, "part"] = "val"
    folds.to_csv(path, index=False)
    rehash(runs / "b", "folds.csv")


def other_label(runs):
    for name in ("predictions.csv", "fold-0/predictions.csv", "fold-1/predictions.csv"):
        table = pd.read_csv(runs / "b" / name, dtype=str, keep_default_na=False)
        table.loc[table.image_id == table.image_id.min(), "label"] = "normal"
        table.to_csv(runs / "b" / name, index=False)
        rehash(runs / "b", name)


def unfinished(runs):
    edit(runs / "b" / "run.json", state="running")


@pytest.mark.parametrize(
    ("change", "names", "says"),
    [
        (
            lambda runs: None,
            "ac",
            r"is in split \w+ of fold 0 in the first and in split \w+ in the second .*--folds .*a/folds.csv",
        ),
        (other_split, "ab", r"is in split train of fold 1 in the first and in split val in the second \(1 such rows"),
        (other_label, "ab", "the label of phantom/.* is '.*' in the first and 'normal' in the second"),
        (unfinished, "ab", "is not finished"),
        (lambda runs: None, "aa", "is named twice"),
        (lambda runs: None, "a", "at least two runs"),
    ],
)
def test_runs_that_cannot_be_members_are_refused_with_the_first_difference(runs, tmp_path, change, names, says):
    change(runs)
    with pytest.raises(UsvitError, match=says):
        usvit.ensemble(*(runs / name for name in names), out=tmp_path / "both")
    assert not (tmp_path / "both").exists()


def test_the_same_call_changes_nothing_and_another_is_refused(runs, tmp_path):
    out = tmp_path / "both"
    usvit.ensemble(runs / "a", runs / "b", out=out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    usvit.ensemble(runs / "a", runs / "b", out=out)
    assert before == {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    for others in ({"weights": "validation"}, {}):
        with pytest.raises(UsvitError, match="holds an ensemble of other members, weights or predictions"):
            usvit.ensemble(*((runs / "b", runs / "a") if not others else (runs / "a", runs / "b")), out=out, **others)
    with pytest.raises(UsvitError, match="holds a run"):
        usvit.ensemble(runs / "a", runs / "b", out=runs / "c")
    with pytest.raises(UsvitError, match="Unknown kind of weights 'best'"):
        usvit.ensemble(runs / "a", runs / "b", out=tmp_path / "other", weights="best")


def test_an_ensemble_that_was_killed_is_written_again_with_the_same_files(runs, tmp_path):
    out = tmp_path / "both"
    usvit.ensemble(runs / "a", runs / "b", out=out)
    kept = {path: path.read_bytes() for path in out.rglob("*.csv")} | {
        out / name: (out / name).read_bytes() for name in ("metrics.json", "ensemble.json")
    }
    for name in ("run.json", "metrics.json", "fold-1/predictions.csv"):
        (out / name).unlink()
    usvit.ensemble(runs / "a", runs / "b", out=out)
    assert kept == {path: path.read_bytes() for path in kept}
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    with pytest.raises(UsvitError, match="is not an ensemble of usvit"):
        usvit.ensemble(runs / "a", runs / "b", out=tmp_path / "mine")
