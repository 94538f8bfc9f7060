"""Compare the speed of usvit's training step with the same step in a bare PyTorch loop.

    python benchmarks/training_step.py --model vit_ti16 --batch-size 32

Process, model, batch, precision and images are the same. The two take turns step by step, so that a machine that
becomes slower or faster affects both. The benchmark prints images/s and the median ratio of the pairs, which should be
at least 0.97.
"""

import argparse
import os
import statistics
import time
from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from usvit.config import OptimConfig, TrainConfig
from usvit.data.loading.pixel_store import PixelStore, TrainBatches
from usvit.data.transforms.preprocessing import Preprocessing
from usvit.models.build import build_model
from usvit.models.weights import Weights
from usvit.models.zoo import find_model
from usvit.training.device import resolve_device, seed_everything
from usvit.training.losses import WeightedCrossEntropy
from usvit.training.optimizers import make_optimizer
from usvit.training.task import ClassificationTask
from usvit.training.trainer import training_step

IMAGES, CLASSES = 512, 3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="vit_ti16")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--pairs", type=int, default=40, help="number of steps of each loop")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    args = parser.parse_args()

    device = resolve_device(args.device, args.precision)
    seed_everything(0)
    # Random values, because some processors compute faster on zeros.
    pixels = np.random.default_rng(0).integers(0, 255, (IMAGES, args.image_size, args.image_size, 3), dtype=np.uint8)
    targets = np.arange(IMAGES, dtype=np.int64) % CLASSES
    ours, bare = usvit_steps(args, device, pixels, targets), bare_steps(args, device, pixels, targets)
    for _ in range(2):  # warm-up
        seconds(ours), seconds(bare)

    pairs = []
    for number in range(args.pairs):
        if number % 2:
            pairs.append((seconds(ours), seconds(bare)))
        else:
            pairs.append((seconds(bare), seconds(ours))[::-1])
    speeds = [args.batch_size / statistics.median(times) for times in zip(*pairs, strict=True)]
    ratios = sorted(bare_time / our_time for our_time, bare_time in pairs)
    print(f"{args.model}, batch {args.batch_size}, {device.precision} on {device.record().name}, {args.pairs} pairs:")
    print(f"usvit {speeds[0]:.1f} images/s, bare {speeds[1]:.1f} images/s (medians)")
    quartiles = statistics.quantiles(ratios, n=4)
    print(f"ratio of the pairs: median {quartiles[1]:.3f}, middle half {quartiles[0]:.3f} to {quartiles[2]:.3f}")


def seconds(steps: Iterator[None]) -> float:
    """Return the wall time of one step, including the work of the device."""
    begun = time.perf_counter()
    next(steps)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - begun


def network(args: argparse.Namespace) -> nn.Module:
    return build_model(find_model(args.model), Weights("scratch"), n_classes=CLASSES, image_size=args.image_size)


def usvit_steps(args, device, pixels, targets) -> Iterator[None]:  # type: ignore[no-untyped-def]
    """Run the steps of ``usvit.training.Trainer`` between two evaluations."""
    train, optim = TrainConfig(batch_size=args.batch_size, steps=10**6), OptimConfig(clip_norm=1.0)
    fabric = device.fabric()
    model = network(args)
    model, optimizer = fabric.setup(model, make_optimizer(model, optim))
    model.train()
    loss_fn = WeightedCrossEntropy(np.ones(CLASSES), CLASSES).to(fabric.device)
    preprocessing = Preprocessing(args.image_size, "pad", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    batches = TrainBatches(
        PixelStore(pixels), np.arange(IMAGES), targets, batch_size=args.batch_size, augment=None, seed=0
    )
    objective = ClassificationTask(model, loss_fn, preprocessing.normalised)
    loss_sum = torch.zeros((), device=fabric.device)
    for step, batch in enumerate(batches.iterate(0, 10_000)):
        loss_sum += training_step(model, fabric, optimizer, objective, batch, step, 1e-3, train, optim)
        yield


def bare_steps(args, device, pixels, targets) -> Iterator[None]:  # type: ignore[no-untyped-def]
    """Run the same updates in a loop written by hand, with batches that are ready in memory."""
    model = network(args).to(device.type).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9)
    criterion = nn.CrossEntropyLoss(torch.ones(CLASSES, device=device.type))
    images, labels = torch.from_numpy(pixels), torch.from_numpy(targets)
    while True:
        order = torch.randperm(IMAGES)
        for start in range(0, IMAGES - args.batch_size + 1, args.batch_size):
            rows = order[start : start + args.batch_size]
            x = images[rows].to(device.type).permute(0, 3, 1, 2).float().div_(255).sub_(0.5).div_(0.5)
            with torch.autocast(device.type, torch.bfloat16, enabled=device.precision == "bf16"):
                logits = model(x)
            loss = criterion(logits.float(), labels[rows].to(device.type))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            yield


if __name__ == "__main__":
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    main()
