"""The machine and its software."""

import os
import platform
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

LIBRARIES = ("torch", "torchvision", "timm", "triton", "lightning-fabric", "numpy")


def describe(settings: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Return the device, its driver, the libraries and the cores."""
    values: dict[str, Any] = {
        "device": "cpu",
        "name": _processor(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": _memory_gb(),
        "system": f"{platform.system()} {platform.machine()}",
        "driver": _driver(),
        "cuda": torch.version.cuda,
        "versions": {"python": platform.python_version(), **_versions()},
    }
    if torch.cuda.is_available():
        properties = torch.cuda.get_device_properties(0)
        values |= {
            "device": "cuda",
            "name": torch.cuda.get_device_name(0),
            "processor": _processor(),
            "gpus": torch.cuda.device_count(),
            "gpu_memory_gb": round(properties.total_memory / 1e9, 1),
            "multiprocessors": properties.multi_processor_count,
            "cudnn": torch.backends.cudnn.version(),
        }
    return values


def _versions() -> dict[str, str]:
    found = {}
    for name in LIBRARIES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _driver() -> str | None:
    if shutil.which("nvidia-smi") is None:
        return None
    words = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        lines = subprocess.run(words, capture_output=True, text=True, timeout=30, check=True).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    return lines[0].strip() if lines else None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _memory_gb() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, ValueError, OSError):
        return None
