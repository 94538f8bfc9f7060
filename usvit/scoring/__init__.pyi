from .external.evaluation import evaluate_scores as evaluate_scores
from .external.labels import LabelTable as LabelTable
from .external.recalibration import recalibrate_scores as recalibrate_scores
from .job import ScoringResult as ScoringResult
from .job import score as score
from .predictor import Predictor as Predictor
from .predictor import load_model as load_model
