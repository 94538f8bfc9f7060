from .comparison import compare_tables as compare_tables
from .comparison import paired_tables as paired_tables
from .conformal_sets import judged_sets as judged_sets
from .conformal_sets import set_thresholds as set_thresholds
from .conformal_sets import sets_of as sets_of
from .cross_validation_headline import headline_section as headline_section
from .decision_comparison import FIGURES as FIGURES
from .decision_comparison import compare_decisions as compare_decisions
from .decision_comparison import compare_subgroups as compare_subgroups
from .decision_comparison import correct_section as correct_section
from .decision_comparison import judge_non_inferiority as judge_non_inferiority
from .decisions import KEY as KEY
from .decisions import decided_at as decided_at
from .decisions import decided_of as decided_of
from .evaluate_predictions import Predictions, evaluate, open_predictions
from .evaluate_predictions import measure as measure
from .evaluate_predictions import refuse_occupied as refuse_occupied
from .foreign_tables import Columns
from .metrics_record import listed as listed
from .metrics_record import summarise, with_contamination
from .metrics_sections import SUBGROUP_COLUMNS as SUBGROUP_COLUMNS
from .pooled_figures import figure_points as figure_points
from .pooled_figures import figures_with_intervals as figures_with_intervals
from .pooled_figures import mean_and_sd as mean_and_sd
from .prediction_arrays import Rows as Rows
from .prediction_arrays import rows_of as rows_of
from .predictions import SUM_TOLERANCE as SUM_TOLERANCE
from .predictions import check_complete as check_complete
from .predictions import classes_of as classes_of
from .predictions import first_repeat as first_repeat
from .predictions import predictions_table, read_predictions
from .predictions import repeats_of as repeats_of
from .recalibration import NoFit as NoFit
from .recalibration import Temperature as Temperature
from .recalibration import fit_temperature as fit_temperature
from .run_checks import refuse_other_figures as refuse_other_figures
from .run_checks import refuse_other_pool as refuse_other_pool
from .run_checks import refuse_upstream as refuse_upstream
from .thresholds import RULES as RULES
from .thresholds import Choice as Choice
from .thresholds import FoldPoint as FoldPoint
from .thresholds import OperatingPoint as OperatingPoint
from .thresholds import choose_threshold as choose_threshold

__all__ = [
    "Columns",
    "Predictions",
    "evaluate",
    "open_predictions",
    "predictions_table",
    "read_predictions",
    "summarise",
    "with_contamination",
]
