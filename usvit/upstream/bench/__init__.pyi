from .api import benchmark as benchmark
from .output import table as table
from .protocols import find_protocol as find_protocol
