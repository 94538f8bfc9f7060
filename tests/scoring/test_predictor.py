"""Prediction in Python gives the numbers of ``usvit score``."""

import io
import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from benchmarks.messy_export import make_export, phantoms
from tests.data.conftest import write_dicom
from tests.scoring.conftest import edit_metadata
from usvit.data.io.bad_image import BadImage
from usvit.errors import UsvitError
from usvit.scoring import load_model, score
from usvit.scoring.external.scored_set import read_scored_set
from usvit.scoring.tables.cells import append_csv

pytestmark = pytest.mark.slow

CPU = {"device": "cpu", "precision": "fp32"}


@pytest.fixture(scope="module")
def model(run):
    return load_model(run, **CPU)


@pytest.fixture(scope="module")
def export(tmp_path_factory):
    """70 files, more than one chunk of the pipeline, with DICOM loops among them."""
    folder = tmp_path_factory.mktemp("export")
    return make_export(folder / "files", phantoms(folder / "phantoms", 12, 64, seed=3), 70, damaged=0.0)


@pytest.fixture
def picture(tmp_path):
    path = tmp_path / "one.png"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (60, 80, 3), dtype=np.uint8)).save(path)
    return path


def csv(table: pd.DataFrame) -> bytes:
    file = io.BytesIO()
    append_csv(file, table, header=True)
    return file.getvalue()


def numbers(table: pd.DataFrame) -> pd.DataFrame:
    """The columns that do not depend on the name or bytes of a file."""
    return table.drop(columns=["source", "item_id", "instance_id", "study_id", "patient_id", "file_sha256", "path"])


@pytest.mark.parametrize("keep_ids", [False, True])
def test_predictions_on_a_folder_are_the_bytes_of_scores_csv(run, model, export, tmp_path, keep_ids):
    score(run, export.folder, tmp_path / "scores", keep_ids=keep_ids, workers=1, **CPU)
    table = model.predict(export.folder, keep_ids=keep_ids)
    assert csv(table.drop(columns="source")) == (tmp_path / "scores" / "scores.csv").read_bytes()
    assert table["frame"].max() > 0 and len(set(table["item_id"])) > 64
    assert (
        json.loads(json.dumps(model.metadata))
        == json.loads((tmp_path / "scores" / "summary.json").read_text())["model"]
    )


def test_frames_are_chosen_as_in_score(run, model, export, tmp_path):
    score(run, export.folder, tmp_path / "scores", frames="middle", workers=1, batch_size=5, **CPU)
    table = model.predict(export.folder, frames="middle", batch_size=5)
    assert csv(table.drop(columns="source")) == (tmp_path / "scores" / "scores.csv").read_bytes()


def test_an_image_in_memory_has_the_numbers_of_its_file(model, picture):
    expected = numbers(model.predict(picture))
    with Image.open(picture) as image:
        pixels = np.array(image)
        pd.testing.assert_frame_equal(numbers(model.predict(image)), expected)
    pd.testing.assert_frame_equal(numbers(model.predict(pixels)), expected)
    assert len(model.predict([pixels, pixels[..., 0]])) == 2
    grey = Image.fromarray(pixels[..., 0])
    pd.testing.assert_frame_equal(model.predict(pixels[..., 0]), model.predict(grey))


def test_each_row_names_its_source(model, export, picture):
    folder = model.predict(export.folder, frames="middle")
    assert all(Path(one.partition("!")[0]).is_file() for one in folder["source"])
    two = model.predict([picture, picture.parent / "one.png"])
    assert list(two["source"]) == [str(picture)] * len(two)
    assert list(model.predict([np.zeros((9, 9), np.uint8)] * 2)["source"]) == ["image-0", "image-1"]


@pytest.mark.parametrize(("folds", "networks"), [("all", 3), (1, 1), ([0, 2], 2), ("0,2", 2), ([], None), ([7], None)])
def test_folds_are_numbers_a_list_or_a_text(run, folds, networks):
    if networks is None:
        with pytest.raises(UsvitError, match="Unknown fold"):
            load_model(run, folds=folds, **CPU)
    else:
        assert len(load_model(run, folds=folds, **CPU).metadata["members"]) == networks


