"""Verify and install an air-gap kit of usvit. It needs Python alone; every kit holds a copy of this file.

python install.py verify
python install.py install --into DIR
"""

import argparse
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from typing import Any

SUMS, SBOM, REQUIREMENTS, WHEELS = "SHA256SUMS", "sbom.cdx.json", "requirements.txt", "wheels"
"""Names in a kit: hashes of all other files, as ``sha256sum`` writes them; what is installed; the same for pip."""
_MOST_BYTES = 64_000_000
_LINE = re.compile(r"([0-9a-f]{64})  ([^\n]+)")
_LIST = "import importlib.metadata as m, json; print(json.dumps([[d.name, d.version] for d in m.distributions()]))"


class KitError(Exception):
    """A kit is not as it was built, or cannot be installed here."""


def verify(kit: Path, sha256: str | None = None) -> str:
    """Compare every file of a kit with its hash, and refuse missing, changed and further files.

    Args:
        kit: Folder of the kit.
        sha256: SHA-256 of its SHA256SUMS, which ``usvit kit build`` printed.

    Returns:
        The SHA-256 of SHA256SUMS.

    Raises:
        KitError: The kit is not as it was built.
    """
    content = _read(kit, SUMS)
    digest = hashlib.sha256(content).hexdigest()
    again = "Nothing was installed. Copy the kit again from where it was built."
    if sha256 is not None and digest != sha256.strip().lower():
        raise KitError(f"{kit} is another kit: the SHA-256 of its {SUMS} is {digest}, not {sha256}. {again}")
    lines = [_LINE.fullmatch(line) for line in content.decode("utf-8", "replace").removesuffix("\n").split("\n")]
    listed = {line[2]: line[1] for line in lines if line}
    if len(listed) != len(lines):
        raise KitError(f"{kit} is not as it was built: {SUMS} is damaged. {again}")
    present = _files(kit) - {SUMS}
    faults = {
        "missing": sorted(listed.keys() - present),
        "not of the kit": sorted(present - listed.keys()),
        "changed": sorted(name for name in listed.keys() & present if _sha256(kit / name) != listed[name]),
    }
    if any(faults.values()):
        said = "; ".join(f"{what}: {names[0]}{_more(names)}" for what, names in faults.items() if names)
        raise KitError(f"{kit} is not as it was built ({said}). {again}")
    return digest


def install(kit: Path, into: Path, sha256: str | None = None) -> Path:
    """Verify a kit, and install it into a new virtual environment without network.

    Args:
        kit: Folder of the kit.
        into: Folder of the new environment.
        sha256: As for ``verify``.

    Returns:
        The Python of the environment.

    Raises:
        KitError: The kit is not as it was built or is for another Python, ``into`` exists, or pip failed. No
            environment is left.
    """
    verify(kit, sha256)
    bom = json.loads(_read(kit, SBOM))
    needs = {one["name"]: one["value"] for one in bom["metadata"]["properties"]}
    if (here := platform()) != (wanted := (needs["usvit:python"], needs["usvit:platform"])):
        raise KitError(
            f"{kit} is for Python {' on '.join(wanted)}, and this is Python {' on '.join(here)}. Nothing was "
            "installed: use that Python, or build a kit with this one."
        )
    if into.exists() or into.is_symlink():
        raise KitError(f"{into} exists. Nothing was installed: choose a new folder with --into.")
    if find_spec("ensurepip") is None:
        raise KitError("This Python has no ensurepip. Nothing was installed: install it (Debian: python3-venv).")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON"))}
    environment["PIP_CONFIG_FILE"] = os.devnull
    python = into / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    options = ["--no-index", "--no-deps", "--require-hashes", "--only-binary", ":all:", "--quiet", "--no-cache-dir"]
    options += ["--disable-pip-version-check", "--find-links", WHEELS, "--requirement", REQUIREMENTS]
    done = False
    try:
        _run([sys.executable, "-m", "venv", str(into)], kit, environment)
        before = _installed(python.absolute(), kit, environment)
        _run([str(python.absolute()), "-m", "pip", "install", *options], kit, environment)
        wanted_packages = {(_canonical(one["name"]), one["version"]) for one in packages(bom)}
        found = _installed(python.absolute(), kit, environment)
        if not wanted_packages <= found or not found - wanted_packages <= before:
            raise KitError(f"What was installed differs from {SBOM}. No environment was left: report this as a bug.")
        done = True
    finally:
        if not done:
            shutil.rmtree(into, ignore_errors=True)
    return python


def packages(bom: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the packages of an SBOM, usvit first."""
    return [bom["metadata"]["component"], *bom["components"]]


def platform() -> tuple[str, str]:
    """Return the version of Python, such as ``3.11``, and the platform, such as ``linux-x86_64``."""
    return f"{sys.version_info.major}.{sys.version_info.minor}", sysconfig.get_platform()


def _read(kit: Path, name: str) -> bytes:
    path = kit / name
    if path.is_symlink() or not path.is_file() or path.stat().st_size > _MOST_BYTES:
        raise KitError(f"{kit} is not a kit of usvit: it has no usable {name}. Name the folder of 'usvit kit build'.")
    with open(path, "rb") as file:
        return file.read(_MOST_BYTES)


def _files(kit: Path) -> set[str]:
    """Return the names of all files and links in a folder, without following a link."""
    found = set()
    for folder, inner, files in os.walk(kit):
        links = [name for name in inner if (Path(folder) / name).is_symlink()]
        found |= {(Path(folder) / name).relative_to(kit).as_posix() for name in (*files, *links)}
    return found


def _sha256(path: Path) -> str:
    if path.is_symlink() or not path.is_file():
        return "a link or a device"
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _more(names: list[str]) -> str:
    return f" and {len(names) - 1} more" if len(names) > 1 else ""


def _canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _run(command: list[str], kit: Path, environment: dict[str, str]) -> str:
    try:
        done = subprocess.run(command, cwd=kit, env=environment, capture_output=True, text=True)
    except OSError as error:
        raise KitError(f"{command[0]} cannot be started: {error}. No environment was left.") from None
    if done.returncode:
        said = (done.stderr or done.stdout).strip().rpartition("\n")[2]
        raise KitError(f"{' '.join(command[1:4])} failed ({said}). No environment was left.")
    return done.stdout


def _installed(python: Path, kit: Path, environment: dict[str, str]) -> set[tuple[str, str]]:
    listed = json.loads(_run([str(python), "-I", "-c", _LIST], kit, environment))
    return {(_canonical(name), version) for name, version in listed}


def main(arguments: list[str] | None = None) -> int:
    """Run the commands of the kit that this file lies in."""
    parser = argparse.ArgumentParser(description="Verify this kit of usvit, or install it without network.")
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("verify", "install"):
        command = commands.add_parser(name)
        command.add_argument("--sha256", help="SHA-256 of SHA256SUMS, which 'usvit kit build' printed")
        if name == "install":
            command.add_argument("--into", type=Path, required=True, help="folder of the new virtual environment")
    options, kit = parser.parse_args(arguments), Path(__file__).resolve().parent
    try:
        if options.command == "verify":
            print(f"The kit is as it was built. SHA-256 of {SUMS}: {verify(kit, options.sha256)}")
        else:
            print(f"Installed: {install(kit, options.into, options.sha256).with_name('usvit')} --help")
    except KitError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
