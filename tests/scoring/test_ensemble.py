"""The networks of a run as one judge."""

import json
import shutil

import jsonschema
import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from scipy.special import softmax

from tests.conftest import REPOSITORY, tiny_settings
from tests.records.contents import content
from tests.scoring.conftest import edit_metadata
from usvit.data.io.decoding import read_image
from usvit.data.io.image_hashes import pixel_sha256
from usvit.errors import UsvitError
from usvit.evaluation.predictions import read_predictions
from usvit.evaluation.recalibration import fit_temperature
from usvit.files import sha256_of_file
from usvit.metrics.ensemble_scores import mean_scores
from usvit.metrics.threshold_choice import RULES, choose_threshold
from usvit.records import ModelMetadata
from usvit.scoring.calibration import group_of, group_sha256
from usvit.scoring.ensemble import Ensemble
from usvit.scoring.operating_point import parse_rule

pytestmark = pytest.mark.slow

CPU = {"device": "cpu", "precision": "fp32"}
CLASSES = ["benign", "malignant", "normal"]


@pytest.fixture(scope="module")
def trained(small_phantom, tmp_path_factory):
    """A tiny cross-validation of three folds, trained until its probabilities differ."""
    from usvit.config import build_config, load_recipe
    from usvit.experiments.cross_validation import CrossValidation

    settings = tiny_settings()
    settings["model"] |= {"name": "timm:test_resnet", "weights": "scratch"}
    settings["optim"] = {"lr": 0.003, "warmup_steps": 0}
    settings["train"] |= {"epochs": None, "steps": 12}
    config = build_config(load_recipe("demo"), {"data": {"dataset": "phantom"}, **CPU}, settings)
    out = tmp_path_factory.mktemp("runs") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("usvit.reports.write_report", lambda path: None)  # seconds, and nobody reads it here
        CrossValidation("cv", config, roots={"": small_phantom}, out=out).run()
    return out


@pytest.fixture(scope="module")
def run(trained, tmp_path_factory):
    """The same, where every network has a temperature: so short a training leaves some worse than chance."""
    out = shutil.copytree(trained, tmp_path_factory.mktemp("calibrated") / "run")
    for k in range(3):
        edit_metadata(out / f"fold-{k}", temperature=metadata_of(out / f"fold-{k}")["temperature"] or 1.5)
    return out


@pytest.fixture(scope="module")
def pixels_of(run, small_phantom):
    """From a predictions table to (n, S, S, 3), as a fresh reader makes them."""
    manifest = pd.read_parquet(run / "manifest.parquet").set_index("image_id")
    preprocessing = Ensemble.load(run, folds="0", **CPU).preprocessing

    def pixels(table):
        images = [read_image(small_phantom / manifest.path[image_id]) for image_id in table.image_id]
        return np.stack([preprocessing.resized(image) for image in images])

    return pixels


def metadata_of(folder):
    return json.loads((folder / "model.json").read_text())


def columns(table, kind):
    return table[[f"{kind}_{name}" for name in CLASSES]].to_numpy()


@pytest.mark.parametrize("fold", [0, 2])
def test_scores_are_those_of_cv_for_the_same_images_and_fold(run, pixels_of, fold):
    table = read_predictions(run / f"fold-{fold}" / "predictions.csv")
    table = table[table.part == "test"]
    scores = Ensemble.load(run / f"fold-{fold}", **CPU).score(pixels_of(table))
    np.testing.assert_allclose(scores.prob, columns(table, "prob"), rtol=0, atol=1e-6)
    temperature = metadata_of(run / f"fold-{fold}")["temperature"] or 1.0
    expected = softmax(columns(table, "logit") / temperature, axis=1)[:, 1]
    np.testing.assert_allclose(scores.calibrated, expected, rtol=0, atol=1e-6)
    assert (scores.spread == 0).all() and scores.prob.dtype == np.float64
    assert np.ptp(scores.calibrated) > 1e-3


def test_several_networks_are_averaged_as_probabilities(run, pixels_of):
    images = pixels_of(read_predictions(run / "predictions.csv").head(7))
    single = [Ensemble.load(run, folds=str(k), **CPU).score(images) for k in range(3)]
    together = Ensemble.load(run, **CPU).score(images)
    np.testing.assert_allclose(together.prob, np.mean([one.prob for one in single], axis=0), atol=1e-12)
    calibrated = np.stack([one.calibrated for one in single])
    np.testing.assert_allclose(together.calibrated, calibrated.mean(0), atol=1e-12)
    np.testing.assert_allclose(together.spread, calibrated.std(0, ddof=0), atol=1e-12)
    assert together.spread.max() > 1e-3
    novelty = np.stack([one.ood for one in single])
    np.testing.assert_allclose(together.ood, np.median(novelty, axis=0))
    assert np.array_equal(together.unusual, (novelty > 1).sum(0) >= 2)


