"""Kits install without network and without usvit, and one changed, missing or further file is refused."""

import ast
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY
from tests.kit.conftest import write_wheel
from usvit.errors import UsvitError
from usvit.kit import build_kit, install_kit, verify_kit
from usvit.kit import install as kit_script

LISTED = "import importlib.metadata as m; print(*sorted(f'{d.name}=={d.version}' for d in m.distributions()))"


def run_script(kit, *words, before=()):
    return subprocess.run(
        [*before, sys.executable, str(kit / "install.py"), *words], capture_output=True, text=True, cwd=kit.parent
    )


@pytest.fixture
def kit(built, tmp_path):
    return shutil.copytree(built.path, tmp_path / "kit")


def test_the_installer_in_the_kit_needs_python_alone():
    tree = ast.parse((REPOSITORY / "usvit" / "kit" / "install.py").read_text())
    imported = {one.name for node in ast.walk(tree) if isinstance(node, ast.Import) for one in node.names}
    imported |= {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names


def test_a_kit_contains_packages_weights_pages_recipes_and_the_hash_of_every_file(built):
    assert built.n_packages == 3
    assert {path.name for path in built.path.iterdir()} == {
        *("README.md", "SHA256SUMS", "docs", "examples", "install.py", "requirements.txt", "sbom.cdx.json", "weights"),
        "wheels",
    }
    assert (built.path / "weights" / "model" / "model.safetensors").read_bytes() == b"weights"
    assert (built.path / "docs" / "how-to" / "score.md").is_file()
    assert (built.path / "examples" / "finetune" / "demo.yaml").is_file()
    assert (
        hashlib.sha256((built.path / "SHA256SUMS").read_bytes()).hexdigest() == built.sha256 == verify_kit(built.path)
    )
    assert not (built.path / "wheels" / "tiny_extra-3.0-py3-none-any.whl").exists()


@pytest.mark.skipif(shutil.which("sha256sum") is None, reason="needs sha256sum")
def test_sha256sum_reads_the_hashes(built):
    subprocess.run(["sha256sum", "--check", "--strict", "--quiet", "SHA256SUMS"], cwd=built.path, check=True)


def test_two_builds_of_a_kit_have_the_same_bytes(built, wheels, tmp_path):
    own, house, lock, weights = wheels
    again = build_kit(own, tmp_path / "again", wheelhouse=house, lock=lock, weights=(weights,), extra=("node",))
    assert again.sha256 == built.sha256


@pytest.mark.slow
def test_a_kit_is_installed_without_network_and_the_sbom_is_what_is_installed(kit, built, tmp_path):
    unshare = shutil.which("unshare")
    cut_off = [unshare, "-n"] if unshare else []
    if not cut_off or subprocess.run([*cut_off, "true"], capture_output=True).returncode:
        pytest.skip("needs unshare -n and the right to use it")
    done = run_script(kit, "install", "--into", str(tmp_path / "env"), "--sha256", built.sha256, before=cut_off)
    assert done.returncode == 0, done.stderr
    python = tmp_path / "env" / "bin" / "python"
    listed = subprocess.run([python, "-I", "-c", LISTED], capture_output=True, text=True, check=True).stdout.split()
    bom = json.loads((kit / "sbom.cdx.json").read_text())
    of_bom = {f"{one['name']}=={one['version']}" for one in [bom["metadata"]["component"], *bom["components"]]}
    assert of_bom == {one for one in listed if not one.startswith(("pip==", "setuptools=="))}
    again = run_script(kit, "install", "--into", str(tmp_path / "env"))
    assert again.returncode == 2 and "exists. Nothing was installed" in again.stderr


@pytest.mark.slow
def test_the_command_installs_as_the_script_does(kit, tmp_path):
    python = install_kit(kit, tmp_path / "env")
    said = subprocess.run([python, "-c", "import usvit; print(usvit.version)"], capture_output=True, text=True, cwd="/")
    assert said.stdout == "9.9\n"


def flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "a byte of a wheel": (
        lambda kit: flipped(kit / "wheels" / "tiny_net-1.0-py3-none-any.whl"),
        "changed: wheels/tiny",
    ),
    "a byte of the weights": (lambda kit: flipped(kit / "weights/model/model.safetensors"), "changed: weights/model"),
    "a byte of the hashes": (lambda kit: flipped(kit / "SHA256SUMS"), "is not as it was built"),
    "a byte of the installer": (lambda kit: flipped(kit / "install.py"), "changed: install.py"),
    "a missing file": (lambda kit: (kit / "docs" / "decisions.md").unlink(), "missing: docs/decisions.md"),
    "a further file": (lambda kit: (kit / "wheels" / "a.whl").write_text("x"), "not of the kit: wheels/a.whl"),
    "a link": (lambda kit: (kit / "docs" / "link").symlink_to("/etc"), "not of the kit: docs/link"),
    "no hashes": (lambda kit: (kit / "SHA256SUMS").unlink(), "it has no usable SHA256SUMS"),
    "a hash twice": (
        lambda kit: (kit / "SHA256SUMS").write_text(2 * (kit / "SHA256SUMS").read_text()),
        "SHA256SUMS is damaged",
    ),
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_kit_is_refused_and_nothing_is_installed(kit, tmp_path, name):
    damage, said = DAMAGE[name]
    damage(kit)
    with pytest.raises(UsvitError, match=re.escape(said)):
        verify_kit(kit)
    with pytest.raises(UsvitError, match=re.escape(said)) as error:
        install_kit(kit, tmp_path / "env")
    assert "\n" not in str(error.value) and not (tmp_path / "env").exists()


def test_the_script_says_it_in_one_paragraph_without_a_traceback(kit):
    (kit / "README.md").unlink()
    done = run_script(kit, "verify")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Error: ") and done.stderr.count("\n") == 1 and "missing: README.md" in done.stderr


def test_a_kit_that_was_built_anew_is_refused_by_its_sum(kit, built):
    (kit / "README.md").write_text("other\n")
    lines = (kit / "SHA256SUMS").read_text().splitlines()
    own = f"{hashlib.sha256(b'other' + chr(10).encode()).hexdigest()}  README.md"
    (kit / "SHA256SUMS").write_text("\n".join(own if one.endswith("  README.md") else one for one in lines) + "\n")
    assert verify_kit(kit) != built.sha256
    with pytest.raises(UsvitError, match="is another kit"):
        verify_kit(kit, built.sha256)


def test_a_kit_for_another_python_is_refused(kit, tmp_path, monkeypatch):
    monkeypatch.setattr(kit_script, "platform", lambda: ("3.99", "plan9-vax"))
    with pytest.raises(UsvitError, match=r"this is Python 3\.99 on plan9-vax.*use that Python"):
        install_kit(kit, tmp_path / "env")


def test_a_package_that_pip_refuses_leaves_no_environment(kit, tmp_path):
    (kit / "requirements.txt").write_text("absent==1.0 --hash=sha256:" + "0" * 64 + "\n")
    lines = (kit / "SHA256SUMS").read_text().splitlines()
    digest = hashlib.sha256((kit / "requirements.txt").read_bytes()).hexdigest()
    changed = [f"{digest}  requirements.txt" if one.endswith("  requirements.txt") else one for one in lines]
    (kit / "SHA256SUMS").write_text("\n".join(changed) + "\n")
    with pytest.raises(UsvitError, match="No matching distribution found for absent"):
        install_kit(kit, tmp_path / "env")
    assert not (tmp_path / "env").exists()


def test_what_cannot_be_built_is_refused_and_nothing_is_written(wheels, tmp_path):
    own, house, lock, weights = wheels
    out = tmp_path / "kit"

    def refused(said, wheel=own, **settings):
        with pytest.raises(UsvitError, match=said):
            build_kit(wheel, out, **{"wheelhouse": house, "lock": lock, **settings})
        assert not out.exists()

    refused("is not a wheel of usvit", wheel=tmp_path / "absent.whl")
    refused("--weights .* does not exist", weights=(tmp_path / "absent",))
    refused("Two of --weights are named model", weights=(weights, weights))
    refused("pip cannot collect the packages", wheelhouse=tmp_path)
    (tmp_path / "other.lock").write_text("tiny_net==1.0 \\\n    --hash=sha256:" + "0" * 64 + "\n")
    refused("is not a file of .*other.lock: its SHA-256", lock=tmp_path / "other.lock")
    gpl = write_wheel(tmp_path / "gpl", "usvit", "9.9", "License-Expression: AGPL-3.0-or-later")
    refused("usvit is under 'AGPL-3.0-or-later'", wheel=gpl)


def test_the_commands_print_what_they_did(usvit, wheels, tmp_path):
    own, house, lock, _ = wheels
    answer = usvit("kit", "build", own, "--out", tmp_path / "kit", "--wheelhouse", house, "--lock", lock)
    assert answer.code == 0 and "2 packages" in answer.out, answer.err
    digest = re.search("SHA256SUMS: ([0-9a-f]{64})", answer.out)[1]
    assert digest in usvit("kit", "verify", tmp_path / "kit", "--sha256", digest).out
    (tmp_path / "kit" / "README.md").unlink()
    answer = usvit("kit", "install", tmp_path / "kit", "--into", tmp_path / "env")
    assert answer.code == 2 and "missing: README.md" in answer.err


def test_the_sbom_is_valid_cyclonedx_with_licences_and_dependencies(built):
    bom = json.loads((built.path / "sbom.cdx.json").read_text())
    assert {one["name"]: one["licenses"] for one in bom["components"]} == {
        "tiny_net": [{"license": {"name": "MIT License"}}],
        "tiny_extra": [{"license": {"name": "BSD 3-Clause"}}],
    }
    assert bom["dependencies"][0]["dependsOn"] == ["pkg:pypi/tiny-extra@2.0", "pkg:pypi/tiny-net@1.0"]
    if importlib.util.find_spec("cyclonedx") is None:
        pytest.skip("needs cyclonedx-python-lib")
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator

    validator = JsonStrictValidator(SchemaVersion.V1_6)
    assert validator.validate_str((built.path / "sbom.cdx.json").read_text()) is None
    assert validator.validate_str(json.dumps({**bom, "specVersion": "1.6", "components": [{"name": 1}]})) is not None
