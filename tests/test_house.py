"""The house stands as designed: imports go down only, nothing ships that must not."""

import ast
import re
import subprocess
from importlib.metadata import distribution, requires

import pytest

from tests.conftest import REPOSITORY

FLOORS = [
    {"__main__"},
    {"cli"},
    {"study"},
    {"cv"},
    {"transfer"},
    {"pretrain"},
    {"score"},
    {"job", "run_dir", "bench", "export", "explain"},
    {"report"},
    {"metrics"},
    {"train"},
    {"models"},
    {"data"},
    {"config", "progress", "cluster"},
    {"records", "pseudonyms"},
    {"resources", "seeding", "files", "limited", "plain_yaml", "terminal"},
    {"errors"},
]
"""Rooms from the roof down; a room imports from floors below it, or from itself."""

PACKAGE = REPOSITORY / "usvit"


def room_of(path):
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports_of(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_a_room_imports_only_from_floors_below(path):
    floor = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    if path == PACKAGE / "__init__.py":
        return
    for module in imports_of(path):
        parts = module.split(".")
        if parts[0] == "usvit" and len(parts) > 1 and parts[1] != room_of(path):
            assert floor[parts[1]] > floor[room_of(path)], f"{path} imports {module}"


def test_the_pure_rooms_know_no_torch():
    for room in ("metrics", "report", "cli"):
        for path in (PACKAGE / room).rglob("*.py"):
            assert not [name for name in imports_of(path) if name.split(".")[0] in ("torch", "timm")], path


def test_albumentations_stands_in_one_file():
    users = [path.name for path in PACKAGE.rglob("*.py") if "albumentations" in set(imports_of(path))]
    assert users == ["augment.py"]


def installed_needs(name, seen):
    """Every distribution that ``name`` needs at run time, all the way down."""
    for line in requires(name) or []:
        if "extra ==" in line or "extra==" in line:
            continue
        need = re.match(r"[A-Za-z0-9._-]+", line)[0]
        if need.lower() not in seen:
            try:
                distribution(need)
            except ModuleNotFoundError:
                continue  # for another system or Python
            seen.add(need.lower())
            installed_needs(need, seen)
    return seen


def test_nothing_that_usvit_needs_is_under_the_gpl():
    needs = installed_needs("usvit", set())
    assert {"torch", "timm", "albumentations", "braceexpand", "tensorboardx", "protobuf", "fsspec"} <= needs
    assert needs.isdisjoint({"albumentationsx", "pylibjpeg-libjpeg", "credible"})
    for name in sorted(needs):
        metadata = distribution(name).metadata
        licence = " ".join(
            [metadata.get("License-Expression") or "", (metadata.get("License") or "")[:200]]
            + [line for line in metadata.get_all("Classifier") or [] if line.startswith("License")]
        )
        # LGPL is not GPL: what only links to it stays under its own licence.
        assert not re.search(r"(?<!L)(?<!Lesser )\bA?GPL|GNU (Affero )?General Public", licence), f"{name}: {licence}"


def test_no_image_weight_or_dicom_is_tracked():
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    binary = (".png", ".jpg", ".dcm", ".npz", ".npy", ".pth", ".pt", ".safetensors")
    assert [name for name in listed.stdout.splitlines() if name.endswith(binary)] == []
