from .api import cross_validate, pretrain, pretrain_sweep, test, train, transfer
from .api import make_experiment as make_experiment
from .api import transfer_settings as transfer_settings
from .base import Experiment
from .cross_validation import CrossValidation as CrossValidation
from .cross_validation_setup import default_out as default_out
from .run_directory import RunResult

__all__ = ["Experiment", "RunResult", "cross_validate", "pretrain", "pretrain_sweep", "test", "train", "transfer"]
