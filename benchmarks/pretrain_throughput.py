"""Measure the cost of the input pipeline: images/s from JPEG files, from decoded images, and on a resident batch.

    PYTHONPATH=. python benchmarks/pretrain_throughput.py --device cuda --workers 14
    PYTHONPATH=. python benchmarks/pretrain_throughput.py --device cpu --model vit_ti16 --batch-size 16 --steps 4
    PYTHONPATH=. python benchmarks/pretrain_throughput.py --device cpu --input-only --batch-size 64 --workers 1

Each recipe runs with its augmentation, mixing, loss and optimiser on generated JPEG files of 500 x 375 pixels: from the
files, from a store of them (``source.decoded=auto``), and on a resident batch of random pixels on the device, which is
the limit. The three are timed in turns, so that a machine that slows down affects all. The share of a step that an
input costs is the part of its time that the resident batch does not take. With ``--input-only``, batches are made and
nothing is trained. Batches that workers have prefetched are consumed before the timing starts. MFU counts each
multiply-accumulate operation of the network as six operations (``usvit.training.step_log``).
"""

import argparse
import dataclasses
import statistics
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning_fabric
import numpy as np
import torch
from PIL import Image

from usvit.config import build, nested
from usvit.data.loading import Batch, InfiniteLoader, copied_ahead
from usvit.models.trainable import train_mode
from usvit.progress import NoProgress
from usvit.training.device import peak_tflops, seed_everything
from usvit.training.distributed import World, launch
from usvit.training.optimizers import make_optimizer, resolve
from usvit.training.trainer import training_step
from usvit.upstream.config.pretrain import PretrainConfig
from usvit.upstream.config.sweep import read_recipe, settings_for
from usvit.upstream.pretraining_run.batches import training_batches
from usvit.upstream.pretraining_run.setup import PretrainingSetup, new_task, prepare

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
    parser.add_argument("--input-only", action="store_true", help="make batches and train nothing")
    args = parser.parse_args()
    timed = Timed.of(vars(args))
    with tempfile.TemporaryDirectory() as folder:
        write_images(Path(folder), args.images)
        if args.input_only:
            print("recipe       model     files/s     store/s")
        else:
            print("recipe       model     files/s     store/s  resident/s  input: files    store (least, most)     MFU")
        for recipe in args.recipe:
            for model in args.model:
                (one_input if args.input_only else one_case)(recipe, model, folder, timed)


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

    @classmethod
    def of(cls, settings: dict[str, Any]) -> "Timed":
        """Take the fields from settings that may have others too, with dotted keys in ``overrides``."""
        given = {one.name: settings[one.name] for one in dataclasses.fields(cls) if one.name in settings}
        return cls(**{**given, "overrides": nested(given.get("overrides", {}))})


@dataclass(frozen=True)
class OpenCase:
    """A training whose steps can be timed."""

    seconds: dict[str, Iterator[float]]
    """Kind -> seconds of one step after the other: with batches from ``files``, with batches of decoded images
    (``store``), and with a batch that stays on the device (``resident``)."""
    device: torch.device
    precision: str
    operations: int | None
    """FLOPs of one image; None if they are not counted."""


@dataclass(frozen=True)
class CaseSpeed:
    """Result of a case."""

    device: torch.device
    precision: str
    images: int
    """Images that each entry of ``seconds`` took."""
    seconds: dict[str, list[float]]
    """Kind (``OpenCase``) -> seconds, one entry for each round."""
    first_step_seconds: float
    """The first step, which compiles the network if that is asked for."""
    operations: int | None
    peak_tflops: float | None

    def speed(self, kind: str) -> float:
        """Return the median images/s."""
        return statistics.median(self.images / seconds for seconds in self.seconds[kind])

    def shares(self, kind: str) -> list[float]:
        """Return the share of a step that the input costs, one for each round, ascending."""
        pairs = zip(self.seconds[kind], self.seconds["resident"], strict=True)
        return sorted(1 - resident / one for one, resident in pairs)

    def mfu(self, kind: str) -> float | None:
        """Return the share of the device's peak; None if operations or peak are unknown."""
        if self.operations is None or self.peak_tflops is None:
            return None
        return self.operations * self.speed(kind) / self.peak_tflops / 1e12


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
    job = prepared(recipe, model, folder, timed)
    config = job.config
    seed_everything(0)  # training uses deterministic algorithms, whose cost is part of its speed
    team = World(launch(job.device) if fabric is None else fabric)
    device = team.fabric.device
    objective = new_task(job, 0, len(job.sources[0]), device)
    if timed.compile:
        objective.module.compile()
    optim = resolve(config.optim, timed.batch_size, len(job.sources[0]) / timed.batch_size)
    wrapped, optimizer = team.setup(objective.module, lambda: make_optimizer(objective.module, optim))
    train_mode(wrapped)
    files, store = (iterated(job, decoded, folder, team) for decoded in ("files", "auto"))
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
    kinds = {"files": lambda: next(files), "store": lambda: next(store), "resident": lambda: resident}
    found = {kind: steps(next_batch) for kind, next_batch in kinds.items()}
    return OpenCase(found, device, job.device.precision, operations)


