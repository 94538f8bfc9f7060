"""Initial weights: finding, reading and loading them.

``sources`` lists where they can come from, ``resolve`` finds them, ``hub`` downloads those of the Hugging Face hub,
``packages`` finds those of installed Python packages, ``read`` parses files that are not trusted,
``flax`` and ``renaming`` give the tensors timm's names, ``resize`` resizes position and patch embeddings, and ``load``
copies them into the network and reports what was loaded.
"""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .load import LoadReport as LoadReport
    from .load import load_checkpoint as load_checkpoint
    from .read import FILE_SUFFIXES as FILE_SUFFIXES
    from .read import Checkpoint as Checkpoint
    from .read import parse_weights as parse_weights
    from .read import read_state_dict as read_state_dict
    from .read import refuse_endless as refuse_endless
    from .resolve import Weights as Weights
    from .resolve import resolve_weights as resolve_weights
    from .sources import WeightSource as WeightSource
    from .sources import weight_sources as weight_sources
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
