from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from usvit.evaluation.predictions import predictions_table

CLASSES = ["benign", "malignant", "normal"]


@pytest.fixture
def make_table() -> Callable[..., pd.DataFrame]:
    """Predictions from labels and probabilities, written down as a test wants them."""

    def make(
        labels: list[str], prob: list[list[float]], classes: list[str], *, folds=None, groups=None, part="test"
    ) -> pd.DataFrame:
        n = len(labels)
        ids = [f"image ({i})" for i in range(n)]
        return pd.DataFrame(
            {
                "image_id": ids,
                "group_id": groups or ids,
                "patient_id": None,
                "dataset": "busi",
                "fold": folds if folds is not None else 0,
                "part": part,
                "label": labels,
                **{f"prob_{name}": np.asarray(prob, dtype=float)[:, k] for k, name in enumerate(classes)},
            }
        )

    return make


@pytest.fixture
def study() -> pd.DataFrame:
    """Five folds of 40 images, three classes, a classifier that is right more often than not."""
    return make_study(seed=0)


def make_study(seed: int, n: int = 200, n_folds: int = 5) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    codes = rng.permutation(np.repeat([0, 1, 2], [n // 2, n // 4, n - n // 2 - n // 4]))
    rows = pd.DataFrame(
        {
            "image_id": [f"{i:06d}" for i in range(n)],
            "group_id": [f"p{i // 2}" for i in range(n)],
            "patient_id": [f"{i // 2:04d}" if i % 3 else None for i in range(n)],
            "dataset": "busi",
            "label": [CLASSES[k] for k in codes],
        }
    )
    logits = rng.normal(size=(n, 3)).astype(np.float32) + 1.5 * np.eye(3, dtype=np.float32)[codes]
    fold = (np.arange(n) // 2) % n_folds
    tables = [
        predictions_table(rows[fold == k], logits[fold == k], classes=CLASSES, fold=k, part="test")
        for k in range(n_folds)
    ]
    return pd.concat(tables, ignore_index=True)


def with_inner_rows(study: pd.DataFrame) -> pd.DataFrame:
    """Add inner validation rows: the images of the next fold, as a model of this one might have scored them."""
    rng = np.random.default_rng(1)
    inner = study.assign(fold=(study["fold"] - 1) % 5, part="val").drop(columns=[n for n in study if "logit" in n])
    prob = [f"prob_{name}" for name in ("benign", "malignant", "normal")]
    noisy = inner[prob].to_numpy() * np.exp(0.3 * rng.normal(size=(len(inner), 3)))
    inner[prob] = noisy / noisy.sum(axis=1, keepdims=True)
    return pd.concat([study.drop(columns=[n for n in study if "logit" in n]), inner], ignore_index=True)
