"""Scaling laws of a network's shape (Alabdulmohsin et al. 2023, Getting ViT in shape).

``planning`` writes a sweep of shapes as a study, ``fitting`` fits the loss as a function of shape and compute, and
``prediction`` derives the best shape for a compute budget.
"""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .document import fit_document as fit_document
    from .document import shape_document as shape_document
    from .fitting import ShapeFit as ShapeFit
    from .fitting import fit_shapes as fit_shapes
    from .planning import ShapePlan as ShapePlan
    from .planning import plan_shapes as plan_shapes
    from .prediction import ShapePrediction as ShapePrediction
    from .prediction import predict_shape as predict_shape
    from .simulation import example_sweep as example_sweep
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