def test_networks_of_several_runs_see_images_with_their_own_normalisation(run, tmp_path, pixels_of):
    other = shutil.copytree(run, tmp_path / "other")
    own = metadata_of(other / "fold-1")["preprocessing"]
    edit_metadata(other / "fold-1", preprocessing=own | {"mean": [0.5] * 3, "std": [0.1] * 3})
    images = pixels_of(read_predictions(run / "predictions.csv").head(5))
    rule = {"operating_point": "0.5", **CPU}
    single = [Ensemble.load(one, **rule).score(images).prob for one in (run / "fold-0", other / "fold-1")]
    together = Ensemble.load([run / "fold-0", other / "fold-1"], **rule).score(images)
    np.testing.assert_allclose(together.prob, np.mean(single, axis=0), atol=1e-12)
    assert abs(single[1] - Ensemble.load(run / "fold-1", **rule).score(images).prob).max() > 1e-3


def test_an_image_is_judged_alike_whatever_is_beside_it(run, pixels_of):
    images, ensemble = pixels_of(read_predictions(run / "predictions.csv").head(5)), Ensemble.load(run, **CPU)
    together, last = ensemble.score(images), ensemble.score(images[4:])
    for name in ("prob", "calibrated", "spread", "ood"):
        np.testing.assert_allclose(getattr(together, name)[4:], getattr(last, name), rtol=1e-4, atol=1e-6)


def test_flipping_averages_an_image_with_its_mirror_image(run, pixels_of):
    images = pixels_of(read_predictions(run / "predictions.csv").head(4))
    plain, flipped = Ensemble.load(run, **CPU), Ensemble.load(run, flip=True, **CPU)
    one, other, both = plain.score(images), plain.score(images[:, :, ::-1].copy()), flipped.score(images)
    np.testing.assert_allclose(both.prob, (one.prob + other.prob) / 2, atol=1e-9)
    np.testing.assert_allclose(both.calibrated, (one.calibrated + other.calibrated) / 2, atol=1e-9)
    assert abs(one.prob - other.prob).max() > 1e-4
    mirrored = flipped.score(images[:, :, ::-1].copy())
    np.testing.assert_allclose(mirrored.prob, both.prob, atol=1e-6)
    np.testing.assert_allclose(both.ood, one.ood)  # of the image as it is


def test_the_metadata_holds_what_the_inner_validation_images_say(trained):
    run = trained
    for fold in range(3):
        table = read_predictions(run / f"fold-{fold}" / "predictions.csv")
        val, metadata = table[table.part == "val"], metadata_of(run / f"fold-{fold}")
        assert metadata["schema_version"] == ModelMetadata.VERSION
        fit = fit_temperature([CLASSES.index(label) for label in val.label], columns(val, "logit"))
        stated = metadata["temperature"]
        assert stated == getattr(fit, "value", None) and metadata["temperature_reason"] == getattr(fit, "reason", None)
        prob = softmax(columns(val, "logit") / (stated or 1.0), axis=1)[:, 1]
        assert [entry["rule"] for entry in metadata["thresholds"]] == [rule.name for rule in RULES]
        for rule, entry in zip(RULES, metadata["thresholds"], strict=True):
            choice = choose_threshold(val.label == "malignant", prob, rule)
            assert entry["reason"] == choice.reason
            assert entry["threshold"] == pytest.approx(choice.threshold, abs=1e-12)
            assert entry["n_images"] == len(val) and entry["n_groups"] == val.group_id.nunique()
            assert entry["score"] == ("plain" if stated is None else "calibrated") + " probability"
        assert metadata["weights_sha256"] == sha256_of_file(run / f"fold-{fold}" / "model.safetensors")


def test_the_metadata_keeps_to_its_schema(run):
    schema = json.loads((REPOSITORY / "docs" / "reference" / "model.schema.json").read_text())
    for fold in range(3):
        jsonschema.validate(metadata_of(run / f"fold-{fold}"), schema, jsonschema.Draft202012Validator)


