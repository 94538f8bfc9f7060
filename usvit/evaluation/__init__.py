"""From predictions to metrics: what reads tables and run directories, and computes every figure of metrics.json."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .birads import DIVIDED as DIVIDED
    from .birads import INCOMPLETE as INCOMPLETE
    from .birads import KNOWN_CANCER as KNOWN_CANCER
    from .candidates import CandidateScores as CandidateScores
    from .candidates import Members as Members
    from .conformal_sets import judged_sets as judged_sets
    from .conformal_sets import set_thresholds as set_thresholds
    from .conformal_sets import sets_of as sets_of
    from .decision_comparison import AREA as AREA
    from .decisions import decided_at as decided_at
    from .decisions import decided_of as decided_of
    from .decisions import points_of as points_of
    from .ensembles import RECORD as RECORD
    from .ensembles import is_ensemble as is_ensemble
    from .ensembles import load_ensemble as load_ensemble
    from .ensembles import network_folder as network_folder
    from .evaluate_predictions import USUAL_COLUMNS as USUAL_COLUMNS
    from .evaluate_predictions import Predictions as Predictions
    from .evaluate_predictions import at_units as at_units
    from .evaluate_predictions import evaluate as evaluate
    from .evaluate_predictions import measure as measure
    from .evaluate_predictions import open_predictions as open_predictions
    from .evaluate_predictions import units_to_use as units_to_use
    from .evaluation_folder import refuse_occupied as refuse_occupied
    from .evaluation_folder import write_evaluation as write_evaluation
    from .flow import flow_steps as flow_steps
    from .foreign_tables import Columns as Columns
    from .foreign_tables import read_raw as read_raw
    from .headline_words import PredictionOrigin as PredictionOrigin
    from .local_recalibration import SiteImages as SiteImages
    from .local_recalibration import recalibration_draws as recalibration_draws
    from .local_recalibration import size_problem as size_problem
    from .masks import grouped_mean as grouped_mean
    from .masks import grouped_share as grouped_share
    from .masks import mask_estimates as mask_estimates
    from .masks import mask_values as mask_values
    from .metrics_record import IMAGES as IMAGES
    from .metrics_record import summarise as summarise
    from .metrics_record import with_contamination as with_contamination
    from .metrics_sections import SUBGROUP_COLUMNS as SUBGROUP_COLUMNS
    from .prediction_arrays import Rows as Rows
    from .prediction_arrays import rows_of as rows_of
    from .predictions import SUM_TOLERANCE as SUM_TOLERANCE
    from .predictions import check_complete as check_complete
    from .predictions import check_units as check_units
    from .predictions import classes_of as classes_of
    from .predictions import first_repeat as first_repeat
    from .predictions import predictions_table as predictions_table
    from .predictions import read_predictions as read_predictions
    from .predictions import repeats_of as repeats_of
    from .reader_answers import read_answers as read_answers
    from .reader_study import analyse_answers as analyse_answers
    from .readers import read_readers as read_readers
    from .readers_comparison import compare_with_readers as compare_with_readers
    from .recalibration import NoFit as NoFit
    from .recalibration import Temperature as Temperature
    from .recalibration import fit_temperature as fit_temperature
    from .repeatability import ScorePairs as ScorePairs
    from .repeatability import change_section as change_section
    from .repeatability import most_flips as most_flips
    from .repeatability import repeats_section as repeats_section
    from .run_checks import refuse_other_figures as refuse_other_figures
    from .run_checks import refuse_other_pool as refuse_other_pool
    from .run_checks import refuse_upstream as refuse_upstream
    from .run_comparison import compare_predictions as compare_predictions
    from .run_comparison import names_of as names_of
    from .run_comparison import open_all as open_all
    from .tables_beside_runs import open_beside as open_beside
    from .thresholds import RULES as RULES
    from .thresholds import Choice as Choice
    from .thresholds import choose_threshold as choose_threshold
    from .units import attended as attended
    from .units import calibrated_units as calibrated_units
    from .units import identified as identified
    from .units import pooled_prob as pooled_prob
    from .units import refuse_missing_units as refuse_missing_units
    from .units import settings_of as settings_of
    from .units import units_of as units_of
    from .units import with_unit_columns as with_unit_columns
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
