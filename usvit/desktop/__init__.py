"""``usvit app``: a page on this machine in which images are scored, read and tested without a shell."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .serve import open_app as open_app
    from .settings import AppSettings as AppSettings
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
