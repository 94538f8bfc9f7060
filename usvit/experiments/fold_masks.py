"""Lesion masks that a fold's decoder predicts for its test images, compared with the true ones at the original size."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch.nn import functional as F

import usvit.evaluation as evaluation
from usvit.data.datasets import decode_unchanged, mask_names
from usvit.data.io import read_masks
from usvit.data.loading import eval_batches
from usvit.errors import UsvitError
from usvit.experiments.cross_validation_setup import CrossValidationSetup
from usvit.experiments.fold_training import TrainedFold
from usvit.records import MaskEstimates

MASKS = "masks.csv"
KEYS = {"dataset": str, "image_id": str, "group_id": str, "label": str}
_SHARE = 0.5
"""Predicted probability of the lesion above which a pixel belongs to the predicted mask."""


def fold_masks(setup: CrossValidationSetup, fold: int, trained: TrainedFold, device: Any) -> pd.DataFrame:
    """Compare the predicted masks of the fold's test images, of those with a mask file, with the true ones.

    Returns:
        One row per image: ``dataset``, ``image_id``, ``group_id``, ``label``, ``fold``; ``lesion_pixels`` and
        ``predicted_pixels`` at the image's size; ``dice``, ``iou``, ``pixel_accuracy``, ``hd95`` (pixels).

    Raises:
        BadImage: An image or a mask has changed since the manifest was built.
    """
    rows = setup.manifest.usable
    at = np.array([row for row in trained.at["test"] if mask_names(rows.mask_path.iloc[row])], dtype=np.int64)
    module: Any = trained.task.module.to(device).eval()
    size, found = setup.preprocessing.image_size, []
    with torch.inference_mode():
        done = 0
        for batch in eval_batches(trained.subject.store, at, setup.inference_batch):
            _, logits = module.with_mask(trained.subject.prepare(batch.to(device)))
            shares = F.interpolate(logits.float().sigmoid()[:, None], size=(size, size), mode="bilinear")[:, 0]
            for row, share in zip(at[done : done + len(batch)], shares.cpu().numpy(), strict=True):
                found.append({"fold": fold, **_agreement(setup, rows.iloc[row], share)})
            done += len(batch)
    named = rows.iloc[at][list(KEYS)].reset_index(drop=True)
    return pd.concat([named, pd.DataFrame(found)], axis=1)


def _agreement(setup: CrossValidationSetup, row: Any, share: NDArray[np.float32]) -> dict[str, Any]:
    from usvit.metrics.overlap import mask_agreement  # on use: the statistics take a second to import

    manifest = setup.manifest
    image, tissue, _ = decode_unchanged(manifest.image_path(row), int(row.frame), row.sha256)
    shape = (image.shape[0], image.shape[1])
    true = read_masks([manifest.roots[row.dataset] / name for name in mask_names(row.mask_path)], shape)
    predicted = setup.preprocessing.restored(share, shape, tissue) > _SHARE
    pixels = {"lesion_pixels": int(true.sum()), "predicted_pixels": int(predicted.sum())}
    return pixels | asdict(mask_agreement(predicted, true))


def pooled_masks(files: Sequence[Path]) -> pd.DataFrame:
    """Read and join the tables of the folds.

    Raises:
        UsvitError: A table is missing.
    """
    for file in files:
        if not file.is_file():
            raise UsvitError(
                f"{file} is missing, although the fold is finished. Delete the folder {file.parent}; the same command "
                "then trains this fold again."
            )
    return pd.concat([pd.read_csv(file, dtype=KEYS) for file in files], ignore_index=True)


def mask_record(table: pd.DataFrame) -> MaskEstimates:
    """Average the figures of the images, with intervals that count groups (``usvit.evaluation.mask_estimates``)."""
    return MaskEstimates(n_images=len(table), **evaluation.mask_estimates(table))
