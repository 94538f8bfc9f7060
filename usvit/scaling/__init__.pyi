from .planning import ShapePlan as ShapePlan
from .planning import plan_shapes as plan_shapes
