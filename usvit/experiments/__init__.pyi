from .api import cross_validate, train
from .api import run_config as run_config
from .base import Experiment
from .cross_validation import CrossValidation as CrossValidation
from .cross_validation_setup import default_out as default_out
from .ensembles.api import ensemble
from .ensembles.members import KINDS as KINDS
from .ensembles.members import Member as Member
from .ensembles.members import open_member as open_member
from .ensembles.members import refuse_other_folds as refuse_other_folds
from .factory import make_experiment as make_experiment
from .run_directory import RunResult
from .upstream_api import pretrain, pretrain_sweep, test, transfer
from .upstream_api import transfer_settings as transfer_settings

__all__ = [
    "Experiment",
    "RunResult",
    "cross_validate",
    "ensemble",
    "pretrain",
    "pretrain_sweep",
    "test",
    "train",
    "transfer",
]
