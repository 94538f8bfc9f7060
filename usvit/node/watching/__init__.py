"""Watching a node: its status, its status page and metrics, retention, and checks of its configuration."""

from typing import TYPE_CHECKING

from usvit.lazy_names import lazy_names

if TYPE_CHECKING:
    from .doctor import check_node as check_node
    from .retention import apply_retention as apply_retention
    from .status import node_status as node_status
    from .status import read_status as read_status
    from .status_page import status_page as status_page
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, __file__)
