"""The page's own search for leaks finds what was planted, and says so where it cannot look."""

import json

import pandas as pd
import pytest

from tests.report.conftest import fake_run
from usvit.files import write_csv, write_json
from usvit.report import write_report
from usvit.report.leakage import leakage_checks
from usvit.report.run import read_run

GROUP, PIXELS, SEEN, UPSTREAM, TESTED = range(5)


def found(run_dir):
    return [check.found for check in leakage_checks(read_run(run_dir))]


def test_an_honest_run_passes_and_what_is_not_known_is_not_called_passed(run_dir):
    assert found(run_dir) == [0, 0, 0, None, 0]  # weights of the hub list no images


def test_a_group_or_identical_pixels_in_two_parts_are_found(run_dir):
    manifest = pd.read_parquet(run_dir / "manifest.parquet")
    folds = pd.read_csv(run_dir / "folds.csv")
    first = folds[folds["fold"] == 0].drop_duplicates("part").set_index("part")["image_id"]
    twins = manifest["image_id"].isin([first["train"], first["test"]])
    manifest.loc[twins, "group_id"] = "patient:busi:7"
    manifest.to_parquet(run_dir / "manifest.parquet")
    assert found(run_dir)[GROUP] == 1
    assert found(run_dir)[PIXELS] == 0
    manifest.loc[twins, "sha256"] = "0" * 64
    manifest.to_parquet(run_dir / "manifest.parquet")
    assert found(run_dir)[PIXELS] == 1
    assert "PROBLEM" in write_report(run_dir).read_text()


def test_a_test_image_that_the_model_or_its_first_weights_had_seen_is_found(run_dir):
    manifest = pd.read_parquet(run_dir / "manifest.parquet").set_index("image_id")
    test = pd.read_csv(run_dir / "predictions.csv")
    path = run_dir / "fold-2" / "model.json"
    passport = json.loads(path.read_text())
    passport["seen_sha256"]["train"].append(manifest.loc[test.loc[test["fold"] == 2, "image_id"].iloc[0], "sha256"])
    passport["seen_sha256"]["upstream"] = manifest.loc[
        test.loc[test["fold"] == 2, "image_id"].iloc[:3], "sha256"
    ].tolist()
    write_json(path, passport)
    assert found(run_dir) == [0, 0, 1, 3, 0]


def test_first_weights_that_learnt_from_images_that_are_not_on_record_are_not_called_innocent(run_dir):
    path = run_dir / "fold-1" / "model.json"
    passport = json.loads(path.read_text())
    passport["seen_sha256"] |= {"upstream": ["0" * 64], "unhashed": ["folder"]}
    write_json(path, passport)
    checks = leakage_checks(read_run(run_dir))
    assert [check.found for check in checks] == [0, 0, 0, None, 0]
    assert "folder" in checks[UPSTREAM].answer and "against the 1 pixel hash" in checks[UPSTREAM].answer


def test_predictions_of_another_fold_are_found(run_dir):
    table = pd.read_csv(run_dir / "predictions.csv")
    table.loc[0, "fold"] = (table.loc[0, "fold"] + 1) % 5
    write_csv(run_dir / "predictions.csv", table)
    assert found(run_dir)[TESTED] == 2  # one row too few, one too many


@pytest.mark.parametrize("name", ["folds.csv", "manifest.parquet"])
def test_without_the_files_nothing_is_claimed(tmp_path, name):
    run_dir = fake_run(tmp_path / "run")
    (run_dir / name).unlink()
    assert found(run_dir)[GROUP] is None
    assert found(run_dir)[SEEN] is None
    assert "not known" in write_report(run_dir).read_text()
