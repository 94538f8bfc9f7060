"""Lines that several commands print."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from usvit.records import RunRecord


def go_on(path: Path, record: "RunRecord") -> str:
    """Return the command that starts from a run of pre-training or transfer, with the settings of its network.

    The head is new there, so the hidden layer of a pre-training head is not one of them.

    Args:
        path: the run's folder.
        record: the content of its ``run.json``.
    """
    config, model = record.config, record.model
    sources = str((config.source or {}).get("name")).split("+")
    dataset = "DATASET"
    # Only pre-training fits folds of the same data set; a transfer was trained on images of a hold-out.
    if record.kind == "pretrain" and config.data and "data" in sources:
        dataset = config.data.dataset or dataset
    words = ["usvit", "cv", "--dataset", dataset, "--model", model.name or "MODEL", "--weights", str(path)]
    for key, value in model.vit.items():
        if key == "head":
            continue
        words += ["--set", f"model.vit.{key}={value}"]
    return shlex.join(words)
