"""``usvit test`` as people type it."""

import json
import re

import jsonschema
import pandas as pd
import pytest

from tests.conftest import REPOSITORY
from tests.upstream.classifier_test.colours import OPTIONS, colour_weights, put, shown
from tests.upstream.pretraining_run.test_experiment import FRACTALS

pytestmark = pytest.mark.slow


@pytest.fixture
def images(tmp_path):
    """Two classes in the folders test and train, of other colours each."""
    for part, base in (("train", 40), ("test", 120)):
        for label, name in enumerate(("n01440764", "n01443537")):
            for at in range(3):
                put(tmp_path / "images" / part / name / f"{at}.png", *(base + 9 * at, 30 * label + at))
    return tmp_path / "images"


def test_a_test_prints_a_table_and_keeps_to_its_schemas(tmp_path, usvit, images):
    put(tmp_path / "images" / "test" / "n01440764" / "known.png", *shown(0))
    weights = colour_weights(tmp_path / "colours.safetensors")
    words = ("test", f"vit_ti16={weights}", "--source", "folder", "--path", images, *OPTIONS)
    answer = usvit(*words, "--out", tmp_path / "out")
    assert answer.code == 0, answer.err
    assert re.search(r"^folder:test +7 .* 2 of 2 ", answer.out, re.M)
    assert "Images it was trained on: Not known" in answer.out
    assert re.search(r"^Classifier +Source +Top-1 ", answer.out, re.M) and "0.143 [0.026, 0.513]" in answer.out
    again = usvit(*words, "--out", tmp_path / "out", "--json")
    result = json.loads(again.out)
    reference = REPOSITORY / "docs" / "reference"
    jsonschema.validate(result, json.loads((reference / "test.schema.json").read_text()))
    run = json.loads((tmp_path / "out" / "run.json").read_text())
    jsonschema.validate(run, json.loads((reference / "run.schema.json").read_text()))
    schema = json.loads((reference / "test-predictions-csv.schema.json").read_text())
    for row in pd.read_csv(tmp_path / "out" / "predictions.csv").to_dict("records"):
        jsonschema.validate(row, schema)
    for command in ("report", "evaluate"):
        refused = usvit(command, tmp_path / "out")
        assert refused.code == 2 and "is a run of usvit test" in refused.err, refused.err
    as_weights = usvit("test", tmp_path / "out", "--source", "fractals")
    assert as_weights.code == 2 and "is a run of usvit test, which holds no network" in as_weights.err


def test_a_pre_training_is_tested_as_it_was_validated(tmp_path, usvit):
    """The validation images of a run that kept its last step have chosen nothing."""
    trained = usvit(
        "pretrain", *FRACTALS, "--set", "source.val=val", "--set", "train.steps=4", "--out", tmp_path / "run"
    )
    assert trained.code == 0, trained.err
    config = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    same = [f"source.{key}={config['source'][key]}" for key in ("size", "classes", "image_size")]
    answer = usvit(
        *("test", tmp_path / "run", "--source", "fractals:val", "--out", tmp_path / "out", "--device", "cpu"),
        *("--precision", "fp32", *(word for one in same for word in ("--set", one))),
    )
    assert answer.code == 0, answer.err
    (row,) = json.loads((tmp_path / "out" / "test.json").read_text())["results"]
    kept = json.loads((tmp_path / "run" / "pretrain.json").read_text())["kept"][0]
    assert row["top1"]["value"] == pytest.approx(kept["val_accuracy"])
    assert row["nll"] == pytest.approx(kept["val_loss"], rel=1e-4)
    assert "On record: only generated images" in answer.out


def test_a_folder_says_which_splits_it_has(tmp_path, usvit, images):
    weights = colour_weights(tmp_path / "colours.safetensors")
    (images / "test").rename(images / "valid")
    words = ("test", "--model", "vit_ti16", "--weights", weights, "--path", images, *OPTIONS, "--out", tmp_path / "out")
    answer = usvit(*words, "--source", "folder")
    assert answer.code == 2 and "no folder test or val, only train, valid" in answer.err, answer.err
    assert usvit(*words, "--source", "folder:valid").code == 0


def test_mistakes_get_one_paragraph_and_exit_code_2(tmp_path, usvit, images, monkeypatch):
    monkeypatch.delenv("USVIT_DATA", raising=False)
    weights = colour_weights(tmp_path / "colours.safetensors")
    one = ("test", f"vit_ti16={weights}", *OPTIONS)
    (images / "test" / "fish").mkdir()
    put(images / "test" / "fish" / "0.png", 1, 1)
    for words, message in (
        ((*one, "--source", "folder", "--path", images), "1 of 3 classes that the classifier colours.safetensors does"),
        ((*one, "--source", "objectnet"), "The folder of objectnet is not known"),
        ((*one, "--source", "imagenet:test"), "Unknown split of imagenet 'test'"),
        ((*one, "--source", "fractals", "--set", "view.test_crop=1"), "Unknown setting 'view'"),
        ((*one, "--source", "fractals", "--set", "train.steps=1"), "Unknown setting 'train'"),
        (("test", "vit_x99", "--source", "fractals"), "'vit_x99' is not a run"),
        ((*one, "--source", "unlabeled", "--path", images), "A test needs labelled images"),
    ):
        answer = usvit(*words)
        assert answer.code == 2 and message in answer.err and "Traceback" not in answer.err, answer.err
    assert not (tmp_path / "runs").exists()
