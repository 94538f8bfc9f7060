"""Where a run computes and how precisely, decided once and written down."""

import logging
import os
import platform
import random
import shutil
from dataclasses import dataclass
from typing import Any

import lightning_fabric
import numpy as np
import torch

from usvit.errors import UsvitError
from usvit.seeding import derive_seed


@dataclass(frozen=True)
class Device:
    """A resolved device and precision."""

    type: str
    """``cpu`` or ``cuda``."""
    precision: str
    """``fp32``, or ``bf16``: float32 weights under bfloat16 autocast."""

    def fabric(self) -> lightning_fabric.Fabric:
        """Lightning Fabric on this device: one process, one device."""
        logging.getLogger("lightning_fabric").setLevel(logging.WARNING)  # we say ourselves what we use
        precision = "bf16-mixed" if self.precision == "bf16" else "32-true"
        fabric = lightning_fabric.Fabric(accelerator=self.type, devices=1, precision=precision)  # type: ignore[arg-type]
        fabric.launch()
        return fabric

    def describe(self) -> dict[str, Any]:
        """For ``run.json``: what a reader needs to judge speed and to repeat."""
        name = torch.cuda.get_device_name() if self.type == "cuda" else _cpu_name()
        return {"type": self.type, "name": name, "precision": self.precision, "threads": torch.get_num_threads()}


def resolve_device(device: str, precision: str) -> Device:
    """Choose what ``auto`` stands for.

    Args:
        device: ``auto`` (a GPU where there is one), ``cpu`` or ``cuda``.
        precision: ``auto`` (bfloat16 where the device computes in it), ``fp32`` or ``bf16``.

    Raises:
        UsvitError: CUDA was asked for and is not there.
    """
    if device == "cuda" and not torch.cuda.is_available():
        build = "this PyTorch is built without CUDA" if torch.version.cuda is None else "PyTorch finds no usable GPU"
        raise UsvitError(
            f"--device cuda was asked for, but {build}. Pass --device cpu, or check the driver (nvidia-smi)."
        )
    kind = device if device != "auto" else "cuda" if torch.cuda.is_available() else "cpu"
    if precision == "auto":
        precision = "bf16" if _computes_in_bf16(kind) else "fp32"
    return Device(kind, precision)


def seed_everything(seed: int, *purpose: str | int) -> None:
    """Set the generators of torch, numpy and Python for one purpose, and ask torch for deterministic algorithms."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # or cuBLAS is not deterministic
    derived = derive_seed(seed, *purpose)
    torch.manual_seed(derived)
    np.random.seed(derived % 2**32)  # noqa: NPY002 - libraries below us may use the global generator
    random.seed(derived)
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Else every new tensor is filled first: "detrimental to performance", and only for programs that read what they
    # have not written (PyTorch's reference of torch.utils.deterministic).
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    torch.backends.cudnn.benchmark = False


def check_compiler(device_type: str, option: str, without: str) -> None:
    """Refuse to compile where ``torch.compile`` could not: it writes C++ for a CPU and Triton for a GPU.

    Args:
        device_type: ``cpu`` or ``cuda``.
        option: what asked for it: ``train.compile``.
        without: what to do to go without: ``set it to false``.

    Raises:
        UsvitError: no Triton, or no compiler.
    """
    if device_type == "cuda":
        from torch.utils._triton import has_triton

        if not has_triton():
            raise UsvitError(
                f"{option} needs Triton and a GPU that it supports, and finds none. "
                f"Install the PyTorch build for CUDA (it brings Triton), or {without}."
            )
        compilers = ["cc", "gcc", "clang"]  # for Triton's launchers
    else:
        compilers = ["g++", "clang++", "cl"]
    named = os.environ.get("CXX" if device_type == "cpu" else "CC")
    if not any(shutil.which(name) for name in ([named] if named else compilers)):
        raise UsvitError(
            f"{option} needs a compiler, and finds none ({named or ', '.join(compilers)}). "
            f"Install one (Debian, Ubuntu: apt install g++), name it in CXX, or {without}."
        )


def _computes_in_bf16(kind: str) -> bool:
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    # AVX512-bf16 or AMX: without them a CPU emulates bfloat16, slower than float32.
    capabilities = torch.cpu.get_capabilities()
    return bool(capabilities.get("avx512_bf16") or capabilities.get("amx_bf16"))


def _cpu_name() -> str:
    return str(torch.cpu.get_capabilities().get("cpu_name") or platform.processor() or platform.machine())
