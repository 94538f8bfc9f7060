"""A kit of three tiny wheels: no network, and none of usvit's own packages."""

import hashlib
import zipfile
from pathlib import Path

import pytest

from usvit.kit import build_kit


def write_wheel(folder: Path, name: str, version: str, *lines: str) -> Path:
    """A wheel with one module that states its version, and metadata with further lines."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"version = '{version}'\n",
        f"{info}/METADATA": "\n".join(["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *lines]) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{one},,\n" for one in [*files, f"{info}/RECORD"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for one, content in files.items():
            file.writestr(one, content)
    return path


@pytest.fixture(scope="session")
def wheels(tmp_path_factory):
    """(wheel of usvit, folder of the other wheels, lock file, weights)"""
    top = tmp_path_factory.mktemp("wheels")
    needs = ("Requires-Dist: tiny-net", 'Requires-Dist: tiny-extra; extra == "node"', "Provides-Extra: node")
    own = write_wheel(top / "own", "usvit", "9.9", "License-Expression: Apache-2.0", *needs)
    house = top / "house"
    found = [
        write_wheel(house, "tiny_net", "1.0", "Classifier: License :: OSI Approved :: MIT License"),
        write_wheel(house, "tiny_extra", "2.0", "License: BSD 3-Clause"),
        write_wheel(house, "tiny_extra", "3.0", "License: BSD 3-Clause"),  # newer than the lock file
    ]
    lock = top / "requirements.lock"
    lines = [f"{path.name.split('-')[0]}=={path.name.split('-')[1]} \\\n    --hash=sha256:" for path in found[:2]]
    digests = [hashlib.sha256(path.read_bytes()).hexdigest() for path in found]
    lock.write_text("# a comment\n" + "".join(f"{a}{b}\n" for a, b in zip(lines, digests, strict=False)))
    weights = top / "model"
    weights.mkdir()
    (weights / "model.safetensors").write_bytes(b"weights")
    return own, house, lock, weights


@pytest.fixture(scope="session")
def built(wheels, tmp_path_factory):
    own, house, lock, weights = wheels
    out = tmp_path_factory.mktemp("kit") / "kit"
    return build_kit(own, out, wheelhouse=house, lock=lock, weights=(weights,), extra=("node",))