def test_the_stated_rate_is_found_again_on_the_test_images(run, pixels_of):
    flagged = []
    for fold in range(3):
        table = read_predictions(run / f"fold-{fold}" / "predictions.csv")
        unusual = Ensemble.load(run / f"fold-{fold}", **CPU).score(pixels_of(table[table.part == "test"])).unusual
        stated = metadata_of(run / f"fold-{fold}")["novelty"]["in_distribution"]
        assert (stated["n_flagged"], stated["n_images"]) == (unusual.sum(), len(unusual))
        assert stated["ci95"][0] <= stated["rate"] <= stated["ci95"][1]
        flagged += unusual.tolist()
    whole = Ensemble.load(run, **CPU).record().content()["novelty"]["in_distribution"]
    assert (whole["n_flagged"], whole["n_images"]) == (sum(flagged), 48)


def test_blank_frames_and_noise_are_unusual(run):
    side = 32
    noise = np.random.default_rng(0).integers(0, 256, (1, side, side, 3), dtype=np.uint8)
    strange = np.concatenate([np.zeros_like(noise), np.full_like(noise, 255), noise])
    scores = Ensemble.load(run, **CPU).score(strange)
    assert scores.unusual.all() and np.isfinite(scores.ood).all() and np.isfinite(scores.prob).all()


def test_the_threshold_of_one_network_is_its_metadata_s(run):
    for fold in range(3):
        ensemble = Ensemble.load(run, folds=str(fold), operating_point="sensitivity >= 0.95", **CPU)
        entry = metadata_of(run / f"fold-{fold}")["thresholds"][1]
        assert ensemble.threshold == entry["threshold"]
        if entry["threshold"] is not None:
            text = f"sensitivity >= 0.95 on {entry['n_images']} inner validation images of fold {fold}"
            assert ensemble.threshold_origin == text


def unseen(run, fold, part):
    """image -> (whether it is malignant, calibrated probability) of one network."""
    table = read_predictions(run / f"fold-{fold}" / "predictions.csv")
    table = table[table.part == part]
    temperature = metadata_of(run / f"fold-{fold}")["temperature"] or 1.0
    prob = softmax(columns(table, "logit") / temperature, axis=1)[:, 1]
    return {i: (label == "malignant", p) for i, label, p in zip(table.image_id, table.label, prob, strict=True)}


@pytest.mark.parametrize(("folds", "numbers"), [("all", [0, 1, 2]), ("2, 0", [0, 2])])
def test_the_threshold_of_several_is_chosen_for_their_mean(run, folds, numbers, monkeypatch):
    # The phantom is small: let a correlation come from few images.
    monkeypatch.setattr("usvit.metrics.ensemble_scores.MIN_PAIRS", 2)
    ensemble = Ensemble.load(run, folds=folds, operating_point="specificity>=0.5", **CPU)
    test, val = ([unseen(run, k, part) for k in numbers] for part in ("test", "val"))
    label = {i: own for part in (*test, *val) for i, (own, _) in part.items()}
    scores = [
        np.array([[part[i][1] if i in part else np.nan for part in parts] for i in label]) for parts in (test, val)
    ]
    drawn = mean_scores(*scores, np.array(list(label.values())))
    values = np.concatenate([drawn.positive, drawn.negative])
    positive = np.arange(len(values)) < len(drawn.positive)
    expected = choose_threshold(positive, values, parse_rule("specificity>=0.5")).threshold
    assert ensemble.threshold == pytest.approx(expected, abs=1e-9)
    n = sum(map(len, test))
    assert f"on {n} out-of-fold images, for the mean of {len(numbers)} networks" in ensemble.threshold_origin


def test_without_pairs_the_threshold_of_single_networks_comes_with_a_warning(run, tmp_path):
    out = shutil.copytree(run, tmp_path / "run")
    for k in range(3):
        (out / f"fold-{k}" / "predictions.csv").unlink()  # only the run's own table is left, which holds test images
    ensemble = Ensemble.load(out, operating_point="specificity>=0.5", **CPU)
    found = [one for k in range(3) for one in unseen(run, k, "test").values()]
    expected = choose_threshold(*map(np.array, zip(*found, strict=True)), parse_rule("specificity>=0.5")).threshold
    assert ensemble.threshold == pytest.approx(expected, abs=1e-12)
    assert "single networks, not of their mean" in ensemble.threshold_origin
    assert "usvit recalibrate" in ensemble.threshold_origin


def test_mirrored_images_are_said_to_be_absent_from_the_choice(run):
    assert "--flip" in Ensemble.load(run, operating_point="youden", flip=True, **CPU).threshold_origin
    assert "--flip" not in Ensemble.load(run, operating_point="0.4", flip=True, **CPU).threshold_origin


