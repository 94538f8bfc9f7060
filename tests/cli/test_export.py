"""``usvit models export`` as its user meets it."""

import json

import pytest

from tests.exporting.conftest import fold  # noqa: F401  (a fixture)

ZOO = ("--weights", "scratch", "--classes", "benign,malignant", "--image-size", 32)


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("vit_ti61", ZOO, "Nearest: vit_ti16"),
        ("runs/not-there", (), "no run runs/not-there"),
        ("vit_ti16", ("--weights", "scratch"), "--classes benign,malignant"),
        ("vit_ti16", ("--weights", "scratch", "--classes", "a,a"), "two different ones"),
        ("vit_ti16", ("--weights", "scratch", "--classes", "a,,b"), "two different ones"),
        ("vit_ti16", ("--weights", "scratch", "--classes", "a,b", "--positive", "c"), "Unknown positive class"),
        ("vit_ti16", ("--weights", "not/there.pth", "--classes", "a,b"), "not/there.pth"),
        ("vit_ti16", ("--weights", "scratch", "--classes", "a,b", "--image-size", 33), "33"),
        ("vit_ti16", (*ZOO, "--format", "onxx"), "Nearest: onnx"),
        (".", (), "neither run.json nor model.json"),
    ],
)
def test_bad_input_is_one_paragraph_and_leaves_nothing(source, options, said, usvit, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answer = usvit("models", "export", source, "--format", "safetensors", "--out", "x", *options)
    assert answer.code == 2, answer.err
    assert said in answer.err and "Traceback" not in answer.err
    assert list(tmp_path.iterdir()) == []


def test_a_trained_network_keeps_its_own_classes(usvit, fold, tmp_path):  # noqa: F811
    answer = usvit("models", "export", fold, "--format", "safetensors", "--out", tmp_path / "x", "--classes", "a,b")
    assert answer.code == 2 and "--classes" in answer.err and "its own" in answer.err


def test_a_damaged_network_is_named(usvit, fold, tmp_path):  # noqa: F811
    broken = tmp_path / "fold-0"
    broken.mkdir()
    (broken / "model.json").write_text((fold / "model.json").read_text())
    (broken / "model.safetensors").write_bytes((fold / "model.safetensors").read_bytes()[:1000])
    answer = usvit("models", "export", broken, "--format", "safetensors", "--out", tmp_path / "x")
    assert answer.code == 2 and "model.safetensors" in answer.err
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(("format_", "missing"), [("onnx", "onnxruntime"), ("monai", "monai")])
def test_without_the_extra_it_is_named(format_, missing, usvit, fold, tmp_path, monkeypatch):  # noqa: F811
    import usvit.exporting.exporter as exporter

    find = exporter.find_spec
    monkeypatch.setattr(exporter, "find_spec", lambda name: None if name == missing else find(name))
    answer = usvit("models", "export", fold, "--format", format_, "--out", tmp_path / "x")
    assert answer.code == 2 and missing in answer.err and "pip install 'usvit[export]'" in answer.err
    assert usvit("models", "export", fold, "--format", "safetensors", "--out", tmp_path / "y").code == 0


@pytest.mark.slow
def test_json_says_what_was_made(usvit, fold, tmp_path):  # noqa: F811
    command = ("models", "export", fold, "--format", "safetensors", "--out", tmp_path / "x", "--json")
    answer = json.loads(usvit(*command).out)
    assert answer["new"] and answer["format"] == "safetensors" and "model.safetensors" in answer["files"]
    assert not json.loads(usvit(*command).out)["new"]


@pytest.mark.slow
def test_a_run_of_several_folds_asks_for_one_and_exports_it(usvit, tiny_run, tmp_path):
    run = tiny_run
    answer = usvit("models", "export", run, "--format", "safetensors", "--out", tmp_path / "x")
    assert answer.code == 2 and "3 folds" in answer.err and "fold-0" in answer.err
    answer = usvit("models", "export", run / "fold-2", "--format", "safetensors", "--out", tmp_path / "x")
    assert answer.code == 0, answer.err
    measured = json.loads((tmp_path / "x" / "model.json").read_text())["measured"]
    metrics = json.loads((run / "metrics.json").read_text())
    assert measured["accuracy"] == metrics["folds"][2]["accuracy"]["value"]
