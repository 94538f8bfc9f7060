from .decision_curves import DecisionCurve, decision_curve
from .intervals import Estimate as Estimate
from .of_decisions import (
    PredictiveValues,
    accuracy,
    balanced_accuracy,
    mcnemar,
    predictive_values,
    sensitivity,
    specificity,
)
from .of_scores import Calibration, auc, auc_difference, brier, calibration, sensitivity_at, specificity_at

__all__ = [
    "Calibration",
    "DecisionCurve",
    "Estimate",
    "PredictiveValues",
    "accuracy",
    "auc",
    "auc_difference",
    "balanced_accuracy",
    "brier",
    "calibration",
    "decision_curve",
    "mcnemar",
    "predictive_values",
    "sensitivity",
    "sensitivity_at",
    "specificity",
    "specificity_at",
]
