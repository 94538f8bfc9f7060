"""The search behind the recipe ``usvit_small``: variants are trained and judged without the test parts of BUSI.

    python -m benchmarks.small_model_search train --data-root DATA --out runs/search \
        --variant "masks: loss.mask_weight=1" --variant "no masks: loss.mask_weight=0"
    python -m benchmarks.small_model_search table runs/search --against "no masks"
    python -m benchmarks.small_model_search upstream --data-root DATA

``train``: each variant is the recipe with other settings. It is trained on the training part of some folds of
``usvit cv --dataset busi`` and predicts their inner validation parts. The test parts are not even read from the store.
A file for each variant and fold holds the predictions; files that exist are not made again.

``table``: AUC malignant vs rest of each variant (mean over folds), and its difference from a reference, paired by image
and clustered by group, in a percentile bootstrap of the groups within each fold (2,000 draws).

``upstream``: AUC of the weights ``phantom`` with their own head on all images of BUSI, without any training on them,
with an interval that counts groups.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from usvit import metrics
from usvit.config import RunConfig, build_config, load_recipe, parse_overrides
from usvit.data.datasets import Manifest, open_manifest, roots_from
from usvit.data.loading import PixelStore, eval_batches, train_batches
from usvit.data.splits import make_folds, rows_of_split
from usvit.data.transforms import Preprocessing, make_augment
from usvit.experiments.base import adapt, new_model_with_report
from usvit.metrics.basic import auc
from usvit.models import WithMaskHead, find_model, input_statistics, resolve_weights
from usvit.progress import NO_PROGRESS
from usvit.seeding import derive_seed
from usvit.training import (
    ClassificationTask,
    HeadTraining,
    MaskedClassificationTask,
    Subject,
    WeightedCrossEntropy,
    balanced_class_weights,
    fit,
    predict,
    resolve_device,
    seed_everything,
)

DRAWS = 2000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    training = commands.add_parser("train")
    training.add_argument("--data-root", type=Path, required=True)
    training.add_argument("--recipe", default="usvit_small")
    training.add_argument("--variant", action="append", required=True, help="'NAME: key=value key=value'")
    training.add_argument("--folds", type=int, nargs="+", default=[0, 1, 2])
    training.add_argument("--out", type=Path, required=True)
    printing = commands.add_parser("table")
    printing.add_argument("folder", type=Path)
    printing.add_argument("--against", required=True)
    direct = commands.add_parser("upstream")
    direct.add_argument("--data-root", type=Path, required=True)
    args = parser.parse_args()
    if args.command == "upstream":
        print(zero_shot(args.data_root))
        return
    if args.command == "table":
        print(table(args.folder, args.against))
        return
    for text in args.variant:
        name, _, settings = text.partition(":")
        config = build_config(
            load_recipe(args.recipe), {"data": {"dataset": "busi"}}, parse_overrides(settings.split())
        )
        for fold in args.folds:
            file = args.out / f"{name.strip()}.fold{fold}.seed{config.seed}.csv"
            if not file.is_file():
                judge(config, args.data_root, fold, file)


def judge(config: RunConfig, data_root: Path, fold: int, file: Path) -> None:
    """Train on a fold's training part and write the predictions of its inner validation part."""
    began = time.monotonic()
    manifest = open_manifest(config.data, roots_from(data_root), NO_PROGRESS)
    folds = make_folds("cv", manifest.usable, config.split, config.split_seed, manifest.own_ids)
    train, val = (rows_of_split(folds, manifest.usable, part, fold) for part in ("train", "val"))
    probabilities = trained(config, manifest, train, val)
    rows = manifest.usable.iloc[val]
    content = pd.DataFrame({"fold": fold, "image_id": rows.image_id, "group_id": rows.group_id, "label": rows.label})
    content["prob_malignant"] = probabilities[:, manifest.classes.index("malignant")]
    file.parent.mkdir(parents=True, exist_ok=True)
    content.to_csv(file, index=False)
    area = auc((content.label == "malignant").to_numpy(), content.prob_malignant.to_numpy())
    print(f"{file.stem}: AUC {area:.3f}, {time.monotonic() - began:.0f} s", flush=True)


def trained(config: RunConfig, manifest: Manifest, train: Any, val: Any) -> np.ndarray:
    """Return the probabilities of the classes, (n, K), of the validation images, as ``usvit cv`` would compute them."""
    fabric = resolve_device(config.device, config.precision).fabric()
    spec = find_model(config.model.name)
    weights = resolve_weights(config.model.weights, spec)
    prepared = Preprocessing(config.model.image_size, config.input.resize, *input_statistics(spec, weights))
    targets = np.array([manifest.classes.index(label) for label in manifest.usable.label], dtype=np.int64)
    with tempfile.TemporaryDirectory() as folder:
        store = PixelStore.build(manifest, prepared, memory_gb=4, folder=Path(folder), progress=NO_PROGRESS)
        model, _ = new_model_with_report(config, spec, weights, len(manifest.classes), 0)
        loss_fn = WeightedCrossEntropy(
            balanced_class_weights(targets[train], len(manifest.classes)),
            len(manifest.classes),
            config.loss.label_smoothing,
        )
        with_masks = config.loss.mask_weight > 0
        adapt(model, config)
        subject = Subject(model, store, prepared.normalised)
        if config.model.tune == "head":
            augmented = config.input.augment != "none"
            subject = HeadTraining(
                store, fabric, prepared, augmented=augmented, batch_size=32, progress=NO_PROGRESS
            ).subject(model)
        task = ClassificationTask(subject.module, loss_fn, subject.prepare)
        seed_everything(config.seed, "train", 0)
        if with_masks:
            decoded = WithMaskHead(model, config.model.image_size, spec.name)
            task = MaskedClassificationTask(decoded, loss_fn, prepared.normalised, config.loss.mask_weight)
        fit(
            task,
            fabric,
            train_batches(
                subject.store,
                train,
                targets[train],
                batch_size=config.train.batch_size,
                augment=make_augment(config.input.augment),
                seed=derive_seed(config.seed, "batches", 0),
                masked=manifest.usable.mask_path.notna().to_numpy() if with_masks else None,
            ),
            lambda module: {"val_loss": 0.0, "val_accuracy": None, "val_auc": None},
            train=config.train,
            optim=config.optim,
            checkpoint=Path(folder) / "state.pt",
            name="search",
            progress=NO_PROGRESS,
        )
        outputs = predict(fabric.setup_module(model), fabric, prepared.normalised, eval_batches(store, val, 32))
    exponents = np.exp(outputs.logits - outputs.logits.max(axis=1, keepdims=True))
    return np.asarray(exponents / exponents.sum(axis=1, keepdims=True))


