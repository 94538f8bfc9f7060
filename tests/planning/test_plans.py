"""Plans of studies: what is taken from the user, what from a run, and what is refused."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

from tests.cli.runs import make_run
from usvit.config.planning import PatientSettings
from usvit.documents import terminal_text
from usvit.errors import UsvitError
from usvit.evaluation.predictions import read_predictions
from usvit.metrics.area_interval import within_group_correlation
from usvit.planning import plan_accuracy, plan_comparison, plan_document, plan_validation
from usvit.planning.assumptions import observe


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [make_run(folder / name, seed=seed, skill=1.2, n=240) for name, seed in (("one", 1), ("two", 2))]


@pytest.fixture
def out(tmp_path):
    return tmp_path / "plan"


def of(record, name):
    return next(one for one in record.criteria if one.name == name)


def test_the_largest_criterion_is_the_answer(out):
    record, folder = plan_validation(auc=0.8, prevalence=0.018, oe_width=1.0, out=out)
    assert {one.name: one.n_patients for one in record.criteria} == {
        "O/E": 906, "calibration slope": of(record, "calibration slope").n_patients, "AUC": 4252
    }  # fmt: skip
    assert record.decisive == "calibration slope" and record.n_patients == record.n_images > 4252
    assert record.n_positive_images == round(0.018 * record.n_images)
    assert json.loads((folder / "plan.json").read_text()) == record.content()


def test_the_curve_goes_through_the_plan(out):
    record, _ = plan_validation(auc=0.9, prevalence=0.3, threshold=0.1, images=2, images_cv=0.3, icc=0.5, out=out)
    planned = next(point for point in record.curve if point.n_patients == record.n_patients)
    decisive = of(record, record.decisive)
    assert planned.half_widths[record.decisive] == pytest.approx(decisive.target / 2, rel=0.01)
    for name in planned.half_widths:
        widths = [point.half_widths[name] for point in record.curve]
        assert widths == sorted(widths, reverse=True)
        assert planned.half_widths[name] <= of(record, name).target / 2 + 1e-6


def test_several_images_of_a_patient_cost_images_and_save_patients(out):
    alone = plan_accuracy(sensitivity=0.9, specificity=0.8, prevalence=0.3, out=out)[0]
    several = plan_accuracy(sensitivity=0.9, specificity=0.8, prevalence=0.3, images=3, icc=0.5, out=out)[0]
    same = plan_accuracy(sensitivity=0.9, specificity=0.8, prevalence=0.3, images=3, out=out)[0]
    assert several.n_images > alone.n_images and several.n_patients < alone.n_patients
    assert same.n_patients == alone.n_patients  # without --icc further images add nothing
    assert any("no --icc was given" in note for note in same.assumptions.notes)


def test_a_run_gives_what_is_not_stated(runs, out):
    record, _ = plan_validation(like=runs[0], out=out)
    assumed = record.assumptions
    assert assumed.like == ["one"] and assumed.positive_class == "malignant"
    assert assumed.images_per_patient == 2 and assumed.images_cv == 0 and 0 < assumed.prevalence < 0.5
    assert 0 <= assumed.icc < 0.5  # the run's scores are independent within patients
    stated = plan_validation(like=runs[0], prevalence=0.2, images=1, icc=0, out=out)[0]
    assert stated.assumptions.prevalence == 0.2 and stated.assumptions.images_per_patient == 1
    assert stated.assumptions.linear_predictor_mean < assumed.linear_predictor_mean  # rarer positives


def test_the_assumptions_are_those_of_the_unit(runs, out):
    record, _ = plan_validation(like=runs[0], unit="patient", pooling="max", out=out)
    predictions = read_predictions(runs[0] / "predictions.csv")
    own = predictions[predictions["part"] == "test"].groupby("patient_id")
    score, label = own["prob_malignant"].max(), own["label"].agg(lambda one: (one == "malignant").any())
    assumed = record.assumptions
    assert assumed.auc == pytest.approx(roc_auc_score(label, score))
    assert assumed.prevalence == pytest.approx(label.mean())
    assert (assumed.images_per_patient, assumed.icc, assumed.unit.unit) == (1, 0, "patient")
    assert (assumed.unit.n_units, assumed.unit.n_images) == (len(score), int(own.size().sum()))
    assert all(one.design_effect == 1 for one in record.criteria) and record.n_images == record.n_patients
    text = terminal_text(plan_document(record))
    assert "Share of positive patients (prevalence)" in text and "a row is one patient of 2 to 2 images" in text.lower()
    assert "per patient" not in text and "images of a patient" not in text
    images, _ = plan_validation(like=runs[0], out=out)
    assert images.assumptions.unit is None and images.assumptions.auc < assumed.auc
    assert "Share of positive images (prevalence)" in terminal_text(plan_document(images))
    both, _ = plan_comparison(like=runs, unit="patient", margin=0.1, out=out)
    assert both.assumptions.auc < 1 and both.assumptions.unit.pooling == "mean"


def test_a_unit_without_a_run_or_that_the_run_does_not_have_is_refused(runs, out):
    with pytest.raises(UsvitError, match="--unit lesion says how a run is read: name one with --like"):
        plan_validation(auc=0.9, prevalence=0.3, unit="lesion", out=out)
    with pytest.raises(UsvitError, match="no figures of the unit lesion: the predictions have no column lesion_id"):
        plan_accuracy(like=runs[0], unit="lesion", out=out)
    assert not out.exists()


def test_two_runs_give_both_aucs_and_the_correlation(runs, out):
    record, _ = plan_comparison(like=runs, margin=0.1, out=out)
    assumed = record.assumptions
    assert assumed.like == ["one", "two"] and abs(assumed.correlation) < 0.3 and record.test == "noninferiority"
    assert abs(assumed.auc - assumed.auc_b) < 0.1
    points = [point.power for point in record.curve]
    assert any("cross-validation takes more patients" in note for note in record.assumptions.notes)
    assert points == sorted(points) and any(abs(power - 0.8) < 0.01 for power in points)


def test_equal_runs_are_refused_and_a_tiny_variance_needs_two_images(runs, out):
    with pytest.raises(UsvitError, match="rank all images alike"):
        plan_comparison(like=[runs[0], runs[0]], margin=0.1, out=out)
    assert not out.exists()
    record, _ = plan_comparison(auc=0.9, auc_b=0.9, correlation=0.9999999, prevalence=0.3, margin=0.05, out=out)
    assert record.criteria[0].n_independent == 2


def test_a_correlation_of_scores_within_patients_is_recovered():
    rng = np.random.default_rng(0)
    code = np.arange(600).repeat(3)
    positive = (np.arange(600) % 3 == 0)[code]
    for rho in (0.0, 0.4, 0.8):
        score = np.sqrt(rho) * rng.normal(size=600)[code] + np.sqrt(1 - rho) * rng.normal(size=1800) + 2 * positive
        assert within_group_correlation(positive, score, code) == pytest.approx(rho, abs=0.06)


VALID = {"auc": 0.9, "prevalence": 0.3}
SHARES = {"sensitivity": 0.9, "specificity": 0.8, "prevalence": 0.3}
TWO = {"auc": 0.9, "auc_b": 0.85, "prevalence": 0.3, "correlation": 0.5}


@pytest.mark.parametrize(
    ("plan", "words", "said"),
    [
        (plan_validation, {"prevalence": 0.3}, "--auc is missing"),
        (plan_validation, {"auc": 0.9}, "--prevalence is missing"),
        (plan_validation, VALID | {"auc": 0.4}, "auc is 0.4, but it should be greater than 0.5"),
        (plan_validation, VALID | {"prevalence": 30.0}, "prevalence is 30"),
        (plan_validation, VALID | {"auc_width": 0.0}, "auc_width is 0"),
        (plan_validation, VALID | {"linear_predictor": "gamma:1,2"}, "normal:MEAN,SD"),
        (plan_validation, VALID | {"sensitivity": 0.9}, "give --threshold"),
        (plan_validation, VALID | {"threshold": 1.0}, "threshold is 1"),
        (plan_validation, VALID | {"images": 0.5}, "images is 0.5"),
        (plan_validation, VALID | {"icc": 1.5}, "icc is 1.5"),
        (plan_validation, VALID | {"like": "absent"}, "absent"),
        (plan_accuracy, SHARES | {"sensitivity": None}, "--sensitivity is missing"),
        (plan_accuracy, SHARES | {"half_width": 0.6}, "half_width is 0.6"),
        (plan_comparison, TWO | {"correlation": None}, "--correlation is missing"),
        (plan_comparison, TWO | {"auc_b": 0.9}, "no study shows a difference"),
        (plan_comparison, TWO | {"margin": -0.05}, "without a sign"),
        (plan_comparison, TWO | {"test": "equivalence"}, "needs a --margin"),
        (plan_comparison, TWO | {"test": "equivalence", "margin": 0.04}, "not within the margin"),
        (plan_comparison, TWO | {"test": "difference", "margin": 0.04}, "--margin belongs to"),
        (plan_comparison, TWO | {"test": "best"}, "Unknown test 'best'"),
        (plan_comparison, TWO | {"power": 1.0}, "power is 1"),
    ],
)
def test_what_cannot_be_planned_is_refused_and_nothing_written(plan, words, said, out):
    with pytest.raises(UsvitError) as caught:
        plan(**words, out=out)
    assert said in str(caught.value) and "\n" not in str(caught.value) and not out.exists()


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsvitError, match="holds other files"):
        plan_validation(**VALID, out=tmp_path)


def test_the_same_plan_gives_the_same_bytes(tmp_path):
    for name in ("a", "b"):
        plan_comparison(**TWO, images=2, icc=0.4, out=tmp_path / name)
    for file in ("plan.json", "plan.html"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_a_small_study_is_warned_of(out):
    record, folder = plan_comparison(auc=0.95, auc_b=0.7, prevalence=0.3, correlation=0.8, out=out)
    assert "patients of the rarer class" in record.warnings[0]
    assert record.warnings[0] in (folder / "plan.html").read_text()


def test_a_difference_that_no_study_shows_has_a_reason(out):
    record, _ = plan_comparison(auc=0.9, auc_b=0.900001, prevalence=0.3, correlation=0.0, out=out)
    assert record.n_patients is None and "more than 1,000,000,000 images" in record.criteria[0].reason


def test_images_of_the_first_repeat_keep_their_names_whatever_the_order_of_the_table(runs, tmp_path):
    table = pd.read_csv(runs[0] / "predictions.csv")
    again = table.assign(repeat=1, fold=table["fold"] + table["fold"].max() + 1)
    both = pd.concat([again, table.assign(repeat=0)]).sample(frac=1, random_state=0)
    both.to_csv(tmp_path / "both.csv", index=False)
    found = observe(tmp_path / "both.csv", PatientSettings())
    label = dict(zip(table["dataset"] + "/" + table["image_id"].astype(str), table["label"], strict=True))
    assert [label[name] == found.positive_class for name in found.images] == found.positive.tolist()
