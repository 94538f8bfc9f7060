from .attention import head_maps as head_maps
from .attention import rollout_maps as rollout_maps
from .explanation import explain as explain
from .methods import METHODS as METHODS
from .output import Explanation as Explanation
from .saliency import grad_cam as grad_cam
