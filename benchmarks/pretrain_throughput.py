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
from pathlib import Path

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
from usvit.training.device import peak_tflops
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
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), args.images)
        print("recipe       model     files/s  resident/s  ratio (least, most)     MFU")
        for recipe in args.recipe:
            for model in args.model:
                one_case(recipe, model, folder, args)


def write_images(folder: Path, count: int) -> None:
    """Write JPEG files with about the detail of photographs: random pictures of 1/4 of the size, enlarged."""
    rng = np.random.default_rng(0)
    for number in range(count):
        small = rng.integers(0, 256, (SIDE[1] // 4, SIDE[0] // 4, 3), dtype=np.uint8)
        path = folder / f"class{number % CLASSES}" / f"{number}.jpg"
        path.parent.mkdir(exist_ok=True)
        Image.fromarray(small).resize(SIDE, Image.Resampling.BICUBIC).save(path, quality=90)


def one_case(recipe: str, model: str, folder: str, args: argparse.Namespace) -> None:
    train = {"batch_size": args.batch_size, "steps": 10**6, "micro_batch": None}
    over = {"source": {"name": "folder", "path": folder, "val": None, "val_share": 0.0}, "train": train}
    machine = {"device": args.device, "precision": args.precision, "workers": args.workers}
    config = build(PretrainConfig, settings_for(read_recipe(recipe), model), over, machine)
    job = prepare(config, {}, NoProgress())
    team = World(launch(job.device))
    device = team.fabric.device
    objective = new_task(job, 0, len(job.sources[0]), device)
    if args.compile:
        objective.module.compile()
    optim = resolve(config.optim, args.batch_size, len(job.sources[0]) / args.batch_size)
    wrapped, optimizer = team.setup(objective.module, lambda: make_optimizer(objective.module, optim))
    train_mode(wrapped)
    views = Views(config.views, config.model.image_size, on_device=job.inputs.on_device)
    stream = InfiniteLoader(
        AugmentedDataset(job.sources[0], views),
        batch_size=args.batch_size,
        seed=0,
        workers=args.workers,
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

    from_files, from_memory = steps(lambda: next(files)), steps(lambda: resident)
    pairs = []
    for _ in range(ROUNDS):
        sum_of(from_files, 2 * args.workers + 3)
        sum_of(from_memory, 1)
        pairs.append((sum_of(from_files, args.steps), sum_of(from_memory, args.steps)))
    images = args.steps * args.batch_size
    speeds = [statistics.median(images / pair[kind] for pair in pairs) for kind in (0, 1)]
    ratios = sorted(resident_time / file_time for file_time, resident_time in pairs)
    peak = peak_tflops(device, args.peak_tflops)
    mfu = "" if peak is None or job.cost is None else f"{job.cost.operations * speeds[0] / peak / 1e12:7.3f}"
    print(
        f"{recipe:12} {model:8} {speeds[0]:8.1f} {speeds[1]:11.1f}  "
        f"{ratios[ROUNDS // 2]:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}) {mfu}",
        flush=True,
    )


def sum_of(times: Iterator[float], count: int) -> float:
    return sum(next(times) for _ in range(count))


if __name__ == "__main__":
    main()
