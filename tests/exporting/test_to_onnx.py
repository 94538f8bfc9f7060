"""ONNX says what PyTorch says, for every family, and carries what its user must know."""

import dataclasses
import json
import re

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from tests.exporting.conftest import CLASSES, tiny
from usvit.config.exporting import ExportSettings
from usvit.data.io.decoding import read_image
from usvit.errors import UsvitError
from usvit.exporting import to_onnx, write_export
from usvit.exporting.exportable import open_source
from usvit.exporting.verification import check_pixels

pytestmark = pytest.mark.slow

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


def session_of(folder):
    return onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])


def test_logits_and_probabilities_are_those_of_usvit_for_any_number_of_images(onnx_export, fold):
    source, session = open_source(str(fold)), session_of(onnx_export)
    for pixels in (check_pixels(source.preprocessing)[:1], check_pixels(source.preprocessing).repeat(2, 1, 1, 1)):
        logits, probabilities = session.run(["logits", "probabilities"], {"image": pixels.numpy()})
        expected = source.predict(pixels)
        assert expected.std() > 0.05, "networks that say the same of every image prove nothing"
        np.testing.assert_allclose(logits, expected, atol=1e-4)  # logits of about 10
        np.testing.assert_allclose(probabilities, expected.double().softmax(1), atol=1e-5)


def test_the_file_alone_tells_classes_preprocessing_and_what_it_is_not(onnx_export):
    facts = session_of(onnx_export).get_modelmeta().custom_metadata_map
    assert json.loads(facts["classes"]) == list(CLASSES) and facts["positive_class"] == "malignant"
    assert json.loads(facts["preprocessing"])["resize"] == "pad"
    assert "not a medical device" in facts["intended_use"] and "Apache-2.0" in facts["licenses"]


def test_no_path_of_this_machine_is_in_the_file(onnx_export):
    content = (onnx_export / "model.onnx").read_bytes()
    # The exporter writes the source lines that each operator came from.
    assert not re.search(rb"stack_trace|site-packages|/usvit/|File \"", content)


def test_the_cards_own_snippet_gives_usvits_probabilities_without_usvit(onnx_export, fold, tmp_path, monkeypatch):
    image = np.random.default_rng(2).integers(0, 256, (50, 90), dtype=np.uint8)
    Image.fromarray(image).save(tmp_path / "image.png")
    (tmp_path / "model.onnx").write_bytes((onnx_export / "model.onnx").read_bytes())
    snippet = re.search(r"```python\n(.*?)```", (onnx_export / "README.md").read_text(), re.DOTALL)[1]
    assert "usvit" not in snippet
    monkeypatch.chdir(tmp_path)
    said = {}
    exec(snippet, said)
    source = open_source(str(fold))
    pixels = source.preprocessing.resized(read_image(tmp_path / "image.png"))
    expected = source.predict(torch.tensor(pixels)[None]).softmax(1)
    np.testing.assert_allclose(said["probabilities"], expected, atol=1e-5)


def test_a_temperature_cools_the_probabilities_and_not_the_logits():
    source = tiny(vit={"depth": 1})
    inputs = check_pixels(source.preprocessing)
    logits, probabilities = to_onnx.Graph(source.model, source.preprocessing, 2.0).eval()(inputs)
    torch.testing.assert_close(logits, source.predict(inputs))
    torch.testing.assert_close(probabilities, (logits / 2).softmax(1))


FAMILIES = [
    ("vit_ti16", {"depth": 1, "position": "relative", "stem": "conv_bn", "pool": "avg"}, 32, {}),
    ("vit_ti16", {"depth": 1, "pool": "map", "stem": "hmlp_ln", "head": "hidden", "branches": 2}, 32, {}),
    ("vit_ti16", {"depth": 1, "attention": "axial", "pool": "avg", "position": "sincos_2d"}, 32, {}),
    ("cait_xxs24", None, 32, {"depth": 1}),
    ("patchconvnet_s60", None, 32, {"depth": 1}),
]
SLOW_FAMILIES = [
    ("r_ti16", None, 64, {"depth": 1}),
    ("deit_ti_distilled", None, 32, {"depth": 1}),
    ("resmlp_s2", None, 32, {}),
    ("resnet50", None, 64, {"layers": (1, 1, 1, 1)}),
]


@pytest.mark.parametrize(
    ("name", "vit", "size", "options"),
    [*FAMILIES[:1], *(pytest.param(*family, marks=pytest.mark.slow) for family in [*FAMILIES[1:], *SLOW_FAMILIES])],
)
def test_every_family_says_the_same_in_onnx(name, vit, size, options, tmp_path):
    exported = write_export(tiny(name, vit, size, **options), "onnx", tmp_path / "x")
    difference = float(re.search(r"at most (\S+)", exported.record.checked)[1])
    largest = float(re.search(r"largest is ([\d.e+-]+)", exported.record.checked)[1])
    assert largest > 0.01 and difference <= 1e-5 * max(largest, 1)


def test_a_head_of_zeros_does_not_hide_a_wrong_body(tmp_path, monkeypatch):
    source = open_source("vit_ti16", ExportSettings(weights="scratch", classes=["a", "b"], image_size=32))
    heads = []
    monkeypatch.setattr(to_onnx, "_write", lambda _, model, *__: heads.append(model.get_classifier().weight.any()))
    to_onnx.write_onnx(source, tmp_path)
    assert heads == [True, False], "checked with a head that is not zero, written with the one that is"


class Wrong(nn.Module):
    """Says one thing in PyTorch and another in the exported graph."""

    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body

    def forward(self, inputs):
        return self.body(inputs) * (2.0 if torch.compiler.is_exporting() else 1.0)


class Unknown(nn.Module):
    """A part that ONNX has no word for."""

    def __init__(self, body: nn.Module):
        super().__init__()
        self.body = body

    def forward(self, inputs):
        return self.body(inputs) + torch.special.bessel_y0(inputs.mean((1, 2, 3)))[:, None]


@pytest.mark.parametrize(
    ("broken", "said"), [(Wrong, "differs from the network"), (Unknown, "cannot be exported to ONNX")]
)
def test_a_graph_that_is_not_the_network_is_never_handed_out(broken, said, tmp_path):
    source = tiny(vit={"depth": 1})
    source = dataclasses.replace(source, model=broken(source.model))
    with pytest.raises(UsvitError, match=said):
        write_export(source, "onnx", tmp_path / "x")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_weights_too_large_for_one_file_lie_beside_it(tmp_path, monkeypatch):
    monkeypatch.setattr(to_onnx, "ONE_FILE_BYTES", 1000)
    exported = write_export(tiny(vit={"depth": 1}), "onnx", tmp_path / "x")
    assert "model.onnx.data" in exported.record.files
    assert (tmp_path / "x" / "model.onnx").stat().st_size < 200_000
    (tmp_path / "x").rename(tmp_path / "moved")
    session_of(tmp_path / "moved")
