"""Names of figures in a study, their titles, and their places in the results of runs."""

import re
from typing import TYPE_CHECKING

from usvit.figure_table import FIGURES

if TYPE_CHECKING:
    from usvit.estimate import Estimate
    from usvit.records import MetricsRecord

OVERALL = {row.key: row.title for row in FIGURES if not row.of_class}
"""Figures over all classes, of ``cv`` and ``train``."""

OF_CLASS = {row.key: row.title for row in FIGURES if row.of_class}
"""Figures of one class, of ``cv`` and ``train``: ``sensitivity.malignant``; ``.positive`` is the positive class of each
run's data."""

OF_NETWORK = {
    "params": "parameters (millions)",
    "macs": "MACs (billions)",
    "width": "width",
    "depth": "depth",
    "mlp": "MLP width",
}
"""Counts of the row's network with a head of 1,000 classes, and the shape of a plain ViT; no run is needed."""

OF_LENGTH = {"gflops": "compute of the training (GFLOPs)"}
"""Figure of ``pretrain`` that follows from the run's settings: 6 FLOPs per MAC of the network without its head, for
each example; frozen networks have 2."""
OF_PRETRAIN = {
    "val_accuracy": "accuracy on validation images",
    "val_loss": "loss on validation images",
    **OF_LENGTH,
}
OF_TRANSFER = {
    "accuracy": "accuracy",
    "mean_class_accuracy": "mean accuracy per class",
    "mean_average_precision": "mAP",
    "map_conditioned": "mAP, conditioned on the coarse class",
    "map_oracle": "mAP, coarse class known",
    "val_accuracy": "accuracy on validation images",
    "image_to_text": "recall of the own text",
    "text_to_image": "recall of the own image",
    "miou": "mean IoU",
    "dice": "Dice coefficient",
    "hd95": "95 % Hausdorff distance (pixels)",
}
"""``image_to_text.1`` is the recall at 1 of a transfer ``text``; the last three are of ``segment``."""
OF_TEST = {
    "accuracy": "top-1 accuracy",
    "top5": "top-5 accuracy",
    "mean_class_accuracy": "mean accuracy per class",
    "nll": "negative log-likelihood",
    "ece": "expected calibration error",
    "disagreement": "share of different decisions",
}
"""``disagreement`` is between the two classifiers (or heads) of a test; of a single one, it is the error."""
OF_BENCH = {"images_per_second": "images/s", "peak_memory_gb": "peak memory (GB)"}

LINES = {"halves": "random halves", "conditioned": "random halves, conditioned"}
"""Part of a figure's name -> line of the table of ``separability``: ``accuracy.halves``."""
RECALL = {"image_to_text": "image", "text_to_image": "text"}
"""Figure of a transfer ``text`` -> what it asks with."""
_BEST_OF = re.compile(r"best_of_(\d+)")
EPOCH = re.compile(r"[1-9]\d*")


def line_of(part: str) -> str:
    """Return the line of a transfer's table for the part of a figure's name: ``10-shot`` for 10."""
    if searched := _BEST_OF.fullmatch(part):
        return f"best of {searched[1]}"
    return LINES.get(part, f"{part}-shot")


def title_of(name: str) -> str:
    """Return the title of a figure: ``AUC, macro one vs rest`` or ``sensitivity, malignant``."""
    head, _, part = name.partition(".")
    if part and head in OF_CLASS:
        return f"{OF_CLASS[head]}, {part}"
    known = OVERALL | OF_NETWORK | OF_PRETRAIN | OF_TRANSFER | OF_TEST | OF_BENCH | OVERALL
    if not part:
        return known[head]
    if _BEST_OF.fullmatch(part):
        return f"{known[head]}, {line_of(part)} random cells"
    if head in OF_PRETRAIN and EPOCH.fullmatch(part):
        return f"{known[head]}, epoch {part}"
    if head in RECALL:
        return f"{known[head]}, first {part}"
    return f"{known[head]}, {LINES.get(part, f'{part} images of each class')}"


def value_of(metrics: "MetricsRecord", name: str) -> "Estimate | None":
    """Return the figure of a ``metrics.json`` that should be quoted, or None.

    It is the figure of the headline (the mean within folds) if the headline has it, otherwise the pooled figure.
    """
    head, _, of_class = name.partition(".")
    headline: Estimate | None = getattr(metrics.headline, head, None)
    if headline is not None and of_class in ("", "positive", metrics.positive_class):
        return headline
    pooled: dict[str, Estimate] | Estimate = getattr(metrics.pooled, head)
    if not isinstance(pooled, dict):
        return pooled
    chosen = metrics.positive_class if of_class == "positive" else of_class
    return pooled.get(f"{chosen}_vs_rest" if head == "auc" else chosen)
