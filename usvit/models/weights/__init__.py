"""Initial weights: finding, reading and loading them.

``sources`` lists where they can come from, ``resolve`` finds them, ``hub`` downloads those of the Hugging Face hub,
``packages`` finds those of installed Python packages, ``read`` parses files that are not trusted,
``flax`` and ``renaming`` give the tensors timm's names, ``resize`` resizes position and patch embeddings, and ``load``
copies them into the network and reports what was loaded.
"""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .initial import Weights as Weights
    from .load import HIDDEN as HIDDEN
    from .load import LoadReport as LoadReport
    from .load import head_of as head_of
    from .load import load_checkpoint as load_checkpoint
    from .pins import pin_of as pin_of
    from .read import FILE_SUFFIXES as FILE_SUFFIXES
    from .read import Checkpoint as Checkpoint
    from .read import parse_weights as parse_weights
    from .read import read_state_dict as read_state_dict
    from .read import refuse_endless as refuse_endless
    from .renaming import RenamedState as RenamedState
    from .renaming import by_timm as by_timm
    from .renaming import to_network_names as to_network_names
    from .resolve import hub_entry as hub_entry
    from .resolve import is_named as is_named
    from .resolve import resolve_weights as resolve_weights
    from .run_folds import fold_folders as fold_folders
    from .run_folds import only_fold as only_fold
    from .run_folds import read_beside as read_beside
    from .sources import WeightSource as WeightSource
    from .sources import weight_sources as weight_sources
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
