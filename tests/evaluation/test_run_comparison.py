"""Paired comparisons of runs at a unit, and the unit that is compared without a setting."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.cli.runs import make_run
from usvit.config.evaluation import UnitSettings
from usvit.documents import markdown_document
from usvit.errors import UsvitError
from usvit.evaluation.evaluate_predictions import at_units, open_predictions, units_to_use
from usvit.evaluation.run_comparison import compare_predictions
from usvit.metrics.clustered import clustered_difference
from usvit.reports.comparison import compare
from usvit.reports.comparison_document import comparison_document


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return [make_run(folder / name, seed=seed, skill=skill) for name, seed, skill in (("a", 1, 1.6), ("b", 2, 0.6))]


def edit(run, **data):
    record = json.loads((run / "run.json").read_text())
    record["data"] |= data
    (run / "run.json").write_text(json.dumps(record))


@pytest.mark.slow
@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_the_paired_test_is_that_of_the_pooled_probabilities(runs, pooling):
    opened = [at_units(open_predictions(run), UnitSettings(unit="patient", pooling=pooling)) for run in runs]
    found = compare_predictions(opened, ["a", "b"])
    images = [pd.read_csv(run / "predictions.csv", dtype={"patient_id": str}).groupby("patient_id") for run in runs]
    first, second = (one["prob_malignant"].agg(pooling) for one in images)
    positive = (images[0]["label"].first() == "malignant").to_numpy()
    expected = clustered_difference(positive, first.to_numpy(), second.to_numpy(), first.index.to_numpy())
    assert (found.unit.unit, found.unit.pooling, found.n_images, found.row) == ("patient", pooling, 45, "patient")
    pair = found.pairs[0]
    assert pair.auc.value == pytest.approx(expected.value) and pair.auc.ci95 == pytest.approx(expected.ci95)
    assert pair.auc.p == pytest.approx(expected.p)
    right = [np.mean((one >= 0.5).to_numpy() == positive) for one in (first, second)]
    assert pair.accuracy.value == pytest.approx(right[0] - right[1])  # over folds of equal size
    by_image = compare_predictions([open_predictions(run) for run in runs], ["a", "b"])
    assert by_image.unit is None and by_image.n_images == 90 and by_image.pairs[0].auc.value != pair.auc.value

    mixed = [opened[0], at_units(open_predictions(runs[1]), UnitSettings(unit="patient", pooling="noisy-or"))]
    lead = markdown_document(comparison_document(compare_predictions(mixed, ["a", "b"])))
    assert f"each run's own pooling (a: the {'mean' if pooling == 'mean' else 'maximum'}; b: the noisy-or)" in lead
    assert "own pooling" not in markdown_document(comparison_document(found))


def test_the_unit_is_by_default_the_level_of_the_labels_if_the_folds_keep_it_whole(tmp_path):
    run = make_run(tmp_path / "run", seed=1)
    nothing = UnitSettings()
    assert units_to_use(open_predictions(run), nothing) == nothing
    edit(run, label_level="patient")
    assert units_to_use(open_predictions(run), nothing).unit == "patient"
    assert units_to_use(open_predictions(run), UnitSettings(unit="image")).of_images
    record = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(record | {"config": {"units": {"unit": "image"}}}))
    assert units_to_use(open_predictions(run), nothing).of_images
    by_image = record | {"folds": record["folds"] | {"unit": "image"}}
    (run / "run.json").write_text(json.dumps(by_image))
    assert units_to_use(open_predictions(run), nothing).of_images


@pytest.mark.slow
def test_units_that_differ_or_that_nobody_states_are_refused_and_a_table_takes_that_of_the_run(runs, tmp_path):
    with pytest.raises(UsvitError, match="no figures of the unit exam: the predictions have no column exam_id"):
        compare(*runs, unit="exam", out=tmp_path / "out")
    of_patients = make_run(tmp_path / "patients", seed=3)
    edit(of_patients, label_level="patient")
    with pytest.raises(UsvitError, match=r"figures of images .* and patients of patients .*Pass --unit"):
        compare(runs[0], of_patients, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "table.csv").write_bytes((runs[1] / "predictions.csv").read_bytes())
    record, _ = compare(of_patients, tmp_path / "table.csv", out=tmp_path / "out")
    assert record.unit.unit == "patient" and record.n_images == 45
