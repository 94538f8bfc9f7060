"""Models that are passed on: the files of a model folder, their signature, and places to push to and pull from."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .model_files import FILE as FILE
    from .pull import pull_model as pull_model
    from .push import Pushed as Pushed
    from .push import push_model as push_model
    from .signature import refuse_unsigned as refuse_unsigned
    from .signature import sign_model as sign_model
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
