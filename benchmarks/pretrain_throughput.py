"""Measure the cost of the input pipeline: images/s from JPEG files, and of the same step on a resident batch.

    PYTHONPATH=. python benchmarks/pretrain_throughput.py --device cuda --workers 14
    PYTHONPATH=. python benchmarks/pretrain_throughput.py --device cpu --model vit_ti16 --batch-size 16 --steps 4

Each recipe runs with its augmentation, mixing, loss and optimiser on generated JPEG files of 500 x 375 pixels. The
resident batch consists of random pixels on the device. The two are timed in turns, so that a machine that slows down
affects both. Batches that workers have prefetched are consumed before the timing starts. MFU counts each
multiply-accumulate operation of the network as six operations (``usvit.training.step_log``).
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning_fabric
import numpy as np
import torch
from PIL import Image

from usvit.config import PretrainConfig, build
from usvit.config.sweep import read_recipe, settings_for
from usvit.data.loading.augmented_dataset import AugmentedDataset
from usvit.data.loading.infinite_loader import Batch, InfiniteLoader
from usvit.data.transforms.views.cpu import Views
from usvit.experiments.pretraining_setup import new_task, prepare
from usvit.models.trainable import train_mode
from usvit.progress import NoProgress
from usvit.training.device import peak_tflops, seed_everything
from usvit.training.distributed import World, launch
from usvit.training.optimizers import make_optimizer, resolve
from usvit.training.trainer import training_step

RECIPES = ("vit_i1k", "augreg_i1k", "deit", "deit3_i1k")
CLASSES, SIDE = 10, (500, 375)
ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--recipe", nargs="+", default=list(RECIPES))
    parser.add_argument("--model", nargs="+", default=["vit_s16", "vit_b16"])
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=20, help="number of timed steps of each kind in each round")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--peak-tflops", type=float)
    args = parser.parse_args()
    timed = Timed(
        batch_size=args.batch_size,
        steps=args.steps,
        device=args.device,
        precision=args.precision,
        workers=args.workers,
        compile=args.compile,
        peak_tflops=args.peak_tflops,
    )
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), args.images)
        print("recipe       model     files/s  resident/s  ratio (least, most)     MFU")
        for recipe in args.recipe:
            for model in args.model:
                one_case(recipe, model, folder, timed)


def write_images(folder: Path, count: int) -> None:
    """Write JPEG files with about the detail of photographs: random pictures of 1/4 of the size, enlarged."""
    rng = np.random.default_rng(0)
    for number in range(count):
        small = rng.integers(0, 256, (SIDE[1] // 4, SIDE[0] // 4, 3), dtype=np.uint8)
        path = folder / f"class{number % CLASSES}" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(small).resize(SIDE, Image.Resampling.BICUBIC).save(path, quality=90)


@dataclass(frozen=True)
class Timed:
    """How a case is run and timed."""

    batch_size: int = 256
    steps: int = 20
    """Number of timed steps of each kind in each round."""
    rounds: int = ROUNDS
    device: str = "auto"
    precision: str = "auto"
    workers: int = 2
    compile: bool = False
    peak_tflops: float | None = None
    overrides: dict[str, Any] = field(default_factory=dict)
    """Further settings of ``PretrainConfig``, nested, which override the recipe's."""


@dataclass(frozen=True)
class OpenCase:
    """A training whose steps can be timed."""

    from_files: Iterator[float]
    from_memory: Iterator[float]
    """Seconds of one step after the other: with batches from files, and with a batch that stays on the device."""
    device: torch.device
    precision: str
    operations: int | None
    """FLOPs of one image; None if they are not counted."""


@dataclass(frozen=True)
class CaseSpeed:
    """Result of a case; a list has one entry for each round."""

    device: torch.device
    precision: str
    images: int
    """Images that each entry of the lists took."""
    files_seconds: list[float]
    resident_seconds: list[float]
    first_step_seconds: float
    """The first step, which compiles the network if that is asked for."""
    operations: int | None
    peak_tflops: float | None

    @property
    def files_speed(self) -> float:
        """Median images/s from files."""
        return statistics.median(self.images / seconds for seconds in self.files_seconds)

    @property
    def resident_speed(self) -> float:
        """Median images/s of the resident batch."""
        return statistics.median(self.images / seconds for seconds in self.resident_seconds)

    @property
    def ratios(self) -> list[float]:
        """Speed from files over that of the resident batch, one for each round, ascending."""
        pairs = zip(self.files_seconds, self.resident_seconds, strict=True)
        return sorted(resident / files for files, resident in pairs)

    def mfu(self, speed: float) -> float | None:
        """Return the share of the device's peak at ``speed`` images/s; None if operations or peak are unknown."""
        if self.operations is None or self.peak_tflops is None:
            return None
        return self.operations * speed / self.peak_tflops / 1e12


