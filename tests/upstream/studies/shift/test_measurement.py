"""A whole measurement with tiny networks; figures are held against scikit-learn on the files that it wrote."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import usvit
from tests.upstream.studies.shift.conftest import TINY, write_set
from usvit.errors import LeakageError, UsvitError
from usvit.experiments import CrossValidation
from usvit.metrics.threshold_choice import Rule
from usvit.progress import NO_PROGRESS
from usvit.records import load_record
from usvit.scoring import RunNetworks, predict_manifest
from usvit.upstream.records.shift import ShiftRecord
from usvit.upstream.studies.shift.sets import open_sets, parse_sources

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def sources(scanners):
    return [f"near={scanners / 'near'}", f"far={scanners / 'far'}"]


@pytest.fixture(scope="module")
def measured(sources, tmp_path_factory):
    return usvit.measure_shift(*sources, out=tmp_path_factory.mktemp("shift") / "out", prevalence=0.1, **TINY)


def external(measured, name):
    (file,) = (measured.path / "external").glob(f"{name}-*.csv")
    return pd.read_csv(file)


def internal(measured, row):
    table = pd.read_csv(measured.path / "runs" / row.run / "predictions.csv")
    return table[table.part == "test"]


def area(table):
    return roc_auc_score(table.label == "malignant", table.prob_malignant)


def test_the_areas_are_those_of_single_networks_on_the_files(measured):
    cells = {(cell.left_out, cell.tested): cell for cell in measured.record.matrix}
    for row in measured.record.rows:
        (other,) = row.trained_on
        outside = external(measured, row.left_out).groupby("fold")[["label", "prob_malignant"]].apply(area).mean()
        inside = internal(measured, row).groupby("fold")[["label", "prob_malignant"]].apply(area).mean()
        assert cells[row.left_out, row.left_out].auc.value == row.external.auc.value == pytest.approx(outside)
        assert cells[row.left_out, other].auc.value == row.internal.auc.value == pytest.approx(inside)
        assert row.change.auc.value == pytest.approx(outside - inside)
        assert row.n_networks == 3


def test_decisions_use_the_temperature_and_threshold_of_the_metadata(measured):
    for row in measured.record.rows:
        table, called = external(measured, row.left_out), []
        for fold, own in table.groupby("fold"):
            folder = measured.path / "runs" / row.run / f"fold-{fold}"
            metadata = json.loads((folder / "model.json").read_text())
            (rule,) = [one for one in metadata["thresholds"] if one["rule"] == "sensitivity >= 0.9"]
            logits = own[[f"logit_{name}" for name in measured.record.classes]].to_numpy()
            power = np.exp(logits / (metadata["temperature"] or 1))
            prob = power[:, measured.record.classes.index("malignant")] / power.sum(axis=1)
            if rule["threshold"] is None:
                called = None
                break
            called.append(prob >= rule["threshold"])
        if called is None:
            assert row.external.sensitivity.value is None
            continue
        called, positive = np.concatenate(called), (table.label == "malignant").to_numpy()
        assert row.external.sensitivity.value == pytest.approx(called[positive].mean())
        assert row.external.specificity.value == pytest.approx((~called[~positive]).mean())
        ppv = 0.1 * called[positive].mean()
        ppv /= ppv + 0.9 * called[~positive].mean()
        assert row.external.ppv.value == pytest.approx(ppv)


def test_the_paired_change_compares_the_networks_on_the_same_images(measured):
    row, other = measured.record.rows
    table, held = external(measured, row.left_out), internal(measured, other)
    differences = []
    for fold, own in held.groupby("fold"):
        both = own.merge(table[table.fold == fold], on=["dataset", "image_id"], suffixes=("_in", "_out"))
        assert len(both) == len(own)
        positive = both.label_in == "malignant"
        differences.append(roc_auc_score(positive, both.prob_malignant_out))
        differences[-1] -= roc_auc_score(positive, both.prob_malignant_in)
    assert row.paired.auc.value == pytest.approx(np.mean(differences))
    assert row.paired.n_images == len(held)


def test_the_predictions_are_those_of_usvit_score(measured, scanners):
    row = measured.record.rows[1]
    paths = [scanners / "far" / one for one in pd.read_csv(scanners / "far" / "phantom.csv").path[:4]]
    scored = usvit.load_model(measured.path / "runs" / row.run, device="cpu", precision="fp32").predict(
        list(map(str, paths))
    )
    ours = external(measured, "far").groupby("image_id", sort=False).prob_malignant.mean()[[one.stem for one in paths]]
    np.testing.assert_allclose(ours, scored.prob_malignant, atol=1e-6)


def test_a_size_that_does_not_fit_is_skipped_with_the_reason(measured):
    for row in measured.record.rows:
        assert {one.n_patients for one in row.recalibration} == {10}
        assert [one.fitted for one in row.recalibration] == ["frozen", "temperature", "platt"]
        (skipped,) = row.skipped
        assert skipped.n_patients == 500 and "at least 10 others" in skipped.reason


def test_the_page_and_the_table_show_the_record(measured):
    page = measured.page.read_text()
    assert "<script" not in page and "http://" not in page.replace("http://www.w3.org", "")
    for cell in measured.record.matrix:
        assert f"{cell.auc.value:.3f}" in page
    assert "0.776 (0.749 to 0.804)" in page and "Values of others" in page
    assert "Not with 500 patients" in page and "All sets are phantoms" in page
    table = pd.read_csv(measured.path / "shift.csv")
    assert set(table.left_out) == {"near", "far"}
    assert load_record(measured.path / "shift.json", ShiftRecord) == measured.record


def test_the_same_call_trains_nothing_again_and_writes_the_same_bytes(measured, sources, monkeypatch):
    before = {name: (measured.path / name).read_bytes() for name in ("shift.json", "shift.csv", "shift.html")}
    monkeypatch.setattr(CrossValidation, "run", lambda self: pytest.fail("it trains again"))
    usvit.measure_shift(*sources, out=measured.path, prevalence=0.1, **TINY)
    assert {name: (measured.path / name).read_bytes() for name in before} == before


def test_measurements_with_the_same_folder_of_runs_share_them(measured, sources, monkeypatch, tmp_path):
    monkeypatch.setattr(CrossValidation, "run", lambda self: pytest.fail("it trains again"))
    arguments = {**TINY, "sizes": []}
    again = usvit.measure_shift(*sources, out=tmp_path / "b", runs=measured.path / "runs", rule="youden", **arguments)
    assert [row.run for row in again.record.rows] == [row.run for row in measured.record.rows]
    assert again.record.rows[0].external.auc == measured.record.rows[0].external.auc


def test_a_stopped_measurement_goes_on_with_what_is_missing(measured, sources, tmp_path, monkeypatch):
    """The second training is gone, as if the measurement had been killed before it."""
    copy = tmp_path / "copy"
    run = CrossValidation.run
    trained = []
    monkeypatch.setattr(CrossValidation, "run", lambda self: (trained.append(self.out.name), run(self))[1])
    first, second = (row.run for row in measured.record.rows)
    usvit.measure_shift(*sources, out=copy, hold_out=True, **TINY)
    lost = next((copy / "runs").glob(trained[1]))
    shutil.rmtree(lost)
    before = (copy / "shift.csv").read_bytes()
    trained.clear()
    usvit.measure_shift(*sources, out=copy, hold_out=True, **TINY)
    assert trained == [lost.name] and (copy / "shift.csv").read_bytes() == before
    assert {first, second}.isdisjoint(path.name for path in (copy / "runs").iterdir())


def test_networks_are_never_tested_on_what_they_have_seen(measured, sources, tmp_path):
    from usvit.config import DataConfig

    sets = open_sets(parse_sources(sources, DataConfig(), {}), None, NO_PROGRESS)
    networks = RunNetworks.of_run(measured.path / "runs" / measured.record.rows[0].run, Rule("youden"))
    with pytest.raises(LeakageError, match="has seen images"):
        predict_manifest(
            networks, sets.manifest, tmp_path / "x.csv", device="cpu", precision="fp32", progress=NO_PROGRESS
        )


def test_weights_that_have_seen_a_set_are_refused(measured, sources, tmp_path):
    run = measured.path / "runs" / measured.record.rows[0].run
    with pytest.raises(LeakageError, match="has seen images"):
        usvit.measure_shift(*sources, weights=f"{run}/fold-0", out=tmp_path / "x", **TINY)
    assert not (tmp_path / "x").exists()


def test_with_three_sets_the_paired_change_is_the_mean_over_the_trainings_with_the_set(sources, tmp_path):
    third = write_set(tmp_path / "third", 3, "third scanner")
    found = usvit.measure_shift(*sources, str(third), out=tmp_path / "out", hold_out=True, **TINY)
    first, *others = found.record.rows
    assert [len(row.trained_on) for row in found.record.rows] == [2, 2, 2] and len(found.record.matrix) == 9
    table, differences = external(found, first.left_out), []
    for row in others:
        held = internal(found, row)
        both = held[held.dataset == first.left_out].merge(table, on=["dataset", "image_id"], suffixes=("_in", "_out"))
        areas = [roc_auc_score(both.label_in == "malignant", both[f"prob_malignant_{side}"]) for side in ("out", "in")]
        differences.append(areas[0] - areas[1])
    assert first.paired.auc.value == pytest.approx(np.mean(differences))


def test_a_folder_with_other_files_is_left_alone(sources, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    with pytest.raises(UsvitError, match=r"holds other files, such as thesis\.txt"):
        usvit.measure_shift(*sources, out=tmp_path, **TINY)
    assert [one.name for one in tmp_path.iterdir()] == ["thesis.txt"]


def test_no_size_that_fits_is_refused_before_anything_is_written(sources, tmp_path):
    with pytest.raises(UsvitError, match="No set has enough patients for a recalibration of 300 or 400"):
        usvit.measure_shift(*sources, out=tmp_path / "x", **{**TINY, "sizes": [300, 400]})
    assert not (tmp_path / "x").exists()
