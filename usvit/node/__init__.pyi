from .database import NodeDatabase as NodeDatabase
from .mercure import score_mercure_task as score_mercure_task
from .sending import send_dicom as send_dicom
from .service import replay_study as replay_study
from .service import serve_node as serve_node
from .watching import check_node as check_node
from .watching import node_status as node_status
