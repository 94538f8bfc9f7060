"""Experiments from configuration to run directory: cross-validation, hold-out, pre-training, transfer, and tests."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .api import cross_validate as cross_validate
    from .api import run_config as run_config
    from .api import train as train
    from .arguments import Settings as Settings
    from .arguments import call_text as call_text
    from .arguments import given_settings as given_settings
    from .arguments import name_in as name_in
    from .base import Experiment as Experiment
    from .base import in_runs as in_runs
    from .base import learnt_from_record as learnt_from_record
    from .base import model_record as model_record
    from .base import new_record as new_record
    from .base import tensor_bytes as tensor_bytes
    from .base import write_model as write_model
    from .cross_validation import CrossValidation as CrossValidation
    from .cross_validation_setup import CrossValidationSetup as CrossValidationSetup
    from .cross_validation_setup import adapt as adapt
    from .cross_validation_setup import default_out as default_out
    from .cross_validation_setup import new_model_with_report as new_model_with_report
    from .cross_validation_setup import prepare as prepare
    from .cross_validation_setup import run_sections as run_sections
    from .ensembles.api import ensemble as ensemble
    from .ensembles.members import KINDS as KINDS
    from .ensembles.members import Member as Member
    from .ensembles.members import open_member as open_member
    from .ensembles.members import refuse_other_folds as refuse_other_folds
    from .factory import make_experiment as make_experiment
    from .model_metadata import Learnt as Learnt
    from .model_metadata import Statistics as Statistics
    from .model_metadata import TrainedSetup as TrainedSetup
    from .model_metadata import common_entries as common_entries
    from .run_directory import RunDirectory as RunDirectory
    from .run_directory import RunResult as RunResult
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
