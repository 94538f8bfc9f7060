"""The search behind the head of ``usvit_small``: views and pooling of the frozen features, and how the head is trained.

    python -m benchmarks.small_model_heads --data-root DATA --out runs/heads
    python -m benchmarks.small_model_heads --data-root DATA --out runs/heads --weights FOLDER --prefix "other weights, "
    python -m benchmarks.small_model_search table runs/heads --against "recipe: 320, 256, 160 px"

The network ``usvit_small`` with frozen weights runs once over all images of BUSI at each size. For each variant, heads
are then trained on the training parts of the folds of ``usvit cv --dataset busi`` and predict their inner validation
parts, by a loop of PyTorch alone, as an oracle of the recipe. Nothing is predicted for a test part. The files of
predictions are those of ``benchmarks.small_model_search``, which makes the table. Images are reduced from 512 px with
antialiasing; the recipe reduces its views from 320 px.
"""

import argparse
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from usvit.config import build_config, load_recipe
from usvit.data.datasets import Manifest, open_manifest, roots_from
from usvit.data.loading import PixelStore
from usvit.data.splits import make_folds, rows_of_split
from usvit.data.transforms import Preprocessing
from usvit.metrics.basic import auc
from usvit.models import create_model
from usvit.models.architectures.small import FLOOR, STAGES
from usvit.progress import NO_PROGRESS

SIDE, GREY = 512, (0.5, 0.5, 0.5)


@dataclass(frozen=True)
class Head:
    """One variant of the head and its training."""

    sizes: tuple[int, ...] = (320, 256, 160)
    stages: tuple[int, ...] = (3, 4)
    pooling: str = "fine"
    """``fine``: the mask weights each map at its own size; ``coarse``: at that of the last map; ``mean``: no mask."""
    standardized: bool = True
    lr: float = 1e-3
    weight_decay: float = 10.0
    epochs: int = 30
    of_teacher: float = 0.0
    """Weight of a teacher's probabilities; the label has the rest."""
    mixup: float = 0.0
    """alpha of Beta(alpha, alpha); 0: off."""
    averaged: bool = False
    """The mean of the weights after each epoch of the second half is used."""


