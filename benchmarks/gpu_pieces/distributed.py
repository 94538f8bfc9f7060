"""DDP and FSDP with one process: whether they run, and what they cost beside the plain step."""

import os
import socket
import statistics
from pathlib import Path
from typing import Any

import lightning_fabric
import torch
import torch.distributed as dist

from benchmarks.gpu_pieces.pretraining import jpeg_files
from benchmarks.pretrain_throughput import Timed, open_case, sum_of
from usvit.training import Device, resolve_device
from usvit.training.distributed import make_strategy


def measure(settings: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Time the training step on a resident batch with a strategy of several processes, in a group of one process.

    ``usvit pretrain`` uses no strategy for one process, so the strategy is passed to Fabric here.

    Args:
        settings: ``strategy`` (``none``, ``ddp`` or ``fsdp``), ``recipe``, ``model``, ``images`` and the fields of
            ``Timed``.
        scratch: Folder for the images.
    """
    folder, timed = jpeg_files(scratch, settings["images"]), Timed.of(settings)
    device = resolve_device(timed.device, timed.precision)
    fabric = launched(device, settings["strategy"])
    case = open_case(settings["recipe"], settings["model"], str(folder), timed, fabric)
    try:
        steps = case.seconds["resident"]
        first = next(steps)
        sum_of(steps, 3)
        rounds = [sum_of(steps, timed.steps) for _ in range(timed.rounds)]
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()
    images = timed.steps * timed.batch_size
    cuda = device.type == "cuda"
    return {
        "batch_size": timed.batch_size,
        "precision": device.precision,
        "strategy": type(fabric.strategy).__name__,
        "processes": fabric.world_size,
        "resident_speed": statistics.median(images / seconds for seconds in rounds),
        "resident_seconds": rounds,
        "first_step_seconds": first,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if cuda else None,
    }


def launched(device: Device, strategy: str) -> lightning_fabric.Fabric:
    """Start Fabric with one process, which is a group of its own for ``ddp`` and ``fsdp``."""
    if strategy == "none":
        return device.fabric()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    fabric = lightning_fabric.Fabric(
        accelerator=device.type,
        devices=1,
        num_nodes=1,
        strategy=make_strategy(strategy, 1),
        precision="bf16-mixed" if device.precision == "bf16" else "32-true",
    )
    fabric.launch()
    return fabric
