"""Checks of machine and networks before the first measurement, so that impossible ones fail at once."""

import os
import platform
import sys
from importlib.metadata import version

import torch

import usvit
from usvit.errors import UsvitError
from usvit.models import count, count_parameters
from usvit.training import Device, check_compiler, resolve_device
from usvit.upstream.bench.case import BenchmarkCase, Preflight
from usvit.upstream.bench.memory import free_memory
from usvit.upstream.bench.steps import model_of, new_network
from usvit.upstream.records.bench import BenchModel, Machine, PaperSpeed

_LIBRARIES = ("torch", "timm", "lightning-fabric", "numpy")


def probe(cases: list[BenchmarkCase]) -> Preflight:
    """Check each case without measuring it, and describe machine and networks.

    Raises:
        UsvitError: the device, the precision or a compiler is missing, or a network does not support the image size.
    """
    for case in cases:
        device = resolve_device(case.hardware.device, case.hardware.precision)
        _check_precision(device)
        if case.hardware.compile:
            check_compiler(device.type, "--compile", "leave --compile out")
        if case.hardware.threads:
            torch.set_num_threads(case.hardware.threads)
    models = {case.model["name"]: _model(case) for case in cases}
    return Preflight(machine=_machine(device), versions=_versions(), models=list(models.values()))


def _check_precision(device: Device) -> None:
    if (
        device.precision == "bf16"
        and device.type == "cuda"
        and not torch.cuda.is_bf16_supported(including_emulation=False)
    ):
        raise UsvitError(
            f"--precision bf16 was requested, but {torch.cuda.get_device_name()} does not support bfloat16 natively "
            "(it would be emulated, slower than float32). Pass --precision fp32."
        )


def _model(case: BenchmarkCase) -> BenchModel:
    spec, config = model_of(case)
    with torch.device("meta"):  # checks the image size without using memory or time
        network = new_network(case)
    figures = [
        PaperSpeed(table=paper.table, image_size=paper.image_size, protocol=protocol, images_per_second=speed)
        for paper in spec.paper
        for protocol, speed in paper.images_per_second.items()
        if not spec.changed
    ]
    return BenchModel(
        name=spec.name,
        vit=dict(spec.changed),
        architecture=spec.architecture,
        params=count_parameters(network),
        macs=count(spec, image_size=config.image_size, n_classes=case.n_classes).macs,
        paper=figures,
    )


def _machine(device: Device) -> Machine:
    machine = Machine(
        device="cuda" if device.type == "cuda" else "cpu",
        name=device.record().name or "",
        cores=os.cpu_count(),
        threads=torch.get_num_threads(),
        free_memory_gb=_gigabytes(free_memory()),
        system=f"{platform.system()} {platform.machine()}",
        tf32=None,
    )
    if device.type != "cuda":
        return machine
    on_gpu = {
        "free_memory_gb": _gigabytes(torch.cuda.mem_get_info(0)[0]),
        "memory_gb": _gigabytes(torch.cuda.get_device_properties(0).total_memory),
        # Defines fp32 on a GPU: PyTorch's defaults, as in usvit's runs.
        "tf32": {"matmul": torch.backends.cuda.matmul.allow_tf32, "cudnn": torch.backends.cudnn.allow_tf32},
    }
    return machine.model_copy(update=on_gpu)


def _gigabytes(size: int | None) -> float | None:
    return None if size is None else round(size / 1e9, 1)


def _versions() -> dict[str, str]:
    versions = {"usvit": usvit.__version__, "python": sys.version.split()[0]}
    versions |= {name: version(name) for name in _LIBRARIES}
    if torch.version.cuda is not None:
        versions |= {"cuda": torch.version.cuda, "cudnn": str(torch.backends.cudnn.version())}
    return versions
