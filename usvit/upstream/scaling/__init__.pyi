from .fitting import ShapeFit as ShapeFit
from .fitting import fit_shapes as fit_shapes
from .planning import ShapePlan as ShapePlan
from .planning import plan_shapes as plan_shapes
from .prediction import ShapePrediction as ShapePrediction
from .prediction import predict_shape as predict_shape
from .simulation import example_sweep as example_sweep
