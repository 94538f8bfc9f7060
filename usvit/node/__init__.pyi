from .database import NodeDatabase as NodeDatabase
