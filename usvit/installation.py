"""What ``usvit doctor`` checks: packages, decoders, device, cores, memory, disk, folders and shipped weights."""

import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import PackageNotFoundError, distribution, requires, version
from pathlib import Path
from typing import Literal, NamedTuple

from packaging.requirements import Requirement

from usvit import __version__
from usvit.errors import UsvitError, shortened
from usvit.files import read_text, sha256_of_file
from usvit.resources import cache_dir, free_memory, total_memory, usable_cores, weights_dir
from usvit.threads import cpu_quota

LEAST_DISK = 2 * 1024**3
"""Free bytes of a disk below which a run may not fit."""
LEAST_MEMORY = 4 * 1024**3
"""Bytes of memory below which a training of the larger networks is killed."""
DECODERS = {
    "gdcm": ("python-gdcm", "DICOM with 12-bit or lossless JPEG"),
    "jpeg_ls": ("pyjpegls", "DICOM with JPEG-LS"),
    "openjpeg": ("pylibjpeg-openjpeg", "DICOM with JPEG 2000"),
    "cv2": ("opencv-python-headless", "videos"),
    "PIL.Image": ("pillow", "pictures"),
}
"""Module of a decoder -> its package, and what it reads."""


class InstallationFinding(NamedTuple):
    """One finding about this machine."""

    level: Literal["ok", "note", "fault"]
    """``fault``: a main command fails; ``note``: something is missing that not everybody needs."""
    check: str
    """What was checked, such as ``disk``."""
    said: str
    """What was found, and for a note or a fault the command or the step that mends it."""


def check_installation() -> list[InstallationFinding]:
    """Check whether usvit can work on this machine. Nothing is changed, and nothing touches the network.

    Returns:
        The findings, in the order of the checks.

    Example:
        >>> {finding.level for finding in check_installation()} <= {"ok", "note", "fault"}
        True
    """
    checks = (_python, _packages, _extras, _torch, _decoders, _machine, _threads, _folders, _weights)
    return [InstallationFinding(*found) for check in checks for found in check()]


_Found = Iterator[tuple[Literal["ok", "note", "fault"], str, str]]


def _python() -> _Found:
    yield "ok", "usvit", f"usvit {__version__}, Python {platform.python_version()}, {platform.platform()}"


def _missing(extra: str | None) -> list[str]:
    """Return the requirements of usvit, or of one extra, that are not met here, with the version that is installed."""
    found = []
    for line in requires("usvit") or []:
        need = Requirement(line)
        if need.name == "usvit" or (need.marker is not None and not need.marker.evaluate({"extra": extra or ""})):
            continue
        if extra is not None and need.marker is None:
            continue
        try:
            installed = distribution(need.name).version
        except PackageNotFoundError:
            found.append(f"{need.name}{need.specifier} (not installed)")
            continue
        if not need.specifier.contains(installed, prereleases=True):
            found.append(f"{need.name}{need.specifier} ({installed} is installed)")
    return found


def _packages() -> _Found:
    try:
        version("usvit")
    except PackageNotFoundError:
        said = "usvit runs from a folder of files and is not installed, so that its needs are not known."
        yield "fault", "packages", f"{said} Install it from there: {sys.executable} -m pip install --editable ."
        return
    if missing := _missing(None):
        names = " ".join(f"'{one.partition(' (')[0]}'" for one in missing)
        yield "fault", "packages", f"Needed: {', '.join(missing)}. Install them: pip install {names}"
    else:
        yield "ok", "packages", "Every package that usvit needs is installed."


def _extras() -> _Found:
    try:
        extras = distribution("usvit").metadata.get_all("Provides-Extra") or []
    except PackageNotFoundError:  # which is a fault of the packages
        return
    for extra in (one for one in extras if one not in ("dev", "docs")):
        missing = _missing(extra)
        said = f"Not installed: {', '.join(missing)}. Only if you need it: pip install 'usvit[{extra}]'"
        yield ("note", f"extra {extra}", said) if missing else ("ok", f"extra {extra}", "It is installed.")


