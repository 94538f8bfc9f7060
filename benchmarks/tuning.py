"""Measure the savings of training a part of a network, and the cost of a linear probe.

    python benchmarks/tuning.py steps --model vit_b16 --batch-size 8
    python benchmarks/tuning.py probe --model vit_s32 --data-root DATA

``steps``: number of trained parameters, time of a training step and peak memory of each ``model.tune``, and of gradient
checkpointing. Each is measured in separate processes that take turns, so that a machine that becomes slower affects
all. The CPU time (s CPU) beside the wall time is less sensitive to other work on the machine. Memory on a CPU is the
peak of the process minus its memory before the first step; on a GPU it is the peak of PyTorch's allocations. In the
paper (Touvron et al. 2022, Three things, section 4, on GPUs, at 384 x 384), ``attn`` trains a third of the parameters
and takes 10 % less memory and 10 % less time than ``full``.

``probe``: ``usvit cv --set model.tune=head`` on BUSI, with five folds from one file of random weights, is compared with
a bare loop that decodes the images and runs the network on them once.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

CASES = ("full", "attn", "ffn", "norm", "lora", "head", "full+checkpointing")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "what", choices=["steps", "probe", "one-case", "bare-pass"], help="the last two are called by the first two"
    )
    parser.add_argument("--model", default="vit_b16")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--image-size", type=int, default=224)
    parser.add_argument("--steps", type=int, default=5, help="number of timed steps, after one untimed step")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--precision", default="auto")
    parser.add_argument("--case", choices=CASES)
    parser.add_argument("--data-root", type=Path)
    args = parser.parse_args()
    {"steps": all_cases, "probe": probe, "one-case": one_case, "bare-pass": bare_pass}[args.what](args)


def again(args: argparse.Namespace, what: str, *more: str) -> dict[str, float]:
    """Run this file in a separate process, and parse the last line of its output as JSON."""
    options = ("model", "batch_size", "image_size", "steps", "device", "precision")
    words = [word for name in options for word in (f"--{name.replace('_', '-')}", str(getattr(args, name)))]
    answer = subprocess.run([sys.executable, __file__, what, *words, *more], check=True, capture_output=True, text=True)
    result: dict[str, float] = json.loads(answer.stdout.splitlines()[-1])
    return result


def all_cases(args: argparse.Namespace) -> None:
    found: dict[str, list[dict[str, float]]] = {case: [] for case in CASES}
    for _ in range(args.repeats):
        for case in CASES:
            found[case].append(again(args, "one-case", "--case", case))
    print(f"{args.model}, {args.image_size} pixels, batch {args.batch_size}, load {os.getloadavg()[0]:.1f}")
    print(
        f"{'':20}{'trainable':>10}{'s/step':>9}{'range':>16}{'/ full':>8}{'s CPU':>8}{'range':>16}{'/ full':>8}"
        f"{'peak GB':>9}{'/ full':>8}"
    )
    keys = ("trainable", "seconds", "cpu", "memory")
    whole = {key: statistics.median(run[key] for run in found["full"]) for key in keys}
    for case, runs in found.items():
        median = {key: statistics.median(run[key] for run in runs) for key in whole}
        (low, high), (cpu_low, cpu_high) = (
            (min(run[key] for run in runs), max(run[key] for run in runs)) for key in keys[1:3]
        )
        print(
            f"{case:20}{median['trainable'] / whole['trainable']:10.2%}{median['seconds']:9.3f}"
            f"{f'{low:.3f}-{high:.3f}':>16}{median['seconds'] / whole['seconds']:8.2f}"
            f"{median['cpu']:8.3f}{f'{cpu_low:.3f}-{cpu_high:.3f}':>16}{median['cpu'] / whole['cpu']:8.2f}"
            f"{median['memory'] / 1e9:9.2f}{median['memory'] / whole['memory']:8.2f}"
        )


def one_case(args: argparse.Namespace) -> None:
    import torch

    from usvit.config import LoraConfig, OptimConfig, TrainConfig
    from usvit.data.transforms.preprocessing import Preprocessing
    from usvit.models.build import build_model
    from usvit.models.lora import add_lora
    from usvit.models.trainable import checkpoint_gradients, set_trainable, train_mode
    from usvit.models.weights import Weights
    from usvit.models.zoo import find_model
    from usvit.training.device import resolve_device, seed_everything
    from usvit.training.losses import WeightedCrossEntropy
    from usvit.training.optimizers import make_optimizer
    from usvit.training.task import ClassificationTask
    from usvit.training.trainer import training_step

    device = resolve_device(args.device, args.precision)
    seed_everything(0)
    model = build_model(find_model(args.model), Weights("scratch"), n_classes=3, image_size=args.image_size)
    tune, _, checkpointing = args.case.partition("+")
    if tune == "lora":
        add_lora(model, LoraConfig(), args.image_size)
    report = set_trainable(model, tune)
    if checkpointing:
        checkpoint_gradients(model)
    train, optim = TrainConfig(batch_size=args.batch_size, steps=10**6), OptimConfig(name="adamw")
    fabric = device.fabric()
    wrapped, optimizer = fabric.setup(model, make_optimizer(model, optim))
    train_mode(wrapped)
    loss_fn = WeightedCrossEntropy(None, 3).to(fabric.device)
    prepare = Preprocessing(args.image_size, "pad", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5)).normalised
    objective = ClassificationTask(model, loss_fn, prepare)
    images = torch.randint(0, 255, (args.batch_size, args.image_size, args.image_size, 3), dtype=torch.uint8)
    batch = {"images": images, "targets": torch.arange(args.batch_size) % 3}
    before = peak_bytes()
    times, cpu_times = [], []
    for _ in range(args.steps + 1):
        begun, cpu_begun = time.perf_counter(), time.process_time()
        training_step(wrapped, fabric, optimizer, objective, batch, 0, 1e-4, train, optim)
        if device.type == "cuda":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - begun)
        cpu_times.append(time.process_time() - cpu_begun)
    memory = torch.cuda.max_memory_allocated() if device.type == "cuda" else peak_bytes() - before
    seconds, cpu = statistics.median(times[1:]), statistics.median(cpu_times[1:])
    print(json.dumps({"trainable": report.trainable, "seconds": seconds, "cpu": cpu, "memory": memory}))


def peak_bytes() -> int:
    """Return the peak memory of this process in bytes; the system reports kilobytes on Linux and bytes on macOS."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def probe(args: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for number in range(args.repeats):
            bare = again(args, "bare-pass", "--data-root", str(args.data_root))
            weights, out = Path(folder) / "weights.safetensors", Path(folder) / str(number)
            save_random(args.model, args.image_size, weights)
            command = [
                *(sys.executable, "-m", "usvit", "cv", "--dataset", "busi", "--data-root", str(args.data_root)),
                *("--model", args.model, "--weights", str(weights), "--out", str(out)),
                *("--device", args.device, "--precision", args.precision, "--set", "model.tune=head"),
                *("--set", f"model.image_size={args.image_size}"),
            ]
            begun, cpu_begun = time.perf_counter(), cpu_of_children()
            subprocess.run(command, check=True, capture_output=True)
            wall, cpu = time.perf_counter() - begun, cpu_of_children() - cpu_begun
            run = json.loads((out / "run.json").read_text(encoding="utf-8"))
            training = sum(result["seconds"] for result in run["results"])
            steps = sum(result["steps"] for result in run["results"])
            print(
                f"bare pass: {bare['wall']:.1f} s wall ({bare['decode']:.1f} decoding, {bare['forward']:.1f} in the "
                f"network), {bare['cpu']:.1f} s CPU",
                flush=True,
            )
            print(
                f"usvit cv, 5 folds: {wall:.1f} s wall ({wall / bare['wall']:.2f} of the pass), {cpu:.1f} s CPU "
                f"({cpu / bare['cpu']:.2f}), of it {training:.1f} s for {steps} steps; load {os.getloadavg()[0]:.1f}",
                flush=True,
            )


