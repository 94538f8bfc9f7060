"""Test-retest of runs: repeats of their predictions, and their test images before and after changes."""

import json
import re

import jsonschema
import pandas as pd
import pytest

from usvit.data.transforms import CHANGES, ControlledChange
from usvit.errors import UsvitError
from usvit.files import locked, read_csv
from usvit.records import RepeatabilityRecord
from usvit.records.schemas import schema_of
from usvit.retesting import of_changes, repeatability, retest

pytestmark = pytest.mark.slow


@pytest.fixture
def run(make_run):
    """A run of two folds on the small phantom, whose run.json also holds what an evaluation needs."""
    folder = make_run()
    record = json.loads((folder / "run.json").read_text())
    classes = json.loads((folder / "fold-0" / "model.json").read_text())["classes"]
    record["data"] = {"classes": classes, "positive_class": "malignant"}
    record["folds"]["unit"] = "group"
    (folder / "run.json").write_text(json.dumps(record))
    return folder


def test_a_change_that_changes_nothing_agrees_perfectly(run, small_phantom, monkeypatch):
    same = ControlledChange("nothing", "at all", lambda image, mask: image.copy())
    monkeypatch.setattr(of_changes, "CHANGES", {"nothing": (same,)})
    record, _ = retest(run, data_root=small_phantom)
    (one,) = record.changes
    assert one.scales.logit.repeatability_coefficient.value < 1e-4
    assert one.scales.logit.icc.value == pytest.approx(1, abs=1e-4)
    assert [flip.n_flips for flip in one.flips] == [0] * len(one.flips) and record.most_flips == {}


def test_all_changes_are_scored_and_written_as_the_schema_says(run, small_phantom):
    record, folder = retest(run, data_root=small_phantom)
    assert folder == run / "retest"
    assert {path.name for path in folder.iterdir()} == {"repeatability.json", "repeatability.html", "changes.csv"}
    jsonschema.validate(json.loads((folder / "repeatability.json").read_text()), schema_of(RepeatabilityRecord))
    assert [(one.change, one.strength) for one in record.changes] == [
        (one.name, one.strength) for several in CHANGES.values() for one in several
    ]
    table = read_csv(folder / "changes.csv", text=["image_id", "strength", "change"])
    n = (table.change == "none").sum()
    assert n == 48
    for one in record.changes:
        left = sum(part.n for part in one.left_out)
        assert one.n_images + left == n
        assert (table[(table.change == one.change) & (table.strength == one.strength)].shape[0]) == one.n_images
    calipers = next(one for one in record.changes if one.change == "calipers")
    normal = (pd.read_parquet(run / "manifest.parquet").label == "normal").sum()
    assert calipers.left_out[0].n == normal and "no lesion mask" in calipers.left_out[0].reason


def test_each_image_is_scored_by_the_network_of_its_fold_at_its_threshold(run, small_phantom):
    record, folder = retest(run, changes=["gain"], data_root=small_phantom)
    table = read_csv(folder / "changes.csv", text=["image_id", "strength", "change"])
    folds = {
        row.image_id: row.fold for k in (0, 1) for row in pd.read_csv(run / f"fold-{k}/predictions.csv").itertuples()
    }
    assert {row.image_id: row.fold for row in table.itertuples()} == folds
    plain, louder = (table[table.strength == one].set_index("image_id") for one in ("", "+6 dB"))
    change = next(one for one in record.changes if one.strength == "+6 dB")
    apart = louder.prob_malignant - plain.prob_malignant
    assert change.scales.probability.bias.value == pytest.approx(apart.mean())
    fixed = next(flip for flip in change.flips if flip.rule == "threshold 0.5")
    flipped = (louder.prob_malignant >= 0.5) != (plain.prob_malignant >= 0.5)
    assert fixed.n_flips == flipped.sum()
    # The run's own predictions are invented, so that the difference is told.
    assert any("scored differently from predictions.csv" in one for one in record.warnings)


