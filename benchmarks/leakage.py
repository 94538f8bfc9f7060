"""Measure the effect of a leaking split: one model with folds by image and with folds by group.

On a phantom with planted near-duplicates, the true performance is known, because the same networks are tested on a new
phantom with other patients. On BUSI (``--busi``), only the difference is known. Nothing else differs between the runs.

    python benchmarks/leakage.py --out runs/leakage --seeds 3
    python benchmarks/leakage.py --out runs/leakage --seeds 3 --busi DIR

Finished runs are kept and not repeated. docs/explanation/leakage.md reports the results.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from safetensors.torch import load_file
from scipy.special import softmax

from usvit.config import RunConfig, build_config, load_recipe
from usvit.data.datasets.manifest import build_manifest
from usvit.data.loading.pixel_store import PixelStore, eval_batches
from usvit.data.phantom import PhantomSpec, write_phantom
from usvit.experiments.base import new_model_with_report
from usvit.experiments.cross_validation import CrossValidation
from usvit.experiments.cross_validation_setup import CrossValidationSetup, prepare
from usvit.metrics.basic import auc
from usvit.models.weights import Weights
from usvit.progress import PlainProgress, Progress
from usvit.records import MetricsRecord, RunRecord
from usvit.training.inference import predict

PLANTED = PhantomSpec(n=240, seed=20, size=256, near_duplicates=0.5)
FRESH = PhantomSpec(n=480, seed=21, size=256)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--busi", type=Path, help="folder of BUSI; by default the phantom is used")
    parser.add_argument("--recipe", default="demo")
    parser.add_argument("--epochs", type=float, default=12)
    given = parser.parse_args()
    progress = PlainProgress()
    dataset = "phantom" if given.busi is None else "busi"
    root = given.busi or phantom(PLANTED, given.out, progress)
    print("| split | seed | groups in two parts | AUC, pooled | AUC, mean of folds | AUC on fresh patients |")
    print("|---|---|---|---|---|---|")
    for unit in ("image", "group"):
        for seed in range(given.seeds):
            config = build_config(
                load_recipe(given.recipe),
                {
                    "data": {"dataset": dataset},
                    "split": {"unit": unit},
                    "train": {"epochs": given.epochs},
                    "seed": seed,
                },
            )
            out = given.out / f"{dataset}-by-{unit}-seed{seed}"
            outcome = CrossValidation(
                "cv", config, roots={"": root}, out=out, command="leakage.py", progress=progress
            ).run()
            fresh = None
            if dataset == "phantom":
                fresh = on_fresh_patients(config, root, out, phantom(FRESH, given.out, progress), progress)
            print(row(unit, seed, outcome.record, outcome.result, fresh), flush=True)


def phantom(spec: PhantomSpec, out: Path, progress: Progress) -> Path:
    """Return the folder of a phantom, which is written if it does not exist yet."""
    folder = out / f"phantom-{spec.key}"
    if not folder.is_dir():
        print(f"making {folder.name}")
        write_phantom(spec, folder)
    return folder


def on_fresh_patients(config: RunConfig, root: Path, run: Path, fresh: Path, progress: Progress) -> float:
    """Return the mean AUC (malignant against the rest) of a run's networks on patients that none of them has seen."""
    kept = run / "fresh.json"
    if kept.is_file():
        return float(json.loads(kept.read_text())["auc"])
    job: CrossValidationSetup = prepare("cv", config, {"": root}, progress)
    manifest = build_manifest("phantom", {"": fresh}, progress)
    store = PixelStore.build(
        manifest, job.preprocessing, memory_gb=4, folder=run, progress=progress, with_lesions=False
    )
    malignant = (manifest.usable.label == "malignant").to_numpy()
    fabric = job.device.fabric()
    areas = []
    for fold in range(job.n_folds):
        model, _ = new_model_with_report(config, job.spec, Weights("scratch"), len(job.classes), fold)
        model.load_state_dict(load_file(run / f"fold-{fold}" / "model.safetensors"))
        batches = eval_batches(store, np.arange(len(store)), config.train.batch_size)
        logits = predict(fabric.setup_module(model), fabric, job.preprocessing.normalised, batches).logits
        prob = softmax(logits.astype(np.float64), axis=1)[:, job.classes.index("malignant")]
        areas.append(auc(malignant, prob))
    kept.write_text(json.dumps({"auc": float(np.mean([area for area in areas if area is not None]))}))
    return float(json.loads(kept.read_text())["auc"])


def row(unit: str, seed: int, record: RunRecord, metrics: MetricsRecord, fresh: float | None) -> str:
    pooled = metrics.pooled.auc["malignant_vs_rest"].value
    folds = metrics.mean_sd.auc["malignant_vs_rest"]
    truth = "" if fresh is None else f"{fresh:.3f}"
    leaking = record.folds.leaking_groups
    return f"| {unit} | {seed} | {leaking} | {pooled:.3f} | {folds.mean:.3f} ± {folds.sd:.3f} | {truth} |"


if __name__ == "__main__":
    main()
