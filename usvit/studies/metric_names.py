"""Names of figures in a study, their titles, and their places in the results of runs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from usvit.errors import UsvitError, unknown

if TYPE_CHECKING:
    from usvit.records import MetricsRecord, Value

OVERALL = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "auc_macro_ovr": "AUC, macro one vs rest",
    "auc_weighted_ovr": "AUC, weighted one vs rest",
    "auc_hand_till": "AUC, Hand-Till",
    "mcc": "MCC",
    "f1_macro": "F1, macro",
    "average_precision_macro": "average precision, macro",
    "brier": "Brier score",
    "log_loss": "log loss",
}
"""Figures over all classes, of ``cv`` and ``train``."""

OF_CLASS = {
    "auc": "AUC",
    "average_precision": "average precision",
    "sensitivity": "sensitivity",
    "specificity": "specificity",
    "ppv": "PPV",
    "npv": "NPV",
    "f1": "F1",
    "brier_vs_rest": "Brier score",
}
"""Figures of one class, of ``cv`` and ``train``: ``sensitivity.malignant``; ``.positive`` is the positive class of each
run's data."""

OF_NETWORK = {"params": "parameters (millions)", "macs": "MACs (billions)"}
"""Counts of the row's network with a head of 1,000 classes; no run is needed."""

OF_PRETRAIN = {"val_accuracy": "accuracy on validation images", "val_loss": "loss on validation images"}
OF_TRANSFER = {
    "accuracy": "accuracy",
    "mean_class_accuracy": "mean accuracy per class",
    "mean_average_precision": "mAP",
    "map_conditioned": "mAP, conditioned on the coarse class",
    "map_oracle": "mAP, coarse class known",
    "val_accuracy": "accuracy on validation images",
}
OF_TEST = {
    "accuracy": "top-1 accuracy",
    "top5": "top-5 accuracy",
    "mean_class_accuracy": "mean accuracy per class",
    "nll": "negative log-likelihood",
    "ece": "expected calibration error",
}
OF_BENCH = {"images_per_second": "images/s", "peak_memory_gb": "peak memory (GB)"}
