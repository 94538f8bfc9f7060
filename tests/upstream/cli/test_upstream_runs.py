"""Runs of ``usvit pretrain`` and ``usvit transfer``, given to commands that want others: words, never a traceback."""

import json
import shutil
import sys

import pytest

from tests.conftest import REPOSITORY
from usvit.cli import main
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.config.transfer import TransferConfig
from usvit.upstream.pretraining_run.experiment import Pretraining
from usvit.upstream.transfer_learning.experiment import Transfer

pytestmark = pytest.mark.slow

SMALL = {
    "model": {
        "name": "vit_ti16",
        "weights": "scratch",
        "image_size": 32,
        "vit": {"width": 24, "depth": 1, "heads": 2, "mlp": 48, "patch": 8},
    },
    "views": {"test_crop": 1.0},
    "device": "cpu",
    "precision": "fp32",
}
FRACTALS = {"name": "fractals", "size": 24, "classes": 3, "image_size": 32}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One run of each kind."""
    root = tmp_path_factory.mktemp("runs")
    train = {"steps": 2, "epochs": None, "batch_size": 8}
    config = PretrainConfig.model_validate({**SMALL, "source": {**FRACTALS, "val_share": 0.5}, "train": train})
    Pretraining(config, out=root / "pretrain").run()
    source = {**FRACTALS, "split": "train", "val_share": 0.0}
    config = TransferConfig.model_validate({**SMALL, "how": "knn", "source": source, "test": "val"})
    Transfer(config, out=root / "transfer").run()
    return root


@pytest.fixture
def usvit(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)

    def called(*words):
        monkeypatch.setattr(sys, "argv", ["usvit", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            main()
        out, err = capsys.readouterr()
        return stopped.value.code or 0, out, err

    return called


@pytest.mark.parametrize("kind", ["pretrain", "transfer"])
@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["report", "RUN"], "run of usvit KIND. A report needs a run of usvit cv"),
        (["models", "export", "RUN", "--format", "safetensors", "--out", "out"], "usvit cv --weights"),
        (["bench", "RUN"], "Unknown model"),
    ],
)
def test_what_needs_a_tested_classifier_says_so(words, said, kind, runs, usvit):
    code, _, err = usvit(*(word.replace("RUN", str(runs / kind)) for word in words))
    assert code == 2 and said.replace("KIND", kind) in " ".join(err.split()) and "Traceback" not in err


@pytest.mark.parametrize("part", ["", "fold-0"])
def test_a_pre_training_is_explained_on_images_that_are_named(part, runs, usvit, tmp_path):
    run, out = runs / "pretrain" / part, tmp_path / "out"
    code, _, err = usvit("explain", run)
    assert code == 2 and "These weights come without test images" in " ".join(err.split()), err
    for method, told in (("rollout", "3 images of fractals:test"), ("distance", "3 images of fractals:test; if all")):
        words = ("--method", method, "--source", "fractals", "--images", 3, "--out", out)
        code, said, err = usvit("explain", run, *words)
        assert code == 0 and told in said and "test images" not in said, err
    words = ("--method", "attention", "--layer", -1, "--source", "fractals", "--out", out)
    code, said, err = usvit("explain", run, *words)
    assert code == 0, err
    code, said, _ = usvit("explain", run, "--method", "filters", "--json", "--out", out)
    assert code == 0 and json.loads(said)["fold"] is None
    assert set(json.loads((out / "explain.json").read_text())["methods"]) == {
        *("rollout", "distance", "attention", "filters")
    }


def test_a_transfer_by_nearest_neighbours_is_explained_without_a_classifier(runs, usvit, tmp_path):
    words = ("explain", runs / "transfer", "--source", "fractals", "--images", 2, "--out", tmp_path / "out")
    code, said, err = usvit(*words)
    assert code == 0 and "rollout: 2 images of fractals:test" in said, err
    code, _, err = usvit(*words, "--method", "occlusion")
    assert code == 2 and "has no classifier: its training (objective knn) did not train one" in " ".join(err.split())


def test_a_pre_training_has_nothing_to_evaluate_or_compare(runs, usvit):
    for words in (["evaluate", runs / "pretrain"], ["compare", runs / "pretrain", runs / "transfer"]):
        code, _, err = usvit(*words)
        assert code == 2 and "An evaluation needs a run of usvit cv" in " ".join(err.split())


def test_a_transfer_is_evaluated_and_one_without_predictions_says_why_not(runs, usvit, tmp_path):
    code, out, err = usvit("evaluate", runs / "transfer")
    assert code == 0 and "images in" in out, err
    shutil.copytree(runs / "transfer", tmp_path / "copy")
    (tmp_path / "copy" / "predictions.csv").unlink()
    code, _, err = usvit("evaluate", tmp_path / "copy")
    assert code == 2 and "predictions_missing" in err


def test_a_run_searches_its_own_images_where_none_are_named(runs, usvit):
    code, out, err = usvit("transfer", "--how", "retrieval", "--weights", runs / "pretrain", "--json", "--out", "own")
    assert code == 0, err
    result = json.loads(out)
    assert (result["how"], result["image_size"]) == ("retrieval", 32)
    assert [result["images"][name] for name in ("n_train", "n_val", "n_test")] == [12, 0, 12]
    code, out, _ = usvit("transfer", "--how", "retrieval", "--weights", runs / "pretrain", "--out", "own")
    assert code == 0 and "nearest neighbours" in out and "Mean average precision" in out


def test_pretrain_json_is_what_its_schema_says(runs):
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((REPOSITORY / "docs/reference/pretrain.schema.json").read_text())
    kept = json.loads((runs / "pretrain" / "pretrain.json").read_text())
    jsonschema.validate(kept, schema)
    assert kept["kept"][0]["val_accuracy"] is not None
    metadata = json.loads((runs / "pretrain" / "fold-0" / "model.json").read_text())
    jsonschema.validate(metadata, json.loads((REPOSITORY / "docs/reference/model.schema.json").read_text()))
