"""Where a network's first weights come from, and how they get into it.

``resolve`` finds and reads them, ``read`` parses files that are not trusted, ``flax`` and ``names`` give the tensors
timm's names, ``resize`` fits position and patch embeddings, ``load`` puts them in and reports what happened.
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
