"""Two sets in the layout of a phantom, of quickly drawn images, and settings of networks that train in a second."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

NEAR, FAR = "near scanner", "far scanner"
CLASSES = ("benign", "malignant", "normal")
TINY = {
    "model": "timm:test_resnet",
    "recipe": "demo",
    "sizes": [10, 500],
    "draws": 6,
    "model__image_size": 32,
    "split__folds": 3,
    "train__steps": 3,
    "device": "cpu",
    "precision": "fp32",
}
"""Arguments of a measurement of seconds."""


def write_set(folder: Path, seed: int, device: str, patients: int = 48) -> Path:
    """Write two images of each patient: noise, with a spot that is brighter in malignant ones."""
    rng, rows = np.random.default_rng(seed), []
    for label in CLASSES:
        (folder / label).mkdir(parents=True)
    for patient in range(patients):
        label = CLASSES[patient % 3]
        for view in (1, 2):
            image = rng.normal(90, 30, (64, 64))
            image[20:44, 20:44] += {"benign": 30, "malignant": 90, "normal": 0}[label]
            name = f"p{patient:03d}-v{view}"
            Image.fromarray(np.clip(image, 0, 255).astype(np.uint8)).save(folder / label / f"{name}.png")
            ids = {"image_id": name, "label": label, "patient_id": f"p{patient:03d}", "path": f"{label}/{name}.png"}
            rows.append({**ids, "mask_path": "", "pixel_spacing_mm": 0.5, "device": device})
    pd.DataFrame(rows).to_csv(folder / "phantom.csv", index=False)
    return folder


@pytest.fixture(scope="session")
def scanners(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scanners")
    write_set(folder / "near", 1, NEAR)
    write_set(folder / "far", 2, FAR)
    return folder
