"""Attention over the scored images of a patient: from the outputs of the networks to the tables."""

import itertools
import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file

import usvit
from tests.conftest import tiny_settings
from usvit.config import build_config, load_recipe
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.errors import UsvitError
from usvit.evaluation import calibrated_units, settings_of
from usvit.evaluation.predictions import read_predictions
from usvit.experiments.cross_validation import CrossValidation
from usvit.files import sha256_of_file
from usvit.models import ViewAttention, pooled_views
from usvit.records import CalibrationRecord, ModelMetadata, load_record
from usvit.scoring import LabelTable, evaluate_scores
from usvit.scoring.journal import Batch, open_journal
from usvit.scoring.view_pooling import ViewPooling

# Without a transformer, what attention needs of a view is its score.
ATTENTIONS = (ViewAttention(1),) * 2
POOLING = ViewPooling("patient_id", "malignant", 1, abstain=False, attentions=ATTENTIONS)
ABSTAINING = ViewPooling("patient_id", "malignant", 1, abstain=True, attentions=ATTENTIONS)


def views(n, n_networks=2, **more):
    """Rows of ``n`` images, and the logits (M, n, K) and scores (M, n) that they come from."""
    generator = np.random.default_rng(n)
    logits, scores = generator.normal(size=(n_networks, n, 2)), 3 * generator.normal(size=(n_networks, n))
    prob = torch.from_numpy(logits).softmax(2).numpy()
    rows = [
        {
            "item_id": f"{k}",
            "frame": 0,
            "patient_id": "p",
            "unusual": False,
            "calibrated_malignant": float(prob[:, k, 1].mean()),
            "view_weight": None,
            "views": {"described": scores[:, k, None].tolist(), "prob": prob[:, k].tolist()},
            **more,
        }
        for k in range(n)
    ]
    return rows, logits, scores


def test_the_results_and_weights_of_the_networks_are_averaged():
    rows, logits, scores = views(5)
    value = POOLING.pool(rows)
    one = torch.zeros(5, dtype=torch.int64)
    found = [pooled_views(torch.from_numpy(a), torch.from_numpy(b), one) for a, b in zip(logits, scores, strict=True)]
    assert value == pytest.approx(np.mean([own.softmax(1)[0, 1] for own, _ in found]), abs=1e-6)
    weights = np.mean([weight.numpy() for _, weight in found], axis=0)
    assert [row["view_weight"] for row in rows] == pytest.approx(weights.tolist(), abs=1e-6)
    assert sum(row["view_weight"] for row in rows) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize(
    ("pooling", "rule"),
    [
        ("max", np.max),
        ("noisy-or", lambda p: 1 - np.prod(1 - p)),
        ("top-3", lambda p: np.sort(p)[-3:].mean()),
        ("top-9", lambda p: p.mean()),
    ],
)
def test_rules_without_parameters_pool_each_network_and_give_no_weights(pooling, rule):
    rows, logits, _ = views(5)
    prob = torch.from_numpy(logits).softmax(2).numpy()[..., 1]
    value = ViewPooling("patient_id", "malignant", 1, abstain=False, pooling=pooling).pool(rows)
    assert value == pytest.approx(np.mean([rule(own) for own in prob]), abs=1e-12)
    assert all(row["view_weight"] is None for row in rows)


def test_a_calibration_lets_the_mean_weights_pool_the_mean_of_the_networks():
    rows, *_ = views(5)
    each, *_ = views(5)
    POOLING.pool(each)
    for row in rows:
        row["views"]["prob"] = np.mean(row["views"]["prob"], axis=0, keepdims=True).tolist()
    value = POOLING.pool(rows)
    weight = np.array([row["view_weight"] for row in rows])
    assert weight.tolist() == [row["view_weight"] for row in each]
    prob = np.array([row["views"]["prob"][0] for row in rows])
    expected = np.exp(weight @ np.log(prob))
    assert value == pytest.approx(expected[1] / expected.sum(), abs=1e-12)


def test_the_order_of_the_images_does_not_matter():
    results = set()
    for order in itertools.permutations(range(4)):
        rows, *_ = views(4)
        value = POOLING.pool([rows[k] for k in order])
        results.add((value, *(row["view_weight"] for row in rows)))
    assert len(results) == 1


