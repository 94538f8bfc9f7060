"""Audit of a data set: problems that are found before any model is trained on it."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .audit_dataset import Audit as Audit
    from .audit_dataset import ClassCount as ClassCount
    from .audit_dataset import find_faults as find_faults
    from .flags import MEANINGS as MEANINGS
    from .flags import pixel_flags as pixel_flags
    from .frame_quality import grey_levels as grey_levels
    from .frame_quality import quality as quality
    from .policy_preview import write_preview as write_preview
    from .review import MAX_PAIRS as MAX_PAIRS
    from .review import AuditReview as AuditReview
    from .review import ReviewedPairs as ReviewedPairs
    from .review import SizeSpread as SizeSpread
    from .review import choose_for_review as choose_for_review
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
