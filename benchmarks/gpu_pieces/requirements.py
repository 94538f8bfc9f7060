"""The packages that usvit needs and a machine lacks."""

import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distributions, requires, version
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"
TESTS = ("pytest>=8.3", "hypothesis>=6.100")
"""What the piece ``tests`` needs besides."""
NOT_CARRIED = re.compile(r"torch|torchvision|triton|nvidia-.*|cuda-.*")
"""Packages that belong to the driver, and are too large to carry: the other machine must have them."""
PYTHON = "3.12"
"""Version of Python of the other machine."""


class UnusableList(Exception):
    """The list of packages of the other machine cannot be read."""


def missing(there: Path | None = None) -> list[str]:
    """List what usvit needs and a machine lacks, as ``name==version``, or ``name`` if the version is unknown here.

    Args:
        there: ``pip list --format=freeze`` of the other machine; its missing packages are followed with what they need
            themselves, as far as this machine has them. None for this machine.

    Returns:
        Sorted lines. A package that is there in a version that is too old is listed, too.

    Raises:
        UnusableList: ``there`` cannot be read.
    """
    try:
        from packaging.requirements import Requirement
        from packaging.utils import canonicalize_name
    except ModuleNotFoundError:
        return ["packaging"]
    have = _read(there) if there is not None else _installed()
    have = {canonicalize_name(name): number for name, number in have.items()}
    python = PYTHON if there is not None else ".".join(map(str, sys.version_info[:2]))
    lacking: dict[str, str] = {}
    waiting = list(_roots())
    followed: set[str] = set()
    while waiting:
        need = Requirement(waiting.pop())
        name = canonicalize_name(need.name)
        if need.marker is not None and not need.marker.evaluate({"extra": "", "python_version": python}):
            continue
        number = have.get(name)
        enough = number is not None and need.specifier.contains(number, prereleases=True)
        if not enough and not (there is not None and NOT_CARRIED.fullmatch(name)):
            lacking[name] = _pinned(name) if there is not None else str(need)
        # A package that is there has what it needs already, except on this machine, where all are checked.
        if name not in followed and not (there is not None and enough):
            followed.add(name)
            waiting += _needs_of(name)
    return [lacking[name] for name in sorted(lacking)]


def missing_optional() -> list[str]:
    """List the names of packages of usvit's extras, those for developers aside, that this machine lacks."""
    extras = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    lines = {line for extra, needs in extras.items() if extra != "dev" for line in needs}
    names = sorted({re.split(r"[^A-Za-z0-9._-]", line)[0] for line in lines})
    return [name for name in names if not _is_installed(name)]


def _is_installed(name: str) -> bool:
    try:
        version(name)
    except PackageNotFoundError:
        return False
    return True


def _roots() -> Iterator[str]:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    yield from project["dependencies"]
    yield from TESTS


def _needs_of(name: str) -> list[str]:
    try:
        return requires(name) or []
    except PackageNotFoundError:
        return []


def _installed() -> Mapping[str, str]:
    found = {one.metadata["Name"]: one.version for one in distributions()}
    return {name: number for name, number in found.items() if name}


def _read(path: Path) -> Mapping[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UnusableList(f"{path} cannot be read: {error}. Make it with 'pip list --format=freeze'.") from error
    lines = [re.fullmatch(r"\s*([A-Za-z0-9._-]+)\s*==\s*(\S+)\s*", line) for line in text.splitlines()]
    found = {match[1]: match[2] for match in lines if match}
    if not found:
        raise UnusableList(f"{path} has no line such as torch==2.11.0. Make it with 'pip list --format=freeze'.")
    return found


def _pinned(name: str) -> str:
    try:
        return f"{name}=={version(name).partition('+')[0]}"
    except PackageNotFoundError:
        return name
