"""Explanations of a trained network: attention, saliency maps, and their agreement with lesion masks."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .attention import head_maps as head_maps
    from .attention import rollout_maps as rollout_maps
    from .cases import CaseImages as CaseImages
    from .cases import ExplainedCase as ExplainedCase
    from .cases import PredictionSource as PredictionSource
    from .cases import choose as choose
    from .cases import open_source as open_source
    from .explanation import explain as explain
    from .output import Explanation as Explanation
    from .output import file_name as file_name
    from .saliency import grad_cam as grad_cam
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
