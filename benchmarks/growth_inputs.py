"""Cheap inputs of any size for ``benchmarks.growth``, and calls of single parts of usvit."""

import dataclasses
import os
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import yaml

HEIGHT, WIDTH = 72, 96
CLASSES = ("benign", "malignant")
COPY_EVERY = 20
"""Every so many images, one is a near-duplicate of the image before it: cropped, of the same patient."""
SEEDS = 4
"""Seeds of a study, so that a study of n runs has n / 4 rows."""


def make_images(folder: Path, n: int) -> None:
    """Write ``n`` different grey PNG images of random texture: ``folder/00/000000.png``.

    The texture is noise at two scales, different in every image. Image k is the same whatever ``n`` is.
    """
    previous = np.zeros((HEIGHT, WIDTH), np.uint8)
    for number in range(n):
        rng = np.random.default_rng(number)
        coarse = rng.integers(0, 256, (HEIGHT // 6, WIDTH // 6), dtype=np.uint8)
        texture = cv2.resize(coarse, (WIDTH, HEIGHT), interpolation=cv2.INTER_CUBIC)
        noise = rng.integers(0, 60, (HEIGHT, WIDTH), dtype=np.uint8)
        image = np.asarray(cv2.addWeighted(texture, 0.8, noise, 0.6, 0), np.uint8)
        if number % COPY_EVERY == COPY_EVERY - 1:
            image = np.ascontiguousarray(previous[4:-3, 5:-4])
        path = folder / f"{number // 500:02d}" / f"{number:06d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path), image, [cv2.IMWRITE_PNG_COMPRESSION, 1])
        previous = image


def make_dataset(pool: Path, folder: Path, n: int) -> Path:
    """Make a data set of the first ``n`` images of a pool: hard links below ``images``, and ``images.csv`` beside.

    Two images in a row are of one patient and one class.
    """
    names = [f"{number // 500:02d}/{number:06d}.png" for number in range(n)]
    for name in names:
        path = folder / "images" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        os.link(pool / name, path)
    patient = np.arange(n) // 2
    table = {
        "path": [f"images/{name}" for name in names],
        "label": np.array(CLASSES)[patient % 2],
        "patient_id": patient,
    }
    pd.DataFrame(table).to_csv(folder / "images.csv", index=False)
    return folder


def make_predictions(path: Path, n: int) -> Path:
    """Write a table of ``n`` predictions in five folds, of n / 2 patients and two devices, with an AUC of about 0.8."""
    rng = np.random.default_rng(0)
    patient = np.arange(n) // 2
    label = patient % 2
    prob = 1 / (1 + np.exp(-(1.2 * (label - 0.5) + rng.normal(size=n))))
    path.parent.mkdir(parents=True, exist_ok=True)
    columns = {"image_id": np.arange(n), "patient_id": patient, "fold": patient % 5, "device": patient % 7 % 2}
    table = pd.DataFrame(columns | {"label": np.array(CLASSES)[label]})
    table.assign(prob_benign=1 - prob, prob_malignant=prob).to_csv(path, index=False)
    return path


def make_study(path: Path, n: int) -> Path:
    """Write a study of ``n`` runs in n / 4 rows: one network, with as many learning rates."""
    blocks = [
        {
            "datasets": ["phantom"],
            "models": ["timm:test_resnet"],
            "recipes": ["demo"],
            "variant": f"rate{number}",
            "settings": {"optim.lr": 1e-5 * (number + 1), "train.steps": 6},
        }
        for number in range(n // SEEDS)
    ]
    columns = ["accuracy", "auc_macro_ovr", "sensitivity.positive"]
    study = {"name": "growth", "title": "Growth", "columns": columns, "seeds": list(range(SEEDS)), "grid": blocks}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump(study))
    return path


def resample(n_resamples: int, n_images: int = 500) -> None:
    """Compute all figures of ``n_images`` predictions with intervals of ``n_resamples`` bootstrap resamples."""
    from usvit.metrics.bootstrap import figure_values

    rng = np.random.default_rng(0)
    label, group = np.arange(n_images) // 2 % 2, np.arange(n_images) // 2
    prob = np.clip(0.5 + 0.2 * (label - 0.5) + rng.normal(0, 0.15, n_images), 0, 1)
    figure_values(label, np.stack([1 - prob, prob], 1), group, classes=CLASSES, n_resamples=n_resamples)


def read_pixels(folder: Path, n: int, image_size: int, memory_gb: float) -> None:
    """Decode ``n`` images into a ``PixelStore``, and read them twice in batches, as training does.

    Args:
        folder: a data set, whose images are repeated.
        n: number of images.
        image_size: side of the stored images in pixels.
        memory_gb: limit of the pixels in memory.
    """
    from usvit.data.datasets import build_manifest
    from usvit.data.loading import PixelStore, eval_batches
    from usvit.data.transforms import Preprocessing
    from usvit.progress import NO_PROGRESS

    manifest = build_manifest("table", {"": folder}, NO_PROGRESS, near_duplicates=False)
    repeated = manifest.table.iloc[np.arange(n) % len(manifest.table)].reset_index(drop=True)
    preprocessing = Preprocessing(image_size, "squash", (0.5,) * 3, (0.5,) * 3, "whole")
    store = PixelStore.build(
        dataclasses.replace(manifest, table=repeated),
        preprocessing,
        memory_gb=memory_gb,
        folder=folder,
        progress=NO_PROGRESS,
    )
    for _ in range(2):
        for batch in eval_batches(store, np.random.default_rng(0).permutation(len(store)), 32):
            batch.max()
