"""``usvit node``: receives images, scores studies, and sends the results back."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .database import NodeDatabase as NodeDatabase
    from .mercure import score_mercure_task as score_mercure_task
    from .receiving.pulling import StudiesPulled as StudiesPulled
    from .receiving.pulling import parse_query as parse_query
    from .receiving.pulling import pull_studies as pull_studies
    from .sending import send_dicom as send_dicom
    from .service import replay_study as replay_study
    from .service import serve_node as serve_node
    from .watching import check_node as check_node
    from .watching import node_status as node_status
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
