"""Test-retest: how far the scores of a network differ between repeats of one image, lesion or frame."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .of_changes import retest as retest
    from .of_repeats import repeatability as repeatability
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