def zero_shot(data_root: Path) -> str:
    """Return the AUC of the phantom weights with the head that they were trained with, on images of patients."""
    chosen_model = {"name": "usvit_small", "image_size": 192}  # the network whose head was trained on phantoms
    config = build_config(load_recipe("usvit_small"), {"data": {"dataset": "busi"}, "model": chosen_model})
    manifest, spec = open_manifest(config.data, roots_from(data_root), NO_PROGRESS), find_model(config.model.name)
    weights = resolve_weights("phantom", spec)
    assert weights.metadata is not None and tuple(weights.metadata.classes or ()) == manifest.classes
    prepared = Preprocessing(config.model.image_size, config.input.resize, *input_statistics(spec, weights))
    fabric = resolve_device(config.device, config.precision).fabric()
    model, _ = new_model_with_report(config, spec, weights, len(manifest.classes), 0)
    model.load_state_dict(
        {name: value.to(model.state_dict()[name].dtype) for name, value in weights.read().tensors.items()}
    )
    with tempfile.TemporaryDirectory() as folder:
        store = PixelStore.build(
            manifest, prepared, memory_gb=4, folder=Path(folder), progress=NO_PROGRESS, with_lesions=False
        )
        batches = eval_batches(store, np.arange(len(store)), 32)
        logits = predict(fabric.setup_module(model), fabric, prepared.normalised, batches).logits
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    rows, malignant = manifest.usable, manifest.classes.index("malignant")
    said = []
    for name, chosen in (
        ("malignant vs rest", np.ones(len(rows), bool)),
        ("malignant vs benign", rows.label != "normal"),
    ):
        part = rows[np.asarray(chosen)]
        labels = (part.label == "malignant").to_numpy().astype(int)
        said.append(f"{name}: {metrics.auc(labels, probabilities[np.asarray(chosen), malignant], part.group_id)}")
    return "\n".join(said)


def table(folder: Path, against: str) -> str:
    """Return a Markdown table of all variants in a folder."""
    files: dict[str, list[pd.DataFrame]] = {}
    for file in sorted(folder.glob("*.csv")):
        files.setdefault(file.name.split(".fold")[0], []).append(pd.read_csv(file))
    lines = ["| variant | folds | AUC malignant vs rest | difference from the reference [95 %] |", "|---|---|---|---|"]
    for name, parts in files.items():
        ours = {int(part.fold.iloc[0]): part for part in parts}
        reference = {int(part.fold.iloc[0]): part for part in files[against]}
        both = [(ours[fold], reference[fold]) for fold in sorted(ours.keys() & reference.keys())]
        low, high = np.percentile(_differences(both), [2.5, 97.5])
        gap = float(np.mean([_area(a) - _area(b) for a, b in both]))
        note = "" if name == against else f"{gap:+.3f} [{low:+.3f}, {high:+.3f}]"
        mean = np.mean([_area(part) for part in parts])
        lines.append(f"| {name} | {' '.join(map(str, sorted(ours)))} | {mean:.3f} | {note} |")
    return "\n".join(lines)


def _area(part: pd.DataFrame) -> float:
    return float(auc((part.label == "malignant").to_numpy(), part.prob_malignant.to_numpy()) or np.nan)


def _differences(pairs: list[tuple[pd.DataFrame, pd.DataFrame]]) -> np.ndarray:
    """Draw the groups of each fold with replacement; return the mean difference of each draw, (DRAWS,)."""
    rng = np.random.default_rng(0)
    gaps = []
    for a, b in pairs:
        group = pd.factorize(a.group_id)[0]
        n = group.max() + 1
        weights = rng.multinomial(n, np.full(n, 1 / n), size=DRAWS)[:, group].astype(float)
        gaps.append(_weighted_areas(a, weights) - _weighted_areas(b, weights))
    return np.asarray(np.nanmean(gaps, axis=0))


def _weighted_areas(part: pd.DataFrame, weights: np.ndarray) -> np.ndarray:
    """Return the AUC with each row of weights, (DRAWS, n): a pair counts the product of its images' weights."""
    malignant = (part.label == "malignant").to_numpy()
    score = part.prob_malignant.to_numpy()
    above = score[malignant][:, None] - score[~malignant][None, :]
    wins = (above > 0) + 0.5 * (above == 0)
    w, v = weights[:, malignant], weights[:, ~malignant]
    return np.asarray(((w @ wins) * v).sum(axis=1) / (w.sum(axis=1) * v.sum(axis=1)))


if __name__ == "__main__":
    main()
