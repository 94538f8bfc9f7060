"""Statistics on arrays, each with its 95 % confidence interval; images of one group (patient) count together."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .decision_curves import DecisionCurve as DecisionCurve
    from .decision_curves import decision_curve as decision_curve
    from .intervals import Estimate as Estimate
    from .of_decisions import PredictiveValues as PredictiveValues
    from .of_decisions import accuracy as accuracy
    from .of_decisions import balanced_accuracy as balanced_accuracy
    from .of_decisions import mcnemar as mcnemar
    from .of_decisions import predictive_values as predictive_values
    from .of_decisions import sensitivity as sensitivity
    from .of_decisions import specificity as specificity
    from .of_scores import Calibration as Calibration
    from .of_scores import auc as auc
    from .of_scores import auc_difference as auc_difference
    from .of_scores import brier as brier
    from .of_scores import calibration as calibration
    from .of_scores import sensitivity_at as sensitivity_at
    from .of_scores import specificity_at as specificity_at
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
