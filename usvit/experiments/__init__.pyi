from .api import cross_validate, train
from .api import run_config as run_config
from .base import Experiment
from .cross_validation import CrossValidation as CrossValidation
from .cross_validation_setup import default_out as default_out
from .factory import make_experiment as make_experiment
from .run_directory import RunResult
from .upstream_api import pretrain, pretrain_sweep, test, transfer
from .upstream_api import transfer_settings as transfer_settings

__all__ = ["Experiment", "RunResult", "cross_validate", "pretrain", "pretrain_sweep", "test", "train", "transfer"]
