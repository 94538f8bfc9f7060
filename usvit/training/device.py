"""Device and precision of a run, the peak performance of devices, and peak memory."""

import logging
import os
import platform
import random
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import lightning_fabric
import numpy as np
import torch

from usvit.errors import UsvitError, unknown
from usvit.records.run import DeviceRecord
from usvit.seeding import derive_seed

_BF16_TFLOPS = (
    ("gh200", 989.4),
    ("h200 nvl", 835.5),
    ("h200", 989.4),
    ("h100 nvl", 835.5),
    ("h100 pcie", 756.0),
    ("h100", 989.4),
    ("a100", 312.0),
    ("a40", 149.7),
    ("a30", 165.0),
    ("l40s", 362.05),
    ("l40", 181.05),
    ("l4", 121.0),
    ("v100 pcie", 112.0),
    ("v100", 125.0),
    ("t4", 65.0),
    ("rtx a6000", 154.8),
    ("rtx 4090", 165.2),
    ("rtx 3090", 71.0),
)
"""(part of the device's name, peak of dense 16-bit matrix products in 10^12 operations per second).

The first entry that matches counts. Figures are for bfloat16, except for V100 and T4, which have only float16.
Lightning's table is not used, because its figures for H200 and H100 NVL include sparsity.

Source: NVIDIA's data sheets and architecture white papers; half of the figure where they state it with sparsity.
"""

DEVICES, PRECISIONS = ("auto", "cpu", "cuda"), ("auto", "fp32", "bf16")


@dataclass(frozen=True)
class Device:
    """A resolved device and precision."""

    type: str
    """``cpu`` or ``cuda``."""
    precision: str
    """``fp32``, or ``bf16``: float32 weights with bfloat16 autocast."""

    def fabric(self, index: int | None = None) -> lightning_fabric.Fabric:
        """Make a Lightning Fabric with one process on this device.

        Args:
            index: Number of the GPU; None for the first, and for a CPU.
        """
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # usvit reports the device itself
        precision = "bf16-mixed" if self.precision == "bf16" else "32-true"
        devices = 1 if index is None else [index]
        fabric = lightning_fabric.Fabric(accelerator=self.type, devices=devices, precision=precision)  # type: ignore[arg-type]
        fabric.launch()
        return fabric

    def record(self) -> DeviceRecord:
        """Return the entry of ``run.json``: what a reader needs to judge the speed and to repeat the run."""
        name = torch.cuda.get_device_name() if self.type == "cuda" else _cpu_name()
        return DeviceRecord(type=self.type, name=name, precision=self.precision, threads=torch.get_num_threads())


def resolve_device(device: str, precision: str) -> Device:
    """Resolve ``auto`` to a device and a precision.

    Args:
        device: ``auto`` (a GPU if there is one), ``cpu`` or ``cuda``.
        precision: ``auto`` (bfloat16 if the device supports it natively), ``fp32`` or ``bf16``.

    Raises:
        UsvitError: There is no such device or precision, or CUDA was requested but is not available.
    """
    if device not in DEVICES:
        raise unknown("device", device, DEVICES)
    if precision not in PRECISIONS:
        raise unknown("precision", precision, PRECISIONS)
    if device == "cuda" and not torch.cuda.is_available():
        build = "this PyTorch is built without CUDA" if torch.version.cuda is None else "PyTorch finds no usable GPU"
        raise UsvitError(
            f"--device cuda was requested, but {build}. Pass --device cpu, or check the driver (nvidia-smi)."
        )
    kind = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if precision == "auto":
        precision = "bf16" if _computes_in_bf16(kind) else "fp32"
    return Device(kind, precision)


def seed_everything(seed: int, *purpose: str | int) -> None:
    """Seed torch, numpy and Python for one purpose, and make torch use deterministic algorithms."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # required by cuBLAS to be deterministic
    derived = derive_seed(seed, *purpose)
    torch.manual_seed(derived)
    np.random.seed(derived % 2**32)  # noqa: NPY002 - libraries below us may use the global generator
    random.seed(derived)
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Otherwise every new tensor is filled first, which is "detrimental to performance" and helps only programs that
    # read uninitialized memory (PyTorch's reference of torch.utils.deterministic).
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Let PyTorch compute with a number of threads in the block; None keeps the current number."""
    before = torch.get_num_threads()
    if number is not None:
        torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def check_compiler(device_type: str, option: str, without: str) -> None:
    """Raise if ``torch.compile`` cannot work: it needs a C++ compiler for a CPU, and Triton for a GPU.

    Args:
        device_type: ``cpu`` or ``cuda``.
        option: the option that enables it, such as ``train.compile``.
        without: how to disable it, such as ``set it to false``.

    Raises:
        UsvitError: Triton or the compiler is missing.
    """
    if device_type == "cuda":
        from torch.utils._triton import has_triton

        if not has_triton():
            raise UsvitError(
                f"{option} needs Triton and a GPU that Triton supports, but they were not found. "
                f"Install the PyTorch build for CUDA (it brings Triton), or {without}."
            )
        compilers = ["cc", "gcc", "clang"]  # for Triton's launchers
    else:
        compilers = ["g++", "clang++", "cl"]
    named = os.environ.get("CXX" if device_type == "cpu" else "CC")
    if not any(shutil.which(name) for name in ([named] if named else compilers)):
        raise UsvitError(
            f"{option} needs a compiler, but none was found ({named or ', '.join(compilers)}). "
            f"Install one (Debian, Ubuntu: apt install g++), name it in CXX, or {without}."
        )


def peak_tflops(device: torch.device, stated: float | None = None) -> float | None:
    """Return the peak performance of a device in 10^12 operations per second; None if it is unknown, as for CPUs.

    Args:
        device: device of the training.
        stated: ``train.peak_tflops``, which overrides the table.
    """
    if stated is not None or device.type != "cuda":
        return stated
    return peak_by_name(torch.cuda.get_device_name(device))


def peak_by_name(name: str) -> float | None:
    """Look up the peak performance by a device's name: 312 for ``NVIDIA A100-SXM4-80GB``."""
    words = name.lower().replace("-", " ").replace("_", " ")
    padded = f" {words} "
    return next((peak for part, peak in _BF16_TFLOPS if f" {part} " in padded), None)


def peak_gb(device: torch.device) -> float | None:
    """Return the peak memory in 10^9 bytes: of tensors on a GPU, of the process on a CPU.

    None if the platform does not report it.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 1e9
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e9


def _computes_in_bf16(kind: str) -> bool:
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # Without AVX512-bf16 or AMX, a CPU emulates bfloat16, which is slower than float32.
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def _cpu_name() -> str:
    return str(torch.cpu.get_capabilities().get("cpu_name") or platform.processor() or platform.machine())
