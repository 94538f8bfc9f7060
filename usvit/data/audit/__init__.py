"""Audit of a data set: problems that are found before any model is trained on it."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .audit_dataset import Audit as Audit
    from .audit_dataset import find_faults as find_faults
    from .flags import MEANINGS as MEANINGS
    from .flags import pixel_flags as pixel_flags
    from .frame_quality import quality as quality
    from .policy_preview import write_preview as write_preview
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