VARIANTS = {
    "recipe: 320, 256, 160 px": Head(),
    "320 and 160 px": Head((320, 160)),
    "320, 192, 128 px": Head((320, 192, 128)),
    "384, 192, 128 px": Head((384, 192, 128)),
    "320, 256, 192, 160, 128 px": Head((320, 256, 192, 160, 128)),
    "320 px alone": Head((320,)),
    "256 px alone": Head((256,)),
    "160 px alone": Head((160,)),
    "masks at the size of the last map": Head(pooling="coarse"),
    "without masks": Head(pooling="mean"),
    "last stage alone": Head(stages=(4,)),
    "three stages": Head(stages=(2, 3, 4)),
    "not standardised, lr 1e-2, decay 0.05": Head(standardized=False, lr=1e-2, weight_decay=0.05),
    "decay 0.05": Head(weight_decay=0.05),
    "decay 30": Head(weight_decay=30.0),
    "lr 3e-3": Head(lr=3e-3),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--weights", default="phantom", help="as of usvit cv (default: phantom)")
    parser.add_argument("--prefix", default="", help="before the names of the variants, for other weights")
    args = parser.parse_args()
    config = build_config(load_recipe("usvit_small"), {"data": {"dataset": "busi"}})
    manifest = open_manifest(config.data, roots_from(args.data_root), NO_PROGRESS)
    network = create_model("usvit_small", n_classes=3, image_size=160, weights=args.weights).eval()
    sizes = sorted({size for variant in VARIANTS.values() for size in variant.sizes})
    features = features_of(network, manifest, sizes)
    folds = make_folds("cv", manifest.usable, config.split, config.split_seed, manifest.own_ids)
    targets = np.array([manifest.classes.index(label) for label in manifest.usable.label])
    args.out.mkdir(parents=True, exist_ok=True)
    for name, head in VARIANTS.items():
        x = torch.cat(
            [features[size, stage, of] for size in head.sizes for stage in head.stages for of in _parts(head)], 1
        )
        areas = []
        for fold in range(config.split.folds):
            train, val = (rows_of_split(folds, manifest.usable, part, fold) for part in ("train", "val"))
            probabilities = trained(head, x[train], torch.from_numpy(targets[train]), x[val])
            areas.append(write_predictions(args.out, f"{args.prefix}{name}", fold, manifest, val, probabilities))
        print(f"{args.prefix}{name}: {np.mean(areas):.4f}", flush=True)


def write_predictions(
    out: Path, name: str, fold: int, manifest: Manifest, val: np.ndarray, probabilities: Tensor
) -> float:
    """Write the predictions of a validation part for ``benchmarks.small_model_search``, and return the AUC."""
    rows, malignant = manifest.usable.iloc[val], manifest.classes.index("malignant")
    content = pd.DataFrame({"fold": fold, "image_id": rows.image_id, "group_id": rows.group_id, "label": rows.label})
    content["prob_malignant"] = probabilities[:, malignant].numpy()
    content.to_csv(out / f"{name}.fold{fold}.seed0.csv", index=False)
    area = auc((content.label == "malignant").to_numpy(), content.prob_malignant.to_numpy())
    return float("nan") if area is None else float(area)


def _parts(head: Head) -> tuple[str, ...]:
    return ("mean",) if head.pooling == "mean" else ("mean", head.pooling)


@torch.inference_mode()
def features_of(network: Any, manifest: Manifest, sizes: list[int]) -> dict[tuple[int, int, str], Tensor]:
    """Return for each size, stage and pooling the features of all images, (N, channels) float32."""
    found: dict[tuple[int, int, str], list[Tensor]] = {}
    with tempfile.TemporaryDirectory() as folder:
        prepared = Preprocessing(SIDE, "pad", GREY, GREY)
        store = PixelStore.build(
            manifest, prepared, memory_gb=4, folder=Path(folder), progress=NO_PROGRESS, with_lesions=False
        )
        for images in _images(store):
            for size in sizes:
                view = F.interpolate(images, size=(size, size), mode="bilinear", antialias=True)
                maps = network.forward_intermediates(view, indices=list(STAGES))[1]
                mask = network.mask_decoder(maps).sigmoid()[:, None]
                for at, stage in enumerate(STAGES):
                    for of in ("mean", "fine", "coarse"):
                        found.setdefault((size, stage, of), []).append(pooled(maps[at], mask, maps[-1], of))
    return {key: torch.cat(parts) for key, parts in found.items()}


def _images(store: PixelStore, batch: int = 16) -> Iterator[Tensor]:
    for begin in range(0, len(store), batch):
        pixels = torch.from_numpy(np.asarray(store[np.arange(begin, min(begin + batch, len(store)))]))
        yield (pixels.permute(0, 3, 1, 2).float() / 255 - GREY[0]) / GREY[0]


def pooled(seen: Tensor, mask: Tensor, last: Tensor, of: str) -> Tensor:
    """Pool a map (B, C, h, w) to (B, C)."""
    if of == "mean":
        return seen.mean((2, 3))
    seen = F.adaptive_avg_pool2d(seen, (last.shape[-2], last.shape[-1])) if of == "coarse" else seen
    weight = F.adaptive_avg_pool2d(mask, (seen.shape[-2], seen.shape[-1])) + FLOOR
    return (seen * weight).sum((2, 3)) / weight.sum((2, 3))


def trained(
    head: Head, x: Tensor, targets: Tensor, unseen: Tensor, *, teacher: Tensor | None = None, batch: int = 32
) -> Tensor:
    """Train a linear head with AdamW, a cosine schedule and balanced classes; return probabilities of ``unseen``.

    Args:
        head: The variant.
        x, unseen: (n, F) and (m, F) features to train on and to predict.
        targets: (n,) class indices.
        teacher: (n, K) probabilities, which have the weight ``head.of_teacher`` beside the labels.
        batch: Images a step.
    """
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    counts = torch.bincount(targets).float()
    soft = F.one_hot(targets, len(counts)).float()
    if teacher is not None:
        soft = torch.lerp(soft, teacher, head.of_teacher)
    weights = (1 / counts)[targets]
    linear = nn.Linear(x.shape[1], len(counts))
    nn.init.normal_(linear.weight, std=0.01)
    nn.init.zeros_(linear.bias)
    before = nn.BatchNorm1d(x.shape[1], affine=False) if head.standardized else nn.Identity()
    model = nn.Sequential(before, linear).train()
    steps = len(targets) // batch
    optimizer = torch.optim.AdamW(model.parameters(), lr=head.lr, weight_decay=head.weight_decay)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, head.epochs * steps)
    kept = []
    for epoch in range(head.epochs):
        order = torch.randperm(len(targets))
        for step in range(steps):
            rows = order[step * batch : (step + 1) * batch]
            seen, wanted, weight = x[rows], soft[rows], weights[rows]
            if head.mixup:
                share, other = float(rng.beta(head.mixup, head.mixup)), torch.randperm(len(rows))
                seen, wanted, weight = (torch.lerp(one[other], one, share) for one in (seen, wanted, weight))
            optimizer.zero_grad()
            # As F.cross_entropy, which divides by the weights only if the targets are class indices.
            (-(weight * (wanted * model(seen).log_softmax(1)).sum(1)).sum() / weight.sum()).backward()
            optimizer.step()
            schedule.step()
        if epoch >= head.epochs // 2:
            kept.append(nn.utils.parameters_to_vector(linear.parameters()).detach())
    if head.averaged:
        nn.utils.vector_to_parameters(torch.stack(kept).mean(0), linear.parameters())
    with torch.inference_mode():
        return model.eval()(unseen).softmax(1)


if __name__ == "__main__":
    main()
