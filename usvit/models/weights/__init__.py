"""Initial weights: finding, reading and loading them.

``resolve`` finds them, ``hub`` downloads those of the Hugging Face hub, ``read`` parses files that are not trusted,
``flax`` and ``renaming`` give the tensors timm's names, ``resize`` resizes position and patch embeddings, and ``load``
copies them into the network and reports what was loaded.
"""

from usvit.models.weights.load import LoadReport, load_checkpoint
from usvit.models.weights.read import FILE_SUFFIXES, Checkpoint, parse_weights, read_state_dict, refuse_endless
from usvit.models.weights.resolve import Weights, resolve_weights

__all__ = [
    "FILE_SUFFIXES",
    "Checkpoint",
    "LoadReport",
    "Weights",
    "load_checkpoint",
    "parse_weights",
    "read_state_dict",
    "refuse_endless",
    "resolve_weights",
]