def test_all_images_of_a_patient_are_changed_alike_and_the_pooled_scores_compared(run, small_phantom):
    record, folder = retest(run, changes=["gain", "calipers"], unit="patient", pooling="max", data_root=small_phantom)
    jsonschema.validate(record.content(), schema_of(RepeatabilityRecord))
    table = read_csv(folder / "changes.csv", text=["image_id", "strength", "change"])
    by_patient = {
        kind: own.groupby("patient_id")["prob_malignant"].agg(["max", "size"])
        for kind, own in table.fillna({"strength": ""}).groupby(["change", "strength"])
    }
    plain = by_patient["none", ""]
    assert (record.unit.unit, record.unit.n_units, record.unit.n_images) == ("patient", len(plain), 48)
    louder = next(one for one in record.changes if one.strength == "+6 dB")
    apart = by_patient["gain", "+6 dB"]["max"] - plain["max"]
    assert louder.n_images == len(plain) and louder.scales.probability.bias.value == pytest.approx(apart.mean())
    fixed = next(flip for flip in louder.flips if flip.rule == "threshold 0.5")
    assert fixed.n_flips == ((by_patient["gain", "+6 dB"]["max"] >= 0.5) != (plain["max"] >= 0.5)).sum()
    marked = next(one for one in record.changes if one.change == "calipers")
    whole = by_patient["calipers", marked.strength]["size"].reindex(plain.index) == plain["size"]
    assert marked.n_images == whole.sum() < len(plain) and marked.left_out[0].n == (~whole).sum()
    assert "patients with an image that does not allow the change" in marked.left_out[0].reason
    page = (folder / "repeatability.html").read_text()
    assert "One row is one patient" in page and "Test patients before and after" in page and "Patients (groups)" in page
    with pytest.raises(UsvitError, match="--images cannot be used with the unit patient"):
        retest(run, images=9, unit="patient", data_root=small_phantom)
    with pytest.raises(UsvitError, match="no figures of the unit exam: the predictions have no column exam_id"):
        retest(run, unit="exam", data_root=small_phantom)


