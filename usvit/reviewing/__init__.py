"""``usvit review``: cases are read in a browser, blinded or with the model, and a reader study comes out."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .demo import write_demo as write_demo
    from .export import ReviewExport as ReviewExport
    from .export import export_review as export_review
    from .guard import PageGuard as PageGuard
    from .guard import cookie_of as cookie_of
    from .guard import entered as entered
    from .guard import error_answer as error_answer
    from .guard import not_found as not_found
    from .guard import page_answer as page_answer
    from .guard import page_files as page_files
    from .guard import refuse_constant as refuse_constant
    from .guard import refused_token as refused_token
    from .guard import same_secret as same_secret
    from .listening import HERE as HERE
    from .listening import listening_socket as listening_socket
    from .listening import origin_of as origin_of
    from .listening import server_of as server_of
    from .merge import merge_reviews as merge_reviews
    from .progress import review_status as review_status
    from .serve import ServeSettings as ServeSettings
    from .serve import review as review
    from .serve import serve_study as serve_study
    from .settings import QuestionSettings as QuestionSettings
    from .settings import ReviewSettings as ReviewSettings
    from .settings import load_review as load_review
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
