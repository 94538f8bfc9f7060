from .doctor import check_node as check_node
from .retention import apply_retention as apply_retention
from .status import node_status as node_status
from .status import read_status as read_status
from .status_page import status_page as status_page
