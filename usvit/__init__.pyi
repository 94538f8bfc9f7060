from . import data as data
from . import metrics as metrics
from . import models as models
from . import training as training
from .bench import benchmark as benchmark
from .data import load_dataset as load_dataset
from .data.datasets import split as split
from .evaluation import evaluate as evaluate
from .experiments import RunResult as RunResult
from .experiments import cross_validate as cross_validate
from .experiments import pretrain as pretrain
from .experiments import test as test
from .experiments import train as train
from .experiments import transfer as transfer
from .explaining import explain as explain
from .exporting import export as export
from .models import create_model as create_model
from .models import list_models as list_models
from .reports import audit as audit
from .reports import compare as compare
from .scaling import plan_shapes as plan_shapes
from .scoring import Predictor as Predictor
from .scoring import load_model as load_model
from .scoring import score as score
from .studies import list_studies as list_studies
from .studies import run_study as run_study

__version__: str