def test_a_number_is_a_threshold_and_nonsense_is_none(run):
    assert Ensemble.load(run, operating_point="0.4", **CPU).threshold == 0.4
    assert Ensemble.load(run, operating_point="0.4", **CPU).threshold_origin == "fixed at 0.4"
    for words in ("sens>=0.9", "sensitivity>=1.5", "sensitivity>=x", "1.2", "nan", "", "specificity>0.9"):
        with pytest.raises(UsvitError, match="Unknown operating point"):
            parse_rule(words)
    assert parse_rule(" Youden ").kind == "youden"


def test_where_no_threshold_exists_there_is_a_reason(run, tmp_path):
    out = shutil.copytree(run, tmp_path / "run")
    for path in (out / "predictions.csv", *(out / f"fold-{k}" / "predictions.csv" for k in range(3))):
        path.unlink()
    ensemble = Ensemble.load(out, **CPU)
    assert ensemble.threshold is None
    assert ensemble.threshold_origin == "none: sensitivity >= 0.9: the run has no predictions.csv to choose it on"
    edit_metadata(out / "fold-1", thresholds=[])
    assert "neither model.json nor" in Ensemble.load(out, folds="1", **CPU).threshold_origin


def write_calibration(path, ensemble, **changed):
    found = {
        "model_sha256": ensemble.sha256,
        "classes": list(CLASSES),
        "temperature": {"value": 2.5, "ci95": [1.5, 4.0], "reason": None},
        "thresholds": [
            {"rule": "sensitivity >= 0.9", "threshold": 0.31, "ci95": [0.2, 0.4], "reason": None},
            {"rule": "specificity >= 0.9", "threshold": None, "ci95": None, "reason": "no negative image"},
        ],
        "n_images": 80,
        "n_groups": 40,
        "fitted_on_sha256": ["ab" * 32],
        "fitted_on_groups_sha256": [group_sha256("patient:a1")],
    }
    path.write_text(json.dumps(content("calibration", **found, **changed)))
    return path


def test_a_local_calibration_replaces_temperatures_and_thresholds(run, tmp_path, pixels_of):
    plain = Ensemble.load(run, **CPU)
    path = write_calibration(tmp_path / "calibration.json", plain)
    images = pixels_of(read_predictions(run / "predictions.csv").head(3))
    local = Ensemble.load(run, calibration=path, **CPU)
    scores = local.score(images)
    np.testing.assert_array_equal(scores.prob, plain.score(images).prob)
    np.testing.assert_allclose(scores.calibrated, softmax(np.log(scores.prob) / 2.5, axis=1)[:, 1], atol=1e-12)
    single = [Ensemble.load(run, folds=str(k), **CPU).score(images).prob for k in range(3)]
    each = [softmax(np.log(prob) / 2.5, axis=1)[:, 1] for prob in single]
    np.testing.assert_allclose(scores.spread, np.std(each, axis=0), atol=1e-12)
    assert local.threshold == 0.31
    assert local.threshold_origin == "sensitivity >= 0.9 on 80 local images of 40 groups (usvit recalibrate)"
    for image in (("ab" * 32, "file:b2"), ("cd" * 32, "patient:a1")):
        assert local.seen(*image) and not plain.seen(*image)
    assert not local.seen("cd" * 32, "file:b2")
    none = Ensemble.load(run, calibration=path, operating_point="specificity>=0.9", **CPU)
    assert none.threshold is None and "no negative image" in none.threshold_origin
    assert "has no threshold" in Ensemble.load(run, calibration=path, operating_point="youden", **CPU).threshold_origin
    with pytest.raises(UsvitError, match="another model"):
        Ensemble.load(run, folds="0", calibration=path, **CPU)


def test_an_image_depends_on_its_patient_else_its_study_else_its_file():
    assert [group_of("p", "s", "i"), group_of("", "s", "i"), group_of("", "", "i")] == [
        "patient:p",
        "study:s",
        "file:i",
    ]


def test_what_the_networks_have_seen_is_known(run, small_phantom):
    manifest = pd.read_parquet(run / "manifest.parquet")
    hashes = [pixel_sha256(read_image(small_phantom / path)) for path in manifest.path.head(5)]
    whole, first = Ensemble.load(run, **CPU), Ensemble.load(run, folds="0", **CPU)
    assert all(whole.seen(one, "") for one in hashes) and not whole.seen("0" * 64, "")
    folds = pd.read_csv(run / "folds.csv").query("fold == 0").set_index("image_id").part
    for image_id, sha256 in zip(manifest.image_id.head(5), hashes, strict=True):
        assert first.seen(sha256, "") == (folds[image_id] != "test")