def test_if_some_networks_have_no_temperature_all_go_without_and_it_is_said(run, tmp_path, picture, caplog):
    mixed = tmp_path / "mixed"
    shutil.copytree(run, mixed)
    edit_metadata(mixed / "fold-1", temperature=None, temperature_reason="no image of normal")
    with caplog.at_level("WARNING"):
        model = load_model(mixed, **CPU)
    assert "1 of 3 networks have no temperature (fold-1: no image of normal)" in caplog.text
    assert "not calibrated" in caplog.text
    members = model.metadata["members"]
    assert [one["temperature"] for one in members] == [None] * 3
    assert [one["temperature_reason"] for one in members] == [
        "1 of 3 networks have no temperature", "no image of normal", "1 of 3 networks have no temperature",
    ]  # fmt: skip
    for fold in range(3):
        edit_metadata(mixed / f"fold-{fold}", temperature=None, temperature_reason="none")
    without = load_model(mixed, **CPU).predict(picture)
    pd.testing.assert_frame_equal(model.predict(picture), without)


def test_an_unknown_device_is_said(run):
    with pytest.raises(UsvitError, match=r"Unknown device 'tpu'"):
        load_model(run, device="tpu")


def test_classes_are_in_the_order_of_the_columns(model, picture):
    columns = [name for name in model.predict(str(picture)) if name.startswith("prob_")]
    assert columns == [f"prob_{name}" for name in model.classes]
    assert model.positive_class in model.classes


def test_an_unreadable_file_is_a_bad_image_and_other_files_of_a_folder_are_left_out(model, picture, caplog):
    (picture.parent / "notes.txt").write_text("no image")
    with caplog.at_level("WARNING"):
        assert len(model.predict(picture.parent)) == 1
    assert "1 files of the input hold no image" in caplog.text
    with pytest.raises(BadImage, match=r"notes\.txt"):
        model.predict([picture, picture.parent / "notes.txt"])
    picture.write_bytes(picture.read_bytes()[:200])
    with pytest.raises(BadImage, match=r"one\.png"):
        model.predict(picture.parent)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (np.zeros((8, 8), dtype=np.float32), "float32"),
        (np.zeros((8, 8, 4), dtype=np.uint8), r"\(8, 8, 4\)"),
        ([np.zeros((8, 8), dtype=np.uint8), "a.png"], "type str"),
        (7, "inputs must be"),
        ("no/such/file.png", "does not exist"),
        ([], "No input"),
    ],
)
def test_a_wrong_input_is_said(model, wrong, said):
    with pytest.raises(TypeError if isinstance(wrong, int) else UsvitError, match=said):
        model.predict(wrong)


def test_an_image_of_more_than_8_bits_is_refused(model):
    with pytest.raises(BadImage, match="8 bits"):
        model.predict(Image.fromarray(np.zeros((8, 8), dtype=np.uint16)))


def test_a_missing_run_is_said(tmp_path):
    with pytest.raises(UsvitError):
        load_model(tmp_path / "gone", **CPU)


def test_scores_of_dicom_state_the_side_where_a_file_does(run, model, tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (60, 80), dtype=np.uint8)
    write_dicom(tmp_path / "in" / "a.dcm", pixels, ImageLaterality="L")
    write_dicom(tmp_path / "in" / "b.dcm", 255 - pixels)
    score(run, tmp_path / "in", tmp_path / "scores", workers=1, **CPU)
    table = pd.read_csv(tmp_path / "scores" / "scores.csv", dtype=str, keep_default_na=False)
    assert table["side"].tolist() == ["left", ""]
    assert (
        csv(model.predict(tmp_path / "in").drop(columns="source")) == (tmp_path / "scores" / "scores.csv").read_bytes()
    )
    assert read_scored_set(tmp_path / "scores").rows["side"].tolist() == ["left", ""]
    (tmp_path / "in" / "a.dcm").unlink()
    score(run, tmp_path / "in", tmp_path / "plain", workers=1, **CPU)
    assert "side" not in pd.read_csv(tmp_path / "plain" / "scores.csv")