def prepared(recipe: str, model: str, folder: str, timed: Timed) -> PretrainingSetup:
    """Resolve a recipe on the images of ``write_images``."""
    train = {"batch_size": timed.batch_size, "steps": 10**6, "micro_batch": None}
    over = {"source": {"name": "folder", "path": folder, "val": None, "val_share": 0.0}, "train": train}
    machine = {"device": timed.device, "precision": timed.precision, "workers": timed.workers}
    config = build(PretrainConfig, settings_for(read_recipe(recipe), model), over, machine, timed.overrides)
    return prepare(config, {}, NoProgress())


def iterated(job: PretrainingSetup, decoded: str, folder: str, team: World) -> Generator[Batch]:
    """Iterate over the training batches with ``source.decoded``, as ``Trainer`` does."""
    source = job.config.source.model_copy(update={"decoded": decoded})
    config = job.config.model_copy(update={"source": source})
    stream: InfiniteLoader = training_batches(config, job.sources[0], 0, Path(folder), team, NoProgress())
    batches = stream.iterate(0, 10**6)
    yield from (batches if stream.device is not None else copied_ahead(batches, team.fabric.device))


def measure(recipe: str, model: str, folder: str, timed: Timed) -> CaseSpeed:
    """Time the steps from files and from memory in turns; the arguments are those of ``open_case``."""
    case = open_case(recipe, model, folder, timed)
    first = next(case.seconds["resident"])
    found: dict[str, list[float]] = {kind: [] for kind in case.seconds}
    for _ in range(timed.rounds):
        for kind, steps in case.seconds.items():
            sum_of(steps, 1 if kind == "resident" else 2 * timed.workers + 3)
            found[kind].append(sum_of(steps, timed.steps))
    peak = peak_tflops(case.device, timed.peak_tflops)
    return CaseSpeed(case.device, case.precision, timed.steps * timed.batch_size, found, first, case.operations, peak)


def one_case(recipe: str, model: str, folder: str, timed: Timed) -> None:
    """Measure a case and print its line of the table."""
    found = measure(recipe, model, folder, timed)
    shares, mfu = found.shares("store"), found.mfu("store")
    print(
        f"{recipe:12} {model:8} {found.speed('files'):8.1f} {found.speed('store'):11.1f} "
        f"{found.speed('resident'):11.1f}  {statistics.median(found.shares('files')):12.1%} "
        f"{statistics.median(shares):8.1%} ({shares[0]:.1%} to {shares[-1]:.1%}) "
        f"{'' if mfu is None else f'{mfu:7.3f}'}",
        flush=True,
    )


def one_input(recipe: str, model: str, folder: str, timed: Timed) -> None:
    """Measure the batches of a case without training, and print its line of the table."""
    job = prepared(recipe, model, folder, timed)
    team = World(launch(job.device))
    streams = [iterated(job, decoded, folder, team) for decoded in ("files", "auto")]
    speeds: list[list[float]] = [[], []]
    for _ in range(timed.rounds):
        for batches, found in zip(streams, speeds, strict=True):
            for _ in range(2 * timed.workers + 1):
                next(batches)
            begun = time.perf_counter()
            for _ in range(timed.steps):
                next(batches)
            if team.fabric.device.type == "cuda":
                torch.cuda.synchronize()
            found.append(timed.steps * timed.batch_size / (time.perf_counter() - begun))
    files, store = map(statistics.median, speeds)
    print(f"{recipe:12} {model:8} {files:8.1f} {store:11.1f}", flush=True)


def sum_of(times: Iterator[float], count: int) -> float:
    return sum(next(times) for _ in range(count))


if __name__ == "__main__":
    main()