def test_the_name_of_an_ensemble_depends_on_its_weights_and_not_on_how_it_was_asked_for(run):
    assert Ensemble.load(run, folds="0,2", **CPU).sha256 == Ensemble.load(run, folds=" 2,0,0", **CPU).sha256
    names = {Ensemble.load(run, folds=folds, **CPU).sha256 for folds in ("all", "0", "1", "0,2")}
    assert len(names) == 4
    assert Ensemble.load(run / "fold-1", **CPU).sha256 == Ensemble.load(run, folds="1", **CPU).sha256


def test_the_description_is_json_and_names_every_network(run):
    ensemble = Ensemble.load(run, **CPU)
    told = json.loads(json.dumps(ensemble.record().content(), allow_nan=False))
    assert [one["fold"] for one in told["members"]] == [0, 1, 2] and ensemble.n_members == 3
    assert told["members"][1]["weights_sha256"] == sha256_of_file(run / "fold-1" / "model.safetensors")
    assert told["members"][0]["novelty"]["thresholds"].keys() == {"features", "picture"}
    assert told["positive_class"] == "malignant" and told["preprocessing"]["image_size"] == 32
    assert str(run) not in json.dumps(told)


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"classes": ["benign", "malignant", "other"]}, "the classes of fold-0 is"),
        ({"positive_class": "benign"}, "the positive class of fold-0 is malignant, but that of fold-1 is benign"),
        (
            {"preprocessing": {"image_size": 32, "resize": "squash", "mean": [0.5] * 3, "std": [0.5] * 3}},
            "preprocessing",
        ),
        ({"fold": 0}, "fold-0 and fold-1 are both fold 0"),
        ({"classes": ["benign", "malignant"]}, "with 2 classes, which .*model.json describes"),
        ({"weights_sha256": "0" * 64}, "their SHA-256 differs"),
        ({"temperature": -1}, "key temperature: should be greater"),
        ({"temperature": "hot"}, "key temperature: should be a valid number"),
        ({"thresholds": [{"rule": "youden"}]}, r"key thresholds\.0\.threshold: Field required"),
    ],
)
def test_networks_that_do_not_belong_together_are_refused(run, tmp_path, changed, says):
    out = shutil.copytree(run, tmp_path / "run")
    edit_metadata(out / "fold-1", **changed)
    with pytest.raises(UsvitError, match=says):
        Ensemble.load(out, **CPU)
    assert Ensemble.load(out, folds="0,2", **CPU).n_members == 2


def test_damaged_weights_and_exchanged_novelty_are_refused(run, tmp_path):
    out = shutil.copytree(run, tmp_path / "run")
    shutil.copy(run / "fold-0" / "novelty.safetensors", out / "fold-1" / "novelty.safetensors")
    with pytest.raises(UsvitError, match=r"novelty\.safetensors is not the file"):
        Ensemble.load(out, **CPU)
    state = load_file(run / "fold-2" / "model.safetensors")
    state["fc.bias"][:] = torch.nan
    save_file(state, out / "fold-2" / "model.safetensors")
    edit_metadata(out / "fold-2", weights_sha256=None)
    with pytest.raises(UsvitError, match="network of fold 2 are not finite"):
        Ensemble.load(out, folds="2", **CPU).score(np.zeros((1, 32, 32, 3), np.uint8))


def test_what_is_no_run_fold_or_picture_is_told(run, tmp_path):
    with pytest.raises(UsvitError, match="is not a run of usvit"):
        Ensemble.load(tmp_path, **CPU)
    with pytest.raises(UsvitError, match="Unknown fold '7'"):
        Ensemble.load(run, folds="0,7", **CPU)
    with pytest.raises(UsvitError, match="the folder of one network"):
        Ensemble.load(run / "fold-0", folds="0", **CPU)
    ensemble = Ensemble.load(run, folds="0", **CPU)
    for bad in (np.zeros((1, 32, 32, 3)), np.zeros((1, 16, 32, 3), np.uint8), np.zeros((0, 32, 32, 3), np.uint8)):
        with pytest.raises(ValueError, match="expected uint8"):
            ensemble.score(bad)


def test_an_export_is_scored_like_the_fold_it_was_made_of(run, tmp_path, pixels_of):
    from usvit.exporting import export

    export(str(run / "fold-1"), tmp_path / "export", format="safetensors")
    images = pixels_of(read_predictions(run / "predictions.csv").head(3))
    one, other = (Ensemble.load(path, **CPU).score(images) for path in (run / "fold-1", tmp_path / "export"))
    for name in ("prob", "calibrated", "ood"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
