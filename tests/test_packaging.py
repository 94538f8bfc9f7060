"""The wheel works outside the checkout: recipes, data cards and templates travel with it."""

import ast
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import usvit
from tests.conftest import REPOSITORY, TINY
from tests.kit.conftest import write_wheel

PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]


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


@pytest.mark.slow
def test_the_wheel_of_the_source_distribution_has_the_same_bytes_under_another_umask(wheel, tmp_path):
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir"]
    subprocess.run([*build, tmp_path, "--sdist", REPOSITORY], check=True, capture_output=True)
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as file:
        file.extractall(tmp_path, filter="data")
    source, before = tmp_path / sdist.name.removesuffix(".tar.gz"), os.umask(0o077)
    try:
        copied = shutil.copytree(source, tmp_path / "elsewhere", copy_function=shutil.copyfile)
        subprocess.run([*build, tmp_path / "dist", copied], check=True, capture_output=True)
    finally:
        os.umask(before)
    assert (tmp_path / "dist" / wheel.name).read_bytes() == wheel.read_bytes()
    assert (tmp_path / "dist" / sdist.name).read_bytes() == sdist.read_bytes()


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_weights_in_the_wheel_are_those_of_the_checkout_and_small(wheel):
    inside = zipfile.ZipFile(wheel).read("usvit/_shipped/weights/phantom/model.safetensors")
    assert inside == (REPOSITORY / "weights" / "phantom" / "model.safetensors").read_bytes()
    assert len(inside) <= 6_000_000


@pytest.mark.slow
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


def test_every_package_that_usvit_imports_is_named_in_pyproject():
    lines = [*PROJECT["dependencies"], *(one for more in PROJECT["optional-dependencies"].values() for one in more)]
    named = {canonicalize_name(Requirement(line).name) for line in lines} | {"pydantic-core"}  # pydantic's own
    homes = packages_distributions()
    for path in (REPOSITORY / "usvit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_bytes())):
            modules = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0:
                modules = [node.module]
            for top in {one.partition(".")[0] for one in modules} - sys.stdlib_module_names - {"usvit"}:
                found = {canonicalize_name(one) for one in homes.get(top, [])}
                assert not found or found & named, f"{path}: {top} of {sorted(found)}"


def test_the_version_stands_in_one_place_and_a_tagged_one_in_the_changelog():
    assert PROJECT["dynamic"] == ["version"]
    assert f"version: {usvit.__version__}\n" in (REPOSITORY / "CITATION.cff").read_text()
    changelog = (REPOSITORY / "CHANGELOG.md").read_text()
    heads = re.findall(r"^## \[(.*?)\](.*)$", changelog, re.MULTILINE)
    assert heads[0] == ("Unreleased", "")
    assert all(re.fullmatch(r"\d+\.\d+\.\d+", one) and re.fullmatch(r" - \d{4}-\d\d-\d\d", at) for one, at in heads[1:])
    tags = subprocess.run(["git", "tag"], cwd=REPOSITORY, capture_output=True, text=True).stdout.split()
    assert {tag.removeprefix("v") for tag in tags if re.fullmatch(r"v\d+\.\d+\.\d+", tag)} <= {one for one, _ in heads}


def test_pip_takes_the_cpu_builds_of_both_packages_where_an_index_offers_them(tmp_path):
    pins = dict(re.findall(r"^(torch|torchvision)==(\S+)$", (REPOSITORY / "constraints.txt").read_text(), re.MULTILINE))
    write_wheel(tmp_path, "torch", pins["torch"], "Requires-Dist: nvidia-stand-in")
    write_wheel(tmp_path, "nvidia_stand_in", "1.0")
    write_wheel(tmp_path, "torchvision", pins["torchvision"], f"Requires-Dist: torch=={pins['torch']}")
    write_wheel(tmp_path, "torch", f"{pins['torch']}+cpu")
    write_wheel(tmp_path, "torchvision", f"{pins['torchvision']}+cpu", f"Requires-Dist: torch=={pins['torch']}")
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-index", "--find-links"]
    said = subprocess.run(
        [*pip, tmp_path, "--constraint", REPOSITORY / "constraints.txt", "torch>=2.9", "torchvision>=0.24"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    (line,) = [line for line in said.splitlines() if line.startswith("Would install")]
    assert line.split()[2:] == [f"torch-{pins['torch']}+cpu", f"torchvision-{pins['torchvision']}+cpu"]
