"""Recalibration: the fit of the metrics' own functions, honest about few labels, and never judged on its own images."""

import json

import jsonschema
import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, logit
from scipy.stats import norm

from tests.conftest import REPOSITORY
from tests.scoring.make_scores import MODEL, evaluated, make_scores
from usvit.errors import LeakageError, UsvitError
from usvit.evaluation.recalibration import fit_temperature
from usvit.files import write_json
from usvit.metrics.intervals import wilson
from usvit.metrics.threshold_choice import RULES, Rule, choose_threshold
from usvit.scoring.calibration import read_calibration, scaled
from usvit.scoring.external.evaluation import evaluate_scores
from usvit.scoring.external.labels import LabelTable
from usvit.scoring.external.recalibration import LabelledImages, LabelledRows, fit, more_groups, recalibrate
from usvit.scoring.external.scored_set import read_scored_set
from usvit.scoring.operating_point import of_calibration, units_of_calibration

SCHEMA = json.loads((REPOSITORY / "docs/reference/calibration.schema.json").read_text())


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("home")
    truth = make_scores(folder / "scores", key=folder / "key", n_patients=60, threshold=0.4)
    at = np.arange(len(truth)) // 2 % 4 < 2  # two patients of each class here, two there
    truth[at].to_csv(folder / "here.csv", index=False)
    truth[~at & ~truth.failed].to_csv(folder / "there.csv", index=False)
    truth.to_csv(folder / "all.csv", index=False)
    return folder


def table(home, name):
    return LabelTable(home / f"{name}.csv", join="item_id", key=home / "key")


@pytest.fixture(scope="module")
def record(home):
    made = recalibrate(home / "scores", table(home, "here"), out=home / "calibration.json", n_resamples=100)
    return made.content()


def images_of(n_positive, per_patient=1, *, correlation=0.5, separation=1.81, temperature=2.0, seed=0):
    """Patients of both classes, whose log-odds are calibrated after this temperature."""
    rng = np.random.default_rng(seed)
    label = np.repeat(np.repeat([0, 1], n_positive), per_patient)
    patient = np.repeat(np.arange(2 * n_positive), per_patient)
    noise = rng.normal(0, np.sqrt(correlation), 2 * n_positive)[patient]
    noise = noise + rng.normal(0, np.sqrt(1 - correlation), len(label))
    odds = temperature * (np.where(label == 1, 1, -1) * separation**2 / 2 + separation * noise)
    return LabelledImages(label, np.stack([expit(-odds), expit(odds)], 1), patient.astype(str).astype(object), 1)


@pytest.mark.slow
def test_the_file_holds_what_the_metrics_own_functions_give(home, record):
    assert json.loads((home / "calibration.json").read_text()) == record
    jsonschema.validate(record, SCHEMA, jsonschema.Draft202012Validator)
    rows = read_scored_set(home / "scores").rows
    here = pd.read_csv(home / "here.csv").set_index("item_id")["label"]
    rows = rows[rows["item_id"].isin(here.index)]
    label = (rows["item_id"].map(here) == "malignant").to_numpy()
    prob = rows[["prob_benign", "prob_malignant"]].to_numpy()
    want = fit_temperature(label.astype(int), np.log(prob))
    assert record["temperature"]["value"] == pytest.approx(want.value)
    odds = logit(prob[:, 1]) / want.value  # of two classes the scaling is a division of the log-odds
    for entry, rule in zip(record["thresholds"], RULES, strict=True):
        choice = choose_threshold(label, expit(odds), rule)
        assert entry["rule"] == rule.name
        assert entry["threshold"] == pytest.approx(choice.threshold)
        called = odds >= logit(choice.threshold)
        assert entry["sensitivity"]["value"] == pytest.approx(called[label].mean())
        assert entry["specificity"]["value"] == pytest.approx((~called[~label]).mean())
    assert record["fitted_on_sha256"] == sorted(rows["pixel_sha256"])
    assert (record["n_images"], record["n_groups"], record["positive_groups"]) == (60, 30, 15)


