"""Pre-training: images/s and MFU from JPEG files, from decoded images, and on a batch that stays on the device."""

import dataclasses
import gc
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.pretrain_throughput import Timed, write_images
from benchmarks.pretrain_throughput import measure as measure_steps


def measure(settings: dict[str, Any], scratch: Path) -> dict[str, Any]:
    """Time the training steps of a recipe; if the batch does not fit into the memory, halve it.

    Args:
        settings: ``recipe``, ``model``, ``images``, and the fields of ``Timed``, with dotted keys in ``overrides``.
        scratch: Folder for the images.
    """
    folder = jpeg_files(scratch, settings["images"])
    timed = Timed.of(settings)
    while True:
        try:
            found = measure_steps(settings["recipe"], settings["model"], str(folder), timed)
            break
        except torch.OutOfMemoryError:
            if timed.batch_size < 16:
                raise
        # Outside of the handler, whose traceback holds the tensors of the failed attempt.
        timed = dataclasses.replace(timed, batch_size=timed.batch_size // 2)
        gc.collect()
        torch.cuda.empty_cache()
        print(f"out of memory: batch {timed.batch_size} is tried", flush=True)
    cuda = found.device.type == "cuda"
    return {
        "batch_size": timed.batch_size,
        "precision": found.precision,
        **{f"{kind}_speed": found.speed(kind) for kind in found.seconds},
        "input_share": statistics.median(found.shares("files")),
        "store_share": statistics.median(found.shares("store")),
        **{f"{kind}_mfu": found.mfu(kind) for kind in found.seconds},
        "first_step_seconds": found.first_step_seconds,
        "peak_gb": torch.cuda.max_memory_allocated() / 1e9 if cuda else None,
        "operations": found.operations,
        "peak_tflops": found.peak_tflops,
        **{f"{kind}_seconds": seconds for kind, seconds in found.seconds.items()},
        "command": f"python benchmarks/pretrain_throughput.py --recipe {settings['recipe']} "
        f"--model {settings['model']} --batch-size {timed.batch_size} --steps {timed.steps} --workers {timed.workers} "
        f"--images {settings['images']}{' --compile' if timed.compile else ''}",
    }


def jpeg_files(scratch: Path, count: int) -> Path:
    """Return a folder of JPEG files; make it if it is not there."""
    folder = scratch / f"jpeg-{count}"
    if not folder.is_dir():
        begun = time.monotonic()
        partial = scratch / f"jpeg-{count}.partial"
        partial.mkdir(exist_ok=True)
        write_images(partial, count)
        partial.rename(folder)
        print(f"{count} JPEG files in {time.monotonic() - begun:.1f} s", flush=True)
    return folder