def open_case(
    recipe: str, model: str, folder: str, timed: Timed, fabric: lightning_fabric.Fabric | None = None
) -> OpenCase:
    """Prepare the training of a network by a recipe on the images of ``write_images``.

    Args:
        recipe: Name of a recipe of ``usvit pretrain``.
        model: Name of a network.
        folder: Folder with the images.
        timed: How to run it.
        fabric: Device, precision and strategy, already launched. Default: one process on ``timed.device``.
    """
    train = {"batch_size": timed.batch_size, "steps": 10**6, "micro_batch": None}
    over = {"source": {"name": "folder", "path": folder, "val": None, "val_share": 0.0}, "train": train}
    machine = {"device": timed.device, "precision": timed.precision, "workers": timed.workers}
    config = build(PretrainConfig, settings_for(read_recipe(recipe), model), over, machine, timed.overrides)
    job = prepare(config, {}, NoProgress())
    seed_everything(0)  # training uses deterministic algorithms, whose cost is part of its speed
    team = World(launch(job.device) if fabric is None else fabric)
    device = team.fabric.device
    objective = new_task(job, 0, len(job.sources[0]), device)
    if timed.compile:
        objective.module.compile()
    optim = resolve(config.optim, timed.batch_size, len(job.sources[0]) / timed.batch_size)
    wrapped, optimizer = team.setup(objective.module, lambda: make_optimizer(objective.module, optim))
    train_mode(wrapped)
    views = Views(config.views, config.model.image_size, on_device=job.inputs.on_device)
    stream = InfiniteLoader(
        AugmentedDataset(job.sources[0], views),
        batch_size=timed.batch_size,
        seed=0,
        workers=timed.workers,
        repeats=config.views.repeats,
    )
    files = stream.iterate(0, 10**6)
    resident = {key: value.to(device) for key, value in next(files).items()}
    resident["images"] = torch.randint(0, 256, resident["images"].shape, dtype=torch.uint8, device=device)

    def steps(next_batch: Callable[[], Batch]) -> Iterator[float]:
        """Yield the seconds of each step, including the wait for its batch."""
        while True:
            begun = time.perf_counter()
            training_step(
                wrapped, team.fabric, optimizer, objective, next_batch(), 0, optim.lr, config.train, optim, team
            )
            if device.type == "cuda":
                torch.cuda.synchronize()
            yield time.perf_counter() - begun

    operations = None if job.cost is None else job.cost.operations
    return OpenCase(steps(lambda: next(files)), steps(lambda: resident), device, job.device.precision, operations)


def measure(recipe: str, model: str, folder: str, timed: Timed) -> CaseSpeed:
    """Time the steps from files and from memory in turns; the arguments are those of ``open_case``."""
    case = open_case(recipe, model, folder, timed)
    first = next(case.from_memory)
    files, resident = [], []
    for _ in range(timed.rounds):
        sum_of(case.from_files, 2 * timed.workers + 3)
        sum_of(case.from_memory, 1)
        files.append(sum_of(case.from_files, timed.steps))
        resident.append(sum_of(case.from_memory, timed.steps))
    peak = peak_tflops(case.device, timed.peak_tflops)
    images = timed.steps * timed.batch_size
    return CaseSpeed(case.device, case.precision, images, files, resident, first, case.operations, peak)


def one_case(recipe: str, model: str, folder: str, timed: Timed) -> None:
    """Measure a case and print its line of the table."""
    speed = measure(recipe, model, folder, timed)
    ratios, mfu = speed.ratios, speed.mfu(speed.files_speed)
    print(
        f"{recipe:12} {model:8} {speed.files_speed:8.1f} {speed.resident_speed:11.1f}  "
        f"{statistics.median(ratios):.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}) "
        f"{'' if mfu is None else f'{mfu:7.3f}'}",
        flush=True,
    )


def sum_of(times: Iterator[float], count: int) -> float:
    return sum(next(times) for _ in range(count))


if __name__ == "__main__":
    main()