def test_a_single_image_has_its_own_result_and_images_that_are_left_out_have_no_weight():
    rows, *_ = views(1)
    assert POOLING.pool(rows) == rows[0]["calibrated_malignant"] and rows[0]["view_weight"] == 1
    rows, *_ = views(4)
    rest, *_ = views(4)
    rows[2]["unusual"] = True
    assert ABSTAINING.pool(rows) == POOLING.pool([row for k, row in enumerate(rest) if k != 2])
    assert [row["view_weight"] is None for row in rows] == [False, False, True, False]
    assert ABSTAINING.pool(views(3, unusual=True)[0]) is None


def test_the_journal_keeps_the_weights_of_the_images_that_name_a_patient(tmp_path):
    journal = open_journal(tmp_path / "journal")
    rows, *_ = views(5)
    expected, *_ = views(5)
    for row in (*rows[3:], *expected[3:]):
        row["patient_id"] = ""
    value = POOLING.pool(expected[:3])
    journal.commit(Batch(rows=[(k, 0, row, None) for k, row in reversed(list(enumerate(rows)))]))
    for _ in range(2):  # again, as after an interruption
        assert journal.pool("patient_id", POOLING.pool) == {"p": value}
        stored = [row for seq in range(5) for row in journal.rows_of(seq)]
        assert [row["view_weight"] for row in stored] == [row["view_weight"] for row in expected]
    journal.close()


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A tiny cross-validation that pools the images of a patient by attention, and the root of its images."""
    return attending(tmp_path_factory.mktemp("attention"), 0)


def attending(folder, layers):
    write_phantom(PhantomSpec(n=30, size=64, views=4, lesions=2, exams=2), folder / "phantom")
    settings = tiny_settings()
    settings["model"] |= {"name": "timm:test_resnet", "weights": "scratch"}
    settings["train"]["epochs"] = None
    settings["data"] = {"classes": ["benign", "malignant"]}
    settings |= {"split": {"folds": 2}, "loss": {"vote": "patient", "attention": "trained", "attention_layers": layers}}
    settings |= {"units": {"unit": "patient", "pooling": "attention"}, "optim": {"lr": 0.003, "warmup_steps": 0}}
    config = build_config(load_recipe("demo"), {"data": {"dataset": "phantom"}, "device": "cpu"}, settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("usvit.reports.write_report", lambda path: None)
        CrossValidation("cv", config, roots={"": folder}, out=folder / "run").run()
    return folder / "run", folder / "phantom"


def sharpened(network, out, factor):
    """An export of a network whose attention gives each view ``factor`` times its score."""
    usvit.export(network, out)
    tensors = load_file(out / "attention.safetensors")
    save_file(tensors | {"score.weight": factor * tensors["score.weight"]}, out / "attention.safetensors")
    with pytest.raises(UsvitError, match="is not the file that the model"):
        usvit.load_model(out, device="cpu")
    edit(out, ("attention", "sha256"), sha256_of_file(out / "attention.safetensors"))
    return out


def edit(network, keys, value):
    """Change one value of ``model.json``."""
    content = part = json.loads((network / "model.json").read_text())
    for key in keys[:-1]:
        part = part[key]
    part[keys[-1]] = value
    (network / "model.json").write_text(json.dumps(content))


@pytest.mark.slow
def test_patients_are_pooled_weighed_and_decided_as_in_evaluation(run, tmp_path):
    run, root = run
    table = read_predictions(run / "fold-0" / "predictions.csv")
    table = table[table["part"] == "test"].reset_index(drop=True).drop(columns=["lesion_id", "side", "exam_id"])
    table.loc[0, "patient_id"] = "alone"
    factor = 2 / table["view_score"].std()  # so short a training weighs the views nearly alike
    table = table.assign(view_score=factor * table["view_score"])
    network = sharpened(run / "fold-0", tmp_path / "network", factor)
    metadata = load_record(network / "model.json", ModelMetadata)
    units = settings_of(metadata.unit_thresholds.units)
    expected, _ = calibrated_units(table, units, "malignant", metadata.temperature)
    threshold = expected["prob_malignant"].median() + 1e-5
    at = [one.rule for one in metadata.unit_thresholds.thresholds].index("sensitivity >= 0.9")
    edit(network, ("unit_thresholds", "thresholds", at, "threshold"), threshold)
    manifest = pd.read_parquet(run / "manifest.parquet").set_index("image_id").loc[table["image_id"]]
    inputs = pd.DataFrame(
        {"path": [str(root / path) for path in manifest["path"]], "patient_id": [*table["patient_id"]]}
    )
    inputs.sample(frac=1, random_state=0).to_csv(tmp_path / "inputs.csv", index=False)
    out, settings = tmp_path / "scores", {"device": "cpu", "keep_ids": True, "key": tmp_path / "key", "workers": 1}

    usvit.score(network, tmp_path / "inputs.csv", out, **settings)
    patients = pd.read_csv(out / "patients.csv").set_index("original_patient_id").loc[expected["patient_id"]]
    value, own = patients["attention_calibrated_malignant"], expected["prob_malignant"].to_numpy()
    np.testing.assert_allclose(value, own, rtol=0, atol=2e-6)
    assert np.abs(value - patients["mean_calibrated_malignant"]).max() > 1e-4
    assert patients["threshold"].to_numpy() == pytest.approx(threshold)
    assert patients["decision"].nunique() == 2
    assert patients["decision"].tolist() == np.where(own >= threshold, "malignant", "not malignant").tolist()
    scores = pd.read_csv(out / "scores.csv").set_index("pixel_sha256")
    share = np.exp(table["view_score"])
    share /= share.groupby(table["patient_id"]).transform("sum")
    np.testing.assert_allclose(scores.loc[manifest["sha256"], "view_weight"], share, rtol=0, atol=1e-3)
    assert share[share < 1].std() > 0.1
    alone = patients.loc["alone"]
    assert alone["attention_calibrated_malignant"] == alone["mean_calibrated_malignant"]
    assert scores.loc[manifest["sha256"].iloc[0], "view_weight"] == 1
    page = (out / "scores.html").read_text()
    assert "The decision is made on the result of attention over all images" in page and '["Weight","number"]' in page
    assert "attention_calibrated_malignant" not in pd.read_csv(out / "studies.csv")

    unit = usvit.load_model(network, operating_point="0.4", device="cpu").metadata["unit"]
    assert (unit["threshold"], unit["decides"]) == (0.4, "patients.csv")
    ensembles = [usvit.load_model(run, folds=folds, device="cpu") for folds in ("all", "0", "1")]
    both, *each = (one.predict(tmp_path / "inputs.csv")["view_weight"] for one in ensembles)
    np.testing.assert_allclose(both, np.mean(each, axis=0), rtol=0, atol=2e-9)
    assert np.abs(each[0] - each[1]).max() > 1e-7


def scored(network, images, root, out, **more):
    """Score test images of a run, as patients of an own table; return the folder and the rows of ``patients.csv``."""
    manifest = pd.read_parquet(network / "manifest.parquet").set_index("image_id").loc[images["image_id"]]
    paths = [str(root / path) for path in manifest["path"]]
    table = pd.DataFrame({"path": paths, "patient_id": [*images["patient_id"]], "label": [*images["label"]]})
    table.to_csv(out.parent / f"{out.name}.csv", index=False)
    usvit.score(
        more.pop("model"),
        out.parent / f"{out.name}.csv",
        out,
        device="cpu",
        keep_ids=True,
        key=out.parent / "key",
        workers=1,
        **more,
    )
    return pd.read_csv(out / "patients.csv").set_index("original_patient_id")


def images_of_fold(run):
    table = read_predictions(run / "fold-0" / "predictions.csv")
    return table[table["part"] == "test"].reset_index(drop=True)


@pytest.mark.slow
def test_a_transformer_pools_scored_patients_as_in_evaluation(tmp_path):
    run, root = attending(tmp_path, 2)
    images = images_of_fold(run)
    factor = 2 / images["view_score"].std()  # so short a training weighs the views nearly alike
    images = images.assign(view_score=factor * images["view_score"])
    metadata = load_record(run / "fold-0" / "model.json", ModelMetadata)
    expected, _ = calibrated_units(
        images, settings_of(metadata.unit_thresholds.units), "malignant", metadata.temperature
    )
    network = sharpened(run / "fold-0", tmp_path / "network", factor)
    patients = scored(run, images, root, tmp_path / "scores", model=network).loc[expected["patient_id"]]
    value = patients["attention_calibrated_malignant"].to_numpy()
    np.testing.assert_allclose(value, expected["prob_malignant"], rtol=0, atol=2e-5)  # rounding is sharpened, too
    assert np.abs(value - patients["mean_calibrated_malignant"]).max() > 2e-4


@pytest.mark.slow
def test_the_highest_of_several_networks_is_the_mean_of_their_highest(run, tmp_path):
    run, root = run
    images, found = images_of_fold(run), {}
    shutil.copytree(run, tmp_path / "run")
    record = tmp_path / "run" / "run.json"
    for fold in (tmp_path / "run" / "fold-0", tmp_path / "run" / "fold-1"):
        before = sha256_of_file(fold / "model.json")
        edit(fold, ("unit_thresholds", "units", "pooling"), "max")
        edit(fold, ("temperature",), 1.0)
        edit(fold, ("temperature_reason",), None)
        record.write_text(record.read_text().replace(before, sha256_of_file(fold / "model.json")))
    for name in ("run", "run/fold-0", "run/fold-1"):
        out = tmp_path / name.replace("/", "-scores-") if "/" in name else tmp_path / "scores"
        patients = scored(run, images, root, out, model=tmp_path / name)
        found[name] = patients["max_calibrated_malignant"]
    mean = (found["run/fold-0"] + found["run/fold-1"]) / 2
    np.testing.assert_allclose(found["run"], mean, rtol=0, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["noisy-or", "top-2"])
def test_patients_are_pooled_decided_and_evaluated_by_the_rule_of_the_run(run, tmp_path, pooling):
    run, root = run
    images = images_of_fold(run)
    usvit.export(run / "fold-0", tmp_path / "network")
    edit(tmp_path / "network", ("unit_thresholds", "units", "pooling"), pooling)
    metadata = load_record(tmp_path / "network" / "model.json", ModelMetadata)
    units = settings_of(metadata.unit_thresholds.units)
    expected, _ = calibrated_units(images, units, "malignant", metadata.temperature)
    threshold = expected["prob_malignant"].median() + 1e-5
    at = [one.rule for one in metadata.unit_thresholds.thresholds].index("sensitivity >= 0.9")
    edit(tmp_path / "network", ("unit_thresholds", "thresholds", at, "threshold"), threshold)
    out, own = tmp_path / "scores", expected["prob_malignant"].to_numpy()
    patients = scored(run, images, root, out, model=tmp_path / "network").loc[expected["patient_id"]]
    column = f"{pooling.replace('-', '_')}_calibrated_malignant"
    np.testing.assert_allclose(patients[column], own, rtol=0, atol=2e-6)
    assert patients["decision"].tolist() == np.where(own >= threshold, "malignant", "not malignant").tolist()
    assert column not in pd.read_csv(out / "studies.csv") and "view_weight" not in pd.read_csv(out / "scores.csv")
    assert f'"{pooling.capitalize()}","prob"' in (out / "scores.html").read_text()

    label = pd.read_parquet(run / "manifest.parquet").set_index("sha256")["label"]
    items = pd.read_csv(out / "scores.csv")
    items.assign(label=items["pixel_sha256"].map(label))[["item_id", "label"]].to_csv(tmp_path / "labels.csv")
    labels = LabelTable(tmp_path / "labels.csv")
    metrics, judged = evaluate_scores(out, labels, unit="patient", pooling=pooling, drop_seen=True)
    found = judged.table.set_index("patient_id").loc[patients["patient_id"], "calibrated"]
    assert found.tolist() == patients[column].tolist()
    assert metrics.operating_points[0].folds[0].threshold == pytest.approx(threshold, abs=1e-9)
    with pytest.raises(UsvitError, match="without attention over the images of a breast, exam or patient"):
        evaluate_scores(out, labels, unit="patient", pooling="attention", drop_seen=True)

    for unit in ("patient", "file"):
        fitted = tmp_path / f"{unit}.json"
        how = pooling if unit == "patient" else "mean"
        usvit.recalibrate(out, labels, out=fitted, unit=unit, pooling=how, n_resamples=20)
        again = tmp_path / unit
        scored(run, images, root, again, model=tmp_path / "network", calibration=fitted, operating_point="youden")
        points = load_record(fitted, CalibrationRecord).unit_thresholds.thresholds
        limit = next(one.threshold for one in points if one.rule == "Youden's index")
        rows = pd.read_csv(again / f"{unit}s.csv")
        name = column if unit == "patient" else "mean_calibrated_malignant"
        assert rows["threshold"].tolist() == pytest.approx([limit] * len(rows), abs=1e-8)
        called = np.where(rows[name] >= rows["threshold"], "malignant", "not malignant")
        assert rows["decision"].tolist() == called.tolist() and set(called) == {"malignant", "not malignant"}