def test_the_same_run_gives_the_same_bytes(run, small_phantom, tmp_path):
    for name in ("a", "b"):
        retest(run, changes=["jpeg", "text"], images=9, data_root=small_phantom, out=tmp_path / name)
    for name in ("repeatability.json", "repeatability.html", "changes.csv"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_what_cannot_be_is_refused_in_one_paragraph(usvit, run, small_phantom, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    for words, said in (
        (("--change", "gian"), "Unknown change 'gian'. Nearest: gain"),
        (("--out", tmp_path / "full"), "holds other files"),
        (("--images", 2), "a retest needs at least three"),
    ):
        answer = usvit("retest", run, "--data-root", small_phantom, *words)
        assert answer.code == 2 and said in answer.err and answer.err.count("\n") == 1, answer.err


def test_a_second_retest_into_one_folder_is_refused_while_the_first_runs(run, small_phantom, tmp_path):
    (tmp_path / "out").mkdir()
    with (
        locked(tmp_path / "out" / ".lock", "taken"),
        pytest.raises(UsvitError, match="Another process is working on"),
    ):
        retest(run, changes=["jpeg"], images=9, data_root=small_phantom, out=tmp_path / "out")
    retest(run, changes=["jpeg"], images=9, data_root=small_phantom, out=tmp_path / "out")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "repeatability.json",
        "repeatability.html",
        "changes.csv",
    }


def test_the_command_prints_each_change_and_which_flips_most(usvit, run, small_phantom):
    answer = usvit("retest", run, "--data-root", small_phantom, "--change", "gain", "--change", "crop")
    assert answer.code == 0, answer.err
    assert re.search(r"gain \+6 dB +48 \(\d+\)", answer.out) and "crop 5 %" in answer.out
    assert "Change with the most flips" in answer.out and "Not a medical device" in answer.out
    said = json.loads(usvit("retest", run, "--data-root", small_phantom, "--change", "gain", "--json").out)
    assert len(said["changes"]) == 4


def test_views_of_a_patient_are_repeats_by_a_column(usvit, run, tmp_path):
    record = repeatability(run, repeats="patient_id", out=tmp_path / "out")
    sizes = pd.read_parquet(run / "manifest.parquet").groupby("patient_id").size()
    assert record.repeats.n_sets == (sizes > 1).sum() == record.repeats.n_patients
    assert record.repeats.n_pairs == (sizes * (sizes - 1) // 2).sum()
    assert record.repeats.left_out[0].n == (sizes == 1).sum()
    jsonschema.validate(
        json.loads((tmp_path / "out" / "repeatability.json").read_text()), schema_of(RepeatabilityRecord)
    )
    answer = usvit("evaluate", run, "--repeatability", "--repeats", "patient_id")
    assert answer.code == 0 and "ICC(1,1)" in answer.out and "Decisions that flip" in answer.out, answer.err


def test_a_run_without_copies_is_told_what_to_do(usvit, run):
    answer = usvit("evaluate", run, "--repeatability")
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert "near-duplicates of one frame" in answer.err and "--repeats COLUMN" in answer.err
    answer = usvit("evaluate", run, "--repeatability", "--prevalence", 0.1)
    assert answer.code == 2 and "--prevalence cannot be used with --repeatability" in answer.err


def test_copies_without_their_partners_are_one_paragraph_and_exit_2(usvit, run, tmp_path):
    tables = [
        pd.read_csv(path, dtype=str, keep_default_na=False) for path in sorted(run.glob("fold-*/predictions.csv"))
    ]
    table = pd.concat(tables).query("part == 'test'").drop_duplicates("patient_id")
    table["group_id"] = "copies:" + table.patient_id
    table.to_csv(tmp_path / "lonely.csv", index=False)
    answer = usvit("evaluate", tmp_path / "lonely.csv", "--repeatability")
    assert answer.code == 2 and answer.err.count("\n") == 1
    assert f"{len(table)} images whose partner is not in the table, such as phantom/" in answer.err


def test_a_split_by_image_is_told(run):
    record = json.loads((run / "run.json").read_text())
    record["folds"]["unit"] = "image"
    (run / "run.json").write_text(json.dumps(record))
    with pytest.raises(UsvitError, match="repeatability needs at least 3"):
        repeatability(run)
    assert any("split by image" in one for one in repeatability(run, repeats="patient_id").warnings)


def test_the_exams_of_a_patient_are_repeats_of_each_other(run, tmp_path):
    tables = [pd.read_csv(path) for path in sorted(run.glob("fold-*/predictions.csv"))]
    table = pd.concat(tables).query("part == 'test'")
    nth = table.groupby("patient_id").cumcount()
    table = table.assign(exam_id=table["patient_id"] + "-" + (nth % 2).astype(str))
    table.to_csv(tmp_path / "exams.csv", index=False)
    record = repeatability(tmp_path / "exams.csv", repeats="patient_id", unit="exam")
    several = table.groupby("patient_id")["exam_id"].nunique() == 2
    assert (record.repeats.n_sets, record.repeats.n_images) == (several.sum(), 2 * several.sum())
    assert record.unit.unit == "exam" and record.repeats.n_pairs == several.sum()
    exams = table.groupby(["patient_id", "exam_id"])["prob_malignant"].mean()
    pairs = exams.groupby("patient_id").agg(["min", "max", "size"])
    apart = (pairs["max"] - pairs["min"])[pairs["size"] == 2]
    within = ((apart**2).sum() / (2 * len(apart))) ** 0.5
    assert record.repeats.scales.probability.within_sd.value == pytest.approx(within)
    with pytest.raises(UsvitError, match="--unit exam needs --repeats COLUMN"):
        repeatability(tmp_path / "exams.csv", unit="exam")