def test_the_scored_set_is_not_touched(home, tmp_path):
    before = {path.name: path.read_bytes() for path in (home / "scores").iterdir()}
    recalibrate(home / "scores", table(home, "here"), out=tmp_path / "c.json", n_resamples=5)
    assert {path.name: path.read_bytes() for path in (home / "scores").iterdir()} == before


@pytest.mark.slow
def test_a_calibration_is_judged_on_other_patients_and_never_on_its_own(home, record):
    metrics, found = evaluated(home / "scores", table(home, "there"), calibration=home / "calibration.json")
    points = {one["rule"]: one for one in metrics["operating_points"]}
    for entry in record["thresholds"]:
        assert points[f"frozen: {entry['rule']}"]["folds"][0]["threshold"] == entry["threshold"]
    want = expit(logit(found.table["prob_malignant"]) / record["temperature"]["value"])
    np.testing.assert_allclose(found.table["calibrated"], want, atol=1e-9)
    assert metrics["external"]["recalibrated"]["n_images"] == 60
    with pytest.raises(LeakageError, match="has seen images of 30 groups"):
        evaluate_scores(home / "scores", table(home, "here"), calibration=home / "calibration.json")
    with pytest.raises(LeakageError, match="--drop-seen"):
        evaluate_scores(home / "scores", table(home, "all"), calibration=home / "calibration.json")
    rest, _ = evaluated(home / "scores", table(home, "all"), calibration=home / "calibration.json", drop_seen=True)
    assert rest["n_images"] == metrics["n_images"] == 60


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_thresholds_of_patients_are_chosen_on_the_pooled_calibrated_probability_of_their_images(
    home, record, tmp_path, pooling
):
    made = recalibrate(
        *(home / "scores", table(home, "here")),
        out=tmp_path / "c.json",
        n_resamples=20,
        unit="patient",
        pooling=pooling,
    ).content()
    jsonschema.validate(made, SCHEMA, jsonschema.Draft202012Validator)
    assert made["conformal"] == record["conformal"]
    assert made["temperature"]["value"] == record["temperature"]["value"]
    assert [one["threshold"] for one in made["thresholds"]] == [one["threshold"] for one in record["thresholds"]]
    rows = read_scored_set(home / "scores").rows
    truth = pd.read_csv(home / "here.csv").set_index("item_id")["label"]
    rows = rows[rows["item_id"].isin(truth.index)]
    score = expit(logit(rows["prob_malignant"]) / made["temperature"]["value"])
    pooled = score.groupby(rows["patient_id"]).agg(pooling)
    label = (rows["item_id"].map(truth) == "malignant").groupby(rows["patient_id"]).max()
    units = made["unit_thresholds"]
    assert (units["units"]["unit"], units["units"]["n_units"], units["units"]["n_images"]) == ("patient", 30, 60)
    for entry, rule in zip(units["thresholds"], RULES, strict=True):
        choice = choose_threshold(label.to_numpy(), pooled.to_numpy(), rule)
        assert entry["threshold"] == pytest.approx(choice.threshold)
        assert entry["sensitivity"]["value"] == pytest.approx((pooled >= choice.threshold)[label].mean())
    drawn = next(one for one in units["thresholds"] if one["rule"] == "sensitivity >= 0.9")
    assert drawn["ci95"][0] <= drawn["threshold"] <= drawn["ci95"][1]

    def frozen(**settings):
        metrics, _ = evaluated(home / "scores", table(home, "there"), calibration=tmp_path / "c.json", **settings)
        return {one["rule"]: one["folds"][0]["threshold"] for one in metrics["operating_points"]}

    own = frozen(unit="patient", pooling=pooling)
    assert all(own[f"frozen: {one['rule']}"] == one["threshold"] for one in units["thresholds"])
    single = frozen(unit="exam", pooling=pooling)
    assert all(single[f"frozen: {one['rule']}"] == one["threshold"] for one in made["thresholds"])

    rule = Rule("sensitivity", 0.9)
    fit_of_file = read_calibration(tmp_path / "c.json")
    assert units_of_calibration(fit_of_file, rule).point.threshold == drawn["threshold"]
    assert "30 local patients of 30 groups (usvit recalibrate)" in units_of_calibration(fit_of_file, rule).point.origin
    assert of_calibration(fit_of_file, rule).threshold != drawn["threshold"]
    assert units_of_calibration(read_calibration(home / "calibration.json"), rule) is None


