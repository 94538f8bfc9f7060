"""Ingredients that might have helped ``usvit_small``: other masks, other statistics, and other ways to train the head.

    python -m benchmarks.small_model_adapt --data-root DATA --out runs/adapt
    python -m benchmarks.small_model_search table runs/adapt --against recipe

As in ``benchmarks.small_model_heads``, heads are trained on frozen features and predict the inner validation parts of
the folds of ``usvit cv --dataset busi``; nothing is predicted for a test part.

``true masks``: features pooled with the masks of the data set, which bounds what better masks could give; no such mask
is known for a new image. ``normalisation``: statistics of the batch normalisation from the training part, or halfway
(Li et al. 2016, Revisiting Batch Normalization For Practical Domain Adaptation). ``distilled``: the targets are partly
the predictions of five heads, each for the images of the training part that it has not seen (grouped). ``mixup``: of
features (Zhang et al. 2018). ``averaged``: the mean of the head's weights after each epoch of the second half (Izmailov
et al. 2018). ``mean with recipe``: of the probabilities; ``joint``: one head on the features of both.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.model_selection import StratifiedGroupKFold
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.small_model_heads import GREY, SIDE, Head, pooled, trained, write_predictions
from usvit.config import build_config, load_recipe
from usvit.data.datasets import Manifest, open_manifest, roots_from
from usvit.data.loading import PixelStore
from usvit.data.splits import make_folds, rows_of_split
from usvit.data.transforms import Preprocessing
from usvit.models import create_model
from usvit.models.architectures.small import STAGES
from usvit.progress import NO_PROGRESS

HEAD = Head()
INNER = 5
"""Parts of a training part for distillation."""


VARIANTS = {
    "distilled, half": Head(of_teacher=0.5),
    "distilled, nine tenths": Head(of_teacher=0.9),
    "mixup, alpha 0.2": Head(mixup=0.2),
    "mixup, alpha 1": Head(mixup=1.0),
    "averaged weights": Head(averaged=True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-root", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    config = build_config(load_recipe("usvit_small"), {"data": {"dataset": "busi"}})
    manifest = open_manifest(config.data, roots_from(args.data_root), NO_PROGRESS)
    folds = make_folds("cv", manifest.usable, config.split, config.split_seed, manifest.own_ids)
    with tempfile.TemporaryDirectory() as folder:
        images = Images(manifest, Path(folder))
        everything, networks = np.arange(len(images.targets)), [phantom_network()] * len(HEAD.sizes)
        known = images.features(everything, networks)
        with_true_masks = images.features(everything, networks, true_masks=True)
        for number in range(config.split.folds):
            train, val = (rows_of_split(folds, manifest.usable, part, number) for part in ("train", "val"))
            fold = Fold(images, number, train, val, args.out)
            recipe = fold.head("recipe", known[fold.rows])
            for name, head in VARIANTS.items():
                fold.head(name, known[fold.rows], head)
            changed = {"true masks": with_true_masks[fold.rows]}
            for name, share in (("normalisation", 1.0), ("normalisation, halfway", 0.5)):
                own = [normalised(images, train, size, share) for size in HEAD.sizes]
                changed[name] = images.features(fold.rows, own)
            for name, features in changed.items():
                alone = fold.head(name, features)
                fold.write(f"{name}, mean with recipe", (alone + recipe) / 2)
                fold.head(f"{name}, joint", torch.cat([features, known[fold.rows]], 1))


class Images:
    """All images of a data set at ``SIDE`` pixels, with their lesion masks."""

    def __init__(self, manifest: Manifest, folder: Path):
        self.manifest = manifest
        self.targets = np.array([manifest.classes.index(label) for label in manifest.usable.label])
        prepared = Preprocessing(SIDE, "pad", GREY, GREY)
        self.store = PixelStore.build(manifest, prepared, memory_gb=4, folder=folder, progress=NO_PROGRESS)

    def batches(self, rows: np.ndarray, size: int, batch: int = 16) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield images (B, 3, size, size) and the share of each cell that the lesion covers, (B, 1, CELLS, CELLS)."""
        assert self.store.lesions is not None
        for begin in range(0, len(rows), batch):
            own = rows[begin : begin + batch]
            pixels = torch.from_numpy(np.asarray(self.store[own])).permute(0, 3, 1, 2)
            view = F.interpolate(
                (pixels.float() / 255 - GREY[0]) / GREY[0], size=(size, size), mode="bilinear", antialias=True
            )
            yield view, torch.from_numpy(self.store.lesions[own]).float()[:, None] / 255

    @torch.inference_mode()
    def features(self, rows: np.ndarray, networks: list[Any], true_masks: bool = False) -> Tensor:
        """Return the features of the recipe, (n, F), with a network for each of its sizes."""
        views = []
        for size, network in zip(HEAD.sizes, networks, strict=True):
            found = []
            for view, lesions in self.batches(rows, size):
                maps = network.forward_intermediates(view, indices=list(STAGES))[1]
                mask = network.mask_decoder(maps).sigmoid()[:, None]
                if true_masks:
                    mask = F.interpolate(lesions, size=mask.shape[-2:], mode="area")
                seen = [maps[STAGES.index(stage)] for stage in HEAD.stages]
                parts = [pooled(one, mask, maps[-1], of) for one in seen for of in ("mean", HEAD.pooling)]
                found.append(torch.cat(parts, 1))
            views.append(torch.cat(found))
        return torch.cat(views, 1)


