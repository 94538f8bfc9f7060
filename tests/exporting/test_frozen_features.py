"""Heads on frozen features of several networks leave usvit in every format, with the predictions of their run."""

import json

import numpy as np
import pytest

import usvit as package
from usvit.data.io.decoding import read_image
from usvit.evaluation.predictions import read_predictions
from usvit.exporting.exportable import open_source

pytestmark = pytest.mark.slow
MODEL = ("--model", "timm:test_resnet+timm:test_resnet", "--weights", "scratch+scratch", "--recipe", "usvit_imagenet")
SMALL = ("--device", "cpu", "--precision", "fp32", "--set", "model.image_size=64", "--set", "split.folds=2")


@pytest.fixture(scope="module")
def fold(small_phantom, tmp_path_factory):
    from tests.processes import command_line, ended_well, run  # on use, because it imports PyTorch

    out = tmp_path_factory.mktemp("runs") / "run"
    ended_well(run(command_line, "cv", "--data-root", small_phantom, "--out", out, *MODEL, *SMALL))
    return out / "fold-0"


@pytest.mark.parametrize("form", ["safetensors", "onnx", "monai"])
def test_an_export_gives_the_predictions_of_the_run(usvit, small_phantom, fold, tmp_path, form):
    for needed in {"onnx": ("onnxruntime", "onnxscript"), "monai": ("monai.bundle", "fire")}.get(form, ()):
        pytest.importorskip(needed)
    out = tmp_path / form
    answer = usvit("models", "export", fold, "--format", form, "--out", out)
    assert answer.code == 0, answer.err
    rows = read_predictions(fold / "predictions.csv")
    row = rows[rows.part == "test"].iloc[0]
    image = next(small_phantom.glob(f"*/{row.image_id}.png"))
    columns = [f"prob_{name}" for name in json.loads((fold / "model.json").read_text())["classes"]]
    if form == "safetensors":
        found = package.load_model(out, device="cpu", precision="fp32").predict(image)[columns].iloc[0].to_numpy(float)
    elif form == "onnx":
        import onnxruntime

        inputs = open_source(str(fold)).preprocessing.resized(read_image(image))[None]
        session = onnxruntime.InferenceSession(str(out / "model.onnx"), providers=["CPUExecutionProvider"])
        logits = session.run(["logits"], {"image": inputs})[0][0].astype(float)
        found = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
    else:
        checked = json.loads((out / "export.json").read_text())["checked"]
        assert checked.startswith("checked by monai.bundle")  # MONAI's own process against usvit's prediction
        return
    assert np.allclose(found, row[columns].to_numpy(float), atol=1e-3)