def test_a_unit_that_no_image_states_and_units_of_one_class_are_refused(home, tmp_path):
    for unit, says in (("lesion", "no labelled image states its lesion"), ("breast", "its patient and side")):
        with pytest.raises(UsvitError, match=f"no figures of the unit {unit}.*{says}.*--lesion, --side or --patient"):
            recalibrate(home / "scores", table(home, "here"), out=tmp_path / "c.json", unit=unit)
    images = images_of(2, 2)
    mixed = LabelledRows(np.ones(2, bool), np.array(["0", "1"], object), lambda prob: prob[:2, 1])
    with pytest.raises(UsvitError, match="All 2 labelled units are of class 'malignant'"):
        fit(images, "malignant", mixed, n_resamples=2)
    assert not (tmp_path / "c.json").exists()


def test_another_image_of_a_patient_of_the_fit_is_refused_in_another_export(home, record, tmp_path):
    def repictured(rows):
        return rows.assign(pixel_sha256=[f"{k + 10**6:064x}" for k in range(len(rows))])

    make_scores(tmp_path / "later", key=home / "key", n_patients=60, change=repictured)
    with pytest.raises(LeakageError, match="has seen images of 30 groups"):
        evaluate_scores(tmp_path / "later", table(home, "here"), calibration=home / "calibration.json")


def test_a_calibration_of_another_model_is_refused(home, record, tmp_path):
    write_json(tmp_path / "other.json", {**record, "model_sha256": "6" * 64})
    with pytest.raises(UsvitError, match="another model"):
        evaluate_scores(home / "scores", table(home, "there"), calibration=tmp_path / "other.json")
    assert read_calibration(home / "calibration.json").model_sha256 == MODEL


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"temperature": {"value": -1.0}}, "damaged"),
        ({"temperature": {"value": "hot"}}, "damaged"),
        ({"thresholds": None}, "damaged"),
        ({"classes": [3, 4]}, "damaged"),
        ({"schema_version": "2.0"}, "another version of usvit"),
    ],
)
def test_a_damaged_calibration_is_refused(record, tmp_path, change, said):
    write_json(tmp_path / "c.json", {**record, **change})
    with pytest.raises(UsvitError, match=said):
        read_calibration(tmp_path / "c.json")


@pytest.mark.slow
def test_images_that_the_model_was_trained_on_calibrate_nothing(home, tmp_path):
    make_scores(tmp_path / "scores", key=home / "key", change=lambda rows: rows.assign(seen=rows.index < 4))
    with pytest.raises(LeakageError, match="The model has seen"):
        recalibrate(tmp_path / "scores", table(home, "here"), out=tmp_path / "c.json")
    found = recalibrate(
        tmp_path / "scores", table(home, "here"), out=tmp_path / "c.json", drop_seen=True, n_resamples=5
    )
    assert found.n_seen_images_left_out == 4


def test_one_class_alone_is_refused_and_nothing_is_written(home, tmp_path):
    for name in ("malignant", "benign"):
        labels = pd.read_csv(home / "here.csv")
        labels[labels.label == name].to_csv(tmp_path / f"{name}.csv", index=False)
        with pytest.raises(UsvitError, match="one side alone"):
            recalibrate(home / "scores", LabelTable(tmp_path / f"{name}.csv", join="item_id"), out=tmp_path / "c.json")
    assert not (tmp_path / "c.json").exists()


def test_an_earlier_calibration_is_not_overwritten(home, record):
    with pytest.raises(UsvitError, match="Nothing was changed"):
        recalibrate(home / "scores", table(home, "here"), out=home / "calibration.json")


