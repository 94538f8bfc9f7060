"""Measure whether pre-training on generated images improves the result on BUSI.

    PYTHONPATH=. python benchmarks/chain.py --data-root DIR --out runs/chain

A 5-fold cross-validation of one network (vit_ti16) on BUSI starts from random weights, from weights of fractal images
(supervised), and from weights of masked autoencoding on phantoms with the unlabelled training images of each fold. The
folds, the recipe and the seed are the same; predictions are compared image by image with intervals clustered by group.
Every stage is a usvit command, which is printed before it runs. Finished stages are not run again.
"""

import argparse
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path

SIZE = "model.image_size=112"
"""Image size of the cross-validation. Each pre-training has the size of its recipe; positions are resized."""
FINETUNE = [
    "optim.name=adamw", "optim.lr=5e-4", "optim.weight_decay=0.05", "optim.warmup_steps=50", "train.batch_size=64",
    "train.eval_every=25", "train.early_stopping.patience=null", "input.resize=pad",
]  # fmt: skip
"""Settings of all runs, from scratch and from weights; they were not tuned for either."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data-root", required=True)
    parser.add_argument("--out", type=Path, default=Path("runs/chain"))
    parser.add_argument("--fractal-steps", type=int, default=1500)
    parser.add_argument("--mae-steps", type=int, default=250, help="number of MAE steps of each fold")
    parser.add_argument("--epochs", type=int, default=10, help="number of epochs of the cross-validation")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    common = ["--device", args.device]
    data = ["--dataset", "busi", "--data-root", args.data_root]

    starts = {"scratch": "scratch"}
    for name, options in {
        "fractals": ["--recipe", "fractals", "--set", f"train.steps={args.fractal_steps}"],
        "mae": ["--recipe", "mae_phantom", *data, "--set", f"train.steps={args.mae_steps}"],
    }.items():
        starts[name] = str(args.out / f"pretrain-{name}")
        usvit("pretrain", "--model", "vit_ti16", *common, *options, "--out", starts[name])
    for seed in args.seeds:
        for name, weights in starts.items():
            settings = [SIZE, *FINETUNE, f"train.epochs={args.epochs}", "data.split_seed=0"]
            usvit(
                "cv", *data, "--model", "vit_ti16", "--recipe", "gheflati2022_vit_aug", "--weights", weights, *common,
                *(part for setting in settings for part in ("--set", setting)), "--seed", str(seed),
                "--out", str(cross_validation(args.out, name, seed)),
            )  # fmt: skip
        for name in list(starts)[1:]:
            runs = [str(cross_validation(args.out, start, seed)) for start in (name, "scratch")]
            usvit("compare", *runs, "--out", str(args.out / f"compare-{name}-seed{seed}"))
    for name in list(starts)[1:]:
        record = json.loads((args.out / f"pretrain-{name}" / "run.json").read_text())
        print(f"{name}: pre-trained in {sum(fold['seconds'] for fold in record['results']) / 60:.1f} minutes")


def cross_validation(out: Path, name: str, seed: int) -> Path:
    return out / f"cv-{name}-seed{seed}"


def usvit(*arguments: str) -> None:
    print(f"$ usvit {shlex.join(arguments)}", flush=True)
    begun = time.monotonic()
    subprocess.run([sys.executable, "-m", "usvit", *arguments], check=True)
    print(f"({time.monotonic() - begun:.0f} s)", flush=True)


if __name__ == "__main__":
    main()
