"""Training of the network that finds the lesion on masks of the training part of a fold (``model.lesion_steps``)."""

from pathlib import Path
from typing import Any

import lightning_fabric
import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from usvit.config.sections import EarlyStoppingConfig, OptimConfig
from usvit.data.loading import Batch, Store, eval_batches, train_batches
from usvit.data.transforms import make_augment
from usvit.experiments.cross_validation_setup import CrossValidationSetup
from usvit.files import write_csv
from usvit.models import mask_loss
from usvit.progress import Progress
from usvit.seeding import derive_seed
from usvit.training import Figures, Trainer, TrainingTask, seed_everything

_BATCH, _RATE = 16, 1e-3
"""Images of a step, and the peak rate of AdamW; the augmentation is ``us``. Ours, not chosen on images."""


class LesionTask(TrainingTask):
    """The loss of the lesion mask (``mask_loss``).

    Args:
        network: Has ``lesion_mask``.
        prepare: Maps images (B, S, S, 3) uint8 to its input.
    """

    def __init__(self, network: nn.Module, prepare: Any):
        self.module, self._prepare = _MaskOnly(network), prepare

    def loss(self, module: nn.Module, portion: Batch, step: int) -> torch.Tensor:
        return mask_loss(module(self._prepare(portion["images"])), portion["lesions"].float() / 255).sum()


class _MaskOnly(nn.Module):
    def __init__(self, network: nn.Module):
        super().__init__()
        self.network: Any = network

    def forward(self, images: torch.Tensor) -> Any:
        return self.network.lesion_mask(images)


def teach_lesions(
    setup: CrossValidationSetup,
    model: Any,
    store: Store,
    at: dict[str, NDArray[np.int64]],
    fold: int,
    fabric: lightning_fabric.Fabric,
    progress: Progress,
    folder: Path,
) -> None:
    """Train the ``lesion_network`` of a fold's network in place, and freeze it again.

    It learns from training images with a mask file alone; the inner validation images choose its step. No test image
    is read. The losses are written to ``lesion-history.csv``.

    Args:
        setup: The resolved run.
        model: The network of the fold (``FrozenFeatures``).
        store: The images and their lesions.
        at: ``train`` and ``val`` -> rows of the images.
        fold: Number of the fold.
        fabric: Device and precision.
        progress: Shows the progress.
        folder: Folder of the fold.
    """
    config, masked = setup.config, setup.manifest.usable.mask_path.notna().to_numpy()
    train, val = (at[part][masked[at[part]]] for part in ("train", "val"))
    assert store.lesions is not None
    network, lesions = model.lesion_network, torch.from_numpy(store.lesions)

    def prepare(images: torch.Tensor) -> torch.Tensor:
        prepared: torch.Tensor = model.to(images.device).for_lesion_network(setup.preprocessing.normalised(images))
        return prepared

    def validate(wrapped: nn.Module) -> Figures:
        total = 0.0
        for start, images in zip(
            range(0, len(val), setup.inference_batch), eval_batches(store, val, setup.inference_batch), strict=True
        ):
            rows = val[start : start + len(images)]
            with torch.no_grad():
                logits = wrapped(prepare(images.to(fabric.device)))
                total += float(mask_loss(logits, lesions[rows].to(logits.device).float() / 255).sum())
        return {"val_loss": total / max(1, len(val)), "val_accuracy": None, "val_auc": None}

    steps = config.model.lesion_steps
    checkpoint = folder / "lesion-state.pt"
    seed_everything(config.seed, "lesion", fold)
    network.requires_grad_(True)
    result = Trainer(
        LesionTask(network, prepare),
        fabric,
        train_batches(
            store,
            train,
            np.zeros(len(train), dtype=np.int64),
            batch_size=_BATCH,
            augment=make_augment("us"),
            seed=derive_seed(config.seed, "lesion", fold),
            workers=config.workers,
            masked=masked,
        ),
        validate,
        train=config.train.model_copy(
            update={
                "steps": steps,
                "epochs": None,
                "batch_size": _BATCH,
                "micro_batch": None,
                "eval_every": max(1, steps // 4),
                "early_stopping": EarlyStoppingConfig(patience=None),
                "ema": None,
                "initial_share": 0.0,
                "loggers": (),  # the figures of the fold are those of its classifier
                "batch_norm": "as_is",
            }
        ),
        optim=OptimConfig(name="adamw", lr=_RATE, weight_decay=0.05, schedule="cosine"),
        checkpoint=checkpoint,
        name=f"{setup.fold_name(fold)}, lesions",
        progress=progress,
    ).fit()
    network.requires_grad_(False)
    network.eval()
    write_csv(folder / "lesion-history.csv", result.history)
    checkpoint.unlink(missing_ok=True)
