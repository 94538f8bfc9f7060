"""Frozen folds, manifests, keep-lists and leaking splits on the command line."""

import json

import pandas as pd
import pytest

from tests.conftest import TINY
from usvit.data.splits.folds import read_folds


@pytest.fixture
def folds(usvit, tmp_path, small_phantom):
    answer = usvit(
        *("data", "split", "--dataset", "phantom", "--data-root", small_phantom),
        *("--folds", 3, "--seed", 7, "--out", tmp_path / "folds.csv"),
    )
    assert answer.code == 0, answer.err
    assert "48 images in 24 groups; sha256 " in answer.out
    assert answer.out.count("fold ") == 9
    return tmp_path / "folds.csv"


@pytest.mark.slow
def test_cv_uses_frozen_folds_as_they_are(usvit, tmp_path, small_phantom, folds):
    cv = (
        "cv",
        "--dataset",
        "phantom",
        "--data-root",
        small_phantom,
        *TINY,
        "--folds",
        folds,
        "--out",
        tmp_path / "run",
    )
    answer = usvit(*cv)
    assert answer.code == 0, answer.err
    pd.testing.assert_frame_equal(read_folds(tmp_path / "run" / "folds.csv"), read_folds(folds))
    assert json.loads((tmp_path / "run" / "run.json").read_text())["folds"]["scheme"] == "file"
    folds.write_text(folds.read_text().replace("p001-v1", "p999-v1"))
    answer = usvit(*cv[:-1], tmp_path / "other")
    assert answer.code == 2
    assert f"The folds of {folds} name 1 images that are not in the data, such as 'p999-v1'" in answer.err
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_a_split_by_image_is_loudly_marked(usvit, tmp_path, small_phantom):
    answer = usvit(
        *("cv", "--dataset", "phantom", "--data-root", small_phantom, *TINY),
        *("--split-by", "image", "--out", tmp_path / "run"),
    )
    assert answer.code == 0, answer.err
    assert "LEAKING SPLIT (by image, as requested): " in answer.out
    assert "LEAKING SPLIT" in (tmp_path / "run" / "report.html").read_text()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["folds"]["unit"] == "image"
    assert record["folds"]["leaking_groups"] > 5


@pytest.mark.slow
def test_weights_are_never_tested_on_what_they_have_seen(usvit, tmp_path, small_phantom, tiny_run):
    cv = ("cv", "--dataset", "phantom", "--data-root", small_phantom, *TINY, "--out")
    weights = tiny_run / "fold-0" / "model.safetensors"
    answer = usvit(*cv, tmp_path / "second", "--weights", weights)
    assert answer.code == 2
    assert "has seen images of" in answer.err
    assert "patient:phantom:p" in answer.err
    assert not (tmp_path / "second").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("without_report")
def test_weights_hand_on_what_they_have_seen(usvit, tmp_path, tiny_run):
    cv = ("cv", "--dataset", "phantom", *TINY, "--set", "split.folds=3", "--out")
    assert usvit("data", "phantom", "--out", tmp_path / "new", "--n", 48, "--size", 64, "--seed", 9).code == 0
    weights = tiny_run / "fold-0" / "model.safetensors"
    answer = usvit(*cv, tmp_path / "second", "--data-root", tmp_path / "new", "--weights", weights)
    assert answer.code == 0, answer.err
    first, second = (json.loads((run / "fold-0/model.json").read_text()) for run in (tiny_run, tmp_path / "second"))
    assert second["seen_sha256"]["upstream"] == sorted({*first["seen_sha256"]["train"], *first["seen_sha256"]["val"]})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "error"),
    [
        (("--split-by", "patient"), "split.unit cannot be used"),
        (("--scheme", "by_device"), "needs the device of every image; 48 have none"),
        (("--scheme", "official"), "No official 5 folds come with these images"),
        (("--manifest", "m.parquet"), "Pass --dataset or --manifest, not both"),
    ],
)
def test_bad_input_is_explained_and_nothing_written(usvit, tmp_path, small_phantom, options, error):
    split = ("data", "split", "--dataset", "phantom", "--data-root", small_phantom, "--out", tmp_path / "folds.csv")
    answer = usvit(*split, *options)
    assert answer.code == 2
    assert error in answer.err
    assert list(tmp_path.iterdir()) == []