def cpu_of_children() -> float:
    """Return the seconds of CPU time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def save_random(name: str, image_size: int, path: Path) -> None:
    from safetensors.torch import save_file

    from usvit.models.build import build_model
    from usvit.models.weights import Weights
    from usvit.models.zoo import find_model
    from usvit.training.device import seed_everything

    seed_everything(0)
    model = build_model(find_model(name), Weights("scratch"), n_classes=3, image_size=image_size)
    save_file(model.state_dict(), path)


def bare_pass(args: argparse.Namespace) -> None:
    """Run the necessary work once: import, decode and resize, one forward pass."""
    begun = time.perf_counter()
    import numpy as np
    import torch
    from PIL import Image, ImageOps

    from usvit.models.build import build_model
    from usvit.models.weights import Weights
    from usvit.models.zoo import find_model
    from usvit.training.device import resolve_device

    device = resolve_device(args.device, args.precision)
    model = build_model(find_model(args.model), Weights("scratch"), n_classes=3, image_size=args.image_size)
    model.to(device.type).eval()
    imported = time.perf_counter()
    size = (args.image_size, args.image_size)
    files = sorted(path for path in args.data_root.rglob("*/*.png") if "mask" not in path.stem)
    pictures = [
        np.asarray(ImageOps.pad(Image.open(file).convert("RGB"), size, Image.Resampling.BICUBIC)) for file in files
    ]
    decoded = time.perf_counter()
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=device.precision == "bf16"):
        for start in range(0, len(pictures), 128):
            batch = torch.from_numpy(np.stack(pictures[start : start + 128])).to(device.type)
            model(batch.permute(0, 3, 1, 2).float().div_(255).sub_(0.5).div_(0.5))
    if device.type == "cuda":
        torch.cuda.synchronize()
    done = time.perf_counter()
    cpu = time.process_time()
    print(json.dumps({"wall": done - begun, "cpu": cpu, "decode": decoded - imported, "forward": done - decoded}))


if __name__ == "__main__":
    main()
