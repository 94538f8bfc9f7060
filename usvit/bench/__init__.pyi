from .api import benchmark as benchmark
from .output import table as table
