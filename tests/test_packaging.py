"""The wheel works outside the checkout: recipes, data cards and templates travel with it."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile

import pytest

from tests.conftest import REPOSITORY, TINY

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, REPOSITORY],
        check=True,
        capture_output=True,
    )
    return next(out.glob("*.whl"))


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """A fresh environment with the wheel; the libraries are those of this environment."""
    folder = tmp_path_factory.mktemp("venv")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", wheel], check=True)
    site = next((folder / "lib").glob("python*")) / "site-packages"
    # Read after the environment's own packages; editable installs in there are not followed.
    (site / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return folder / "bin" / "usvit"


def test_the_wheel_carries_recipes_cards_and_templates_and_no_tests(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {
        "usvit/_shipped/configs/finetune/demo.yaml",
        "usvit/_shipped/data_cards/busi.md",
        "usvit/_shipped/docs/how-to/score.md",
        "usvit/_shipped/configs/pretrain/deit3_i1k.yaml",
        "usvit/_shipped/configs/studies/gheflati2022_table2.yaml",
        "usvit/_shipped/configs/transfer/vtab1k.yaml",
        "usvit/_shipped/weights/phantom/model.json",
        "usvit/_shipped/weights/phantom/model.safetensors",
        "usvit/models/zoo/counts.json",
        "usvit/documents/templates/page.html.j2",
        "usvit/documents/templates/page.css",
        "usvit/reports/checklists/claim_2024.yaml",
        "usvit/py.typed",
    } <= names
    assert not [name for name in names if name.startswith(("tests/", "benchmarks/"))]


def test_the_weights_in_the_wheel_are_those_of_the_checkout_and_small(wheel):
    inside = zipfile.ZipFile(wheel).read("usvit/_shipped/weights/phantom/model.safetensors")
    assert inside == (REPOSITORY / "weights" / "phantom" / "model.safetensors").read_bytes()
    assert len(inside) <= 6_000_000


def test_the_installed_command_runs_the_demo_outside_the_checkout(installed, tmp_path, small_phantom):
    environment = {**os.environ, "PYTHONPATH": ""}
    where = subprocess.run(
        [installed.with_name("python"), "-c", "import usvit; print(usvit.__file__)"],
        cwd=tmp_path, env=environment, check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert str(installed.parent.parent) in where.stdout, "the wheel must be tested, not the checkout"
    answer = subprocess.run(
        [installed, "cv", "--data-root", small_phantom, "--out", "run", "--recipe", "demo", *TINY],
        cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert answer.returncode == 0, answer.stderr
    assert (tmp_path / "run" / "report.html").is_file()