class Fold:
    """One fold: heads are trained on its training part and judged on its inner validation part.

    ``rows`` are the rows of both parts, those of the training part first; features are given for them.
    """

    def __init__(self, images: Images, number: int, train: np.ndarray, val: np.ndarray, out: Path):
        self.images, self.number, self.train, self.val, self.out = images, number, train, val, out
        self.rows = np.concatenate([train, val])
        self.targets = torch.from_numpy(images.targets[train])

    def head(self, name: str, features: Tensor, head: Head = HEAD) -> Tensor:
        """Train a head and return the probabilities of the validation part, (n, K)."""
        x, unseen = features[: len(self.train)], features[len(self.train) :]
        teacher = self._teacher(x) if head.of_teacher else None
        return self.write(name, trained(head, x, self.targets, unseen, teacher=teacher))

    def _teacher(self, x: Tensor) -> Tensor:
        """Return the probabilities of each training image by a head that has not seen its group."""
        groups = self.images.manifest.usable.group_id.to_numpy()[self.train]
        found = torch.zeros(len(x), len(self.images.manifest.classes))
        parts = StratifiedGroupKFold(INNER, shuffle=True, random_state=0).split(x, self.targets, groups)
        for seen, unseen in parts:
            found[unseen] = trained(HEAD, x[seen], self.targets[seen], x[unseen])
        return found

    def write(self, name: str, probabilities: Tensor) -> Tensor:
        area = write_predictions(self.out, name, self.number, self.images.manifest, self.val, probabilities)
        print(f"fold {self.number}, {name}: {area:.3f}", flush=True)
        return probabilities


def phantom_network() -> Any:
    return create_model("usvit_small", n_classes=3, image_size=160, weights="phantom").eval()


@torch.no_grad()
def normalised(images: Images, train: np.ndarray, size: int, share: float) -> Any:
    """Return a network whose statistics are those of the training part, with weight ``share``, and of phantoms."""
    network = phantom_network()
    layers = [layer for layer in network.modules() if isinstance(layer, nn.BatchNorm2d)]
    before = [{name: value.clone() for name, value in layer.state_dict().items()} for layer in layers]
    for layer in layers:
        layer.reset_running_stats()
        layer.momentum = None  # the mean over all batches
        layer.train()
    for view, _ in images.batches(np.random.default_rng(0).permutation(train), size, batch=64):
        network.forward_with_mask(view)
    for layer, values in zip(layers, before, strict=True):
        for name in ("running_mean", "running_var"):
            statistic: Tensor = getattr(layer, name)
            statistic.lerp_(values[name], 1 - share)
    return network.eval()


if __name__ == "__main__":
    main()
