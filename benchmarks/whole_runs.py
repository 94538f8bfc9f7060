"""Compare whole trainings with those of timm's ``train.py``: start-up, checks, training, validation and results.

    python -m benchmarks.whole_runs --timm-train PATH/train.py --data-root DIR
    python -m benchmarks.whole_runs --timm-train PATH/train.py --data-root DIR --models vit_b32 --epochs 2 --rounds 3

``train.py`` is that of timm's repository (https://github.com/huggingface/pytorch-image-models); its wheel does not
contain it. usvit runs first, with its defaults, on a hold-out of ``--dataset``; timm then trains on links to the same
training images, and validates on the same validation images, for the same number of epochs of the same batch size and
image size, from random weights: once with its defaults (float32), and once as fast as it can here (bfloat16 and
channels-last). Each program does what it does by itself around the training. usvit checks and hashes the images, tests
the network on the test images, and writes metrics with intervals and a report; timm decodes the images in every epoch
and keeps checkpoints. The runs of a round follow each other, so that a machine that slows down affects all of them.
"""

import argparse
import json
import statistics
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd

from benchmarks.processes import measure

MODELS = {"vit_ti16": "vit_tiny_patch16_224", "vit_b32": "vit_base_patch32_224", "resnet50": "resnet50"}
"""Names of usvit and of timm."""
WAYS = {
    "timm, defaults": (),
    "timm, bfloat16, channels-last": ("--amp", "--amp-dtype", "bfloat16", "--channels-last"),
}
GOALS = {"timm, defaults": 1.9, "timm, bfloat16, channels-last": 1.05}


@dataclass(frozen=True)
class WholeRun:
    """One run of one program."""

    model: str
    way: str
    seconds: float
    images: int
    """Training images that the network saw, over all epochs."""

    @property
    def speed(self) -> float:
        """Training images for each second of the whole run."""
        return self.images / self.seconds


def usvit_run(model: str, out: Path, options: argparse.Namespace) -> WholeRun:
    """Train by the recipe of the 2022 study, whose defaults stay but for the length and the initial weights."""
    command = [sys.executable, "-m", "usvit", "train", "--dataset", options.dataset, "--data-root", options.data_root]
    command += ["--model", model, "--weights", "scratch", "--out", str(out), "--device", "cpu"]
    settings = [f"train.batch_size={options.batch_size}", "train.steps=null", f"train.epochs={options.epochs}"]
    command += [part for setting in settings for part in ("--set", setting)]
    seconds = measure(command, folder=out.parent).wall
    steps = pd.read_csv(out / "fold-0" / "history.csv").step.max()
    return WholeRun(model, "usvit", seconds, int(steps) * options.batch_size)


def make_folders(run: Path, folder: Path, data_root: str) -> int:
    """Link the training and validation images of a run below ``train/CLASS`` and ``val/CLASS``.

    Returns:
        Number of training images.
    """
    manifest, folds = pd.read_parquet(run / "manifest.parquet"), pd.read_csv(run / "folds.csv")
    table = folds.merge(manifest, on=["dataset", "image_id"])
    first = str(table.path.iloc[0])
    root = Path(str(next(Path(data_root).rglob(first))).removesuffix(first))
    for number, row in enumerate(table.itertuples()):
        if row.part in ("train", "val"):
            link = folder / str(row.part) / str(row.label) / f"{number}{Path(str(row.path)).suffix}"
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to((root / str(row.path)).resolve())
    return int((folds.part == "train").sum())


def timm_run(model: str, way: str, images: Path, n_train: int, options: argparse.Namespace) -> WholeRun:
    command = [sys.executable, str(options.timm_train), "--data-dir", str(images), "--model", MODELS[model]]
    command += ["--num-classes", "3", "--batch-size", str(options.batch_size), "--epochs", str(options.epochs)]
    command += ["--warmup-epochs", "0", "--device", "cpu", "--workers", "2", *WAYS[way]]
    seconds = measure(command, folder=images).wall
    per_epoch = n_train // options.batch_size * options.batch_size  # its loader drops the last, smaller batch
    return WholeRun(model, way, seconds, per_epoch * options.epochs)


def table(runs: list[WholeRun]) -> str:
    """Return the median speeds and ratios as Markdown."""
    lines = ["| model | " + " | ".join(f"{way}: images/s (s)" for way in ("usvit", *WAYS)) + " | ratios |"]
    lines.append("|" + "---|" * (len(WAYS) + 3))
    for model in dict.fromkeys(run.model for run in runs):
        speed, cells = {}, []
        for way in ("usvit", *WAYS):
            of_way = [run for run in runs if (run.model, run.way) == (model, way)]
            speed[way] = statistics.median(run.speed for run in of_way)
            cells.append(f"{speed[way]:.1f} ({statistics.median(run.seconds for run in of_way):.0f})")
        ratios = [f"{speed['usvit'] / speed[way]:.2f} (goal {GOALS[way]})" for way in WAYS]
        lines.append(f"| {model} | {' | '.join(cells)} | {', '.join(ratios)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--timm-train", type=Path, required=True)
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--dataset", default="busi")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path, help="file that keeps the runs; those that it holds are shown too")
    options = parser.parse_args()
    options.timm_train, options.data_root = options.timm_train.resolve(), str(Path(options.data_root).resolve())
    kept = json.loads(options.json.read_text()) if options.json and options.json.is_file() else []
    runs = [WholeRun(**run) for run in kept]
    for round_ in range(options.rounds):
        for model in options.models:
            with tempfile.TemporaryDirectory() as temporary:
                folder = Path(temporary)
                done = [usvit_run(model, folder / "run", options)]
                n_train = make_folders(folder / "run", folder / "images", options.data_root)
                done += [timm_run(model, way, folder / "images", n_train, options) for way in WAYS]
            for run in done:
                print(f"round {round_}: {run}", file=sys.stderr, flush=True)
            runs += done
            if options.json:
                options.json.write_text(json.dumps([asdict(run) for run in runs], indent=1) + "\n")
    print(table(runs))


if __name__ == "__main__":
    main()
