"""``usvit kit build``: collect everything that installs usvit without network in a folder."""

import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

from usvit.config.keywords import takes_settings
from usvit.errors import UsvitError, shortened
from usvit.files import OutputFolder, read_text, sha256_of_file, write_json, write_text
from usvit.kit import install as kit_script
from usvit.kit.licences import forbidden_licence
from usvit.kit.sbom import bill_of_materials
from usvit.kit.settings import KitSettings
from usvit.resources import configs_dir, docs_dir, lock_file

_README = """# Air-gap kit of usvit {version}

For Python {python} on {platform}. Nothing here touches the network.

    python install.py verify
    python install.py install --into /opt/usvit

Compare the SHA-256 of SHA256SUMS with the one that `usvit kit build` printed; it should reach you another way than the
kit. `--sha256` of both commands does it. `sha256sum -c SHA256SUMS` checks the files without this kit's own code.

`wheels` has the packages, `sbom.cdx.json` lists them with their licences (CycloneDX 1.6), `weights` has the weights
that were named, `docs` the documentation and `examples` the recipes.
"""


@dataclass(frozen=True)
class BuiltKit:
    """The result of ``build_kit``."""

    path: Path
    sha256: str
    """SHA-256 of SHA256SUMS, which stands for the whole kit."""
    n_packages: int
    n_bytes: int


@takes_settings
def build_kit(wheel: str | Path, out: str | Path, *, settings: KitSettings) -> BuiltKit:
    """Collect everything that installs usvit on a machine without network in a folder.

    The folder contains the wheels for this Python and system, each of which must have a hash of the lock file, weights,
    documentation, recipes, an SBOM (CycloneDX 1.6), an installer that needs Python alone, and the SHA-256 of all files.

    Args:
        wheel: Wheel of usvit.
        out: Folder to write; it must be absent or empty.
        settings: see ``KitSettings``.

    Returns:
        The folder and its figures.

    Raises:
        UsvitError: A file is missing, pip cannot collect a package, a wheel is not that of the lock file, or a package
            is under the GPL or AGPL. Nothing has been written.
    """
    wheel, lock = Path(wheel), settings.lock or lock_file()
    if wheel.suffix != ".whl" or not wheel.is_file():
        raise UsvitError(f"{wheel} is not a wheel of usvit. Name its file (.whl); 'make wheel' writes one.")
    names = [path.resolve().name for path in settings.weights]
    for path in settings.weights:
        if not path.exists():
            raise UsvitError(f"--weights {path} does not exist. Name a file or a folder of weights.")
        if names.count(path.resolve().name) > 1:
            raise UsvitError(f"Two of --weights are named {path.resolve().name}. Rename one of them.")
    known = read_text(lock)
    folder = OutputFolder(Path(out), "a kit")
    folder.refuse_other_files()
    with folder.staged() as kit:
        _collect(wheel, known, kit, settings)
        found = _checked(kit, wheel, known, lock)
        bom = bill_of_materials(found, settings.extra)
        write_json(kit / kit_script.SBOM, bom)
        pins = [f"{one.name}=={one.version} --hash=sha256:{sha256}" for one, sha256 in found]
        write_text(kit / kit_script.REQUIREMENTS, "\n".join(pins) + "\n")
        for path, name in zip(settings.weights, names, strict=True):
            _copy(path, kit / "weights" / name)
        _copy(docs_dir(), kit / "docs")
        _copy(configs_dir(), kit / "examples")
        _copy(Path(kit_script.__file__), kit / "install.py")
        python, system = kit_script.platform()
        write_text(kit / "README.md", _README.format(version=found[0][0].version, python=python, platform=system))
        files = sorted(path for path in kit.rglob("*") if path.is_file())
        lines = [f"{sha256_of_file(path)}  {path.relative_to(kit).as_posix()}" for path in files]
        write_text(kit / kit_script.SUMS, "\n".join(lines) + "\n")
        digest, n_bytes = kit_script.verify(kit), sum(path.stat().st_size for path in files)
    return BuiltKit(Path(out), digest, len(found), n_bytes)


def _collect(wheel: Path, lock: str, kit: Path, settings: KitSettings) -> None:
    """Let pip collect the wheels of usvit and its packages in the versions of the lock file."""
    pins = kit / "pins.txt"
    lines = [line.removesuffix("\\").strip() for line in lock.splitlines() if not line.startswith(("#", " "))]
    write_text(pins, "\n".join(lines) + "\n")
    extras = f"[{','.join(settings.extra)}]" if settings.extra else ""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary"]
    command += [
        ":all:",
        "--dest",
        str(kit / kit_script.WHEELS),
        "--constraint",
        str(pins),
        f"{wheel.resolve()}{extras}",
    ]
    if settings.wheelhouse is not None:
        command += ["--no-index", "--find-links", str(settings.wheelhouse.resolve())]
    done = subprocess.run(command, capture_output=True, text=True)
    pins.unlink()
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        said = shortened(errors[-1] if errors else "no message")
        raise UsvitError(f"pip cannot collect the packages ({said}). Check the network, the index or --wheelhouse.")


def _checked(kit: Path, own: Path, lock: str, lock_path: Path) -> list[tuple[Distribution, str]]:
    """Return metadata and SHA-256 of all wheels, usvit first; refuse foreign files and licences."""
    allowed = set(re.findall(r"--hash=sha256:([0-9a-f]{64})", lock)) | {sha256_of_file(own)}
    found = []
    for path in sorted((kit / kit_script.WHEELS).iterdir(), key=lambda path: (path.name != own.name, path.name)):
        sha256, (wheel, *_) = sha256_of_file(path), distributions(path=[str(path)])
        if sha256 not in allowed:
            raise UsvitError(
                f"{path.name} is not a file of {lock_path}: its SHA-256 is not there. Name the lock file that it is "
                "from with --lock, or collect the packages from another index or --wheelhouse."
            )
        if (licence := forbidden_licence(wheel.metadata)) is not None:
            raise UsvitError(f"{wheel.name} is under '{licence}', which a kit must not contain. Leave out its extra.")
        found.append((wheel, sha256))
    return found


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    (shutil.copytree if source.is_dir() else shutil.copyfile)(source, target)
