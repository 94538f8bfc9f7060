"""``usvit review``: cases are read in a browser, blinded or with the model, and a reader study comes out."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .demo import write_demo as write_demo
    from .export import ReviewExport as ReviewExport
    from .export import export_review as export_review
    from .merge import merge_reviews as merge_reviews
    from .progress import review_status as review_status
    from .serve import review as review
    from .settings import QuestionSettings as QuestionSettings
    from .settings import ReviewSettings as ReviewSettings
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
