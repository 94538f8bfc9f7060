"""``usvit doctor`` names what is wrong with a machine, and the command that mends it; each fault is planted here."""

import json
import shutil
import sys
from collections import namedtuple
from importlib.metadata import PackageNotFoundError

import pytest

from usvit import installation
from usvit.installation import check_installation


def without_package(monkeypatch, tmp_path):
    real = installation.distribution

    def some(name):
        if name == "pydicom":
            raise PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(installation, "distribution", some)


def not_installed(monkeypatch, tmp_path):
    def none(name):
        raise PackageNotFoundError(name)

    for function in ("version", "distribution"):
        monkeypatch.setattr(installation, function, none)


def no_temporary_files(monkeypatch, tmp_path):
    def none():
        raise FileNotFoundError("no usable temporary directory")

    (tmp_path / "file").write_text("")
    monkeypatch.setattr(installation.tempfile, "gettempdir", none)
    monkeypatch.setenv("TMPDIR", str(tmp_path / "file"))


def too_old(monkeypatch, tmp_path):
    real = installation.distribution
    old = namedtuple("Old", "version")("0.1")
    monkeypatch.setattr(installation, "distribution", lambda name: old if name == "timm" else real(name))


def torchvision_of_another_build(monkeypatch, tmp_path):
    (tmp_path / "torchvision.py").write_text("raise RuntimeError('operator torchvision::nms does not exist')")
    monkeypatch.delitem(sys.modules, "torchvision", raising=False)
    monkeypatch.syspath_prepend(tmp_path)


def no_decoder(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "jpeg_ls", None)


def full_disk(monkeypatch, tmp_path):
    usage = namedtuple("Usage", "total used free")(10**12, 10**12, 10**6)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)


def cache_is_a_file(monkeypatch, tmp_path):
    (tmp_path / "cache").write_text("")
    monkeypatch.setenv("USVIT_CACHE", str(tmp_path / "cache"))


def data_folder_is_gone(monkeypatch, tmp_path):
    monkeypatch.setenv("USVIT_DATA", str(tmp_path / "gone"))


def threads_are_no_number(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "two")


def damaged_weights(monkeypatch, tmp_path):
    shutil.copytree(installation.weights_dir(), tmp_path / "weights")
    file = tmp_path / "weights" / "phantom" / "model.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    monkeypatch.setattr(installation, "weights_dir", lambda: tmp_path / "weights")


def no_weights(monkeypatch, tmp_path):
    monkeypatch.setattr(installation, "weights_dir", lambda: tmp_path)


FAULTS = {
    without_package: ("packages", "pip install 'pydicom"),
    not_installed: ("packages", "pip install --editable ."),
    no_temporary_files: ("temporary files", "export TMPDIR=DIR"),
    too_old: ("packages", "(0.1 is installed)"),
    torchvision_of_another_build: ("torch", "pip install --force-reinstall torch torchvision"),
    no_decoder: ("decoders", "pip install pyjpegls"),
    full_disk: ("cache", "too little for a run"),
    cache_is_a_file: ("cache", "export USVIT_CACHE=DIR"),
    data_folder_is_gone: ("data", "export USVIT_DATA=DIR"),
    threads_are_no_number: ("threads", "unset OMP_NUM_THREADS"),
    no_weights: ("weights", "pip install --force-reinstall usvit"),
    damaged_weights: ("weights", "pip install --force-reinstall usvit"),
}


def test_a_machine_that_runs_these_tests_has_no_fault():
    assert [finding for finding in check_installation() if finding.level == "fault"] == []


@pytest.mark.parametrize("plant", FAULTS, ids=lambda plant: plant.__name__)
def test_each_planted_fault_is_named_with_what_mends_it(plant, monkeypatch, tmp_path, usvit):
    check, mending = FAULTS[plant]
    plant(monkeypatch, tmp_path)
    faults = [finding for finding in check_installation() if finding.level == "fault"]
    assert {finding.check for finding in faults} >= {check}
    assert any(mending in finding.said for finding in faults if finding.check == check)
    if plant is not full_disk:
        assert {finding.check for finding in faults} == {check}
    answer = usvit("doctor", "--json")
    said = [finding for finding in json.loads(answer.out) if finding["level"] == "fault"]
    assert answer.code == 2 and said == [finding._asdict() for finding in faults]


def test_an_extra_that_is_not_installed_is_a_note(monkeypatch):
    real = installation.distribution

    def some(name):
        if name == "ray":
            raise PackageNotFoundError(name)
        return real(name)

    monkeypatch.setattr(installation, "distribution", some)
    found = {finding.check: finding for finding in check_installation()}
    assert found["extra ray"].level == "note" and "pip install 'usvit[ray]'" in found["extra ray"].said
    assert found["extra node"].level == "ok"
