from .attention import head_maps as head_maps
from .attention import rollout_maps as rollout_maps
from .explanation import METHODS as METHODS
from .explanation import Explanation as Explanation
from .explanation import explain as explain
from .saliency import grad_cam as grad_cam