def _torch() -> _Found:
    try:
        torch = import_module("torch")
        import_module("torchvision")
    except (ImportError, OSError, RuntimeError) as error:
        why = shortened(str(error).partition("\n")[0] or type(error).__name__)
        mend = "Install both in one command, so that they are of one build: pip install --force-reinstall"
        yield "fault", "torch", f"torch and torchvision do not work together ({why}). {mend} torch torchvision"
        return
    yield "ok", "torch", f"torch {torch.__version__} and torchvision work together."
    if torch.cuda.is_available():
        yield "ok", "device", f"GPU: {torch.cuda.get_device_name(0)}"
    elif shutil.which("nvidia-smi"):
        said = f"A GPU driver is installed, but torch {torch.__version__} cannot use it."
        yield "note", "device", f"{said} Install a torch for its version of CUDA."
    else:
        yield "ok", "device", "No GPU: the CPU is used."


def _decoders() -> _Found:
    missing = []
    for module, (package, reads) in DECODERS.items():
        try:
            import_module(module)
        except (ImportError, OSError, ValueError):  # ValueError: it was built for another NumPy
            missing.append((package, reads))
    for package, reads in missing:
        yield (
            "fault",
            "decoders",
            f"{package} cannot be imported, so that {reads} cannot be read: pip install {package}",
        )
    if not missing:
        yield "ok", "decoders", f"They read {', '.join(reads for _, reads in DECODERS.values())}."


def _machine() -> _Found:
    quota = cpu_quota()
    limit = "" if quota is None else f"; the container may use the time of {quota:g}"
    yield "ok", "cores", f"{usable_cores()} cores{limit}"
    total, free = total_memory(), free_memory()
    if total is not None and free is not None:
        said = f"{free / 1024**3:.1f} of {total / 1024**3:.1f} GiB are free."
        little = free < LEAST_MEMORY
        yield ("note", "memory", f"{said} Close other programs before you train.") if little else ("ok", "memory", said)


def _threads() -> _Found:
    given = os.environ.get("OMP_NUM_THREADS")
    if given is None:
        return
    if not given.isdigit() or int(given) == 0:
        yield "fault", "threads", f"OMP_NUM_THREADS is '{given}', which is no number of threads: unset OMP_NUM_THREADS"
    elif int(given) > usable_cores():
        said = f"OMP_NUM_THREADS is {given}, more than the cores, which makes it slower: unset OMP_NUM_THREADS"
        yield "note", "threads", said
    else:
        yield "ok", "threads", f"OMP_NUM_THREADS is {given}."


def _folders() -> _Found:
    data = os.environ.get("USVIT_DATA")
    if data and not Path(data).is_dir():
        yield "fault", "data", f"USVIT_DATA names {data}, which is not a folder: export USVIT_DATA=DIR, or unset it"
    try:
        temporary = Path(tempfile.gettempdir())
    except OSError:  # no folder for temporary files can be written
        temporary = Path(os.environ.get("TMPDIR") or "/tmp")
    folders = {"cache": (cache_dir(), "USVIT_CACHE"), "temporary files": (temporary, "TMPDIR")}
    for name, (folder, variable) in {**folders, "current folder": (Path.cwd(), "")}.items():
        there = next(one for one in (folder, *folder.parents) if os.access(one, os.F_OK))
        other = f"export {variable}=DIR with another folder" if variable else "change to another folder"
        if not there.is_dir() or not os.access(there, os.W_OK | os.X_OK):
            level: Literal["note", "fault"] = "fault" if variable else "note"
            yield level, name, f"Files cannot be written in {folder}: {other}"
            continue
        free = shutil.disk_usage(there).free
        said = f"{folder}: {free / 1024**3:.1f} GiB free"
        yield (
            ("fault", name, f"{said}, too little for a run: free some, or {other}")
            if free < LEAST_DISK
            else ("ok", name, said)
        )


def _weights() -> _Found:
    folder = weights_dir() / "phantom"
    try:
        stated = json.loads(read_text(folder / "model.json"))["weights_sha256"]
        whole = sha256_of_file(folder / "model.safetensors") == stated
    except (UsvitError, OSError, ValueError, KeyError, TypeError):
        whole = False
    if whole:
        yield "ok", "weights", "The weights that ship with usvit are whole."
    else:
        yield (
            "fault",
            "weights",
            f"The weights in {folder} are damaged: {sys.executable} -m pip install --force-reinstall usvit",
        )