def test_where_no_temperature_is_best_probabilities_stay_and_thresholds_are_chosen_on_them():
    label = np.repeat([0, 1], 6)
    prob = np.stack([1 - np.linspace(0.1, 0.9, 12), np.linspace(0.1, 0.9, 12)], 1)
    found = fit(LabelledImages(label, prob, np.arange(12).astype(str).astype(object), 1), "malignant", n_resamples=20)
    assert found.temperature.value is None
    assert "every decision is right" in found.temperature.reason
    assert found.thresholds[0].threshold == pytest.approx(0.5)


def test_one_patient_has_no_interval():
    images = images_of(3, 4)
    images = LabelledImages(images.label, images.prob, np.full(len(images.label), "p", dtype=object), 1)
    found = fit(images, "malignant", n_resamples=20)
    assert found.temperature.ci95 is None
    assert found.thresholds[0].ci95 is None


@pytest.mark.slow
def test_repeating_every_image_within_its_patient_makes_nothing_surer():
    once = images_of(20)
    twice = LabelledImages(*(np.repeat(one, 2, axis=0) for one in (once.label, once.prob, once.group)), 1)
    few, many = (fit(one, "malignant", n_resamples=200).temperature for one in (once, twice))
    assert few.value == pytest.approx(many.value)
    assert few.ci95 == pytest.approx(many.ci95)


@pytest.mark.slow
def test_choosing_and_judging_on_the_same_few_flatters_and_the_correction_takes_it_back():
    apparent, corrected, true = [], [], []
    for seed in range(40):
        found = fit(images_of(12, seed=seed), "malignant", rules=[Rule("youden")], n_resamples=60, seed=seed)
        one = found.thresholds[0]
        limit = logit(one.threshold) * (found.temperature.value or 1) / 2
        separation = 1.81
        true.append(norm.sf((limit - separation**2 / 2) / separation) + norm.cdf(limit / separation + separation / 2))
        apparent.append(one.sensitivity.value + one.specificity.value)
        corrected.append(one.sensitivity.corrected + one.specificity.corrected)
    assert np.mean(apparent) - np.mean(true) > 0.05
    assert abs(np.mean(corrected) - np.mean(true)) < (np.mean(apparent) - np.mean(true)) / 2


def test_the_sentences_say_how_few_and_how_many_more():
    said = fit(images_of(12), "malignant", n_resamples=20).said
    assert said[0].startswith("With 12 malignant patients, sensitivity >= 0.9 is compatible with ")
    assert any("There are 12 malignant patients and 12 patients without 'malignant'" in one for one in said)
    assert "Judge the calibration on other patients" in said[-1]
    assert not any(one.startswith("There are") for one in fit(images_of(100), "malignant", n_resamples=2).said)


@pytest.mark.parametrize(("share", "n"), [(0.9, 20), (0.95, 40), (0.5, 10), (1.0, 12), (0.917, 12)])
def test_so_many_more_halve_the_interval(share, n):
    def width(cases):
        low, high = wilson(round(share * cases), cases)
        return high - low

    enough = n + more_groups(share, n)
    assert width(enough) <= width(n) / 2
    assert width(enough - 1) > width(n) / 2


def test_scaling_keeps_the_ranking_and_none_keeps_everything():
    prob = np.array([[0.2, 0.8], [0.0, 1.0], [0.6, 0.4]])
    np.testing.assert_array_equal(scaled(prob, None), prob)
    np.testing.assert_allclose(scaled(prob, 1.0), prob, atol=1e-12)
    cooled = scaled(prob, 3.0)
    assert (cooled[:, 1].argsort() == prob[:, 1].argsort()).all()
    np.testing.assert_allclose(logit(cooled[[0, 2], 1]), logit(prob[[0, 2], 1]) / 3)


@pytest.mark.slow
def test_the_interval_of_the_temperature_holds_the_truth_about_as_often_as_it_says():
    held = []
    for seed in range(80):
        found = fit(images_of(50, 2, seed=seed), "malignant", rules=[], n_resamples=150, seed=seed)
        low, high = found.temperature.ci95
        held.append(low <= 2 <= high)
    assert np.mean(held) > 0.85  # 0.95 less four Monte Carlo errors
